//! Text to packed token rows, on the host: no Burn, no GPU.
//!
//! `source` -> [`sample::Sample`] -> `chat` -> [`sample::Document`] -> `packing` -> [`batch::Batch`]

pub mod batch;
pub mod error;
pub mod sample;

pub use batch::{Batch, IGNORE_INDEX};
pub use error::DataError;
pub use sample::{Content, Conversation, Document, Message, Origin, Sample};
