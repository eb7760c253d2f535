//! The meaning of `adamw`, in Burn ops.

use burn::tensor::Tensor;

use super::{AdamW, AdamWState, AdamWStep};

use crate::{Implementation, KernelCase, Unsupported};

/// One line of the formula after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceAdamW;

impl Implementation for ReferenceAdamW {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl AdamW for ReferenceAdamW {
    fn step(&self, state: AdamWState, grad: Tensor<1>, step: AdamWStep) -> AdamWState {
        let AdamWStep { lr, beta1, beta2, eps, weight_decay, grad_scale, step } = step;
        let grad = grad * grad_scale;
        let exp_avg = state.exp_avg * beta1 + grad.clone() * (1.0 - beta1);
        let exp_avg_sq = state.exp_avg_sq * beta2 + grad.square() * (1.0 - beta2);
        let correction1 = 1.0 - beta1.powf(step as f64);
        let correction2 = 1.0 - beta2.powf(step as f64);
        let denominator = exp_avg_sq.clone().sqrt() / correction2.sqrt() + eps;
        let param = state.param * (1.0 - lr * weight_decay)
            - exp_avg.clone() / denominator * (lr / correction1);
        AdamWState { param, exp_avg, exp_avg_sq }
    }
}
