//! The TOML of a run as typed: every key, its meaning and its default.

use std::path::PathBuf;

use burn_qwen_data::DataConfig;
use burn_qwen_kernels::KernelConfig;
use serde::{Deserialize, Serialize};

use crate::{engine::Recompute, schedule::ScheduleKind};

/// A run's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// `[model]`
    pub model: ModelConfig,
    /// `[data]`
    pub data: DataConfig,
    /// `[train]`
    pub train: TrainConfig,
    /// `[engine]`
    pub engine: EngineConfig,
    /// `[kernels]`
    pub kernels: KernelConfig,
    /// `[checkpoint]`
    pub checkpoint: CheckpointConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[eval]`
    pub eval: EvalConfig,
    /// `[exam]`
    pub exam: ExamConfig,
}

/// Dtype of activations and gathered weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DtypeSetting {
    /// The best that the device has; f32 on CPUs.
    #[default]
    Auto,
    /// f32.
    F32,
    /// bf16.
    Bf16,
}

/// Where the first weights come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitSetting {
    /// The checkpoint.
    #[default]
    Pretrained,
    /// Random numbers; `path` needs a configuration and a tokenizer only.
    Random,
}

/// `[model]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Folder in the Hugging Face layout, or a hub id.
    pub path: String,
    /// Branch, tag or commit of a hub id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Folder of tokenizer and template, if not that of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// Dtype of activations and gathered weights.
    pub dtype: DtypeSetting,
    /// Where the first weights come from.
    pub init: InitSetting,
}

/// `[train]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Passes over the data; excludes `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Optimizer steps; excludes `epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Largest learning rate.
    pub lr: f64,
    /// Shape of the learning rate after warm-up.
    pub schedule: ScheduleKind,
    /// Steps of linear warm-up.
    pub warmup_steps: u64,
    /// Steps of the final decay of `wsd`.
    pub decay_steps: u64,
    /// Smallest learning rate as a share of the largest.
    pub min_lr_ratio: f64,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f64,
    /// Decays of the two moments of AdamW.
    pub betas: [f64; 2],
    /// Epsilon of AdamW.
    pub eps: f64,
    /// Largest global gradient norm.
    pub max_grad_norm: f64,
    /// Packed rows of an optimizer step.
    pub gradient_accumulation: u64,
    /// Seed of random weights.
    pub seed: u64,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            epochs: None,
            steps: None,
            lr: 1e-5,
            schedule: ScheduleKind::Cosine,
            warmup_steps: 0,
            decay_steps: 0,
            min_lr_ratio: 0.1,
            weight_decay: 0.1,
            betas: [0.9, 0.95],
            eps: 1e-8,
            max_grad_norm: 1.0,
            gradient_accumulation: 1,
            seed: 0,
        }
    }
}

/// `[engine]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// What of a forward pass is kept for the backward pass.
    pub recompute: Recompute,
}

/// `[checkpoint]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Steps between two checkpoints; 0 for one at the end only.
    pub every_steps: u64,
    /// Checkpoints that stay on disk; 0 for all.
    pub keep: usize,
    /// `auto`, `never`, or a step.
    pub resume: String,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every_steps: 0, keep: 2, resume: "never".to_string() }
    }
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Steps between two lines where there is no terminal.
    pub every_steps: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { every_steps: 10 }
    }
}

/// `[eval]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Steps between two evaluations; 0 for one before and one after training.
    pub every_steps: u64,
    /// Samples of an evaluation, the first in the order of the files; 0 for all.
    pub samples: usize,
}

/// `[exam]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExamConfig {
    /// Conversations whose last answer the trained model must give word for word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    /// Examples that are printed.
    pub show: usize,
}
