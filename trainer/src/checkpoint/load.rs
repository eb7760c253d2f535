//! Finding and verifying a checkpoint, and putting it into an engine.

use std::path::Path;

use burn::tensor::Device;
use burn_qwen::BlockSpec;
use safetensors::SafeTensors;
use sha2::{Digest, Sha256};

use super::{COMPLETE, MANIFEST, Manifest, complete_steps, folder, save::hex};
use crate::{
    engine::{Engine, store::SHARD_TENSORS},
    error::TrainError,
};

/// The step that `resume` (`auto`, `never`, or a step) means; `None` to start anew.
///
/// `auto` takes the newest checkpoint that is whole and says which ones it passed over.
///
/// # Errors
/// A step without a complete checkpoint.
pub fn resolve(
    run: &Path,
    resume: &str,
    notices: &mut Vec<String>,
) -> Result<Option<u64>, TrainError> {
    let steps = complete_steps(run);
    match resume {
        "never" => Ok(None),
        "auto" => {
            for folder in super::incomplete(run) {
                notices.push(format!(
                    "passed over {}: its save did not come to an end",
                    folder.display()
                ));
            }
            for &step in steps.iter().rev() {
                match verify(run, step) {
                    Ok(_) => return Ok(Some(step)),
                    Err(error) => {
                        notices.push(format!("passed over a damaged checkpoint: {error}"));
                    }
                }
            }
            Ok(None)
        }
        step => {
            let step: u64 = step.parse().map_err(|_| {
                TrainError::Input(format!("--resume {step}: expected auto, never or a step"))
            })?;
            if steps.contains(&step) {
                return Ok(Some(step));
            }
            let there: Vec<String> = steps.iter().map(ToString::to_string).collect();
            let there = if there.is_empty() { "none".to_string() } else { there.join(", ") };
            Err(TrainError::Input(format!(
                "--resume {step}: {} has no complete checkpoint of that step; there are: {there}",
                run.display()
            )))
        }
    }
}

/// Reads a manifest and checks that every file is there and unchanged.
fn verify(run: &Path, step: u64) -> Result<Manifest, TrainError> {
    verify_folder(&folder(run, step))
}

fn verify_folder(folder: &Path) -> Result<Manifest, TrainError> {
    let path = folder.join(MANIFEST);
    let damaged = |problem: String| {
        TrainError::Input(format!("{}: {problem}; resume from another step", folder.display()))
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| damaged(format!("{MANIFEST} cannot be read: {error}")))?;
    let expected = std::fs::read_to_string(folder.join(COMPLETE)).unwrap_or_default();
    if hex(&Sha256::digest(text.as_bytes())) != expected.trim() {
        return Err(damaged(format!("{MANIFEST} is damaged: its checksum differs")));
    }
    let manifest: Manifest = serde_json::from_str(&text)
        .map_err(|error| damaged(format!("{MANIFEST} cannot be understood: {error}")))?;
    for (name, expected) in &manifest.files {
        let bytes = std::fs::read(folder.join(name))
            .map_err(|error| damaged(format!("{name} cannot be read: {error}")))?;
        if hex(&Sha256::digest(&bytes)) != *expected {
            return Err(damaged(format!("{name} is damaged: its checksum differs")));
        }
    }
    Ok(manifest)
}

/// The manifest of a checkpoint folder, verified.
///
/// # Errors
/// A folder that is no complete checkpoint, or damaged.
pub fn load(checkpoint: &Path) -> Result<Manifest, TrainError> {
    if !checkpoint.join(COMPLETE).exists() {
        return Err(TrainError::Input(format!(
            "{}: is no complete checkpoint (expected a folder such as \
             RUN/checkpoints/step-00000100)",
            checkpoint.display()
        )));
    }
    verify_folder(checkpoint)
}

impl Engine {
    /// Takes parameters, moments and counters from a verified checkpoint.
    ///
    /// # Errors
    /// Shards of another model.
    pub fn restore(
        &mut self,
        checkpoint: &Path,
        manifest: &Manifest,
        device: &Device,
    ) -> Result<(), TrainError> {
        for block in 0..self.store.num_blocks() {
            let tensors = read_shard(checkpoint, block, &self.store.specs()[block])?;
            self.store.import_shard(block, tensors, device);
        }
        self.num_updates = manifest.num_updates;
        Ok(())
    }
}

/// Parameter and moments of a block.
fn read_shard(
    checkpoint: &Path,
    block: usize,
    spec: &BlockSpec,
) -> Result<[Vec<f32>; 3], TrainError> {
    let path = checkpoint.join(super::shard_file(block));
    let wrong = |problem: &str| TrainError::Input(format!("{}: {problem}", path.display()));
    let bytes = std::fs::read(&path).map_err(|e| wrong(&e.to_string()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| wrong(&e.to_string()))?;
    let mut tensors: [Vec<f32>; 3] = Default::default();
    for (name, values) in SHARD_TENSORS.iter().zip(&mut tensors) {
        let tensor = file.tensor(name).map_err(|e| wrong(&e.to_string()))?;
        let chunks = tensor.data().as_chunks::<4>().0;
        *values = chunks.iter().copied().map(f32::from_le_bytes).collect();
        if values.len() != spec.num_elements() {
            return Err(wrong("belongs to another model: sizes differ"));
        }
    }
    Ok(tensors)
}

/// The parameters of a block of a checkpoint, flat.
///
/// # Errors
/// A shard of another model.
pub fn read_params(
    checkpoint: &Path,
    block: usize,
    spec: &BlockSpec,
) -> Result<Vec<f32>, TrainError> {
    let [params, ..] = read_shard(checkpoint, block, spec)?;
    Ok(params)
}
