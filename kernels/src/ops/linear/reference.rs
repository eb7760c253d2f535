//! The meaning of `linear`, in Burn ops.

use burn::tensor::Tensor;

use super::Linear;

use crate::{Implementation, KernelCase, Unsupported};

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
        let mut y = x.matmul(weight.transpose());
        if let Some(bias) = bias {
            y = y + bias.unsqueeze::<2>();
        }
        match residual {
            Some(residual) => residual + y,
            None => y,
        }
    }
}
