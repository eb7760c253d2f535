//! The meaning of `rms_norm`, in Burn ops.

use burn::tensor::Tensor;

use burn::tensor::{DType, activation::silu};

use super::{NormForm, RmsNorm};

use crate::{Implementation, KernelCase, Unsupported, ops::wide};

/// Squares, mean, root, product.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceRmsNorm;

impl Implementation for ReferenceRmsNorm {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl RmsNorm for ReferenceRmsNorm {
    fn forward(&self, x: Tensor<2>, weight: Tensor<1>, eps: f64, form: NormForm) -> Tensor<2> {
        let dtype = x.dtype();
        let wide = wide(&x.device());
        let normed = normalize(x.cast(wide), eps);
        let weight = weight.cast(wide).unsqueeze::<2>();
        match form {
            // In half precision the plain form rounds n(x) before the product.
            NormForm::Plain if dtype == DType::F32 => normed * weight,
            NormForm::Plain => normed.cast(dtype).cast(wide) * weight,
            NormForm::ZeroCentered => normed * (weight + 1.0),
        }
        .cast(dtype)
    }

    fn gated(&self, x: Tensor<2>, gate: Tensor<2>, weight: Tensor<1>, eps: f64) -> Tensor<2> {
        let dtype = x.dtype();
        let wide = wide(&x.device());
        let normed = normalize(x.cast(wide), eps);
        let weighted = normed * weight.cast(wide).unsqueeze::<2>();
        (weighted * silu(gate.cast(wide))).cast(dtype)
    }
}

fn normalize(x: Tensor<2>, eps: f64) -> Tensor<2> {
    let mean_square = x.clone().square().mean_dim(1);
    x / (mean_square + eps).sqrt()
}
