//! The gates of the delta rule.

mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexDecayGate;
pub use reference::ReferenceDecayGate;

use crate::Implementation;

/// `g = -exp(A_log) * softplus(a + dt_bias)` and `beta = sigmoid(b)`.
///
/// # Numerics
/// f32 inside and out.
pub trait DecayGate: Implementation {
    /// `a`, `b` `[T, HV]`, `a_log`, `dt_bias` `[HV]` -> `(g, beta)`, both `[T, HV]`.
    fn forward(
        &self,
        a: Tensor<2>,
        b: Tensor<2>,
        a_log: Tensor<1>,
        dt_bias: Tensor<1>,
    ) -> (Tensor<2>, Tensor<2>);
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn DecayGate>> {
    vec![Arc::new(FlexDecayGate), Arc::new(ReferenceDecayGate)]
}
