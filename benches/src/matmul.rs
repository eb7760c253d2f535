//! The rate of plain matrix products: what the rest is held against.

use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, Tensor};
use burn_qwen_kernels::ops::linear::{FlexLinear, Linear};
use serde::Serialize;

const SIZES: [usize; 3] = [512, 1024, 2048];
/// Products of each size; the fastest counts.
const REPEATS: usize = 8;

/// The rate of one size.
#[derive(Debug, Serialize)]
pub(crate) struct MatmulRate {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) gflops: f64,
}

/// Burn's own product and the fused `linear`, alternating.
pub(crate) fn measure() -> Vec<MatmulRate> {
    let device = Device::flex();
    let mut rates = Vec::new();
    for size in SIZES {
        let random = || {
            let uniform = Distribution::Uniform(-1.0, 1.0);
            Tensor::<2>::random([size, size], uniform, (&device, DType::F32))
        };
        let (a, b) = (random(), random());
        let mut best = [f64::INFINITY; 2];
        for _ in 0..REPEATS {
            best[0] = best[0].min(secs(|| a.clone().matmul(b.clone().transpose())));
            best[1] = best[1].min(secs(|| FlexLinear.forward(a.clone(), b.clone(), None, None)));
        }
        let flops = 2.0 * (size as f64).powi(3);
        for (name, secs) in ["burn flex", "linear flex"].into_iter().zip(best) {
            rates.push(MatmulRate { name, size, gflops: flops / secs / 1e9 });
        }
    }
    rates
}

/// The highest rate seen, in GFLOP/s.
pub(crate) fn best(rates: &[MatmulRate]) -> f64 {
    rates.iter().map(|rate| rate.gflops).fold(0.0, f64::max)
}

fn secs(product: impl FnOnce() -> Tensor<2>) -> f64 {
    let start = Instant::now();
    std::hint::black_box(product());
    start.elapsed().as_secs_f64()
}
