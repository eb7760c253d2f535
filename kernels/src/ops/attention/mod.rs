//! Causal softmax attention with grouped heads over packed documents.

#[expect(unsafe_code, reason = "tasks write disjoint rows of one buffer")]
mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexAttention;
pub use reference::ReferenceAttention;

use crate::{Implementation, Packing};

/// What attention reads.
#[derive(Clone, Debug)]
pub struct AttentionInput<'a> {
    /// `[TQ, H, D]`.
    pub query: Tensor<3>,
    /// `[TK, HK, D]`; query head h reads key-value head `h / (H / HK)`.
    pub key: Tensor<3>,
    /// `[TK, HK, D]`.
    pub value: Tensor<3>,
    /// Output gate `[TQ, H, D]`: the result is multiplied by its sigmoid.
    pub gate: Option<Tensor<3>>,
    /// Factor of the scores, usually `D^-1/2`.
    pub scale: f64,
    /// Documents of the query rows.
    pub queries: &'a Packing,
    /// Documents of the key rows: as many as `queries` has. The queries of a document are its last
    /// tokens, so a document may have more keys (a cache) but never fewer.
    pub keys: &'a Packing,
}

/// `o_i = sum_j softmax_j(scale q_i . k_j) v_j` over the tokens j <= i of the same document, times
/// `sigmoid(gate_i)` where there is a gate.
///
/// # Numerics
/// Scores, softmax and sums in f32; the result has the query's dtype.
pub trait Attention: Implementation {
    /// Returns `[TQ, H, D]`.
    fn forward(&self, input: AttentionInput<'_>) -> Tensor<3>;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn Attention>> {
    vec![Arc::new(FlexAttention), Arc::new(ReferenceAttention)]
}
