//! Floating-point operations of a forward pass, by formula.
//!
//! A multiply-add counts as two. The backward pass of a matrix product takes twice its forward
//! pass, so a training step without recomputation is three forward passes (Kaplan et al., 2020,
//! section 2.1; Chowdhery et al., 2022, appendix B).

use crate::config::{LayerType, QwenConfig};
use crate::params::{BlockSpec, ParamRole, ParamSpec, block_specs};

/// What a forward pass costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Flops {
    /// Of the linear maps of all layers, per token.
    linear_per_token: f64,
    /// Of the head, per row that has a target.
    head_per_target: f64,
    /// Of the delta rule of all layers, per token.
    delta_rule_per_token: f64,
    /// Of attention, per pair of query and visible key, over all layers.
    attention_per_pair: f64,
}

impl Flops {
    /// The formulas of a model.
    pub fn of(config: &QwenConfig) -> Self {
        let c = config;
        let count = |kind| c.layer_types.iter().filter(|&&t| t == kind).count() as f64;
        let matrices: usize = block_specs(c)[1..=c.num_hidden_layers]
            .iter()
            .flat_map(|block| &block.params)
            .filter(|param| matches!(param.role, ParamRole::Matrix | ParamRole::Conv))
            .map(ParamSpec::num_elements)
            .sum();
        // The recurrence itself: decay, two products with the state, one update (7 DK DV).
        let state = c.linear_key_head_dim * c.linear_value_head_dim * c.linear_num_value_heads;
        Self {
            linear_per_token: 2.0 * matrices as f64,
            head_per_target: 2.0 * (c.vocab_size * c.hidden_size) as f64,
            delta_rule_per_token: 7.0 * state as f64 * count(LayerType::LinearAttention),
            // A score and a weighted value: 2 D each.
            attention_per_pair: 4.0
                * (c.head_dim * c.num_attention_heads) as f64
                * count(LayerType::FullAttention),
        }
    }

    /// Of one row: its document lengths and how many of its positions have a target.
    pub fn forward(
        &self,
        document_lengths: impl IntoIterator<Item = usize>,
        targets: usize,
    ) -> f64 {
        let mut flops = self.head_per_target * targets as f64;
        for length in document_lengths {
            let n = length as f64;
            flops += (self.linear_per_token + self.delta_rule_per_token) * n;
            flops += self.attention_per_pair * n * (n + 1.0) / 2.0;
        }
        flops
    }

    /// Of a training step on that row, forward and backward, nothing computed twice.
    pub fn train(&self, document_lengths: impl IntoIterator<Item = usize>, targets: usize) -> f64 {
        3.0 * self.forward(document_lengths, targets)
    }
}

/// Number of parameters, a tied matrix counted once.
pub fn num_parameters(config: &QwenConfig) -> usize {
    block_specs(config).iter().map(BlockSpec::num_elements).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hand_computed() {
        let config = QwenConfig::from_json(
            json!({"model_type": "qwen3", "vocab_size": 100, "hidden_size": 8,
                   "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                   "num_key_value_heads": 1, "head_dim": 4, "rope_theta": 1e4,
                   "tie_word_embeddings": true}),
            "test",
        )
        .unwrap();
        // Per layer: q 8*8, k 4*8, v 4*8, o 8*8, mlp 3*16*8 = 576 weights.
        let flops = Flops::of(&config);
        // Documents of 3 and 1 tokens: 4 tokens, 6 + 1 pairs; 2 targets.
        let expected = 4.0 * 2.0 * 2.0 * 576.0 + 7.0 * 4.0 * 8.0 * 2.0 + 2.0 * 2.0 * 800.0;
        assert_eq!(flops.forward([3, 1], 2), expected);
        assert_eq!(flops.train([3, 1], 2), 3.0 * expected);
        // Norms: 2 x 8 per layer, q and k norm 2 x 4, final 8; embedding 800.
        assert_eq!(num_parameters(&config), 2 * (576 + 24) + 8 + 800);
    }
}
