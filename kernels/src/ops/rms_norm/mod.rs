//! RMS normalisation in the three forms of the Qwen families (Zhang and Sennrich, 2019).

mod flex;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

pub use flex::FlexRmsNorm;
pub use reference::ReferenceRmsNorm;

use crate::Implementation;

/// How the weight enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NormForm {
    /// `w * n(x)`: Qwen2, Qwen3.
    Plain,
    /// `(1 + w) * n(x)`: Qwen3.5 layer, final, query and key norms.
    ZeroCentered,
}

/// `n(x) = x / sqrt(mean(x^2) + eps)` over the last axis.
///
/// # Numerics
/// Computes in f32 whatever the input dtype; the result has the input's dtype.
pub trait RmsNorm: Implementation {
    /// `x` `[R, D]`, `weight` `[D]` -> `[R, D]`.
    fn forward(&self, x: Tensor<2>, weight: Tensor<1>, eps: f64, form: NormForm) -> Tensor<2>;

    /// `w * n(x) * silu(gate)`: the output norm of a Gated DeltaNet, per value head.
    ///
    /// `x`, `gate` `[R, D]`, `weight` `[D]` -> `[R, D]`.
    fn gated(&self, x: Tensor<2>, gate: Tensor<2>, weight: Tensor<1>, eps: f64) -> Tensor<2>;

    /// `h = x + residual`, `y = norm(h)`; returns `(h, y)`, both `[R, D]`.
    fn add(
        &self,
        x: Tensor<2>,
        residual: Tensor<2>,
        weight: Tensor<1>,
        eps: f64,
        form: NormForm,
    ) -> (Tensor<2>, Tensor<2>) {
        let h = x + residual;
        (h.clone(), self.forward(h, weight, eps, form))
    }
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn RmsNorm>> {
    vec![Arc::new(FlexRmsNorm), Arc::new(ReferenceRmsNorm)]
}
