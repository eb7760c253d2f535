//! The two models that are measured: about 37M parameters beside the embedding.

use anyhow::Context;
use burn_qwen::QwenConfig;
use serde_json::json;

const VOCAB_SIZE: usize = 8192;

/// `hybrid` (Qwen3.5: three delta-rule layers to one of attention) or `dense` (Qwen3).
pub(crate) fn config(name: &str) -> anyhow::Result<QwenConfig> {
    let config = match name {
        "hybrid" => json!({
            "model_type": "qwen3_5_text",
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 512,
            "intermediate_size": 1536,
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 128,
            "full_attention_interval": 4,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 64,
            "linear_value_head_dim": 64,
            "linear_num_key_heads": 8,
            "linear_num_value_heads": 16,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25
            },
            "tie_word_embeddings": true,
        }),
        "dense" => json!({
            "model_type": "qwen3",
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 512,
            "intermediate_size": 2176,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            "tie_word_embeddings": true,
        }),
        _ => anyhow::bail!("there is no model \"{name}\": expected hybrid or dense"),
    };
    QwenConfig::from_json(config, name).context("a built-in configuration")
}
