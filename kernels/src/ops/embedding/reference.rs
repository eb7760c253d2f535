//! The meaning of `embedding`, in Burn ops.

use burn::tensor::{Int, Tensor};

use super::Embedding;
use crate::{Implementation, KernelCase, Unsupported};

/// Selects rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceEmbedding;

impl Implementation for ReferenceEmbedding {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl Embedding for ReferenceEmbedding {
    fn forward(&self, weight: Tensor<2>, input_ids: Tensor<1, Int>) -> Tensor<2> {
        weight.select(0, input_ids)
    }
}
