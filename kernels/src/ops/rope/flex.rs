//! The rotation in one pass; backward is the rotation by the opposite angle.

use std::sync::Arc;

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{Rope, RopeTables};
use crate::{
    Implementation, KernelCase, Unsupported,
    flex::{
        math::ROWS_PER_TASK,
        node::{BackwardFn, Input, node},
        supports_f32_on_flex,
    },
};

/// Native rotary embedding.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexRope;

impl Implementation for FlexRope {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl Rope for FlexRope {
    fn forward(&self, x: Tensor<3>, tables: &RopeTables) -> Tensor<3> {
        let shape = x.dims();
        let sizes = Sizes { num_heads: shape[1], head_dim: shape[2], half: tables.cos.dims()[1] };
        let (cos, sin) = (tables.cos.clone(), tables.sin.clone());
        let inputs = [x.into_dispatch(), cos.into_dispatch(), sin.into_dispatch()];
        node(inputs, shape, |inputs, tracked| {
            let output = sizes.rotate(inputs[0].values(), inputs, 1.0);
            let backward = tracked.then(|| -> BackwardFn<3> {
                let inputs = inputs.clone();
                Arc::new(move |grad, _| [Some(sizes.rotate(grad, &inputs, -1.0)), None, None])
            });
            (output, backward)
        })
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    num_heads: usize,
    head_dim: usize,
    half: usize,
}

impl Sizes {
    fn rotate(self, x: &[f32], inputs: &[Input; 3], sign: f32) -> Vec<f32> {
        let Self { num_heads, head_dim, half } = self;
        let (cos, sin) = (inputs[1].values(), inputs[2].values());
        let width = num_heads * head_dim;
        let mut output = x.to_vec();
        output.par_chunks_mut(width * ROWS_PER_TASK).enumerate().for_each(|(task, rows)| {
            for (i, row) in rows.chunks_mut(width).enumerate() {
                let token = task * ROWS_PER_TASK + i;
                let (cos, sin) = (&cos[token * half..][..half], &sin[token * half..][..half]);
                for head in row.chunks_mut(head_dim) {
                    let (first, rest) = head.split_at_mut(half);
                    for j in 0..half {
                        let (a, b) = (first[j], rest[j]);
                        let s = sign * sin[j];
                        first[j] = a * cos[j] - b * s;
                        rest[j] = b * cos[j] + a * s;
                    }
                }
            }
        });
        output
    }
}
