//! Qwen text models: configuration, layers, weights, generation.
//!
//! ```text
//! x = embed(input_ids)
//! per layer:  x = x + mixer(norm(x));   x = x + mlp(norm(x))
//! logits = norm(x) W_head^T
//! ```
//! The mixer is [`attention`] or, in Qwen3.5, mostly [`gated_delta_net`]. Every computation goes
//! through an op of `burn-qwen-kernels`, so any of them can be swapped. Parameters are plain
//! tensors, block by block ([`params`]), because a training engine walks the blocks.
//!
//! Read [`config`], [`params`], [`decoder_layer`], then the mixers; [`weights`] knows the files.

pub mod attention;
pub mod cache;
pub mod config;
mod config_fields;
pub mod context;
pub mod decoder_layer;
pub mod error;
pub mod flops;
pub mod gated_delta_net;
pub mod generate;
pub mod head;
pub mod init;
pub mod mlp;
pub mod model;
pub mod params;
pub mod weights;

pub use config::{Family, LayerType, QwenConfig};
pub use context::ForwardContext;
pub use decoder_layer::DecoderLayer;
pub use error::QwenError;
pub use head::{Head, embed};
pub use model::{Model, Row};
pub use params::{BlockParams, BlockSpec, ParamRole, ParamSpec, block_specs};
