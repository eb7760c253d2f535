//! What an export writes: which tensors, in which files, from where.

use std::collections::{BTreeMap, HashMap};

use safetensors::Dtype;

use super::{
    file::TensorFile,
    index::SINGLE_FILE,
    keys::{KeyTable, Stored},
    load::Checkpoint,
};
use crate::{
    config::QwenConfig,
    params::{ParamSpec, block_specs},
};

/// Largest file of an export without a source layout.
const MAX_SHARD_BYTES: usize = 5_000_000_000;

/// What one stored tensor is made of.
#[derive(Clone, Debug)]
pub(super) struct PlannedTensor<'a> {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) content: Content<'a>,
}

/// Where the bytes come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// A parameter of a block, by position.
    Trained { block: usize, param: usize },
    /// The source checkpoint, untouched.
    Copied(&'a TensorFile),
}

/// One file of an export.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedFile<'a> {
    pub(super) tensors: Vec<PlannedTensor<'a>>,
    pub(super) metadata: HashMap<String, String>,
}

/// File name to content.
pub(super) type Plan<'a> = BTreeMap<String, PlannedFile<'a>>;

impl PlannedTensor<'_> {
    pub(super) fn num_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

/// The files of the source with the trained tensors replaced: same names, same places, and the same
/// dtypes unless another is asked for.
pub(super) fn from_checkpoint<'a>(
    checkpoint: &'a Checkpoint,
    config: &QwenConfig,
    dtype: Option<Dtype>,
) -> Plan<'a> {
    let specs = block_specs(config);
    let mut positions = HashMap::new();
    for (block, spec) in specs.iter().enumerate() {
        for (param, spec) in spec.params.iter().enumerate() {
            positions.insert(spec.name.as_str(), Content::Trained { block, param });
        }
    }
    let mut plan = Plan::new();
    for (stored, &position) in &checkpoint.locations {
        let file = &checkpoint.files[position];
        let entry = &file.tensors[stored];
        let trained = match checkpoint.keys.classify(stored) {
            // A head stored beside a tied embedding would be stale: saved once.
            Stored::Text(name) if name == "lm_head.weight" && config.tie_word_embeddings => {
                continue;
            }
            Stored::Text(name) => positions.get(name.as_str()).copied(),
            Stored::Other => None,
        };
        let planned = PlannedTensor {
            name: stored.clone(),
            dtype: trained.and(dtype).unwrap_or(entry.dtype),
            shape: entry.shape.clone(),
            content: trained.unwrap_or(Content::Copied(file)),
        };
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let target = plan.entry(name).or_insert_with(|| PlannedFile {
            tensors: Vec::new(),
            metadata: file.metadata.clone().into_iter().collect(),
        });
        target.tensors.push(planned);
    }
    plan
}

/// A new text checkpoint under the standard names.
pub(super) fn fresh(config: &QwenConfig, dtype: Dtype) -> Plan<'static> {
    let keys = KeyTable::standard();
    let mut tensors = Vec::new();
    for (block, spec) in block_specs(config).iter().enumerate() {
        tensors.extend(spec.params.iter().enumerate().map(|(param, spec): (_, &ParamSpec)| {
            PlannedTensor {
                name: keys.stored(&spec.name),
                dtype,
                shape: spec.shape.clone(),
                content: Content::Trained { block, param },
            }
        }));
    }
    shard(tensors, MAX_SHARD_BYTES)
}

fn shard(tensors: Vec<PlannedTensor<'_>>, max_bytes: usize) -> Plan<'_> {
    let mut shards = vec![PlannedFile::default()];
    let mut bytes = 0;
    for tensor in tensors {
        let last = shards.len() - 1;
        if bytes + tensor.num_bytes() > max_bytes && !shards[last].tensors.is_empty() {
            shards.push(PlannedFile::default());
            bytes = 0;
        }
        bytes += tensor.num_bytes();
        let last = shards.len() - 1;
        shards[last].tensors.push(tensor);
    }
    let count = shards.len();
    let name = |i: usize| match count {
        1 => SINGLE_FILE.to_string(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    };
    shards.into_iter().enumerate().map(|(i, file)| (name(i), file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_no_larger_than_allowed() {
        let tensor = |elements: usize| PlannedTensor {
            name: elements.to_string(),
            dtype: Dtype::F32,
            shape: vec![elements],
            content: Content::Trained { block: 0, param: 0 },
        };
        let plan = shard(vec![tensor(5), tensor(6), tensor(30), tensor(1)], 48);
        let sizes = |file: &PlannedFile<'_>| -> Vec<usize> {
            file.tensors.iter().map(PlannedTensor::num_bytes).collect()
        };
        let plan: Vec<_> = plan.iter().map(|(name, file)| (name.as_str(), sizes(file))).collect();
        assert_eq!(
            plan,
            [
                ("model-00001-of-00003.safetensors", vec![20, 24]),
                // Larger than a shard may be, but a tensor cannot be split.
                ("model-00002-of-00003.safetensors", vec![120]),
                ("model-00003-of-00003.safetensors", vec![4]),
            ]
        );
        assert_eq!(shard(vec![tensor(5)], 48).keys().collect::<Vec<_>>(), [SINGLE_FILE]);
    }
}
