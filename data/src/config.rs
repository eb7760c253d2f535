//! The `[data]` table.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    chat::{ReasoningPolicy, RenderPolicy, SpecialTokensInText},
    error::DataError,
    formats::DataFormat,
};

/// What becomes of samples longer than a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LongSamples {
    /// Left out and counted.
    #[default]
    Drop,
    /// Cut at the end of the row; left out if nothing trained remains.
    Cut,
    /// Split into documents of a row each; every token is kept exactly once.
    Split,
}

/// Threads beyond this are a slip of the keyboard.
const MAX_WORKERS: usize = 1024;

/// Settings of the data pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Files, folders, globs or hub ids to train on.
    #[serde(deserialize_with = "one_or_many")]
    pub train: Vec<String>,
    /// The same for evaluation.
    #[serde(deserialize_with = "one_or_many")]
    pub eval: Vec<String>,
    /// Layout of the rows.
    pub format: DataFormat,
    /// `checkpoint`, `chatml`, or a Jinja file.
    pub template: String,
    /// Tokens of a packed row.
    pub max_tokens: usize,
    /// Whether rows hold several documents.
    pub packing: bool,
    /// What becomes of samples longer than a row.
    pub long_samples: LongSamples,
    /// What becomes of thoughts in the history.
    pub reasoning: ReasoningPolicy,
    /// What becomes of control tokens in text.
    pub special_tokens_in_text: SpecialTokensInText,
    /// The template's variable of that name; not defined if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// Whether samples are shuffled anew in every epoch.
    pub shuffle: bool,
    /// Seed of the order.
    pub seed: u64,
    /// Threads that tokenise; 0 for all cores.
    pub workers: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            train: Vec::new(),
            eval: Vec::new(),
            format: DataFormat::Auto,
            template: "checkpoint".to_string(),
            max_tokens: 8192,
            packing: true,
            long_samples: LongSamples::Drop,
            reasoning: ReasoningPolicy::AsServed,
            special_tokens_in_text: SpecialTokensInText::AsText,
            enable_thinking: None,
            shuffle: true,
            seed: 0,
            workers: 0,
        }
    }
}

impl DataConfig {
    /// Checks what types cannot.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn validate(&self) -> Result<(), DataError> {
        if self.max_tokens < 2 || self.max_tokens > i32::MAX as usize / 2 {
            return Err(DataError::Config {
                key: "max_tokens",
                value: self.max_tokens.to_string(),
                problem: "a row needs at least 2 tokens, and at most a billion".to_string(),
            });
        }
        if self.workers > MAX_WORKERS {
            return Err(DataError::Config {
                key: "workers",
                value: self.workers.to_string(),
                problem: format!("at most {MAX_WORKERS} threads; 0 takes one per core"),
            });
        }
        Ok(())
    }

    /// The choices that concern rendering.
    pub fn render_policy(&self) -> RenderPolicy {
        RenderPolicy {
            special_tokens_in_text: self.special_tokens_in_text,
            reasoning: self.reasoning,
            enable_thinking: self.enable_thinking,
            ..RenderPolicy::default()
        }
    }
}

/// A string or a list of strings.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}
