//! One record per optimizer step, to a file and to the terminal.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::TrainError;

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Optimizer step, from 1.
    pub step: u64,
    /// Passes over the data that were complete when the step's last row was read.
    pub epoch: u64,
    /// Mean loss over the step's targets; null where it had none.
    pub loss: Option<f64>,
    /// Learning rate.
    pub lr: f64,
    /// Global gradient norm before clipping; null where the step had no target.
    pub grad_norm: Option<f64>,
    /// Packed rows.
    pub micro_batches: u64,
    /// Positions computed, padding included (there is none in packed rows).
    pub tokens: u64,
    /// Positions that are no padding.
    pub tokens_real: u64,
    /// Positions with a loss.
    pub tokens_trained: u64,
    /// Documents.
    pub samples: u64,
    /// Wall time of the step.
    pub step_secs: f64,
    /// Part of it spent waiting for data.
    pub data_wait_secs: f64,
    /// `tokens_real` per second.
    pub tokens_per_second: f64,
    /// `tokens_trained` per second.
    pub trained_tokens_per_second: f64,
    /// Share of the device's peak without recomputation; null where the peak is not known.
    pub mfu: Option<f64>,
    /// The same with recomputation.
    pub hfu: Option<f64>,
    /// Largest resident memory of the process so far; null where the system does not tell.
    pub peak_memory_bytes: Option<u64>,
}

/// An evaluation's line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalRecord {
    /// Optimizer steps done.
    pub step: u64,
    /// Mean loss over all targets.
    pub eval_loss: f64,
    /// Targets.
    pub eval_tokens: u64,
}

/// `metrics.jsonl` of a run.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    file: File,
}

impl MetricsFile {
    /// Opens the file of a run; lines of steps after `step` belong to work that is done again and
    /// are dropped.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn open(run: &Path, step: u64) -> Result<Self, TrainError> {
        let path = run.join("metrics.jsonl");
        let failed = || format!("cannot write {}", path.display());
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let is_done = |line: &&str| {
            let record: Result<Value, _> = serde_json::from_str(line);
            record.is_ok_and(|r| r["step"].as_u64().is_some_and(|s| s <= step))
        };
        let kept: String = old.lines().filter(is_done).map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, kept).map_err(TrainError::machine(failed()))?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(TrainError::machine(failed()))?;
        Ok(Self { path, file })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// A disk that is full.
    pub fn write(&mut self, record: &impl Serialize) -> Result<(), TrainError> {
        let mut line = serde_json::to_string(record).expect("a record is plain values");
        line.push('\n');
        let failed = format!("cannot write {}", self.path.display());
        self.file.write_all(line.as_bytes()).map_err(TrainError::machine(failed))
    }
}

/// Largest resident memory of this process, where the system tells.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
