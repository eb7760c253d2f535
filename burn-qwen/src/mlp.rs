//! `W_down( silu(W_gate x) * W_up x )`.

use burn::tensor::Tensor;

use crate::{context::ForwardContext, params::BlockParams};

/// The feed-forward half of a layer.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "the checkpoint's names")]
pub struct Mlp {
    gate_proj: Tensor<2>,
    up_proj: Tensor<2>,
    down_proj: Tensor<2>,
}

impl Mlp {
    /// From a layer's parameters.
    pub fn new(params: &BlockParams) -> Self {
        Self {
            gate_proj: params.matrix("mlp.gate_proj.weight"),
            up_proj: params.matrix("mlp.up_proj.weight"),
            down_proj: params.matrix("mlp.down_proj.weight"),
        }
    }

    /// `x`, `residual` `[T, H]` -> `residual + mlp(x)`.
    pub fn forward(&self, x: Tensor<2>, residual: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let gate = ctx.kernels.linear().forward(x.clone(), self.gate_proj.clone(), None, None);
        let up = ctx.kernels.linear().forward(x, self.up_proj.clone(), None, None);
        let act = ctx.kernels.swiglu().forward(gate, up);
        ctx.kernels.linear().forward(act, self.down_proj.clone(), None, Some(residual))
    }
}
