//! The language-model head and its loss in one op.

#[expect(unsafe_code, reason = "runs a body compiled for the machine's instruction set")]
mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexLinearCrossEntropy;
pub use reference::ReferenceLinearCrossEntropy;

use crate::Implementation;

/// The label of a row that carries no loss.
pub const IGNORE_INDEX: i32 = -100;

/// `loss = sum over rows with a label of (logsumexp(h W^T) - (h W^T)_label)`.
///
/// # Numerics
/// Logits, log-sum-exp and loss in f32.
pub trait LinearCrossEntropy: Implementation {
    /// `hidden_states` `[T, C]`, `weight` `[V, C]`, `labels` `[T]` on the host (not shifted:
    /// `labels[t]` belongs to row t) -> the sum of the losses `[1]`, 0 where no row has a label.
    fn forward(&self, hidden_states: Tensor<2>, weight: Tensor<2>, labels: &[i32]) -> Tensor<1>;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn LinearCrossEntropy>> {
    vec![Arc::new(FlexLinearCrossEntropy), Arc::new(ReferenceLinearCrossEntropy)]
}
