//! What can be wrong with data: always the user's input, named by file and line.

use std::path::PathBuf;

/// An error of the data pipeline.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A row is not what its format demands.
    #[error("{place}: {problem}")]
    Row {
        /// File and line, or file and row.
        place: String,
        /// What was expected, what was found, what to do.
        problem: String,
    },
    /// A file or a set of files as a whole is not usable.
    #[error("{what}: {problem}")]
    Source {
        /// The file, glob or hub id.
        what: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The tokenizer or the chat template is not usable.
    #[error("{what}: {problem}")]
    Tokenizer {
        /// The file or template.
        what: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A setting of the `[data]` table makes no sense.
    #[error("data.{key} = {value}: {problem}")]
    Config {
        /// The key.
        key: &'static str,
        /// The value as given.
        value: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A model or data set could not be had from the hub.
    #[error("{what}: {problem}")]
    Hub {
        /// Repository and file.
        what: String,
        /// What the server said and what to do.
        problem: String,
    },
}
