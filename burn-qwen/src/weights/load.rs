//! Checkpoint folders in: every parameter is filled exactly once.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    file::TensorFile,
    index::open_files,
    keys::{KeyTable, Stored},
};
use crate::{
    config::QwenConfig,
    error::QwenError,
    params::{BlockSpec, ParamSpec},
};

/// A checkpoint folder whose tensors are those of the model; values are read block by block.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub(super) folder: PathBuf,
    pub(super) files: Vec<TensorFile>,
    /// Stored name to file.
    pub(super) locations: BTreeMap<String, usize>,
    pub(super) keys: KeyTable,
    pub(super) index: Option<Value>,
    pub(super) notices: Vec<String>,
    others: Vec<String>,
}

impl Checkpoint {
    /// Opens a folder and checks it against the model: headers and norms are read, no more.
    ///
    /// # Errors
    /// Missing, surplus, misshapen or unreadable tensors and files, each named.
    pub fn open(folder: &Path, config: &QwenConfig) -> Result<Self, QwenError> {
        let mut notices = Vec::new();
        let opened = open_files(folder, &mut notices)?;
        let names = opened.locations.keys().map(String::as_str);
        let Some(keys) = KeyTable::detect(names) else {
            return Err(QwenError::weights(
                folder,
                "has no embed_tokens.weight under model., model.language_model. or \
                 language_model.model.: this is no Qwen text checkpoint",
            ));
        };
        let is_other = |name: &&String| keys.classify(name) == Stored::Other;
        let mut checkpoint = Self {
            folder: folder.to_path_buf(),
            others: opened.locations.keys().filter(is_other).cloned().collect(),
            files: opened.files,
            locations: opened.locations,
            index: opened.index,
            keys,
            notices,
        };
        checkpoint.check_tensors(config)?;
        checkpoint.check_norms(config)?;
        Ok(checkpoint)
    }

    /// What is unusual but usable: to be told to the user.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Tensors beside the text model (vision tower, multi-token prediction): never read, copied on
    /// export.
    pub fn other_tensors(&self) -> &[String] {
        &self.others
    }

    /// The stored name of a parameter of the text model.
    pub fn stored_name(&self, name: &str) -> String {
        self.keys.stored(name)
    }

    /// The flat shard of a block, in f32. Beyond the values themselves it needs the memory of one
    /// chunk of a file, so a model takes what its values take, whatever the files hold.
    ///
    /// # Errors
    /// A file that can no longer be read.
    pub fn read_block(&self, spec: &BlockSpec) -> Result<Vec<f32>, QwenError> {
        let mut values = Vec::with_capacity(spec.num_elements());
        for param in &spec.params {
            self.read_param(param, &mut values)?;
        }
        Ok(values)
    }

    pub(super) fn read_param(
        &self,
        param: &ParamSpec,
        values: &mut Vec<f32>,
    ) -> Result<(), QwenError> {
        let stored = self.keys.stored(&param.name);
        self.file_of(&stored)?.read_values(&stored, values)
    }

    pub(super) fn file_of(&self, stored: &str) -> Result<&TensorFile, QwenError> {
        self.locations.get(stored).map(|&file| &self.files[file]).ok_or_else(|| {
            QwenError::weights(&self.folder, format!("{stored} is missing from every file"))
        })
    }
}
