//! Which files of a repository are wanted.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;

use super::client::Client;
use crate::error::DataError;

/// Files of a model that are no weights; only the first must exist.
const CONFIG_FILES: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
];
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// The part of an index that names the shards.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Configuration, tokenizer and template.
pub(super) fn model_config(client: &Client) -> Result<Vec<String>, DataError> {
    let names = client.names();
    if !names.contains("config.json") {
        return Err(client.error(
            Some("config.json"),
            "the repository does not have it, so it is no model in the Hugging Face layout \
             (some hold only GGUF files or an adapter); name the model it was made from",
        ));
    }
    let wanted = CONFIG_FILES.iter().filter(|&&name| names.contains(name));
    Ok(wanted.map(ToString::to_string).collect())
}

/// The shards that the index names, or the one file.
pub(super) fn model_weights(client: &Client) -> Result<Vec<String>, DataError> {
    let names = client.names();
    if !names.contains(INDEX) {
        if names.contains(SINGLE) {
            return Ok(vec![SINGLE.to_string()]);
        }
        let found: Vec<_> = names
            .iter()
            .filter(|name| [".bin", ".gguf", ".pt", ".pth"].iter().any(|end| name.ends_with(end)))
            .map(String::as_str)
            .collect();
        let found =
            if found.is_empty() { "no weights at all".to_string() } else { found.join(", ") };
        return Err(client.error(
            Some(SINGLE),
            format!("the repository has neither it nor {INDEX}; found {found}"),
        ));
    }
    let path = client.get(INDEX)?;
    let text = std::fs::read(&path).map_err(|source| DataError::Io { path, source })?;
    let index: Index = serde_json::from_slice(&text)
        .map_err(|e| client.error(Some(INDEX), format!("is no index of safetensors: {e}")))?;
    let shards: BTreeSet<String> = index.weight_map.into_values().collect();
    if let Some(missing) = shards.iter().find(|shard| !names.contains(*shard)) {
        return Err(client.error(
            Some(missing),
            format!("{INDEX} names it, but it is not there; the model is not whole"),
        ));
    }
    Ok(std::iter::once(INDEX.to_string()).chain(shards).collect())
}

/// A file of a data set by what its path says.
struct DataFile<'a> {
    name: &'a str,
    folder: &'a str,
    split: &'a str,
    extension: &'a str,
}

/// Extensions in the order in which they are preferred.
const EXTENSIONS: &[&str] = &["parquet", "jsonl", "ndjson", "json"];
/// Splits in the order in which they are preferred.
const SPLITS: &[&str] = &["train", "train_sft"];

impl<'a> DataFile<'a> {
    fn new(name: &'a str) -> Option<Self> {
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        let (stem, extension) = file.rsplit_once('.')?;
        let described = ["dataset_infos", "dataset_info", "config", "state"].contains(&stem);
        if described || stem.is_empty() || !EXTENSIONS.contains(&extension) {
            return None;
        }
        // `train_sft-00000-of-00003-a3ecf92756993583`
        let split = match stem.find("-of-").and_then(|at| stem[..at].rfind('-')) {
            Some(at) => &stem[..at],
            None => stem,
        };
        let numbered = split.bytes().all(|b| b.is_ascii_digit()) || split.starts_with("part-");
        if numbered && !folder.is_empty() {
            let (parent, split) = folder.rsplit_once('/').unwrap_or(("", folder));
            return Some(Self { name, folder: parent, split, extension });
        }
        Some(Self { name, folder, split, extension })
    }
}

