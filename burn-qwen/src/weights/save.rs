//! A folder that other tools load: source layout kept, untouched tensors copied byte for byte.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::View};
use serde_json::{Value, json};

use super::{
    dtype,
    file::TensorFile,
    index::INDEX_FILE,
    load::Checkpoint,
    plan::{self, Content, Plan, PlannedFile, PlannedTensor},
};
use crate::{config::QwenConfig, error::QwenError};

/// Files beside the weights that a checkpoint's folder may have and an export keeps.
const COMPANIONS: &[&str] = &[
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "LICENSE",
];

/// Where the layout of an export comes from.
#[derive(Clone, Copy, Debug)]
pub enum ExportSource<'a> {
    /// The checkpoint that training started from.
    Checkpoint(&'a Checkpoint),
    /// Training from random weights.
    Fresh,
}

/// Choices of an export.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Dtype of trained tensors (F32, BF16 or F16); by default that of the source, or f32 without
    /// one.
    pub dtype: Option<Dtype>,
    /// Folder with tokenizer, template and generation settings; what it lacks, and everything by
    /// default, comes from the source.
    pub companions: Option<PathBuf>,
    /// Replace an existing folder.
    pub force: bool,
}

/// Values of one parameter, by block and position in it.
pub type ParamValues<'a> = dyn Fn(usize, usize) -> Vec<f32> + 'a;

/// Writes a folder aside, loads it again, compares, and only then renames it to `folder`.
///
/// Values are rounded to the dtype they are stored in, to nearest and ties to even.
///
/// # Errors
/// A folder that exists and is not empty, a dtype that values cannot be stored in, a disk that is
/// full, or bytes that differ after loading.
pub fn export(
    source: ExportSource<'_>,
    config: &QwenConfig,
    values: &ParamValues<'_>,
    folder: &Path,
    options: &ExportOptions,
) -> Result<(), QwenError> {
    let occupied = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if occupied && !options.force {
        return Err(QwenError::weights(
            folder,
            "exists and is not empty: choose another folder or use --force",
        ));
    }
    if let Some(dtype) = options.dtype.filter(|dtype| !dtype::is_supported(*dtype)) {
        return Err(QwenError::weights(
            folder,
            format!("cannot be written as {dtype:?}: choose F32, BF16 or F16"),
        ));
    }
    let aside = beside(folder, "partial");
    remove(&aside)?;
    std::fs::create_dir_all(&aside).map_err(|source| QwenError::io(&aside, source))?;

    let plan = match source {
        ExportSource::Checkpoint(checkpoint) => {
            plan::from_checkpoint(checkpoint, config, options.dtype)
        }
        ExportSource::Fresh => plan::fresh(config, options.dtype.unwrap_or(Dtype::F32)),
    };
    for (name, file) in &plan {
        write_file(&aside.join(name), file, values)?;
    }
    write_index(&aside, source, &plan)?;
    write_json(&aside.join("config.json"), &config_json(source, config, options))?;
    copy_companions(&aside, source, options)?;
    compare(&aside, config, &plan, values)?;
    replace(folder, &aside)
}

/// A sibling of the folder, so that renaming it moves no bytes.
fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    folder.with_file_name(format!("{name}.{suffix}"))
}

fn remove(folder: &Path) -> Result<(), QwenError> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|source| QwenError::io(folder, source))?;
    }
    Ok(())
}

/// Puts the finished folder in its place; what was there goes last.
fn replace(folder: &Path, finished: &Path) -> Result<(), QwenError> {
    let rename = |from: &Path, to: &Path| {
        std::fs::rename(from, to).map_err(|source| QwenError::io(from, source))
    };
    let old = beside(folder, "old");
    remove(&old)?;
    if folder.exists() {
        rename(folder, &old)?;
    }
    rename(finished, folder)?;
    remove(&old)
}

/// A tensor whose bytes are made when they are written, so that one is in memory at a time.
struct LazyTensor<'a> {
    planned: &'a PlannedTensor<'a>,
    values: &'a ParamValues<'a>,
    error: &'a RefCell<Option<QwenError>>,
}

impl View for LazyTensor<'_> {
    fn dtype(&self) -> Dtype {
        self.planned.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.planned.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(content(self.planned, self.values).unwrap_or_else(|error| {
            // The trait has no way to fail: the caller looks here after writing.
            self.error.borrow_mut().get_or_insert(error);
            vec![0; self.data_len()]
        }))
    }

    fn data_len(&self) -> usize {
        self.planned.num_bytes()
    }
}

