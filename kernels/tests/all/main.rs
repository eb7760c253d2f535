//! Implementations against the truth, and against each other.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by a panic")]

mod agreement;
mod attention_cache;
mod delta_rule;
mod determinism;
mod golden;
mod isolation;
mod selection;

use burn::tensor::Device;
use burn_qwen_kernels::{
    BackendKind,
    verify::{Call, Outputs, run},
};

/// Runs a call on Flex; `None` where the implementation refuses it.
fn outputs(call: &Call, implementation: &str) -> Option<Outputs> {
    run(call, implementation, &Device::flex(), BackendKind::Flex).unwrap().ok()
}
