//! Writes the quickstart's files: questions, tokenizer, configuration.
//!
//! `cargo run -p burn-qwen-trainer --example make_quickstart -- trainer/recipes/quickstart`
//!
//! The same program writes the same bytes; a test compares them with the files that ship.

mod questions;
mod tokenizer;

use std::{
    io,
    path::{Path, PathBuf},
};

use questions::Question;
use serde_json::{Value, json};

/// Of this many questions, one is held out.
const HOLD_OUT_EVERY: u64 = 9;

fn main() -> io::Result<()> {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("quickstart"), PathBuf::from);
    write_all(&folder)
}

fn write_all(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (train, test) = split(questions::all());
    let lines = |questions: &[Question]| -> String {
        let lines = questions.iter().map(|q| json!({"messages": q.messages()}).to_string() + "\n");
        lines.collect()
    };
    std::fs::write(folder.join("train.jsonl"), lines(&train))?;
    std::fs::write(folder.join("test.jsonl"), lines(&test))?;
    let texts = train.iter().flat_map(|q| q.turns.iter().cloned());
    std::fs::write(folder.join("tokenizer.json"), tokenizer::train(texts))?;
    write_json(&folder.join("tokenizer_config.json"), &tokenizer::config())?;
    write_json(&folder.join("config.json"), &model_config())?;
    write_json(
        &folder.join("generation_config.json"),
        &json!({"eos_token_id": [tokenizer::IM_END_ID, tokenizer::ENDOFTEXT_ID]}),
    )
}

fn write_json(path: &Path, value: &Value) -> io::Result<()> {
    std::fs::write(path, serde_json::to_string_pretty(value)? + "\n")
}

/// Holds out questions evenly over kinds and phrasings; no text is on both sides.
fn split(questions: Vec<Question>) -> (Vec<Question>, Vec<Question>) {
    let mut train: Vec<Question> = Vec::new();
    let mut test = Vec::new();
    for question in questions {
        if question.may_be_held_out && hash(&question.turns).is_multiple_of(HOLD_OUT_EVERY) {
            test.push(question);
        } else {
            train.push(question);
        }
    }
    test.retain(|q| !train.iter().any(|t| t.turns == q.turns));
    (train, test)
}

/// Decides by the text alone, so that kinds and phrasings are held out alike.
fn hash(turns: &[String]) -> u64 {
    let bytes = turns.iter().flat_map(|turn| turn.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

/// A small hybrid: three delta-rule layers to one of attention, like its large relatives.
fn model_config() -> Value {
    json!({
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": tokenizer::VOCAB_SIZE,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "hidden_act": "silu",
        "initializer_range": 0.06,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25
        },
        "tie_word_embeddings": true,
        "attention_bias": false,
        "bos_token_id": null,
        "eos_token_id": tokenizer::IM_END_ID,
        "dtype": "float32"
    })
}
