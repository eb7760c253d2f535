//! The activation of the MLP (Shazeer, 2020).

#[expect(unsafe_code, reason = "runs a body compiled for the machine's instruction set")]
mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexSwiglu;
pub use reference::ReferenceSwiglu;

use crate::Implementation;

/// `y = silu(gate) * up`.
pub trait Swiglu: Implementation {
    /// `gate`, `up` `[T, F]` -> `[T, F]`.
    fn forward(&self, gate: Tensor<2>, up: Tensor<2>) -> Tensor<2>;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn Swiglu>> {
    vec![Arc::new(FlexSwiglu), Arc::new(ReferenceSwiglu)]
}
