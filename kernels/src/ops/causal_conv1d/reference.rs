//! The meaning of `causal_conv1d`, in Burn ops.

use burn::tensor::Tensor;

use burn::tensor::activation::silu;

use super::CausalConv1d;

use crate::Packing;

use crate::{Implementation, KernelCase, Unsupported, ops::wide};

/// Shifted rows, one tap after the other, document by document.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceCausalConv1d;

impl Implementation for ReferenceCausalConv1d {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl CausalConv1d for ReferenceCausalConv1d {
    fn forward(
        &self,
        x: Tensor<2>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        packing: &Packing,
    ) -> Tensor<2> {
        let dtype = x.dtype();
        let wide = wide(&x.device());
        let x = x.cast(wide);
        let weight = weight.cast(wide);
        let [num_tokens, num_channels] = x.dims();
        let kernel_size = weight.dims()[1];
        let tap = |k: usize| weight.clone().narrow(1, k, 1).reshape([1, num_channels]);

        let mut y = x.clone() * tap(kernel_size - 1);
        for shift in 1..kernel_size.min(num_tokens) {
            // Row t of the shifted input is x_{t-shift}, or zero where that is another document.
            let zeros = Tensor::zeros([shift, num_channels], (&x.device(), wide));
            let shifted = Tensor::cat(vec![zeros, x.clone().narrow(0, 0, num_tokens - shift)], 0);
            let inside = distance_mask(packing, shift);
            let inside = Tensor::<1>::from_floats(inside.as_slice(), &x.device());
            y = y + shifted
                * inside.cast(wide).unsqueeze_dim::<2>(1)
                * tap(kernel_size - 1 - shift);
        }
        if let Some(bias) = bias {
            y = y + bias.cast(wide).unsqueeze::<2>();
        }
        silu(y).cast(dtype)
    }
}

/// 1 where a token has at least `shift` tokens of its document before it, else 0.
fn distance_mask(packing: &Packing, shift: usize) -> Vec<f32> {
    packing
        .documents()
        .flat_map(|d| (0..d.len()).map(move |i| if i >= shift { 1.0 } else { 0.0 }))
        .collect()
}
