//! `devices`: what this build and machine offer, measured.

use std::time::Instant;

use burn::tensor::{DType, Device, Distribution, Tensor};
use serde::Serialize;

use super::{print, print_json};

/// Matrix size of the measurement.
const SIZE: usize = 1024;
/// Seconds that each measurement takes about.
const SECS: f64 = 0.5;
/// Bytes of the copied buffer: larger than caches.
const COPY_BYTES: usize = 256 << 20;

#[derive(Serialize)]
struct Found {
    device: &'static str,
    threads: usize,
    dtypes: Vec<&'static str>,
    matmul_f32_gflops: f64,
    copy_gb_per_second: f64,
}

pub(crate) fn run(json: bool) {
    let found = Found {
        device: "flex",
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        dtypes: vec!["f32"],
        matmul_f32_gflops: matmul_gflops(),
        copy_gb_per_second: copy_gb_per_second(),
    };
    if json {
        print_json(&[found]);
    } else {
        print(&format!(
            "{}: CPU, {} threads, f32; matmul {:.0} GFLOP/s ({SIZE} x {SIZE}), copy {:.1} GB/s",
            found.device, found.threads, found.matmul_f32_gflops, found.copy_gb_per_second
        ));
    }
}

/// The best of several products.
fn matmul_gflops() -> f64 {
    let device = Device::flex();
    let random = || {
        let uniform = Distribution::Uniform(-1.0, 1.0);
        Tensor::<2>::random([SIZE, SIZE], uniform, (&device, DType::F32))
    };
    let (a, b) = (random(), random());
    let secs = best_secs(|| drop(a.clone().matmul(b.clone())));
    2.0 * (SIZE * SIZE * SIZE) as f64 / secs / 1e9
}

fn copy_gb_per_second() -> f64 {
    let from = vec![1u8; COPY_BYTES];
    let mut to = vec![0u8; COPY_BYTES];
    let secs =
        best_secs(|| std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from)));
    // Read and written.
    2.0 * COPY_BYTES as f64 / secs / 1e9
}

fn best_secs(mut action: impl FnMut()) -> f64 {
    let end = Instant::now();
    let mut best = f64::INFINITY;
    while end.elapsed().as_secs_f64() < SECS {
        let start = Instant::now();
        action();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}
