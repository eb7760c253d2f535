//! One pass over the shard.

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{AdamW, AdamWState, AdamWStep};
use crate::{
    Implementation, KernelCase, Unsupported,
    flex::{
        math::ELEMENTS_PER_TASK,
        node::{Input, from_values, values_of},
        supports_f32_on_flex,
    },
};

/// Native AdamW.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexAdamW;

impl Implementation for FlexAdamW {
    fn name(&self) -> &'static str {
        "flex"
    }

    fn supports(&self, case: &KernelCase) -> Result<(), Unsupported> {
        supports_f32_on_flex(case)
    }
}

impl AdamW for FlexAdamW {
    fn step(&self, state: AdamWState, grad: Tensor<1>, step: AdamWStep) -> AdamWState {
        let AdamWStep { lr, beta1, beta2, eps, weight_decay, grad_scale, step } = step;
        let [param, exp_avg, exp_avg_sq] =
            [state.param, state.exp_avg, state.exp_avg_sq].map(values_of);
        let grad = values_of(grad);
        let copy = |input: &Input| input.values().to_vec();
        let (mut w, mut m, mut v) = (copy(&param), copy(&exp_avg), copy(&exp_avg_sq));
        let correction1 = 1.0 - beta1.powf(step as f64);
        let correction2 = (1.0 - beta2.powf(step as f64)).sqrt();
        const N: usize = ELEMENTS_PER_TASK;
        w.par_chunks_mut(N)
            .zip(m.par_chunks_mut(N))
            .zip(v.par_chunks_mut(N).zip(grad.values().par_chunks(N)))
            .for_each(|((w, m), (v, g))| {
                for i in 0..w.len() {
                    let g = f64::from(g[i]) * grad_scale;
                    let mean = f64::from(m[i]) * beta1 + g * (1.0 - beta1);
                    let square = f64::from(v[i]) * beta2 + g * g * (1.0 - beta2);
                    let denominator = square.sqrt() / correction2 + eps;
                    let decayed = f64::from(w[i]) * (1.0 - lr * weight_decay);
                    w[i] = (decayed - lr / correction1 * mean / denominator) as f32;
                    m[i] = mean as f32;
                    v[i] = square as f32;
                }
            });
        let [param, exp_avg, exp_avg_sq] = [w, m, v].map(from_values);
        AdamWState { param, exp_avg, exp_avg_sq }
    }
}
