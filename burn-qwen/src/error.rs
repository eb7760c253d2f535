//! What can be wrong with a model: its configuration, its files.

use std::path::{Path, PathBuf};

/// An error of configuration or weights: the user's input, named by file and key.
#[derive(Debug, thiserror::Error)]
pub enum QwenError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A configuration that is incomplete, contradictory or not supported.
    #[error("{origin}: {problem}")]
    Config {
        /// The file.
        origin: String,
        /// The key, what was expected, what was found, what to do.
        problem: String,
    },
    /// A checkpoint whose tensors are not those of the model.
    #[error("{}: {problem}", path.display())]
    Weights {
        /// The file or folder.
        path: PathBuf,
        /// The tensor, what was expected, what was found, what to do.
        problem: String,
    },
}

impl QwenError {
    /// An I/O error at a path.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source }
    }

    /// A problem with the weights at a path.
    pub fn weights(path: &Path, problem: impl Into<String>) -> Self {
        Self::Weights { path: path.to_path_buf(), problem: problem.into() }
    }
}
