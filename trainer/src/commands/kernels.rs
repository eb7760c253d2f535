//! `kernels`: implementations of ops, what would run, and whether they are right.

mod verify;

use burn::tensor::DType;
use burn_qwen::QwenConfig;
use burn_qwen_kernels::{BackendKind, Kernels, registry};
use burn_qwen_trainer::{TrainError, inputs};
use serde_json::json;

use super::{print, print_json, settings};
use crate::cli::KernelsCommand;

/// A hybrid that has every op, for a list without a model.
const TYPICAL: &str = r#"{"model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 1024,
  "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8,
  "num_key_value_heads": 2, "head_dim": 256, "rope_theta": 1e7, "tie_word_embeddings": true,
  "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
  "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}"#;

pub(crate) fn run(command: KernelsCommand) -> Result<(), TrainError> {
    match command {
        KernelsCommand::List { model, set, json } => list(model.as_deref(), &set, json),
        KernelsCommand::Verify { golden, op, implementation, seed, json } => {
            let only =
                verify::Only { op: op.as_deref(), implementation: implementation.as_deref() };
            verify::run(golden.as_deref(), only, seed, json)
        }
    }
}

fn list(model: Option<&str>, set: &[String], json: bool) -> Result<(), TrainError> {
    let config = settings(set)?;
    let qwen = if let Some(path) = model {
        QwenConfig::from_folder(&inputs::model_folder(path, None)?)?
    } else {
        let typical = serde_json::from_str(TYPICAL).expect("the constant is valid JSON");
        QwenConfig::from_json(typical, "a typical model")?
    };
    let case = qwen.kernel_case(BackendKind::Flex, DType::F32, true, config.data.max_tokens);
    let (_, report) = Kernels::resolve(&config.kernels, &case)?;
    let listings = registry::list(&case);
    if json {
        let list: Vec<_> = listings
            .iter()
            .map(|l| {
                let chosen =
                    report.choice(l.op).is_some_and(|c| c.implementation == l.implementation);
                json!({"op": l.op, "implementation": l.implementation, "refusal": l.refusal,
                       "chosen": chosen})
            })
            .collect();
        print_json(&list);
        return Ok(());
    }
    for choice in &report.choices {
        let all: Vec<String> = listings
            .iter()
            .filter(|l| l.op == choice.op)
            .map(|l| match &l.refusal {
                Some(reason) => format!("{} (refuses: {reason})", l.implementation),
                None => l.implementation.to_string(),
            })
            .collect();
        print(&format!("{choice}\n    of: {}", all.join(", ")));
    }
    Ok(())
}
