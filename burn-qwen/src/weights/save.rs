//! A folder that other tools load: source layout kept, untouched tensors copied byte for byte.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::View};
use serde_json::{Value, json};

use super::{
    dtype,
    file::TensorFile,
    keys::{KeyTable, Stored},
    load::{Checkpoint, INDEX_FILE, SINGLE_FILE},
};
use crate::{
    config::QwenConfig,
    error::QwenError,
    params::{ParamSpec, block_specs},
};

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

/// Largest file of an export without a source layout.
const MAX_SHARD_BYTES: usize = 5_000_000_000;

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
    /// Dtype of trained tensors; by default that of the source, or f32 without one.
    pub dtype: Option<Dtype>,
    /// Folder with tokenizer, template and generation settings; by default that of the source.
    pub companions: Option<PathBuf>,
    /// Replace an existing folder.
    pub force: bool,
}

/// Values of one parameter, by block and position in it.
pub type ParamValues<'a> = dyn Fn(usize, usize) -> Vec<f32> + 'a;

/// Writes a folder aside, loads it again, compares, and only then renames it to `folder`.
///
/// # Errors
/// A folder that exists, a disk that is full, or values that differ after loading.
pub fn export(
    source: ExportSource<'_>,
    config: &QwenConfig,
    values: &ParamValues<'_>,
    folder: &Path,
    options: &ExportOptions,
) -> Result<(), QwenError> {
    let exists = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if exists && !options.force {
        return Err(QwenError::weights(
            folder,
            "exists and is not empty: choose another folder or use --force",
        ));
    }
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let aside = folder.with_file_name(format!("{name}.partial"));
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| QwenError::Io { path, source }
    };
    if aside.exists() {
        std::fs::remove_dir_all(&aside).map_err(io(&aside))?;
    }
    std::fs::create_dir_all(&aside).map_err(io(&aside))?;

    let plan = plan_files(source, config, options);
    for (file, tensors) in &plan {
        write_file(&aside.join(file), tensors, values)?;
    }
    write_index(&aside, source, &plan)?;
    write_companions(&aside, source, config, options, &plan)?;
    compare(&aside, config, &plan, values)?;

    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(io(folder))?;
    }
    std::fs::rename(&aside, folder).map_err(io(folder))
}

/// What one stored tensor is made of.
#[derive(Clone, Debug)]
struct Planned<'a> {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    content: PlannedContent<'a>,
}

#[derive(Clone, Debug)]
enum PlannedContent<'a> {
    Trained { block: usize, param: usize },
    Copied(&'a TensorFile),
}

impl Planned<'_> {
    fn num_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

type Plan<'a> = BTreeMap<String, Vec<Planned<'a>>>;

fn plan_files<'a>(
    source: ExportSource<'a>,
    config: &QwenConfig,
    options: &ExportOptions,
) -> Plan<'a> {
    let specs = block_specs(config);
    let params: BTreeMap<&str, (usize, usize, &ParamSpec)> = specs
        .iter()
        .enumerate()
        .flat_map(|(b, block)| {
            block.params.iter().enumerate().map(move |(p, spec)| (spec.name.as_str(), (b, p, spec)))
        })
        .collect();
    match source {
        ExportSource::Checkpoint(checkpoint) => {
            let mut plan = Plan::new();
            for (stored, &position) in &checkpoint.locations {
                let file = &checkpoint.files[position];
                let entry = &file.tensors[stored];
                let trained = match checkpoint.keys.classify(stored) {
                    Stored::Text(name) => params.get(name.as_str()).copied(),
                    Stored::Other => None,
                };
                // A head stored beside a tied embedding would be stale: saved once.
                if trained.is_none() && stored.ends_with("lm_head.weight") {
                    continue;
                }
                let planned = match trained {
                    Some((block, param, _)) => Planned {
                        name: stored.clone(),
                        dtype: options.dtype.unwrap_or(entry.dtype),
                        shape: entry.shape.clone(),
                        content: PlannedContent::Trained { block, param },
                    },
                    None => Planned {
                        name: stored.clone(),
                        dtype: entry.dtype,
                        shape: entry.shape.clone(),
                        content: PlannedContent::Copied(file),
                    },
                };
                let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                plan.entry(name).or_default().push(planned);
            }
            plan
        }
        ExportSource::Fresh => {
            let keys = KeyTable::standard();
            let tensors = params.into_values().map(|(block, param, spec)| Planned {
                name: keys.stored(&spec.name),
                dtype: options.dtype.unwrap_or(Dtype::F32),
                shape: spec.shape.clone(),
                content: PlannedContent::Trained { block, param },
            });
            shard(tensors.collect())
        }
    }
}

