//! Text to packed token rows, on the host: no Burn, no GPU.
//!
//! [`source`] -> [`sample::Sample`] -> `chat` -> [`sample::Document`] -> `packing` ->
//! [`batch::Batch`], driven by `loader`.

pub mod batch;
pub mod error;
pub mod formats;
pub mod sample;
pub mod source;

pub use batch::{Batch, IGNORE_INDEX};
pub use error::DataError;
pub use formats::DataFormat;
pub use sample::{Content, Conversation, Document, Message, Origin, Sample};
pub use source::{Source, SourceSummary};
