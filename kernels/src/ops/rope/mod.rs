//! Rotary position embedding on half-split pairs, full or partial (Su et al., 2021).

mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexRope;
pub use reference::ReferenceRope;

use crate::Implementation;

/// Cosines and sines of one packed row, shared by all layers and heads.
#[derive(Clone, Debug)]
pub struct RopeTables {
    /// `[T, r/2]`, f32.
    pub cos: Tensor<2>,
    /// `[T, r/2]`, f32.
    pub sin: Tensor<2>,
}

/// Rotates the first r channels of each head, the rest passes.
///
/// For `j < r/2`: `y_j = x_j cos_j - x_{j+r/2} sin_j`, `y_{j+r/2} = x_{j+r/2} cos_j + x_j sin_j`.
pub trait Rope: Implementation {
    /// `x` `[T, H, D]`, tables `[T, r/2]` with `r <= D` -> `[T, H, D]`.
    fn forward(&self, x: Tensor<3>, tables: &RopeTables) -> Tensor<3>;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn Rope>> {
    vec![Arc::new(FlexRope), Arc::new(ReferenceRope)]
}
