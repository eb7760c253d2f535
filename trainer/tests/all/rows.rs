//! Engines and hand-made rows for tests that need no files.

use burn::tensor::{DType, Device};
use burn_qwen::init::init_block;
use burn_qwen_data::{Batch, IGNORE_INDEX};
use burn_qwen_kernels::{BackendKind, KernelConfig, Kernels};
use burn_qwen_trainer::{
    TrainError,
    engine::{AdamWConfig, Engine, Recompute},
    step::{StepOutcome, optimizer_step},
};
use serde_json::Value;

use crate::tiny;

pub const ADAMW: AdamWConfig =
    AdamWConfig { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };

/// An engine with random weights.
pub fn engine(config: &Value, recompute: Recompute) -> Engine {
    let config = tiny::parse(config);
    let case = config.kernel_case(BackendKind::Flex, DType::F32, true, 1024);
    let (kernels, _) = Kernels::resolve(&KernelConfig::default(), &case).unwrap();
    let values = config.clone();
    let init = |spec: &_| Ok(init_block(&values, spec, 3));
    Engine::new(config, Device::flex(), kernels, recompute, init).unwrap()
}

/// A document: a prompt without loss and an answer with it.
#[derive(Clone, Copy, Debug)]
pub struct Doc {
    pub id: u64,
    pub prompt: usize,
    pub answer: usize,
}

/// Packs documents into one row, with tokens that depend on the document alone.
pub fn row(docs: &[Doc]) -> Batch {
    let mut batch = Batch { cu_seqlens: vec![0], ..Batch::default() };
    for doc in docs {
        let len = doc.prompt + doc.answer;
        let token = |t: usize| ((doc.id as usize * 31 + t * t * 7 + t) % tiny::VOCAB_SIZE) as i32;
        for t in 0..len {
            batch.input_ids.push(token(t));
            batch.position_ids.push(t as i32);
            let is_target = t + 1 >= doc.prompt && t + 1 < len;
            batch.labels.push(if is_target { token(t + 1) } else { IGNORE_INDEX });
        }
        batch.cu_seqlens.push(batch.input_ids.len() as i32);
        batch.sample_ids.push(doc.id);
    }
    batch
}

/// One optimizer step over rows.
pub fn step(engine: &mut Engine, rows: &[Batch], lr: f64) -> Result<StepOutcome, TrainError> {
    let mut rows = rows.iter().cloned();
    let number = engine.num_updates + 1;
    let micro_batches = rows.len() as u64;
    let mut next = || Ok((0, rows.next().expect("as many rows as micro-batches")));
    optimizer_step(engine, &mut next, micro_batches, number, lr, &ADAMW)
}

/// Parameters and moments of every block.
pub fn state(engine: &Engine) -> Vec<[Vec<f32>; 3]> {
    (0..engine.store.num_blocks()).map(|block| engine.store.export_shard(block)).collect()
}
