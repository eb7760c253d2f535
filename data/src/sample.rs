//! What a source yields: one conversation or one text, and where it came from.
//!
//! Messages stay JSON objects with their keys in order, because a checkpoint's chat template reads
//! them as such (`tool_calls`, `reasoning_content`, and whatever a newer template asks for).

use std::{fmt, path::PathBuf, sync::Arc};

/// A message as a template sees it: `role`, `content`, and any other key.
pub type Message = serde_json::Map<String, serde_json::Value>;

/// Turns of one conversation, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// The turns. Every one has a string `role`.
    pub messages: Vec<Message>,
    /// Tool descriptions offered to the assistant; `None` where the sample has none (an empty list
    /// is the same as none).
    pub tools: Option<Vec<serde_json::Value>>,
}

/// The trainable content of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A conversation: the assistant's turns are trained.
    Chat(Conversation),
    /// Plain text: every token is trained.
    Text(String),
}

/// The place of a sample in its file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The file.
    pub file: Arc<PathBuf>,
    /// Row in the file, from 0, rejected rows included.
    pub row: u64,
    /// Line in a text file, from 1; `None` for Parquet.
    pub line: Option<u64>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{} row {}", self.file.display(), self.row),
        }
    }
}

/// One accepted sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What is trained.
    pub content: Content,
    /// Where it came from.
    pub origin: Origin,
}

/// A sample as tokens, not yet packed.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Token ids `[n]`.
    pub input_ids: Vec<u32>,
    /// Which tokens are targets `[n]`: true for every token the assistant wrote.
    pub loss_mask: Vec<bool>,
    /// Where it came from.
    pub origin: Origin,
}
