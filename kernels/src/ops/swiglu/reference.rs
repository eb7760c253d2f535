//! The meaning of `swiglu`, in Burn ops.

use burn::tensor::Tensor;

use burn::tensor::activation::silu;

use super::Swiglu;

use crate::{Implementation, KernelCase, Unsupported};

/// Two products.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceSwiglu;

impl Implementation for ReferenceSwiglu {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl Swiglu for ReferenceSwiglu {
    fn forward(&self, gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
        silu(gate) * up
    }
}
