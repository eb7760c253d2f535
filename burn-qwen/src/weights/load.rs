//! Checkpoint folders in: every parameter is filled exactly once.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    dtype,
    file::TensorFile,
    keys::{KeyTable, Stored},
};
use crate::{
    config::QwenConfig,
    error::QwenError,
    params::{BlockSpec, ParamRole, ParamSpec, block_specs},
};

pub(crate) const SINGLE_FILE: &str = "model.safetensors";
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";

/// A checkpoint folder whose tensors are those of the model; values are read block by block.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub(crate) folder: PathBuf,
    pub(crate) files: Vec<TensorFile>,
    /// Stored name to file.
    pub(crate) locations: BTreeMap<String, usize>,
    pub(crate) keys: KeyTable,
    pub(crate) index: Option<Value>,
    notices: Vec<String>,
    others: Vec<String>,
}

impl Checkpoint {
    /// Opens a folder and checks it against the model: headers and norms are read, no more.
    ///
    /// # Errors
    /// Missing, surplus, misshapen or unreadable tensors and files, each named.
    pub fn open(folder: &Path, config: &QwenConfig) -> Result<Self, QwenError> {
        let mut notices = Vec::new();
        let (files, locations, index) = open_files(folder, &mut notices)?;
        let Some(keys) = KeyTable::detect(locations.keys().map(String::as_str)) else {
            return Err(QwenError::weights(
                folder,
                "has no embed_tokens.weight under model., model.language_model. or \
                 language_model.model.: this is no Qwen text checkpoint",
            ));
        };
        let others =
            locations.keys().filter(|n| keys.classify(n) == Stored::Other).cloned().collect();
        let folder = folder.to_path_buf();
        let mut checkpoint = Self { folder, files, locations, keys, index, notices, others };
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

    /// The flat shard of a block, in f32.
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

    fn read_param(&self, param: &ParamSpec, values: &mut Vec<f32>) -> Result<(), QwenError> {
        let stored = self.keys.stored(&param.name);
        let file = self.file_of(&stored)?;
        let entry = &file.tensors[&stored];
        dtype::decode(entry.dtype, &file.read(&stored)?, values);
        Ok(())
    }

    fn file_of(&self, stored: &str) -> Result<&TensorFile, QwenError> {
        self.locations.get(stored).map(|&file| &self.files[file]).ok_or_else(|| {
            QwenError::weights(&self.folder, format!("{stored} is missing from every file"))
        })
    }

    fn check_tensors(&mut self, config: &QwenConfig) -> Result<(), QwenError> {
        let specs = block_specs(config);
        let params = specs.iter().flat_map(|block| &block.params);
        let expected: BTreeMap<String, &ParamSpec> =
            params.map(|param| (self.keys.stored(&param.name), param)).collect();

        let missing: Vec<_> =
            expected.keys().filter(|name| !self.locations.contains_key(*name)).cloned().collect();
        if !missing.is_empty() {
            let hint = if missing.iter().any(|name| name.ends_with("lm_head.weight")) {
                "; the configuration says tie_word_embeddings: false, so the head needs its own \
                 weights"
            } else {
                ""
            };
            return Err(QwenError::weights(
                &self.folder,
                format!(
                    "{} of the model {} missing: {}{hint}",
                    count(missing.len(), "tensor"),
                    if missing.len() == 1 { "is" } else { "are" },
                    first_few(&missing)
                ),
            ));
        }
        for (name, param) in &expected {
            let file = self.file_of(name)?;
            let entry = &file.tensors[name];
            if entry.shape != param.shape {
                return Err(QwenError::weights(
                    &file.path,
                    format!(
                        "{name} has shape {:?}, the configuration asks for {:?}",
                        entry.shape, param.shape
                    ),
                ));
            }
            if !dtype::is_supported(entry.dtype) {
                return Err(QwenError::weights(
                    &file.path,
                    format!(
                        "{name} is stored as {:?}, which needs scales that are not supported; \
                         BF16, F16 and F32 are read: use the bf16 checkpoint of the same model",
                        entry.dtype
                    ),
                ));
            }
        }
        let mut surplus = Vec::new();
        for name in self.locations.keys() {
            let Stored::Text(text) = self.keys.classify(name) else { continue };
            if expected.contains_key(name) {
                continue;
            }
            if text == "lm_head.weight" && config.tie_word_embeddings {
                self.notices.push(format!(
                    "{name} is stored although the head is tied to the embedding: it is not used"
                ));
            } else if text.ends_with("rotary_emb.inv_freq") {
                self.notices.push(format!("{name} is computed, not read"));
            } else {
                surplus.push(name.clone());
            }
        }
        if surplus.is_empty() {
            return Ok(());
        }
        Err(QwenError::weights(
            &self.folder,
            format!(
                "{} that the model does not have: {}; does config.json belong to these weights?",
                count(surplus.len(), "tensor"),
                first_few(&surplus)
            ),
        ))
    }

    /// Norms that multiply by `1 + w` are stored around 0, the others around 1. A checkpoint with
    /// the two confused loads and computes nonsense.
    fn check_norms(&mut self, config: &QwenConfig) -> Result<(), QwenError> {
        let mut zero_centered = Mean::default();
        let mut plain = Mean::default();
        for block in block_specs(config) {
            for param in &block.params {
                let mean = match param.role {
                    ParamRole::ZeroCenteredNorm => &mut zero_centered,
                    ParamRole::Norm => &mut plain,
                    _ => continue,
                };
                let mut values = Vec::new();
                self.read_param(param, &mut values)?;
                mean.add(&values);
            }
        }
        let (Some(zero_centered), plain) = (zero_centered.value(), plain.value()) else {
            return Ok(());
        };
        let swapped = zero_centered > 0.6 && plain.is_some_and(|plain| plain < 0.4);
        let form = "the norms of this family multiply by 1 + w and are stored around 0, the gated \
                    norms multiply by w and are stored around 1";
        if swapped {
            return Err(QwenError::weights(
                &self.folder,
                format!(
                    "the two forms of norm weights are swapped: {form}; found means of \
                     {zero_centered:.2} and {:.2}",
                    plain.unwrap_or_default()
                ),
            ));
        }
        if zero_centered > 0.75 {
            self.notices.push(format!(
                "layer norms have a mean of {zero_centered:.2}: {form}; if these weights include \
                 the 1 already, subtract it"
            ));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, values: &[f32]) {
        self.sum += values.iter().map(|&x| f64::from(x)).sum::<f64>();
        self.count += values.len();
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn first_few(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

type OpenFiles = (Vec<TensorFile>, BTreeMap<String, usize>, Option<Value>);

fn open_files(folder: &Path, notices: &mut Vec<String>) -> Result<OpenFiles, QwenError> {
    let index_path = folder.join(INDEX_FILE);
    if !index_path.exists() {
        let single = folder.join(SINGLE_FILE);
        if !single.exists() {
            return Err(QwenError::weights(
                folder,
                format!("has neither {SINGLE_FILE} nor {INDEX_FILE}"),
            ));
        }
        let file = TensorFile::open(&single)?;
        let locations = file.tensors.keys().map(|name| (name.clone(), 0)).collect();
        return Ok((vec![file], locations, None));
    }
    let text = std::fs::read_to_string(&index_path).map_err(|e| QwenError::io(&index_path, e))?;
    let index: Value = serde_json::from_str(&text)
        .map_err(|error| QwenError::weights(&index_path, format!("is not JSON: {error}")))?;
    let Some(weight_map) = index["weight_map"].as_object() else {
        return Err(QwenError::weights(&index_path, "has no object weight_map"));
    };
    let mut names = BTreeSet::new();
    for (key, file) in weight_map {
        match file.as_str() {
            Some(file) if !file.contains(['/', '\\']) => names.insert(file.to_string()),
            _ => {
                return Err(QwenError::weights(
                    &index_path,
                    format!(
                        "weight_map.{key} must be the name of a file in this folder, found {file}"
                    ),
                ));
            }
        };
    }
    let names: Vec<String> = names.into_iter().collect();
    if let Some(missing) = names.iter().find(|name| !folder.join(name).exists()) {
        return Err(QwenError::weights(
            &index_path,
            format!("names {missing}, which is not in the folder: download it"),
        ));
    }
    let files: Vec<TensorFile> =
        names.iter().map(|name| TensorFile::open(&folder.join(name))).collect::<Result<_, _>>()?;
    let mut locations = BTreeMap::new();
    for (key, file) in weight_map {
        let position = names.iter().position(|name| Some(name.as_str()) == file.as_str());
        let position = position.expect("every file of the map was opened");
        if !files[position].tensors.contains_key(key) {
            return Err(QwenError::weights(
                &files[position].path,
                format!("has no tensor {key}, although {INDEX_FILE} says so"),
            ));
        }
        locations.insert(key.clone(), position);
    }
    check_index(&index, &files, &locations, notices);
    Ok((files, locations, Some(index)))
}

/// What an index gets wrong without harm: a total that differs, tensors it does not list.
fn check_index(
    index: &Value,
    files: &[TensorFile],
    locations: &BTreeMap<String, usize>,
    notices: &mut Vec<String>,
) {
    let listed: usize =
        locations.iter().map(|(name, &file)| files[file].tensors[name].num_bytes).sum();
    if let Some(total) = index["metadata"]["total_size"].as_f64()
        && total != listed as f64
    {
        notices.push(format!(
            "{INDEX_FILE} gives total_size {total}, its tensors have {listed} bytes"
        ));
    }
    for (position, file) in files.iter().enumerate() {
        let unlisted =
            file.tensors.keys().filter(|name| locations.get(*name) != Some(&position)).count();
        if unlisted > 0 {
            notices.push(format!(
                "{} holds {} that {INDEX_FILE} does not list there: not read",
                file.path.display(),
                count(unlisted, "tensor")
            ));
        }
    }
}
