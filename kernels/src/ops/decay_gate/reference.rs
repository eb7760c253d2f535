//! The meaning of `decay_gate`, in Burn ops.

use burn::tensor::Tensor;

use burn::tensor::{DType, activation::sigmoid};

use super::DecayGate;

use crate::{Implementation, KernelCase, Unsupported, ops::wide};

/// Two activations.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceDecayGate;

impl Implementation for ReferenceDecayGate {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl DecayGate for ReferenceDecayGate {
    fn forward(
        &self,
        a: Tensor<2>,
        b: Tensor<2>,
        a_log: Tensor<1>,
        dt_bias: Tensor<1>,
    ) -> (Tensor<2>, Tensor<2>) {
        let wide = wide(&a.device());
        let a = a.cast(wide) + dt_bias.cast(wide).unsqueeze::<2>();
        let rate = a_log.cast(wide).exp().unsqueeze::<2>();
        let decay = -(softplus(a) * rate);
        (decay.cast(DType::F32), sigmoid(b.cast(wide)).cast(DType::F32))
    }
}

/// `max(x, 0) + log1p(exp(-|x|))`, which neither overflows nor loses small values.
fn softplus(x: Tensor<2>) -> Tensor<2> {
    let tail = (-x.clone().abs()).exp().log1p();
    burn::tensor::activation::relu(x) + tail
}
