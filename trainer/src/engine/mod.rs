//! A training step as a walk over blocks: embedding, decoder layers, head, and back.
//!
//! ```text
//! x0 = embed(ids)
//! for each block i:                 keep x_i;  x_{i+1} = block_i(x_i)      no graph (recompute = full)
//! loss, dx = head(x_n, labels)
//! for each block i, last to first:  y = block_i(x_i) with graph;  backprop dx;  dx = dx_i
//! embedding gradient (tied head: the sum of both uses)
//! ```
//! Autodiff sees one block at a time, so memory is that of one block, and gradients exist as soon
//! as their block is done. Parameters, moments and gradients of a block are flat f32 tensors
//! ([`store`]).

mod diagnose;
pub mod store;
mod update;
mod walk;

use burn::tensor::Device;
use burn_qwen::{Model, QwenConfig, params::BlockParams};
use burn_qwen_kernels::Kernels;
use serde::{Deserialize, Serialize};

pub use store::ParamStore;
pub use update::AdamWConfig;

use crate::error::TrainError;

/// What of a block's forward pass is kept for its backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// Everything: the fastest, if it fits.
    None,
    /// Only the block's input; the forward pass runs twice.
    #[default]
    Full,
}

/// A model being trained on one device.
#[derive(Debug)]
pub struct Engine {
    config: QwenConfig,
    device: Device,
    kernels: Kernels,
    recompute: Recompute,
    /// Parameters, moments, gradients.
    pub store: ParamStore,
    /// Updates made so far.
    pub num_updates: u64,
}

impl Engine {
    /// A model on a device (without autodiff: the engine switches it on block by block), its
    /// parameters asked from `values` block by block.
    ///
    /// # Errors
    /// The first error of `values`.
    pub fn new(
        config: QwenConfig,
        device: Device,
        kernels: Kernels,
        recompute: Recompute,
        values: impl FnMut(&burn_qwen::BlockSpec) -> Result<Vec<f32>, TrainError>,
    ) -> Result<Self, TrainError> {
        let store = ParamStore::new(burn_qwen::block_specs(&config), &device, values)?;
        Ok(Self { config, device, kernels, recompute, store, num_updates: 0 })
    }

    /// The model's configuration.
    pub fn config(&self) -> &QwenConfig {
        &self.config
    }

    /// The implementation of every op.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The model as it stands, for evaluation and generation; shares the parameters' memory.
    pub fn model(&self) -> Model {
        let blocks: Vec<BlockParams> =
            (0..self.store.num_blocks()).map(|block| self.store.params(block)).collect();
        Model::new(&self.config, &blocks)
    }
}
