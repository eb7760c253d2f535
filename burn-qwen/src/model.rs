//! The whole model in memory: embed, layers, head.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_qwen_kernels::{Kernels, Packing};

use crate::{
    cache::LayerCache,
    config::QwenConfig,
    context::ForwardContext,
    decoder_layer::DecoderLayer,
    head::{Head, embed},
    params::{BlockParams, BlockSpec, block_specs},
};

/// All blocks of a model, for generation, evaluation and comparison.
#[derive(Clone, Debug)]
pub struct Model {
    config: QwenConfig,
    embedding: BlockParams,
    layers: Vec<DecoderLayer>,
    head: Head,
}

/// One packed row as a model reads it.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Token ids `[T]`.
    pub input_ids: &'a [i32],
    /// Positions `[T]`, from 0 in every document.
    pub position_ids: &'a [i32],
    /// Documents of the row.
    pub packing: &'a Packing,
}

impl Model {
    /// From the parameters of every block, in the order of [`block_specs`].
    ///
    /// # Panics
    /// If there are not as many as the model has blocks: the caller made them from its specs.
    pub fn new(config: &QwenConfig, blocks: &[BlockParams]) -> Self {
        let [embedding, layers @ .., head] = blocks else {
            panic!("a model has at least an embedding and a head, got {} blocks", blocks.len());
        };
        assert_eq!(layers.len(), config.num_hidden_layers, "decoder layers");
        Self {
            config: config.clone(),
            embedding: embedding.clone(),
            layers: layers
                .iter()
                .enumerate()
                .map(|(i, params)| DecoderLayer::new(config, i, params))
                .collect(),
            head: Head::new(config, head, embedding),
        }
    }

    /// Asks `values` for the flat shard of every block.
    ///
    /// # Errors
    /// The first error of `values`.
    pub fn from_blocks<E>(
        config: &QwenConfig,
        device: &Device,
        mut values: impl FnMut(&BlockSpec) -> Result<Vec<f32>, E>,
    ) -> Result<Self, E> {
        let params = |spec: &BlockSpec| -> Result<BlockParams, E> {
            let values = TensorData::new(values(spec)?, [spec.num_elements()]);
            let flat = Tensor::<1>::from_data(values, device);
            Ok(BlockParams::from_flat(spec, &flat))
        };
        let blocks = block_specs(config).iter().map(params).collect::<Result<Vec<_>, E>>()?;
        Ok(Self::new(config, &blocks))
    }

    /// The model's configuration.
    pub fn config(&self) -> &QwenConfig {
        &self.config
    }

    /// Logits `[T, V]`.
    pub fn logits(&self, row: Row<'_>, kernels: &Kernels) -> Tensor<2> {
        let (x, ctx) = self.hidden_states(row, kernels);
        self.head.logits(x, &ctx)
    }

    /// Sum of the token losses `[1]`; `labels` `[T]` are shifted, -100 where there is none.
    pub fn loss(&self, row: Row<'_>, labels: &[i32], kernels: &Kernels) -> Tensor<1> {
        let (x, ctx) = self.hidden_states(row, kernels);
        self.head.loss(x, labels, &ctx)
    }

    fn hidden_states(&self, row: Row<'_>, kernels: &Kernels) -> (Tensor<2>, ForwardContext) {
        let (x, ctx) = self.embed(row, kernels);
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x, &ctx, None));
        (x, ctx)
    }

    /// Logits `[V]` after the last of `input_ids`, which continue what `caches` (one per layer)
    /// have seen.
    pub fn next_token_logits(
        &self,
        input_ids: &[i32],
        num_past_tokens: usize,
        caches: &mut [LayerCache],
        kernels: &Kernels,
    ) -> Tensor<1> {
        let first = num_past_tokens as i32;
        let position_ids: Vec<i32> = (first..first + input_ids.len() as i32).collect();
        let packing = Packing::single(input_ids.len());
        let row = Row { input_ids, position_ids: &position_ids, packing: &packing };
        let (mut x, ctx) = self.embed(row, kernels);
        for (layer, cache) in self.layers.iter().zip(caches) {
            x = layer.forward(x, &ctx, Some(cache));
        }
        let last = x.narrow(0, input_ids.len() - 1, 1);
        self.head.logits(last, &ctx).flatten(0, 1)
    }

    fn embed(&self, row: Row<'_>, kernels: &Kernels) -> (Tensor<2>, ForwardContext) {
        let device = self.embedding.matrix("embed_tokens.weight").device();
        let packing = row.packing.clone();
        let ctx =
            ForwardContext::new(&self.config, kernels.clone(), row.position_ids, packing, &device);
        let input_ids = Tensor::<1, Int>::from_ints(row.input_ids, &device);
        (embed(&self.embedding, input_ids, &ctx), ctx)
    }

    /// Empty caches, one per layer.
    pub fn new_caches(&self) -> Vec<LayerCache> {
        vec![LayerCache::default(); self.layers.len()]
    }
}
