//! Parameters, both moments and the gradient of every block, flat and in f32.

use burn::tensor::{DType, Device, Tensor};
use burn_qwen::{BlockSpec, params::BlockParams};
use burn_qwen_kernels::ops::adamw::AdamWState;

use crate::error::TrainError;

/// All shards of a model.
#[derive(Debug)]
pub struct ParamStore {
    specs: Vec<BlockSpec>,
    shards: Vec<Shard>,
}

/// One block's shard.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) state: AdamWState,
    /// Sum of the gradients since the last update.
    pub(crate) grad: Option<Tensor<1>>,
}

/// The three stored tensors of a shard, by the names they have in checkpoints.
pub const SHARD_TENSORS: [&str; 3] = ["param", "exp_avg", "exp_avg_sq"];

impl ParamStore {
    pub(crate) fn new(
        specs: Vec<BlockSpec>,
        device: &Device,
        mut values: impl FnMut(&BlockSpec) -> Result<Vec<f32>, TrainError>,
    ) -> Result<Self, TrainError> {
        let mut shards = Vec::with_capacity(specs.len());
        for spec in &specs {
            let n = spec.num_elements();
            let param = flat(values(spec)?, device);
            assert_eq!(param.dims()[0], n, "values of {}", spec.name);
            let zeros = || Tensor::zeros([n], (device, DType::F32));
            let state = AdamWState { param, exp_avg: zeros(), exp_avg_sq: zeros() };
            shards.push(Shard { state, grad: None });
        }
        Ok(Self { specs, shards })
    }

    /// Blocks of the model.
    pub fn num_blocks(&self) -> usize {
        self.specs.len()
    }

    /// Names and shapes of every block.
    pub fn specs(&self) -> &[BlockSpec] {
        &self.specs
    }

    /// The parameters of a block, as views of its shard.
    pub fn params(&self, block: usize) -> BlockParams {
        BlockParams::from_flat(&self.specs[block], &self.shards[block].state.param)
    }

    /// Values of one parameter.
    pub fn param_values(&self, block: usize, param: usize) -> Vec<f32> {
        let (offset, spec) =
            self.specs[block].offsets().nth(param).expect("the parameter is one of the block's");
        let shard = &self.shards[block].state.param;
        to_vec(shard.clone().narrow(0, offset, spec.num_elements()))
    }

    /// Values of every parameter, by block and position in it.
    pub fn all_values(&self) -> Vec<Vec<Vec<f32>>> {
        let block = |(b, spec): (usize, &BlockSpec)| {
            (0..spec.params.len()).map(|param| self.param_values(b, param)).collect()
        };
        self.specs.iter().enumerate().map(block).collect()
    }

    /// The gradient of a block, where it has one.
    pub fn grad(&self, block: usize) -> Option<Vec<f32>> {
        self.shards[block].grad.clone().map(to_vec)
    }

    /// Adds to the gradient of a block.
    pub(crate) fn add_grad(&mut self, block: usize, grad: Tensor<1>) {
        let shard = &mut self.shards[block];
        shard.grad = Some(match shard.grad.take() {
            Some(sum) => sum + grad,
            None => grad,
        });
    }

    pub(crate) fn shards_mut(&mut self) -> impl Iterator<Item = (&BlockSpec, &mut Shard)> {
        self.specs.iter().zip(&mut self.shards)
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = (&BlockSpec, &Shard)> {
        self.specs.iter().zip(&self.shards)
    }

    /// Forgets all gradients.
    pub fn clear_grads(&mut self) {
        for shard in &mut self.shards {
            shard.grad = None;
        }
    }

    /// The stored tensors of a block, in the order of [`SHARD_TENSORS`].
    pub fn export_shard(&self, block: usize) -> [Vec<f32>; 3] {
        let state = &self.shards[block].state;
        [&state.param, &state.exp_avg, &state.exp_avg_sq].map(|tensor| to_vec(tensor.clone()))
    }

    /// Puts back what [`Self::export_shard`] gave.
    ///
    /// # Panics
    /// If lengths differ: the checkpoint was verified first.
    pub fn import_shard(&mut self, block: usize, tensors: [Vec<f32>; 3], device: &Device) {
        let n = self.specs[block].num_elements();
        assert!(tensors.iter().all(|tensor| tensor.len() == n), "shard of {n} elements");
        let [param, exp_avg, exp_avg_sq] = tensors.map(|tensor| flat(tensor, device));
        self.shards[block] = Shard { state: AdamWState { param, exp_avg, exp_avg_sq }, grad: None };
    }
}

fn flat(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let n = values.len();
    Tensor::from_data(burn::tensor::TensorData::new(values, [n]), device)
}

pub(crate) fn to_vec(tensor: Tensor<1>) -> Vec<f32> {
    tensor.into_data_dtype(DType::F32).try_into_vec::<f32>().expect("the data was just read as f32")
}
