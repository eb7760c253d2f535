//! Text to packed token rows, on the host: no Burn, no GPU.
//!
//! [`source`] -> [`sample::Sample`] -> [`chat`] -> [`sample::Document`] -> [`packing`] ->
//! [`batch::Batch`], driven by [`loader`].

pub mod batch;
pub mod chat;
pub mod config;
mod documents;
pub mod error;
pub mod formats;
mod hex;
pub mod hub;
pub mod loader;
pub mod pack;
pub mod packing;
pub mod report;
pub mod sample;
pub mod source;
pub mod tokenizer;

pub use batch::{Batch, IGNORE_INDEX};
pub use chat::{ChatTemplate, RenderPolicy, Renderer, SampleIssue};
pub use config::DataConfig;
pub use error::DataError;
pub use formats::DataFormat;
pub use loader::{Loader, LoaderState};
pub use report::DataReport;
pub use sample::{Content, Conversation, Document, Message, Origin, Sample};
pub use source::{Source, SourceSummary};
pub use tokenizer::Tokenizer;
