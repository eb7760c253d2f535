//! The model against golden cases, its files against everything that can be wrong with them.
//!
//! One binary, because linking Burn takes longer than running these.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test fails by a panic, explains itself on stdout, and shares between its modules"
)]

mod checkpoint;
mod config;
mod export;
mod generate;
mod golden;
mod init;
mod parity;
mod properties;
mod rope;
mod tiny;
