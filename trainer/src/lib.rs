//! The run: engine, training loop, checkpoints, metrics, and the command line around them.

pub mod engine;
pub mod error;
pub mod parity;
pub mod schedule;

pub use error::TrainError;
