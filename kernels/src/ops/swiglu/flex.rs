//! `silu(gate) * up`, one pass forward, one backward.

use std::sync::Arc;

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::Swiglu;
use crate::{
    Implementation, KernelCase, Unsupported,
    flex::{
        math::{ELEMENTS_PER_TASK, sigmoid64},
        node::{BackwardFn, node},
        simd::simd_dispatch,
        supports_f32_on_flex,
    },
};

/// Native SwiGLU.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexSwiglu;

impl Implementation for FlexSwiglu {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl Swiglu for FlexSwiglu {
    fn forward(&self, gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
        let shape = gate.dims();
        node([gate.into_dispatch(), up.into_dispatch()], shape, |inputs, tracked| {
            let (gate, up) = (inputs[0].values(), inputs[1].values());
            let mut output = vec![0.0; gate.len()];
            output
                .par_chunks_mut(ELEMENTS_PER_TASK)
                .zip(gate.par_chunks(ELEMENTS_PER_TASK).zip(up.par_chunks(ELEMENTS_PER_TASK)))
                .for_each(|(out, (gate, up))| activate(gate, up, out));
            let backward = tracked.then(|| -> BackwardFn<2> {
                let inputs = inputs.clone();
                Arc::new(move |grad, _| {
                    let (gate, up) = (inputs[0].values(), inputs[1].values());
                    let (mut dgate, mut dup) = (vec![0.0; gate.len()], vec![0.0; up.len()]);
                    const N: usize = ELEMENTS_PER_TASK;
                    dgate
                        .par_chunks_mut(N)
                        .zip(dup.par_chunks_mut(N))
                        .zip(gate.par_chunks(N).zip(up.par_chunks(N)).zip(grad.par_chunks(N)))
                        .for_each(|((dgate, dup), ((gate, up), dy))| {
                            activate_backward(gate, up, dy, dgate, dup);
                        });
                    [Some(dgate), Some(dup)]
                })
            });
            (output, backward)
        })
    }
}

#[inline(always)]
fn activate_body<const _FMA: bool>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((y, &g), &u) in out.iter_mut().zip(gate).zip(up) {
        let g = f64::from(g);
        *y = (g * sigmoid64(g) * f64::from(u)) as f32;
    }
}

simd_dispatch! {
    fn activate(gate: &[f32], up: &[f32], out: &mut [f32]) => activate_body
}

#[inline(always)]
fn activate_backward_body<const _FMA: bool>(
    gate: &[f32],
    up: &[f32],
    dy: &[f32],
    dgate: &mut [f32],
    dup: &mut [f32],
) {
    for i in 0..gate.len() {
        let (g, dy) = (f64::from(gate[i]), f64::from(dy[i]));
        let s = sigmoid64(g);
        dup[i] = (dy * g * s) as f32;
        dgate[i] = (dy * f64::from(up[i]) * s * (1.0 + g * (1.0 - s))) as f32;
    }
}

simd_dispatch! {
    fn activate_backward(
        gate: &[f32],
        up: &[f32],
        dy: &[f32],
        dgate: &mut [f32],
        dup: &mut [f32],
    ) => activate_backward_body
}
