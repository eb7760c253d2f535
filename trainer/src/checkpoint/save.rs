//! Writing a checkpoint so that a crash at any moment leaves the previous one whole.

use std::{fs::File, io::Write, path::Path};

use safetensors::{Dtype, tensor::TensorView};
use sha2::{Digest, Sha256};

use super::{COMPLETE, MANIFEST, Manifest, complete_steps, folder, shard_file};
use crate::{
    engine::{Engine, store::SHARD_TENSORS},
    error::TrainError,
};

/// Writes a checkpoint of `run`, then removes all but the newest `keep` (0 keeps all).
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
    let aside = target.with_extension("partial");
    remove(&aside)?;
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
    write_synced(&aside.join(COMPLETE), b"")?;
    sync_folder(&aside)?;
    // The same step saved again (after a resume) replaces the older copy.
    remove(&target)?;
    std::fs::rename(&aside, &target)
        .map_err(TrainError::machine(format!("cannot rename {}", aside.display())))?;
    if let Some(parent) = target.parent() {
        sync_folder(parent)?;
    }
    let steps = complete_steps(run);
    if keep > 0 && steps.len() > keep {
        for &step in &steps[..steps.len() - keep] {
            remove(&folder(run, step))?;
        }
    }
    Ok(())
}

fn shard_bytes(tensors: [Vec<f32>; 3]) -> Vec<u8> {
    let bytes =
        tensors.map(|values| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let views = SHARD_TENSORS.iter().zip(&bytes).map(|(name, bytes)| {
        let view = TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes);
        (*name, view.expect("the bytes were made for this shape"))
    });
    safetensors::serialize(views, None).expect("three tensors always fit a header")
}

pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
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
