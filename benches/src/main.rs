//! Measurements on this machine; each prints a table, or JSON to keep in `benches/results/`.
//!
//! ```sh
//! cargo run --release -p burn-qwen-benches -- step --model hybrid
//! ```
//! Machines are noisy: compare numbers of one run, as ratios.

mod matmul;
mod models;
mod record;
mod step;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use record::Record;

#[derive(Parser)]
#[command(about = "Measure matrix products and training steps", version)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
    /// Writes the result as JSON.
    #[arg(long, global = true)]
    out: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Bench {
    /// GFLOP/s of square f32 products, by implementation
    Matmul,
    /// Tokens/s of a training step on a packed row, and its share of the matmul rate
    Step(step::Options),
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let matmul = matmul::measure();
    let steps = match &cli.bench {
        Bench::Matmul => Vec::new(),
        Bench::Step(options) => step::measure(options, matmul::best(&matmul))?,
    };
    let record = Record::new(matmul, steps);
    record.print();
    if let Some(path) = cli.out {
        std::fs::write(path, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    Ok(())
}
