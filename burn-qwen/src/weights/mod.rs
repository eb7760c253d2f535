//! Checkpoint files: which tensors they hold ([`file`]), the text model's part of them ([`load`]),
//! and a folder that other tools load ([`save`]).

pub mod dtype;
pub mod file;
pub mod keys;
pub mod load;
pub mod save;

pub use load::Checkpoint;
pub use save::{ExportOptions, ExportSource, export};
