//! From files to packed rows: spans, policies, packing, and the loader's exact position.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod chat;
mod kit;
mod loader;
mod long_samples;
mod packing;
mod tokenizer;
