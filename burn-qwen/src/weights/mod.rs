//! Checkpoint files: which tensors they hold ([`mod@file`]), the text model's part of them ([`load`]),
//! and a folder that other tools load ([`save`]).

mod check;
pub mod dtype;
pub mod file;
mod index;
pub mod keys;
pub mod load;
mod plan;
pub mod save;

pub use load::Checkpoint;
pub use save::{ExportOptions, ExportSource, export};
