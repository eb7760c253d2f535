//! The meaning of `gated_delta_rule`, in Burn ops.

use burn::tensor::Tensor;

use super::{GatedDeltaRule, GatedDeltaRuleInput, GatedDeltaRuleOutput};

use crate::{Implementation, KernelCase, Unsupported};

/// Token after token.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceGatedDeltaRule;

impl Implementation for ReferenceGatedDeltaRule {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl GatedDeltaRule for ReferenceGatedDeltaRule {
    fn forward(&self, input: GatedDeltaRuleInput<'_>) -> GatedDeltaRuleOutput {
        unimplemented!("{input:?}")
    }
}
