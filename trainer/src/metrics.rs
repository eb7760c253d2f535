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

/// What the kept lines of a resumed run say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct History {
    /// Loss of the last step that had a target.
    pub final_loss: Option<f64>,
    /// Evaluation before the first step.
    pub initial_eval_loss: Option<f64>,
    /// Step and loss of the last evaluation.
    pub last_eval: Option<(u64, f64)>,
}

impl History {
    /// Takes note of an evaluation.
    pub fn evaluated(&mut self, step: u64, loss: f64) {
        if step == 0 {
            self.initial_eval_loss = Some(loss);
        }
        self.last_eval = Some((step, loss));
    }

    fn read(lines: &[&str]) -> Self {
        let mut history = Self::default();
        for line in lines {
            if let Ok(record) = serde_json::from_str::<StepRecord>(line) {
                history.final_loss = record.loss.or(history.final_loss);
            } else if let Ok(record) = serde_json::from_str::<EvalRecord>(line) {
                history.evaluated(record.step, record.eval_loss);
            }
        }
        history
    }
}

/// `metrics.jsonl` of a run.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    file: File,
}

impl MetricsFile {
    /// Opens the file of a run; lines of steps after `step` belong to work that is done again and
    /// are dropped, as is a line that a crash cut short.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn open(run: &Path, step: u64) -> Result<(Self, History), TrainError> {
        let path = run.join("metrics.jsonl");
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let is_kept = |line: &&str| {
            let record: Result<Value, _> = serde_json::from_str(line);
            record.is_ok_and(|r| r["step"].as_u64().is_some_and(|s| s <= step))
        };
        let kept: Vec<&str> = old.lines().filter(is_kept).collect();
        let text: String = kept.iter().flat_map(|line| [line, "\n"]).collect();
        // Written aside, so that a crash here does not cost the lines of all earlier steps.
        let aside = path.with_extension("partial");
        let replace = || {
            std::fs::write(&aside, &text)?;
            std::fs::rename(&aside, &path)?;
            OpenOptions::new().append(true).open(&path)
        };
        let failed = format!("cannot write {}", path.display());
        let file = replace().map_err(TrainError::machine(failed))?;
        Ok((Self { path, file }, History::read(&kept)))
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

    /// Waits until all records are on the disk: a checkpoint must not be ahead of them.
    ///
    /// # Errors
    /// A disk that fails.
    pub fn sync(&self) -> Result<(), TrainError> {
        let failed = format!("cannot write {}", self.path.display());
        self.file.sync_data().map_err(TrainError::machine(failed))
    }
}

/// Largest resident memory of this process, where the system tells.
pub fn peak_memory_bytes() -> Option<u64> {
    kib("/proc/self/status", "VmHWM:")
}

/// Memory of this machine, where the system tells.
pub fn total_memory_bytes() -> Option<u64> {
    kib("/proc/meminfo", "MemTotal:")
}

fn kib(file: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_and_a_cut_line_are_dropped() {
        let run = tempfile::tempdir().unwrap();
        let eval = |step, eval_loss| EvalRecord { step, eval_loss, eval_tokens: 7 };
        let (mut file, history) = MetricsFile::open(run.path(), 0).unwrap();
        assert_eq!(history, History::default());
        for (step, loss) in [(0, 3.0), (2, 0.1 + 0.2), (4, 1.0)] {
            file.write(&eval(step, loss)).unwrap();
        }
        file.file.write_all(b"{\"step\": 1, \"los").unwrap();
        let (_, history) = MetricsFile::open(run.path(), 3).unwrap();
        assert_eq!(history.initial_eval_loss, Some(3.0));
        assert_eq!(history.last_eval, Some((2, 0.1 + 0.2)));
        let text = std::fs::read_to_string(run.path().join("metrics.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 2);
    }
}
