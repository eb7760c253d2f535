//! What a measurement leaves behind: numbers with commit and machine.

use std::process::Command;

use serde::Serialize;

use crate::{matmul::MatmulRate, step::StepRate};

/// One run of the program.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    /// Commit of the checkout, with `+` where it had changes; `unknown` outside of one.
    commit: String,
    cpu: String,
    threads: usize,
    matmul: Vec<MatmulRate>,
    steps: Vec<StepRate>,
}

impl Record {
    pub(crate) fn new(matmul: Vec<MatmulRate>, steps: Vec<StepRate>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { commit: commit(), cpu: cpu(), threads, matmul, steps }
    }

    #[allow(clippy::print_stdout, reason = "the program's output")]
    pub(crate) fn print(&self) {
        println!("{} threads of {}, commit {}", self.threads, self.cpu, self.commit);
        for m in &self.matmul {
            println!("matmul {0} x {0} x {0} {1:12} {2:7.0} GFLOP/s", m.size, m.name, m.gflops);
        }
        for s in &self.steps {
            println!(
                "{:7} {:10} recompute {:5} {:6} tokens: {:7.0} tokens/s ({:.2} s a step), {:.0} \
                 GFLOP/s = {:.0} % of the matmul rate, peak {:.2} GB",
                s.model,
                s.kernels,
                s.recompute,
                s.tokens,
                s.tokens_per_second,
                s.step_secs,
                s.gflops,
                100.0 * s.mfu,
                s.peak_memory_bytes.map_or(f64::NAN, |bytes| bytes as f64 / 1e9),
            );
        }
    }
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".into() };
    let changed = git(&["status", "--porcelain", "-uno"]).is_some_and(|lines| !lines.is_empty());
    if changed { commit + "+" } else { commit }
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, name)| name.to_string())
}
