//! The part of the global gradient norm that one flat shard contributes.

mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use reference::ReferenceGradNorm;

use crate::Implementation;

/// `sum g^2`.
///
/// # Numerics
/// Summed in a fixed order, so equal gradients give equal bits.
pub trait GradNorm: Implementation {
    /// `grad` `[n]` f32 -> the sum of squares on the host.
    fn sum_of_squares(&self, grad: Tensor<1>) -> f64;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn GradNorm>> {
    vec![Arc::new(ReferenceGradNorm)]
}
