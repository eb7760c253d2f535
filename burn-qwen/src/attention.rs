//! Grouped-query attention with query and key norms, rotary positions and an optional output gate.

use burn::tensor::Tensor;
use burn_qwen_kernels::{
    Packing,
    ops::{attention::AttentionInput, rms_norm::NormForm},
};

use crate::{cache::LayerCache, config::QwenConfig, context::ForwardContext, params::BlockParams};

/// The softmax attention of a layer.
#[derive(Clone, Debug)]
pub struct Attention {
    q_proj: (Tensor<2>, Option<Tensor<1>>),
    k_proj: (Tensor<2>, Option<Tensor<1>>),
    v_proj: (Tensor<2>, Option<Tensor<1>>),
    o_proj: (Tensor<2>, Option<Tensor<1>>),
    q_norm: Option<Tensor<1>>,
    k_norm: Option<Tensor<1>>,
    num_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    gated: bool,
    norm_form: NormForm,
    eps: f64,
}

impl Attention {
    /// From a layer's parameters.
    pub fn new(config: &QwenConfig, params: &BlockParams) -> Self {
        let linear = |name: &str| {
            let weight = params.matrix(&format!("self_attn.{name}.weight"));
            (weight, params.optional_vector(&format!("self_attn.{name}.bias")))
        };
        Self {
            q_proj: linear("q_proj"),
            k_proj: linear("k_proj"),
            v_proj: linear("v_proj"),
            o_proj: linear("o_proj"),
            q_norm: params.optional_vector("self_attn.q_norm.weight"),
            k_norm: params.optional_vector("self_attn.k_norm.weight"),
            num_heads: config.num_attention_heads,
            num_key_value_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            gated: config.has_attention_gate(),
            norm_form: config.norm_form(),
            eps: config.rms_norm_eps,
        }
    }

    /// `x`, `residual` `[T, H]` -> `residual + attention(x)`.
    pub fn forward(
        &self,
        x: Tensor<2>,
        residual: Tensor<2>,
        ctx: &ForwardContext,
        cache: Option<&mut LayerCache>,
    ) -> Tensor<2> {
        let [num_tokens, _] = x.dims();
        let project = |(weight, bias): &(Tensor<2>, Option<Tensor<1>>), x: Tensor<2>| {
            ctx.kernels.linear().forward(x, weight.clone(), bias.clone(), None)
        };
        let heads = |x: Tensor<2>, n: usize| x.reshape([num_tokens, n, self.head_dim]);

        let query = project(&self.q_proj, x.clone());
        let (query, gate) = self.split_gate(query);
        let key = heads(project(&self.k_proj, x.clone()), self.num_key_value_heads);
        let value = heads(project(&self.v_proj, x), self.num_key_value_heads);

        let query =
            ctx.kernels.rope().forward(self.norm(query, self.q_norm.as_ref(), ctx), &ctx.rope);
        let key = ctx.kernels.rope().forward(self.norm(key, self.k_norm.as_ref(), ctx), &ctx.rope);

        let (key, value, keys) = match cache {
            Some(cache) => {
                let (key, value) = cache.extend(key, value);
                let keys = Packing::single(key.dims()[0]);
                (key, value, keys)
            }
            None => (key, value, ctx.packing.clone()),
        };
        let output = ctx.kernels.attention().forward(AttentionInput {
            query,
            key,
            value,
            gate,
            scale: (self.head_dim as f64).powf(-0.5),
            queries: &ctx.packing,
            keys: &keys,
        });
        let output = output.reshape([num_tokens, self.num_heads * self.head_dim]);
        let (weight, bias) = self.o_proj.clone();
        ctx.kernels.linear().forward(output, weight, bias, Some(residual))
    }

    /// `q_proj` yields, head by head, the query and then its gate.
    fn split_gate(&self, query: Tensor<2>) -> (Tensor<3>, Option<Tensor<3>>) {
        let [num_tokens, _] = query.dims();
        if !self.gated {
            return (query.reshape([num_tokens, self.num_heads, self.head_dim]), None);
        }
        let both = query.reshape([num_tokens, self.num_heads, 2 * self.head_dim]);
        let query = both.clone().narrow(2, 0, self.head_dim);
        let gate = both.narrow(2, self.head_dim, self.head_dim);
        (query, Some(gate))
    }

    /// The norm of each head, where the family has one.
    fn norm(&self, x: Tensor<3>, weight: Option<&Tensor<1>>, ctx: &ForwardContext) -> Tensor<3> {
        let Some(weight) = weight else { return x };
        let shape = x.dims();
        let rows = x.reshape([shape[0] * shape[1], shape[2]]);
        let normed = ctx.kernels.rms_norm().forward(rows, weight.clone(), self.eps, self.norm_form);
        normed.reshape(shape)
    }
}
