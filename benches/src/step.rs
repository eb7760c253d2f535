//! Training steps on packed rows of random tokens.

use std::time::Instant;

use burn::tensor::{DType, Device};
use burn_qwen::{flops::Flops, init::init_block};
use burn_qwen_data::{Batch, IGNORE_INDEX};
use burn_qwen_kernels::{BackendKind, KernelConfig, Kernels};
use burn_qwen_trainer::{
    engine::{AdamWConfig, Engine, Recompute},
    metrics::peak_memory_bytes,
};
use clap::Args;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde::Serialize;

use crate::models;

#[derive(Args)]
pub(crate) struct Options {
    /// hybrid or dense
    #[arg(long, default_value = "hybrid")]
    model: String,
    /// Sets of kernels to compare: auto, reference
    #[arg(long, value_delimiter = ',', default_value = "auto")]
    kernels: Vec<String>,
    /// Tokens of a row
    #[arg(long, default_value_t = 2048)]
    tokens: usize,
    /// One document instead of several of 100 to 700 tokens
    #[arg(long)]
    one_document: bool,
    /// Keep a block's input only
    #[arg(long)]
    recompute: bool,
    /// Timed steps after one that is not; the fastest counts
    #[arg(long, default_value_t = 4)]
    steps: usize,
}

/// The rate of one model with one set of kernels.
#[derive(Debug, Serialize)]
pub(crate) struct StepRate {
    pub(crate) model: String,
    pub(crate) kernels: String,
    pub(crate) recompute: &'static str,
    pub(crate) tokens: usize,
    pub(crate) documents: usize,
    pub(crate) step_secs: f64,
    pub(crate) tokens_per_second: f64,
    /// By formula, nothing computed twice.
    pub(crate) gflops: f64,
    /// `gflops` over the best matmul rate of the same run.
    pub(crate) mfu: f64,
    /// Of the process so far.
    pub(crate) peak_memory_bytes: Option<u64>,
}

pub(crate) fn measure(options: &Options, matmul_gflops: f64) -> anyhow::Result<Vec<StepRate>> {
    options.kernels.iter().map(|kernels| one(options, kernels, matmul_gflops)).collect()
}

fn one(options: &Options, kernels: &str, matmul_gflops: f64) -> anyhow::Result<StepRate> {
    let config = models::config(&options.model)?;
    let kernel_config = KernelConfig::parse(kernels);
    let case = config.kernel_case(BackendKind::Flex, DType::F32, true, options.tokens);
    let (resolved, _) = Kernels::resolve(&kernel_config, &case)?;
    let (policy, name) =
        if options.recompute { (Recompute::Full, "full") } else { (Recompute::None, "none") };
    let mut engine = Engine::new(config.clone(), Device::flex(), resolved, policy, |spec| {
        Ok(init_block(&config, spec, 0))
    })?;
    let row = row(options.tokens, options.one_document, config.vocab_size);
    let adamw =
        AdamWConfig { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };
    let mut best = f64::INFINITY;
    for step in 0..=options.steps {
        let start = Instant::now();
        engine.forward_backward(&row)?;
        engine.update(row.num_trained(), 1e-4, &adamw)?;
        if step > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    let lengths = row.cu_seqlens.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
    let gflops = Flops::of(&config).train(lengths, row.num_trained()) / best / 1e9;
    Ok(StepRate {
        model: options.model.clone(),
        kernels: kernels.to_string(),
        recompute: name,
        tokens: options.tokens,
        documents: row.num_documents(),
        step_secs: best,
        tokens_per_second: options.tokens as f64 / best,
        gflops,
        mfu: gflops / matmul_gflops,
        peak_memory_bytes: peak_memory_bytes(),
    })
}

/// Documents of mixed lengths, about half of the tokens targets.
fn row(tokens: usize, one_document: bool, vocab_size: usize) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut row = Batch { cu_seqlens: vec![0], ..Batch::default() };
    while row.input_ids.len() < tokens {
        let left = tokens - row.input_ids.len();
        let length = if one_document { left } else { rng.random_range(100..700).min(left) };
        for position in 0..length {
            let next = rng.random_range(0..vocab_size as i32);
            row.input_ids.push(rng.random_range(0..vocab_size as i32));
            row.position_ids.push(position as i32);
            let is_target = position + 1 < length && rng.random_bool(0.5);
            row.labels.push(if is_target { next } else { IGNORE_INDEX });
        }
        row.cu_seqlens.push(row.input_ids.len() as i32);
        row.sample_ids.push(row.sample_ids.len() as u64);
    }
    row
}
