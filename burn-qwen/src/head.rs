//! Final norm and language-model head.

use burn::tensor::Tensor;
use burn_qwen_kernels::ops::rms_norm::NormForm;

use crate::{config::QwenConfig, context::ForwardContext, params::BlockParams};

/// The end of the model; its matrix is the embedding's where the two are tied.
#[derive(Clone, Debug)]
pub struct Head {
    norm: Tensor<1>,
    weight: Tensor<2>,
    norm_form: NormForm,
    eps: f64,
}

impl Head {
    /// From the head's and the embedding's parameters.
    pub fn new(config: &QwenConfig, head: &BlockParams, embedding: &BlockParams) -> Self {
        let weight = if config.tie_word_embeddings {
            embedding.matrix("embed_tokens.weight")
        } else {
            head.matrix("lm_head.weight")
        };
        Self {
            norm: head.vector("norm.weight"),
            weight,
            norm_form: config.norm_form(),
            eps: config.rms_norm_eps,
        }
    }

    /// `x` `[T, H]`, `labels` `[T]` (shifted, -100 where there is none) -> the sum of the token
    /// losses `[1]`.
    pub fn loss(&self, x: Tensor<2>, labels: &[i32], ctx: &ForwardContext) -> Tensor<1> {
        let x = self.normed(x, ctx);
        ctx.kernels.linear_cross_entropy().forward(x, self.weight.clone(), labels)
    }

    /// `x` `[T, H]` -> logits `[T, V]`.
    pub fn logits(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let x = self.normed(x, ctx);
        ctx.kernels.linear().forward(x, self.weight.clone(), None, None)
    }

    fn normed(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        ctx.kernels.rms_norm().forward(x, self.norm.clone(), self.eps, self.norm_form)
    }
}

/// Rows of the embedding: `input_ids` `[T]` -> `[T, H]`.
pub fn embed(
    embedding: &BlockParams,
    input_ids: Tensor<1, burn::tensor::Int>,
    ctx: &ForwardContext,
) -> Tensor<2> {
    ctx.kernels.embedding().forward(embedding.matrix("embed_tokens.weight"), input_ids)
}
