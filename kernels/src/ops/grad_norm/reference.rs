//! The meaning of `grad_norm`, in Burn ops.

use burn::tensor::Tensor;

use burn::tensor::DType;

use super::GradNorm;

use crate::{Implementation, KernelCase, Unsupported};

/// Reads the shard back and sums it in f64, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceGradNorm;

impl Implementation for ReferenceGradNorm {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl GradNorm for ReferenceGradNorm {
    fn sum_of_squares(&self, grad: Tensor<1>) -> f64 {
        let data = grad.into_data_dtype(DType::F32);
        let values = data.as_slice::<f32>().expect("the data was just read as f32");
        values.iter().map(|&g| f64::from(g) * f64::from(g)).sum()
    }
}
