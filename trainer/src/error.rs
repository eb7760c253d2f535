//! What can go wrong in a run, and whose fault it is.

use burn_qwen::QwenError;
use burn_qwen_data::DataError;
use burn_qwen_kernels::KernelError;

/// An error of a run.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The user's input: arguments, configuration, data, checkpoint.
    #[error("{0}")]
    Input(String),
    /// A model that cannot be read or written.
    #[error(transparent)]
    Model(#[from] QwenError),
    /// Data that cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Kernels that cannot be had.
    #[error(transparent)]
    Kernels(#[from] KernelError),
    /// Numbers that left the finite range: by weights, data or a learning rate, all given to us.
    #[error("{0}")]
    NotFinite(String),
    /// A check ran and did not pass.
    #[error("{0}")]
    Check(String),
    /// The machine: disk, memory.
    #[error("{what}: {source}")]
    Machine {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Stopped by a signal, after a checkpoint was saved.
    #[error("stopped by signal {0}")]
    Stopped(i32),
}

impl TrainError {
    /// An I/O error with what was tried.
    pub fn machine(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Machine { what, source }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_)
            | Self::Model(_)
            | Self::Data(_)
            | Self::Kernels(_)
            | Self::NotFinite(_) => 2,
            Self::Machine { .. } => 1,
            Self::Check(_) => 3,
            Self::Stopped(signal) => (128 + signal) as u8,
        }
    }
}
