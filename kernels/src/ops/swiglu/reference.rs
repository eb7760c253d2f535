//! The meaning of `swiglu`, in Burn ops.

use burn::tensor::Tensor;

use burn::tensor::activation::silu;

use super::Swiglu;

use crate::{Implementation, KernelCase, Unsupported, ops::wide};

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
        let dtype = gate.dtype();
        let wide = wide(&gate.device());
        (silu(gate.cast(wide)) * up.cast(wide)).cast(dtype)
    }
}
