//! Models and data sets by hub id, in the cache that other tools share.
//!
//! Files are downloaded into the layout of the Hugging Face cache
//! (`models--OWNER--NAME/snapshots/COMMIT/..`), resumed after a cut, checked for size and, where
//! the hub tells it, for SHA-256. A branch is recorded only once every file of it is there: what
//! offline mode finds is whole.

mod client;
mod files;
mod options;
mod whole;

use std::path::{Path, PathBuf};

use hf_hub::RepoType;

pub use options::HubOptions;

use crate::error::DataError;
use client::Client;

/// The branch of a repository that names none.
const DEFAULT_REVISION: &str = "main";

/// Whether a text has the form of a hub id: `OWNER/NAME`, or `OWNER/NAME@REVISION`.
///
/// Only the form is looked at; a local path of the same form comes first, so ask the disk before.
pub fn looks_like_id(text: &str) -> bool {
    let (id, revision) = split_revision(text);
    let part = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty()
            && part.len() <= 96
            && part.chars().all(known)
            && !part.starts_with(['.', '-'])
            && !part.ends_with(['.', '-'])
            && !part.contains("..")
            && !part.contains("--")
    };
    let file = Path::new(id).extension().is_some_and(|extension| {
        ["jsonl", "ndjson", "json", "parquet", "txt"].iter().any(|e| extension == *e)
    });
    let revision = revision.is_none_or(|r| !r.is_empty() && !r.contains(char::is_whitespace));
    id.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name)) && !file && revision
}

/// `OWNER/NAME@REVISION` in its parts.
fn split_revision(id: &str) -> (&str, Option<&str>) {
    id.split_once('@').map_or((id, None), |(id, revision)| (id, Some(revision)))
}

/// The folder of a model: configuration, safetensors, tokenizer, template.
///
/// `revision` is a branch, tag or commit; without one it is that of `OWNER/NAME@REVISION`, else
/// `main`.
///
/// # Errors
/// [`DataError::Hub`]: a repository, revision or file that is not there or not accessible, a
/// connection that stays cut, and in offline mode whatever the cache lacks.
pub fn resolve_model(
    id: &str,
    revision: Option<&str>,
    options: &HubOptions,
) -> Result<PathBuf, DataError> {
    open(RepoType::Model, id, revision, options)?.fetch(|client| {
        let mut wanted = files::model_config(client)?;
        wanted.extend(files::model_weights(client)?);
        Ok(wanted)
    })
}

/// The folder of a model without its weights: configuration, tokenizer, template.
///
/// # Errors
/// As [`resolve_model`].
pub fn resolve_tokenizer(
    id: &str,
    revision: Option<&str>,
    options: &HubOptions,
) -> Result<PathBuf, DataError> {
    open(RepoType::Model, id, revision, options)?.fetch(files::model_config)
}

/// The files of a data set's split, in name order: Parquet, else JSONL, else JSON.
///
/// A file belongs to the split that its name begins with (`data/train_sft-00000-of-00003-..`), or
/// that its folder is named after (`train/0000.parquet`). Without a split it is `train`, else
/// `train_sft`, else the only one. `FOLDER/SPLIT` chooses between folders with the same split.
///
/// # Errors
/// As [`resolve_model`]; a split that the data set does not have, with those it has.
pub fn resolve_dataset(
    id: &str,
    revision: Option<&str>,
    split: Option<&str>,
    options: &HubOptions,
) -> Result<Vec<PathBuf>, DataError> {
    let client = open(RepoType::Dataset, id, revision, options)?;
    let mut names = Vec::new();
    let folder = client.fetch(|client| {
        names = files::choose_split(&client.names(), split)
            .map_err(|problem| client.error(None, problem))?;
        Ok(names.clone())
    })?;
    Ok(names.iter().map(|name| folder.join(name)).collect())
}

fn open<'a>(
    kind: RepoType,
    id: &'a str,
    revision: Option<&'a str>,
    options: &'a HubOptions,
) -> Result<Client<'a>, DataError> {
    let (id, own) = split_revision(id);
    let revision = revision.or(own).unwrap_or(DEFAULT_REVISION);
    Client::open(kind, id, revision, options)
}
