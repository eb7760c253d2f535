//! The gated delta rule: the recurrence of a Gated DeltaNet layer (Yang, Kautz, Hatamizadeh, 2024).

#[expect(unsafe_code, reason = "tasks write disjoint rows of one buffer")]
mod flex;
mod flex_backward;
mod flex_chunk;
mod reference;

use std::sync::Arc;

use burn::tensor::Tensor;

pub use flex::FlexGatedDeltaRule;
pub use reference::ReferenceGatedDeltaRule;

use crate::{Implementation, Packing};

/// Added to the sum of squares when queries and keys are normalised.
pub const L2_NORM_EPS: f64 = 1e-6;

/// What the delta rule reads.
#[derive(Clone, Debug)]
pub struct GatedDeltaRuleInput<'a> {
    /// `[T, HK, DK]`, not normalised.
    pub query: Tensor<3>,
    /// `[T, HK, DK]`, not normalised; value head h reads key head `h / (HV / HK)`.
    pub key: Tensor<3>,
    /// `[T, HV, DV]`.
    pub value: Tensor<3>,
    /// Log decay g `[T, HV]`, at most 0, f32.
    pub decay: Tensor<2>,
    /// Write strength `[T, HV]`, f32.
    pub beta: Tensor<2>,
    /// Documents of the row.
    pub packing: &'a Packing,
    /// State at each document's start `[N, HV, DK, DV]`, f32; zero where absent.
    pub initial_state: Option<Tensor<4>>,
    /// Whether the state after each document is wanted.
    pub output_final_state: bool,
}

/// What the delta rule returns.
#[derive(Clone, Debug)]
pub struct GatedDeltaRuleOutput {
    /// `[T, HV, DV]`, in the value's dtype.
    pub output: Tensor<3>,
    /// `[N, HV, DK, DV]`, f32, if it was asked for.
    pub final_state: Option<Tensor<4>>,
}

/// Per value head with state S `[DK, DV]`:
/// ```text
/// q, k <- q / sqrt(sum q^2 + 1e-6) / sqrt(DK),  k / sqrt(sum k^2 + 1e-6)
/// S' = exp(g_t) S_{t-1}
/// u_t = beta_t (v_t - S'^T k_t)
/// S_t = S' + k_t u_t^T
/// o_t = S_t^T q_t
/// ```
///
/// # Numerics
/// Everything inside is f32.
pub trait GatedDeltaRule: Implementation {
    /// Runs every document of the row from its own initial state.
    fn forward(&self, input: GatedDeltaRuleInput<'_>) -> GatedDeltaRuleOutput;
}

/// All implementations, best first.
pub fn implementations() -> Vec<Arc<dyn GatedDeltaRule>> {
    vec![Arc::new(FlexGatedDeltaRule), Arc::new(ReferenceGatedDeltaRule)]
}
