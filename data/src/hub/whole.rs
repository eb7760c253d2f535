//! Files of the cache: whole, or not there.

use std::{fs::File, io::Read, path::Path};

use sha2::{Digest, Sha256};

use super::files;
use crate::hex::hex;

/// What a whole file looks like, as far as it is known.
#[derive(Clone, Default)]
pub(super) struct Expected {
    pub(super) size: Option<u64>,
    pub(super) sha256: Option<String>,
}

impl Expected {
    pub(super) fn has_size(&self, path: &Path) -> bool {
        let size = path.metadata().map(|metadata| metadata.len()).ok();
        self.size.is_none_or(|expected| size == Some(expected))
    }

    /// Whether a downloaded file is the one the hub lists.
    pub(super) fn check(&self, path: &Path) -> Result<(), String> {
        if !self.has_size(path) {
            let size = path.metadata().map_or(0, |metadata| metadata.len());
            let expected = self.size.unwrap_or_default();
            return Err(format!("arrived with {size} bytes instead of {expected}"));
        }
        let Some(expected) = &self.sha256 else { return Ok(()) };
        let found = sha256(path).map_err(|error| format!("cannot be read again: {error}"))?;
        if found == *expected { Ok(()) } else { Err("arrived damaged: its SHA-256 differs".into()) }
    }

    /// Links a file that another commit of the repository in `root` has already brought.
    pub(super) fn reuse(&self, root: &Path, name: &str, path: &Path) -> bool {
        let Some(sha256) = &self.sha256 else { return false };
        let blob = root.join("blobs").join(sha256);
        if !files::is_inside(sha256) || !blob.is_file() || !self.has_size(&blob) {
            return false;
        }
        if path.parent().is_none_or(|folder| std::fs::create_dir_all(folder).is_err()) {
            return false;
        }
        link(&blob, sha256, name, path).is_ok()
    }
}

/// Relative, from `snapshots/COMMIT/` and the folders of the name: a cache may be moved.
#[cfg(unix)]
fn link(_blob: &Path, sha256: &str, name: &str, path: &Path) -> std::io::Result<()> {
    let up = "../".repeat(2 + name.matches('/').count());
    std::os::unix::fs::symlink(format!("{up}blobs/{sha256}"), path)
}

#[cfg(not(unix))]
fn link(blob: &Path, _sha256: &str, _name: &str, path: &Path) -> std::io::Result<()> {
    std::fs::hard_link(blob, path)
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Removes a file of the cache and what it points to, so that it is not taken for whole.
pub(super) fn discard(path: &Path) {
    if let Ok(blob) = path.canonicalize() {
        // If it stays, the check after the next attempt finds it.
        let _ = std::fs::remove_file(blob);
    }
    let _ = std::fs::remove_file(path);
}
