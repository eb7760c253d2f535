//! Linear maps with what can be fused behind them.

mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexLinear;
pub use reference::ReferenceLinear;

use crate::Implementation;

/// `y = x W^T (+ bias) (+ residual)`, the weight stored as `[out, in]`.
pub trait Linear: Implementation {
    /// `x` `[T, I]`, `weight` `[O, I]`, `bias` `[O]`, `residual` `[T, O]` -> `[T, O]`.
    fn forward(
        &self,
        x: Tensor<2>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        residual: Option<Tensor<2>>,
    ) -> Tensor<2>;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn Linear>> {
    vec![Arc::new(FlexLinear), Arc::new(ReferenceLinear)]
}
