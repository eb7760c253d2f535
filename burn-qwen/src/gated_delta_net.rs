//! The linear-attention mixer: convolution, gated delta rule, gated norm.

use burn::tensor::Tensor;
use burn_qwen_kernels::{Packing, ops::gated_delta_rule::GatedDeltaRuleInput};

use crate::{cache::LayerCache, config::QwenConfig, context::ForwardContext, params::BlockParams};

/// The Gated DeltaNet of a layer (Yang, Kautz, Hatamizadeh, 2024).
#[derive(Clone, Debug)]
pub struct GatedDeltaNet {
    in_proj_qkv: Tensor<2>,
    in_proj_z: Tensor<2>,
    in_proj_b: Tensor<2>,
    in_proj_a: Tensor<2>,
    conv1d: Tensor<2>,
    a_log: Tensor<1>,
    dt_bias: Tensor<1>,
    norm: Tensor<1>,
    out_proj: Tensor<2>,
    num_key_heads: usize,
    num_value_heads: usize,
    key_head_dim: usize,
    value_head_dim: usize,
    eps: f64,
}

impl GatedDeltaNet {
    /// From a layer's parameters.
    pub fn new(config: &QwenConfig, params: &BlockParams) -> Self {
        let matrix = |name: &str| params.matrix(&format!("linear_attn.{name}.weight"));
        Self {
            in_proj_qkv: matrix("in_proj_qkv"),
            in_proj_z: matrix("in_proj_z"),
            in_proj_b: matrix("in_proj_b"),
            in_proj_a: matrix("in_proj_a"),
            conv1d: matrix("conv1d"),
            a_log: params.vector("linear_attn.A_log"),
            dt_bias: params.vector("linear_attn.dt_bias"),
            norm: params.vector("linear_attn.norm.weight"),
            out_proj: matrix("out_proj"),
            num_key_heads: config.linear_num_key_heads,
            num_value_heads: config.linear_num_value_heads,
            key_head_dim: config.linear_key_head_dim,
            value_head_dim: config.linear_value_head_dim,
            eps: config.rms_norm_eps,
        }
    }

    /// `x`, `residual` `[T, H]` -> `residual + mixer(x)`.
    pub fn forward(
        &self,
        x: Tensor<2>,
        residual: Tensor<2>,
        ctx: &ForwardContext,
        mut cache: Option<&mut LayerCache>,
    ) -> Tensor<2> {
        let [num_tokens, _] = x.dims();
        let project = |weight: &Tensor<2>| {
            ctx.kernels.linear().forward(x.clone(), weight.clone(), None, None)
        };
        let mixed = self.convolve(project(&self.in_proj_qkv), ctx, cache.as_deref_mut());
        let z = project(&self.in_proj_z);
        let (decay, beta) = ctx.kernels.decay_gate().forward(
            project(&self.in_proj_a),
            project(&self.in_proj_b),
            self.a_log.clone(),
            self.dt_bias.clone(),
        );

        let key_dim = self.num_key_heads * self.key_head_dim;
        let value_dim = self.num_value_heads * self.value_head_dim;
        let keys = [num_tokens, self.num_key_heads, self.key_head_dim];
        let output = ctx.kernels.gated_delta_rule().forward(GatedDeltaRuleInput {
            query: mixed.clone().narrow(1, 0, key_dim).reshape(keys),
            key: mixed.clone().narrow(1, key_dim, key_dim).reshape(keys),
            value: mixed.narrow(1, 2 * key_dim, value_dim).reshape([
                num_tokens,
                self.num_value_heads,
                self.value_head_dim,
            ]),
            decay,
            beta,
            packing: &ctx.packing,
            initial_state: cache.as_ref().and_then(|cache| cache.recurrent.clone()),
            output_final_state: cache.is_some(),
        });
        if let Some(cache) = cache {
            cache.recurrent = output.final_state;
        }

        let rows = [num_tokens * self.num_value_heads, self.value_head_dim];
        let normed = ctx.kernels.rms_norm().gated(
            output.output.reshape(rows),
            z.reshape(rows),
            self.norm.clone(),
            self.eps,
        );
        let normed = normed.reshape([num_tokens, value_dim]);
        ctx.kernels.linear().forward(normed, self.out_proj.clone(), None, Some(residual))
    }

    /// The convolution; with a cache, over the last K-1 inputs and the new ones.
    fn convolve(
        &self,
        x: Tensor<2>,
        ctx: &ForwardContext,
        cache: Option<&mut LayerCache>,
    ) -> Tensor<2> {
        let conv = ctx.kernels.causal_conv1d();
        let Some(cache) = cache else {
            return conv.forward(x, self.conv1d.clone(), None, &ctx.packing);
        };
        let [num_new, num_channels] = x.dims();
        let history = self.conv1d.dims()[1] - 1;
        let before = cache
            .conv
            .take()
            .unwrap_or_else(|| Tensor::zeros([history, num_channels], (&x.device(), x.dtype())));
        let rows = Tensor::cat(vec![before, x], 0);
        cache.conv = Some(rows.clone().narrow(0, num_new, history));
        let packing = Packing::single(history + num_new);
        conv.forward(rows, self.conv1d.clone(), None, &packing).narrow(0, history, num_new)
    }
}