/// The bytes of a tensor as they are to be stored.
fn content(planned: &PlannedTensor<'_>, values: &ParamValues<'_>) -> Result<Vec<u8>, QwenError> {
    match planned.content {
        Content::Trained { block, param } => {
            Ok(dtype::encode(planned.dtype, &values(block, param)))
        }
        Content::Copied(file) => file.read(&planned.name),
    }
}

fn write_file(
    path: &Path,
    file: &PlannedFile<'_>,
    values: &ParamValues<'_>,
) -> Result<(), QwenError> {
    let error = RefCell::new(None);
    let views = file
        .tensors
        .iter()
        .map(|planned| (&planned.name, LazyTensor { planned, values, error: &error }));
    let mut metadata = file.metadata.clone();
    metadata.entry("format".to_string()).or_insert_with(|| "pt".to_string());
    safetensors::serialize_to_file(views, Some(metadata), path)
        .map_err(|error| QwenError::weights(path, format!("cannot be written: {error}")))?;
    if let Some(error) = error.into_inner() {
        return Err(error);
    }
    let written = std::fs::File::open(path).and_then(|file| file.sync_all());
    written.map_err(|source| QwenError::io(path, source))
}

fn write_index(folder: &Path, source: ExportSource<'_>, plan: &Plan<'_>) -> Result<(), QwenError> {
    let old = match source {
        ExportSource::Checkpoint(checkpoint) => checkpoint.index.clone(),
        ExportSource::Fresh => None,
    };
    if plan.len() == 1 && old.is_none() {
        return Ok(());
    }
    let mut index = old.unwrap_or_else(|| json!({"metadata": {}}));
    if !index["metadata"].is_object() {
        index["metadata"] = json!({});
    }
    let tensors = plan.values().flat_map(|file| &file.tensors);
    index["metadata"]["total_size"] = json!(tensors.map(PlannedTensor::num_bytes).sum::<usize>());
    let mut weight_map = BTreeMap::new();
    for (name, file) in plan {
        weight_map.extend(file.tensors.iter().map(|tensor| (&tensor.name, name)));
    }
    index["weight_map"] = json!(weight_map);
    write_json(&folder.join(INDEX_FILE), &index)
}

/// The source's configuration as it was, or with the dtype that was asked for.
fn config_json(source: ExportSource<'_>, config: &QwenConfig, options: &ExportOptions) -> Value {
    match (source, options.dtype) {
        (ExportSource::Checkpoint(_), None) => config.raw.clone(),
        (ExportSource::Checkpoint(_), Some(dtype)) => config.to_json(dtype::torch_name(dtype)),
        (ExportSource::Fresh, dtype) => {
            config.to_text_json(dtype::torch_name(dtype.unwrap_or(Dtype::F32)))
        }
    }
}

fn copy_companions(
    folder: &Path,
    source: ExportSource<'_>,
    options: &ExportOptions,
) -> Result<(), QwenError> {
    let origin = match source {
        ExportSource::Checkpoint(checkpoint) => Some(&checkpoint.folder),
        ExportSource::Fresh => None,
    };
    for name in COMPANIONS {
        let candidates = options.companions.iter().chain(origin).map(|from| from.join(name));
        if let Some(path) = candidates.into_iter().find(|path| path.exists()) {
            // Not `fs::copy`, which would also keep a source's lack of write permission.
            let bytes = std::fs::read(&path).map_err(|source| QwenError::io(&path, source))?;
            let target = folder.join(name);
            std::fs::write(&target, bytes).map_err(|source| QwenError::io(&target, source))?;
        }
    }
    Ok(())
}

fn write_json(path: &Path, value: &Value) -> Result<(), QwenError> {
    let text = serde_json::to_string_pretty(value).expect("a JSON value can be written as JSON");
    std::fs::write(path, text + "\n").map_err(|source| QwenError::io(path, source))
}

/// Loads what was written and compares it with what was to be written.
fn compare(
    folder: &Path,
    config: &QwenConfig,
    plan: &Plan<'_>,
    values: &ParamValues<'_>,
) -> Result<(), QwenError> {
    let written = QwenConfig::from_folder(folder)?;
    if crate::params::block_specs(&written) != crate::params::block_specs(config) {
        return Err(QwenError::weights(
            folder,
            "the exported configuration describes another model than the one that was trained",
        ));
    }
    Checkpoint::open(folder, &written)?;
    for (name, planned) in plan {
        let file = TensorFile::open(&folder.join(name))?;
        for tensor in &planned.tensors {
            if file.read(&tensor.name)? != content(tensor, values)? {
                return Err(QwenError::weights(
                    &file.path,
                    format!("{} differs after it was written: is the disk sound?", tensor.name),
                ));
            }
        }
    }
    Ok(())
}
