//! Both gates in f64 inside.

use std::sync::Arc;

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::DecayGate;
use crate::{
    Implementation, KernelCase, Unsupported,
    flex::{
        math::sigmoid64,
        node::{BackwardFn, node},
        supports_f32_on_flex,
    },
};

/// Native gates of the delta rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexDecayGate;

impl Implementation for FlexDecayGate {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl DecayGate for FlexDecayGate {
    fn forward(
        &self,
        a: Tensor<2>,
        b: Tensor<2>,
        a_log: Tensor<1>,
        dt_bias: Tensor<1>,
    ) -> (Tensor<2>, Tensor<2>) {
        let shape = a.dims();
        let num_heads = shape[1];
        let inputs = [a.into_dispatch(), a_log.into_dispatch(), dt_bias.into_dispatch()];
        let decay = node(inputs, shape, |inputs, tracked| {
            let (a, a_log, dt_bias) = (inputs[0].values(), inputs[1].values(), inputs[2].values());
            let rate: Vec<f64> = a_log.iter().map(|&x| f64::from(x).exp()).collect();
            let output = map(a, |i, a| {
                let h = i % num_heads;
                -rate[h] * softplus(a + f64::from(dt_bias[h]))
            });
            let backward = tracked.then(|| -> BackwardFn<3> {
                let inputs = inputs.clone();
                Arc::new(move |grad, _| {
                    let (a, dt_bias) = (inputs[0].values(), inputs[2].values());
                    let (mut dlog, mut dbias) = (vec![0.0; num_heads], vec![0.0; num_heads]);
                    let mut da = vec![0.0; a.len()];
                    for (i, (da, &dy)) in da.iter_mut().zip(grad).enumerate() {
                        let h = i % num_heads;
                        let x = f64::from(a[i]) + f64::from(dt_bias[h]);
                        let slope = -rate[h] * f64::from(dy);
                        let d = slope * sigmoid64(x);
                        dlog[h] += slope * softplus(x);
                        dbias[h] += d;
                        *da = d as f32;
                    }
                    let narrow = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect();
                    [Some(da), Some(narrow(dlog)), Some(narrow(dbias))]
                })
            });
            (output, backward)
        });
        let beta = node([b.into_dispatch()], shape, |inputs, tracked| {
            let output = map(inputs[0].values(), |_, b| sigmoid64(b));
            let backward = tracked.then(|| -> BackwardFn<1> {
                let inputs = inputs.clone();
                Arc::new(move |grad, _| {
                    let db = map(inputs[0].values(), |i, b| {
                        let s = sigmoid64(b);
                        f64::from(grad[i]) * s * (1.0 - s)
                    });
                    [Some(db)]
                })
            });
            (output, backward)
        });
        (decay, beta)
    }
}

fn map(x: &[f32], f: impl Fn(usize, f64) -> f64 + Sync) -> Vec<f32> {
    x.par_iter().with_min_len(4096).enumerate().map(|(i, &x)| f(i, f64::from(x)) as f32).collect()
}

/// `log(1 + exp(x))` without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
