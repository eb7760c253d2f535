//! Writing a checkpoint so that a crash at any moment leaves the previous one whole.

use std::{fmt::Write as _, fs::File, io::Write as _, path::Path};

use safetensors::{Dtype, tensor::TensorView};
use sha2::{Digest, Sha256};

use super::{
    COMPLETE, MANIFEST, Manifest, PARTIAL, complete_steps, folder, incomplete, shard_file,
};
use crate::{
    engine::{Engine, store::SHARD_TENSORS},
    error::TrainError,
};

/// Writes a checkpoint of `run`, then removes all but the newest `keep` (0 keeps all), and those of
/// later steps: a run that went back to this step is about to do their work again.
///
/// # Errors
/// A disk that is full or not writable; older checkpoints are untouched then.
pub fn save(
    run: &Path,
    engine: &Engine,
    mut manifest: Manifest,
    keep: usize,
) -> Result<(), TrainError> {
    let target = folder(run, manifest.step);
    remove_partial(run)?;
    let aside = target.with_extension(PARTIAL);
    std::fs::create_dir_all(&aside)
        .map_err(TrainError::machine(format!("cannot create {}", aside.display())))?;
    for block in 0..engine.store.num_blocks() {
        let bytes = shard_bytes(engine.store.export_shard(block));
        let name = shard_file(block);
        write_synced(&aside.join(&name), &bytes)?;
        manifest.files.insert(name, hex(&Sha256::digest(&bytes)));
    }
    let json = serde_json::to_vec_pretty(&manifest).expect("a manifest is plain values");
    write_synced(&aside.join(MANIFEST), &json)?;
    write_synced(&aside.join(COMPLETE), hex(&Sha256::digest(&json)).as_bytes())?;
    sync_folder(&aside)?;
    // The same step saved again (after a resume) replaces the older copy.
    remove(&target)?;
    std::fs::rename(&aside, &target)
        .map_err(TrainError::machine(format!("cannot rename {}", aside.display())))?;
    if let Some(parent) = target.parent() {
        sync_folder(parent)?;
    }
    let (steps, later): (Vec<u64>, Vec<u64>) =
        complete_steps(run).into_iter().partition(|&step| step <= manifest.step);
    let old = if keep > 0 { steps.len().saturating_sub(keep) } else { 0 };
    for &step in steps[..old].iter().chain(&later) {
        remove(&folder(run, step))?;
    }
    Ok(())
}

/// What interrupted saves left.
fn remove_partial(run: &Path) -> Result<(), TrainError> {
    for folder in incomplete(run) {
        if folder.extension().is_some_and(|extension| extension == PARTIAL) {
            remove(&folder)?;
        }
    }
    Ok(())
}

fn shard_bytes(tensors: [Vec<f32>; 3]) -> Vec<u8> {
    let bytes = tensors.map(|values| {
        let mut bytes = Vec::with_capacity(4 * values.len());
        for x in values {
            bytes.extend_from_slice(&x.to_le_bytes());
        }
        bytes
    });
    let views = SHARD_TENSORS.iter().zip(&bytes).map(|(name, bytes)| {
        let view = TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes);
        (*name, view.expect("the bytes were made for this shape"))
    });
    safetensors::serialize(views, None).expect("three tensors always fit a header")
}

pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(TrainError::machine(format!("cannot write {}", path.display())))
}

fn sync_folder(path: &Path) -> Result<(), TrainError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(TrainError::machine(format!("cannot sync {}", path.display())))
}

fn remove(path: &Path) -> Result<(), TrainError> {
    if !path.exists() {
        return Ok(());
    }
    std::fs::remove_dir_all(path)
        .map_err(TrainError::machine(format!("cannot remove {}", path.display())))
}
