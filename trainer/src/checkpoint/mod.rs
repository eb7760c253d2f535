//! Checkpoints to resume from: written aside, completed by a marker, verified before they are read.
//!
//! `checkpoints/step-00000100/` holds one safetensors file per block (parameter and both moments,
//! flat), `manifest.json` with everything else and the checksum of every file, and `COMPLETE` with
//! the manifest's checksum, written last. A folder without it does not count.

mod load;
mod save;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use burn_qwen_data::LoaderState;
use burn_qwen_kernels::SelectionReport;
use serde::{Deserialize, Serialize};

pub use load::{load, read_params, resolve};
pub use save::save;

use crate::{config::RunConfig, error::TrainError};

/// What a checkpoint holds beside the shards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Optimizer steps done, those without a target included.
    pub step: u64,
    /// Updates done: steps that had a target.
    pub num_updates: u64,
    /// Packed rows consumed.
    pub num_rows: u64,
    /// Tokens consumed.
    pub num_tokens: u64,
    /// Position in the data.
    pub loader: LoaderState,
    /// The run's settings.
    pub config: RunConfig,
    /// Folder of the model's configuration and source weights.
    pub model_folder: PathBuf,
    /// Folder of tokenizer and template.
    pub tokenizer_folder: PathBuf,
    /// Implementation of every op, as the report's lines.
    pub kernels: Vec<String>,
    /// SHA-256 of every shard file.
    pub files: BTreeMap<String, String>,
}

/// Lines of a kernel report.
pub fn kernel_lines(report: &SelectionReport) -> Vec<String> {
    report.choices.iter().map(ToString::to_string).collect()
}

const MANIFEST: &str = "manifest.json";
const COMPLETE: &str = "COMPLETE";
/// Extension of a folder that is being written.
const PARTIAL: &str = "partial";

fn shard_file(block: usize) -> String {
    format!("block-{block:05}.safetensors")
}

/// Folder of a step's checkpoint in a run folder.
pub fn folder(run: &Path, step: u64) -> PathBuf {
    run.join("checkpoints").join(format!("step-{step:08}"))
}

/// Steps of all complete checkpoints of a run, in order.
pub fn complete_steps(run: &Path) -> Vec<u64> {
    let mut steps: Vec<u64> = folders(run).filter_map(|path| complete_step(&path)).collect();
    steps.sort_unstable();
    steps
}

/// Folders of saves that did not come to their end.
fn incomplete(run: &Path) -> Vec<PathBuf> {
    let mut left: Vec<PathBuf> =
        folders(run).filter(|path| complete_step(path).is_none()).collect();
    left.sort();
    left
}

fn folders(run: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(run.join("checkpoints")).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

fn complete_step(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_prefix("step-")?;
    path.join(COMPLETE).exists().then(|| name.parse().ok())?
}

/// How settings of a resumed run may differ from those it was started with.
///
/// # Errors
/// A difference that changes the result, by key and both values.
pub fn check_same_run(saved: &RunConfig, now: &RunConfig) -> Result<Vec<String>, TrainError> {
    let flat = |config: &RunConfig| {
        let mut values = BTreeMap::new();
        let table = toml::Table::try_from(config).expect("settings are plain values");
        flatten(&toml::Value::Table(table), "", &mut values);
        values
    };
    let (saved, now) = (flat(saved), flat(now));
    let mut notices = Vec::new();
    let keys: std::collections::BTreeSet<&String> = saved.keys().chain(now.keys()).collect();
    for key in keys {
        let (old, new) = (saved.get(key), now.get(key));
        if old == new || is_harmless(key) {
            continue;
        }
        let show = |value: Option<&String>| value.cloned().unwrap_or_else(|| "absent".to_string());
        let (old, new) = (show(old), show(new));
        if matches!(key.as_str(), "train.steps" | "train.epochs") {
            notices
                .push(format!("{key} is {new}, it was {old}: the schedule follows the new length"));
        } else {
            return Err(TrainError::Input(format!(
                "{key} is {new}, the checkpoint was made with {old}; use the same value, or start \
                 a new run"
            )));
        }
    }
    Ok(notices)
}

fn is_harmless(key: &str) -> bool {
    let sections = ["log.", "checkpoint.", "eval.", "exam."];
    sections.iter().any(|section| key.starts_with(section))
        // Neither changes a bit of the result.
        || matches!(key, "data.workers" | "data.eval" | "engine.recompute")
}

fn flatten(value: &toml::Value, prefix: &str, out: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(value, &path, out);
            }
        }
        value => {
            out.insert(prefix.to_string(), value.to_string());
        }
    }
}
