//! AdamW on a flat shard (Loshchilov and Hutter, 2019).

mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexAdamW;
pub use reference::ReferenceAdamW;

use crate::Implementation;

/// The numbers of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of this tensor; 0 for norms, biases, `A_log`, `dt_bias`.
    pub weight_decay: f64,
    /// Factor of the gradient: the clip factor over the number of trained tokens.
    pub grad_scale: f64,
    /// Updates made so far, this one included (from 1).
    pub step: u64,
}

/// A tensor and its moments, flat.
#[derive(Clone, Debug)]
pub struct AdamWState {
    /// Master weights `[n]`, f32.
    pub param: Tensor<1>,
    /// First moment `[n]`, f32.
    pub exp_avg: Tensor<1>,
    /// Second moment `[n]`, f32.
    pub exp_avg_sq: Tensor<1>,
}

/// ```text
/// g = grad_scale * grad       m = b1 m + (1 - b1) g       v = b2 v + (1 - b2) g^2
/// w = w (1 - lr wd)           w = w - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
/// ```
pub trait AdamW: Implementation {
    /// One update; `grad` `[n]` f32.
    fn step(&self, state: AdamWState, grad: Tensor<1>, step: AdamWStep) -> AdamWState;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn AdamW>> {
    vec![Arc::new(FlexAdamW), Arc::new(ReferenceAdamW)]
}
