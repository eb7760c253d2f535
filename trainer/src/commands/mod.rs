//! One file per command.

pub(crate) mod data;
pub(crate) mod devices;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod kernels;
pub(crate) mod parity;
pub(crate) mod recipes;
pub(crate) mod train;

use std::io::Write;

use burn_qwen_trainer::{TrainError, config::RunConfig, settings};

/// Settings of a command without a configuration file.
fn settings(set: &[String]) -> Result<RunConfig, TrainError> {
    settings::load("", "the defaults", set)
}

/// A line on stdout; a closed pipe ends the command without a word.
fn print(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        quit();
    }
}

/// A value as JSON on stdout.
fn print_json(value: &impl serde::Serialize) {
    print(&serde_json::to_string_pretty(value).expect("results are plain values"));
}

/// A line on stderr.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[expect(clippy::exit, reason = "the reader of our output has gone")]
fn quit() -> ! {
    std::process::exit(0)
}
