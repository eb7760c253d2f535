//! Token embedding: rows of a table.

mod reference;

use std::sync::Arc;

use burn::tensor::{Int, Tensor};

pub use reference::ReferenceEmbedding;

use crate::Implementation;

/// `y_t = W[ids_t]`.
pub trait Embedding: Implementation {
    /// # Shapes
    /// `weight` `[V, C]`, `input_ids` `[T]` -> `[T, C]`. Differentiable in `weight`; rows of the
    /// gradient are summed over equal ids in token order.
    fn forward(&self, weight: Tensor<2>, input_ids: Tensor<1, Int>) -> Tensor<2>;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn Embedding>> {
    vec![Arc::new(ReferenceEmbedding)]
}
