//! Engine, runs and command line, on tiny random models.
//!
//! One binary, because linking Burn takes longer than running these.

#![expect(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by a panic, and shares between its modules"
)]

mod bad_checkpoints;
mod bad_data;
mod bad_settings;
mod cli;
mod determinism;
mod engine;
mod interrupted;
mod kit;
mod not_finite;
mod quickstart;
mod recipes;
mod resume;
mod robust;
mod rows;
mod tiny;
