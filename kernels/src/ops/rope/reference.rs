//! The meaning of `rope`, in Burn ops.

use burn::tensor::Tensor;

use super::{Rope, RopeTables};

use crate::{Implementation, KernelCase, Unsupported};

/// Splits, rotates, joins.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceRope;

impl Implementation for ReferenceRope {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _case: &KernelCase) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl Rope for ReferenceRope {
    fn forward(&self, x: Tensor<3>, tables: &RopeTables) -> Tensor<3> {
        let [_, _, head_dim] = x.dims();
        let dtype = x.dtype();
        let half = tables.cos.dims()[1];
        let cos = tables.cos.clone().cast(dtype).unsqueeze_dim::<3>(1);
        let sin = tables.sin.clone().cast(dtype).unsqueeze_dim::<3>(1);
        let first = x.clone().narrow(2, 0, half);
        let second = x.clone().narrow(2, half, half);
        let rotated_first = first.clone() * cos.clone() - second.clone() * sin.clone();
        let rotated_second = second * cos + first * sin;
        let mut parts = vec![rotated_first, rotated_second];
        if head_dim > 2 * half {
            parts.push(x.narrow(2, 2 * half, head_dim - 2 * half));
        }
        Tensor::cat(parts, 2)
    }
}
