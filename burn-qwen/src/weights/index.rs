//! The files of a checkpoint folder: one, or shards and the index that lists them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::Value;

use super::file::TensorFile;
use crate::error::QwenError;

pub(super) const SINGLE_FILE: &str = "model.safetensors";
pub(super) const INDEX_FILE: &str = "model.safetensors.index.json";

/// The headers of a folder.
pub(super) struct OpenFiles {
    pub(super) files: Vec<TensorFile>,
    /// Stored name to file.
    pub(super) locations: BTreeMap<String, usize>,
    pub(super) index: Option<Value>,
}

pub(super) fn open_files(folder: &Path, notices: &mut Vec<String>) -> Result<OpenFiles, QwenError> {
    if folder.join(INDEX_FILE).exists() {
        return open_shards(folder, notices);
    }
    let single = folder.join(SINGLE_FILE);
    if !single.exists() {
        return Err(QwenError::weights(
            folder,
            format!("has neither {SINGLE_FILE} nor {INDEX_FILE}: is this a checkpoint folder?"),
        ));
    }
    let file = TensorFile::open(&single)?;
    let locations = file.tensors.keys().map(|name| (name.clone(), 0)).collect();
    Ok(OpenFiles { files: vec![file], locations, index: None })
}

fn open_shards(folder: &Path, notices: &mut Vec<String>) -> Result<OpenFiles, QwenError> {
    let path = folder.join(INDEX_FILE);
    let text = std::fs::read_to_string(&path).map_err(|error| QwenError::io(&path, error))?;
    let index: Value = serde_json::from_str(&text)
        .map_err(|error| QwenError::weights(&path, format!("is not JSON: {error}")))?;
    let weight_map = weight_map(&index, &path)?;
    let names: Vec<&str> =
        weight_map.values().copied().collect::<BTreeSet<_>>().into_iter().collect();
    if let Some(missing) = names.iter().find(|name| !folder.join(name).exists()) {
        let key = weight_map.iter().find(|(_, file)| *file == missing).map_or("", |(key, _)| key);
        return Err(QwenError::weights(
            &path,
            format!("names {missing} (for {key}), which is not in the folder: download it"),
        ));
    }
    if folder.join(SINGLE_FILE).exists() && !names.contains(&SINGLE_FILE) {
        notices.push(format!("both {SINGLE_FILE} and {INDEX_FILE} exist: the index is used"));
    }
    let files: Vec<TensorFile> =
        names.iter().map(|name| TensorFile::open(&folder.join(name))).collect::<Result<_, _>>()?;
    let mut locations = BTreeMap::new();
    for (key, file) in &weight_map {
        let position = names.binary_search(file).expect("every file of the map is in the list");
        if !files[position].tensors.contains_key(*key) {
            return Err(QwenError::weights(
                &files[position].path,
                format!("has no tensor {key}, although {INDEX_FILE} says so"),
            ));
        }
        locations.insert((*key).to_string(), position);
    }
    check_total_size(&index, &files, &locations, notices);
    check_listing(&files, &locations, notices)?;
    Ok(OpenFiles { files, locations, index: Some(index) })
}

/// Tensor name to file name.
fn weight_map<'a>(index: &'a Value, path: &Path) -> Result<BTreeMap<&'a str, &'a str>, QwenError> {
    let Some(map) = index["weight_map"].as_object() else {
        return Err(QwenError::weights(path, "has no object weight_map"));
    };
    let entry = |(key, file): (&'a String, &'a Value)| match file.as_str() {
        Some(file) if !file.contains(['/', '\\']) => Ok((key.as_str(), file)),
        _ => Err(QwenError::weights(
            path,
            format!("weight_map.{key} must be the name of a file in this folder, found {file}"),
        )),
    };
    map.iter().map(entry).collect()
}

/// A wrong total harms nothing.
fn check_total_size(
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
}

/// Tensors that no one asks for are left alone; one that stands in two files has no one value.
fn check_listing(
    files: &[TensorFile],
    locations: &BTreeMap<String, usize>,
    notices: &mut Vec<String>,
) -> Result<(), QwenError> {
    for (position, file) in files.iter().enumerate() {
        for name in file.tensors.keys() {
            match locations.get(name) {
                Some(&listed) if listed == position => {}
                Some(&listed) => {
                    return Err(QwenError::weights(
                        &file.path,
                        format!(
                            "holds {name}, which {INDEX_FILE} places in {}: which of the two is \
                             meant? Remove one",
                            files[listed].path.display()
                        ),
                    ));
                }
                None => notices.push(format!(
                    "{} holds {name}, which {INDEX_FILE} does not list: not read",
                    file.path.display()
                )),
            }
        }
    }
    Ok(())
}