fn shard(tensors: Vec<Planned<'_>>) -> Plan<'_> {
    let mut shards: Vec<Vec<Planned<'_>>> = vec![Vec::new()];
    let mut bytes = 0;
    for tensor in tensors {
        bytes += tensor.num_bytes();
        if bytes > MAX_SHARD_BYTES && shards.last().is_some_and(|s| !s.is_empty()) {
            shards.push(Vec::new());
            bytes = tensor.num_bytes();
        }
        shards.last_mut().expect("there is always a shard").push(tensor);
    }
    let count = shards.len();
    let name = |i: usize| match count {
        1 => SINGLE_FILE.to_string(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    };
    shards.into_iter().enumerate().map(|(i, tensors)| (name(i), tensors)).collect()
}

/// A tensor whose bytes are made when they are written, so that one is in memory at a time.
struct LazyTensor<'a> {
    planned: &'a Planned<'a>,
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
        let bytes = match &self.planned.content {
            PlannedContent::Trained { block, param } => {
                dtype::encode(self.planned.dtype, &(self.values)(*block, *param))
            }
            PlannedContent::Copied(file) => match file.read(&self.planned.name) {
                Ok(bytes) => bytes,
                Err(error) => {
                    // The trait has no way to fail: the caller looks here after writing.
                    self.error.borrow_mut().get_or_insert(error);
                    vec![0; self.data_len()]
                }
            },
        };
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.planned.num_bytes()
    }
}

fn write_file(
    path: &Path,
    tensors: &[Planned<'_>],
    values: &ParamValues<'_>,
) -> Result<(), QwenError> {
    let error = RefCell::new(None);
    let views = tensors
        .iter()
        .map(|planned| (&planned.name, LazyTensor { planned, values, error: &error }));
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    safetensors::serialize_to_file(views, Some(metadata), path)
        .map_err(|error| QwenError::weights(path, format!("cannot be written: {error}")))?;
    match error.into_inner() {
        Some(error) => Err(error),
        None => Ok(()),
    }
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
    let bytes: usize = plan.values().flatten().map(Planned::num_bytes).sum();
    let mut weight_map = BTreeMap::new();
    for (file, tensors) in plan {
        weight_map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), file.clone())));
    }
    index["metadata"]["total_size"] = json!(bytes);
    index["weight_map"] = json!(weight_map);
    write_json(&folder.join(INDEX_FILE), &index)
}

fn write_companions(
    folder: &Path,
    source: ExportSource<'_>,
    config: &QwenConfig,
    options: &ExportOptions,
    plan: &Plan<'_>,
) -> Result<(), QwenError> {
    let trained = plan.values().flatten().find(|t| t.name.ends_with("embed_tokens.weight"));
    let dtype = trained.map_or(Dtype::F32, |t| t.dtype);
    let same_dtype = matches!(source, ExportSource::Checkpoint(_)) && options.dtype.is_none();
    let json =
        if same_dtype { config.raw.clone() } else { config.to_json(dtype::torch_name(dtype)) };
    write_json(&folder.join("config.json"), &json)?;
    let from = match (&options.companions, source) {
        (Some(from), _) => from,
        (None, ExportSource::Checkpoint(checkpoint)) => &checkpoint.folder,
        (None, ExportSource::Fresh) => return Ok(()),
    };
    for name in COMPANIONS {
        let path = from.join(name);
        if path.exists() {
            std::fs::copy(&path, folder.join(name)).map_err(|e| QwenError::io(&path, e))?;
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
    Checkpoint::open(folder, config)?;
    for (name, tensors) in plan {
        let file = TensorFile::open(&folder.join(name))?;
        for tensor in tensors {
            let expected = match &tensor.content {
                PlannedContent::Trained { block, param } => {
                    dtype::encode(tensor.dtype, &values(*block, *param))
                }
                PlannedContent::Copied(source) => source.read(&tensor.name)?,
            };
            if file.read(&tensor.name)? != expected {
                return Err(QwenError::weights(
                    &file.path,
                    format!("{} differs after it was written: is the disk sound?", tensor.name),
                ));
            }
        }
    }
    Ok(())
}
