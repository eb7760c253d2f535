//! The meaning of `linear`, in Burn ops.

use burn::tensor::Tensor;

use super::Linear;

use crate::{Implementation, KernelCase, Unsupported, ops::wide};

/// A matmul and sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceLinear;

impl Implementation for ReferenceLinear {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl Linear for ReferenceLinear {
    fn forward(
        &self,
        x: Tensor<2>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        residual: Option<Tensor<2>>,
    ) -> Tensor<2> {
        let dtype = x.dtype();
        let wide = wide(&x.device());
        let mut y = x.cast(wide).matmul(weight.cast(wide).transpose());
        if let Some(bias) = bias {
            y = y + bias.cast(wide).unsqueeze::<2>();
        }
        match residual {
            Some(residual) => (residual.cast(wide) + y).cast(dtype),
            None => y.cast(dtype),
        }
    }
}
