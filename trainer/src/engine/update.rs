//! The optimizer step: global norm, clip, AdamW on every shard.

use burn::tensor::Tensor;
use burn_qwen::BlockSpec;
use burn_qwen_kernels::{
    Kernels,
    ops::adamw::{AdamWState, AdamWStep},
};

use super::{Engine, store::Shard};
use crate::error::TrainError;

/// Settings of the optimizer that stay the same over a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decays of the two moments.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f64,
    /// Largest global gradient norm; infinite for none.
    pub max_grad_norm: f64,
}

impl Engine {
    /// Global norm of the gradients of the mean loss over `num_targets` targets.
    ///
    /// # Errors
    /// A gradient that is not finite, by parameter.
    pub fn grad_norm(&self, num_targets: usize) -> Result<f64, TrainError> {
        let kernel = self.kernels.grad_norm();
        let grads = self.store.shards().filter_map(|(_, shard)| shard.grad.clone());
        let sum: f64 = grads.map(|grad| kernel.sum_of_squares(grad)).sum();
        let norm = sum.sqrt() / num_targets as f64;
        if norm.is_finite() {
            return Ok(norm);
        }
        let place = self.first_non_finite_param().or_else(|| self.first_non_finite_grad());
        let place = place.unwrap_or_else(|| "the squares of the gradients overflow".to_string());
        Err(TrainError::NotFinite(format!("the gradient norm is {norm}: {place}")))
    }

    /// One update from the gradients in the store, which it forgets; returns the global norm before
    /// clipping, or `None` where there is no target: then nothing changes, not even by decay.
    ///
    /// # Errors
    /// As [`Self::grad_norm`]; nothing has changed then.
    pub fn update(
        &mut self,
        num_targets: usize,
        lr: f64,
        config: &AdamWConfig,
    ) -> Result<Option<f64>, TrainError> {
        if num_targets == 0 {
            self.store.clear_grads();
            return Ok(None);
        }
        let norm = self.grad_norm(num_targets)?;
        let clip = (config.max_grad_norm / (norm + 1e-6)).min(1.0);
        self.num_updates += 1;
        let step = AdamWStep {
            lr,
            beta1: config.betas[0],
            beta2: config.betas[1],
            eps: config.eps,
            weight_decay: config.weight_decay,
            grad_scale: clip / num_targets as f64,
            step: self.num_updates,
        };
        for (spec, shard) in self.store.shards_mut() {
            update_shard(&self.kernels, spec, shard, step);
        }
        Ok(Some(norm))
    }
}

/// Matrices decay, vectors do not: neighbours of the same kind are updated together.
fn update_shard(kernels: &Kernels, spec: &BlockSpec, shard: &mut Shard, step: AdamWStep) {
    let Some(grad) = shard.grad.take() else { return };
    let segments = segments(spec);
    let apply = |start: usize, len: usize, decays: bool, state: &AdamWState| {
        let part = |tensor: &Tensor<1>| tensor.clone().narrow(0, start, len);
        let state = AdamWState {
            param: part(&state.param),
            exp_avg: part(&state.exp_avg),
            exp_avg_sq: part(&state.exp_avg_sq),
        };
        let weight_decay = if decays { step.weight_decay } else { 0.0 };
        kernels.adamw().step(state, part(&grad), AdamWStep { weight_decay, ..step })
    };
    let parts: Vec<_> = segments
        .into_iter()
        .map(|(start, len, decays)| apply(start, len, decays, &shard.state))
        .collect();
    let join = |part: fn(&AdamWState) -> &Tensor<1>| {
        Tensor::cat(parts.iter().map(|state| part(state).clone()).collect(), 0)
    };
    shard.state = AdamWState {
        param: join(|state| &state.param),
        exp_avg: join(|state| &state.exp_avg),
        exp_avg_sq: join(|state| &state.exp_avg_sq),
    };
}

/// (start, length, decays) of runs of parameters that are treated alike.
fn segments(spec: &BlockSpec) -> Vec<(usize, usize, bool)> {
    let mut segments: Vec<(usize, usize, bool)> = Vec::new();
    for (offset, param) in spec.offsets() {
        match segments.last_mut() {
            Some((_, len, decays)) if *decays == param.decays() => *len += param.num_elements(),
            _ => segments.push((offset, param.num_elements(), param.decays())),
        }
    }
    segments
}