/// Names of the files of a split, or what is wrong and which splits there are.
pub(super) fn choose_split(
    names: &BTreeSet<String>,
    split: Option<&str>,
) -> Result<Vec<String>, String> {
    let files: Vec<_> = names.iter().filter_map(|name| DataFile::new(name)).collect();
    let splits: BTreeSet<&str> = files.iter().map(|file| file.split).collect();
    let listed = splits.iter().copied().collect::<Vec<_>>().join(", ");
    if files.is_empty() {
        return Err("has no .parquet, .jsonl or .json file".to_string());
    }
    let (folder, split) = match split {
        Some(asked) if splits.contains(asked) => (None, asked),
        Some(asked) => match asked.rsplit_once('/') {
            Some((folder, split)) if splits.contains(split) => (Some(folder), split),
            _ => return Err(format!("has no split \"{asked}\"; it has {listed}")),
        },
        None => match (SPLITS.iter().find(|s| splits.contains(**s)), splits.first()) {
            (Some(split), _) => (None, *split),
            (None, Some(only)) if splits.len() == 1 => (None, *only),
            _ => return Err(format!("has several splits; name one as ID:SPLIT of {listed}")),
        },
    };
    let of_split =
        |file: &&DataFile| file.split == split && folder.is_none_or(|folder| file.folder == folder);
    let matching: Vec<_> = files.iter().filter(of_split).collect();
    let best = EXTENSIONS.iter().find(|e| matching.iter().any(|file| file.extension == **e));
    let chosen: Vec<_> =
        matching.into_iter().filter(|file| Some(&file.extension) == best).collect();
    let folders: BTreeSet<&str> = chosen.iter().map(|file| file.folder).collect();
    match folders.len() {
        0 => Err(format!("has no split \"{split}\" in the folder {}", folder.unwrap_or_default())),
        1 => Ok(chosen.iter().map(|file| file.name.to_string()).collect()),
        _ => {
            let folders = folders.into_iter().collect::<Vec<_>>().join(", ");
            Err(format!(
                "has the split \"{split}\" in several folders ({folders}); name one as \
                 ID:FOLDER/{split}"
            ))
        }
    }
}

/// Whether a name stays inside the folder it is joined to.
pub(super) fn is_inside(name: &str) -> bool {
    use std::path::Component;
    !name.is_empty() && Path::new(name).components().all(|c| matches!(c, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(names: &[&str], split: Option<&str>) -> Result<Vec<String>, String> {
        choose_split(&names.iter().map(ToString::to_string).collect(), split)
    }

    const ULTRACHAT: &[&str] = &[
        ".gitattributes",
        "README.md",
        "data/test_gen-00000-of-00001-3d4cd8309148a71f.parquet",
        "data/test_sft-00000-of-00001-f7dfac4afe5b93f4.parquet",
        "data/train_sft-00000-of-00003-a3ecf92756993583.parquet",
        "data/train_sft-00001-of-00003-0a1804bcb6ae68c6.parquet",
        "data/train_sft-00002-of-00003-ee46ed25cfae92c6.parquet",
    ];

    #[test]
    fn a_split_is_the_beginning_of_a_name() {
        assert_eq!(choose(ULTRACHAT, None).unwrap(), &ULTRACHAT[4..]);
        assert_eq!(choose(ULTRACHAT, Some("test_sft")).unwrap(), &ULTRACHAT[3..4]);
        let error = choose(ULTRACHAT, Some("validation")).unwrap_err();
        assert!(error.contains("test_gen, test_sft, train_sft"), "{error}");
    }

    #[test]
    fn a_split_may_be_a_folder() {
        let names = ["default/train/0000.parquet", "default/test/0000.parquet"];
        assert_eq!(choose(&names, None).unwrap(), &names[..1]);
    }

    #[test]
    fn one_file_needs_no_split() {
        assert_eq!(choose(&["README.md", "glaive.json"], None).unwrap(), ["glaive.json"]);
        let error = choose(&["a.json", "b.json"], None).unwrap_err();
        assert!(error.contains("a, b"), "{error}");
        assert!(choose(&["README.md"], None).is_err());
    }

    #[test]
    fn the_same_rows_are_not_taken_twice() {
        let names = ["train.jsonl", "train.parquet"];
        assert_eq!(choose(&names, None).unwrap(), ["train.parquet"]);
    }

    #[test]
    fn folders_with_the_same_split_are_told_apart() {
        let names = ["de/train-00000-of-00001.parquet", "en/train-00000-of-00001.parquet"];
        let error = choose(&names, None).unwrap_err();
        assert!(error.contains("de, en"), "{error}");
        assert_eq!(choose(&names, Some("en/train")).unwrap(), &names[1..]);
    }
}
