//! Short causal depthwise convolution and SiLU that stops at document starts.

#[expect(unsafe_code, reason = "runs a body compiled for the machine's instruction set")]
mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexCausalConv1d;
pub use reference::ReferenceCausalConv1d;

use crate::{Implementation, Packing};

/// `y_t = silu( sum_{j<K} w[:, j] * x_{t-K+1+j} (+ bias) )`, with zeros before each document;
/// `w[:, K-1]` meets the current token.
pub trait CausalConv1d: Implementation {
    /// `x` `[T, C]`, `weight` `[C, K]`, `bias` `[C]` -> `[T, C]`.
    fn forward(
        &self,
        x: Tensor<2>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        packing: &Packing,
    ) -> Tensor<2>;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn CausalConv1d>> {
    vec![Arc::new(FlexCausalConv1d), Arc::new(ReferenceCausalConv1d)]
}
