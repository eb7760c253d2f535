//! One layer: norm, mixer, residual; norm, MLP, residual.

use burn::tensor::Tensor;
use burn_qwen_kernels::ops::rms_norm::NormForm;

use crate::{
    attention::Attention,
    cache::LayerCache,
    config::{LayerType, QwenConfig},
    context::ForwardContext,
    gated_delta_net::GatedDeltaNet,
    mlp::Mlp,
    params::BlockParams,
};

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one per layer, never moved")]
enum Mixer {
    Attention(Attention),
    GatedDeltaNet(GatedDeltaNet),
}

/// A decoder layer.
#[derive(Clone, Debug)]
pub struct DecoderLayer {
    input_layernorm: Tensor<1>,
    mixer: Mixer,
    post_attention_layernorm: Tensor<1>,
    mlp: Mlp,
    norm_form: NormForm,
    eps: f64,
}

impl DecoderLayer {
    /// Layer `index` from its parameters.
    pub fn new(config: &QwenConfig, index: usize, params: &BlockParams) -> Self {
        let mixer = match config.layer_types[index] {
            LayerType::FullAttention => Mixer::Attention(Attention::new(config, params)),
            LayerType::LinearAttention => Mixer::GatedDeltaNet(GatedDeltaNet::new(config, params)),
        };
        Self {
            input_layernorm: params.vector("input_layernorm.weight"),
            mixer,
            post_attention_layernorm: params.vector("post_attention_layernorm.weight"),
            mlp: Mlp::new(params),
            norm_form: config.norm_form(),
            eps: config.rms_norm_eps,
        }
    }

    /// `x` `[T, H]` -> `[T, H]`.
    pub fn forward(
        &self,
        x: Tensor<2>,
        ctx: &ForwardContext,
        cache: Option<&mut LayerCache>,
    ) -> Tensor<2> {
        let norm = |x: Tensor<2>, weight: &Tensor<1>| {
            ctx.kernels.rms_norm().forward(x, weight.clone(), self.eps, self.norm_form)
        };
        let normed = norm(x.clone(), &self.input_layernorm);
        let x = match &self.mixer {
            Mixer::Attention(mixer) => mixer.forward(normed, x, ctx, cache),
            Mixer::GatedDeltaNet(mixer) => mixer.forward(normed, x, ctx, cache),
        };
        let normed = norm(x.clone(), &self.post_attention_layernorm);
        self.mlp.forward(normed, x, ctx)
    }
}
