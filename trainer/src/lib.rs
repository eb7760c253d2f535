//! The run: engine, training loop, checkpoints, metrics, and the command line around them.
//!
//! Read `main.rs`, [`train`], [`step`], [`engine`]; then the crate `burn-qwen` from its decoder layer down.

pub mod checkpoint;
pub mod config;
pub mod console;
pub mod engine;
pub mod error;
pub mod eval;
pub mod exam;
pub mod inputs;
pub mod metrics;
pub mod parity;
pub mod plan;
pub mod schedule;
pub mod settings;
pub mod step;
pub mod train;

pub use error::TrainError;
