//! The files that a run reads: model folder, tokenizer, data.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use burn_qwen::QwenConfig;
use burn_qwen_data::{ChatTemplate, DataConfig, Loader, Renderer, Source, Tokenizer, hub, source};

use crate::{config::ModelConfig, error::TrainError};

/// A model as the user names it: a local folder, or a hub id that is fetched.
///
/// # Errors
/// A folder that does not exist and is no hub id; whatever the hub says.
pub fn model_folder(path: &str, revision: Option<&str>) -> Result<PathBuf, TrainError> {
    if path.is_empty() {
        return Err(TrainError::Input(
            "no model is named: use --model FOLDER_OR_HUB_ID or set model.path".to_string(),
        ));
    }
    resolve_model("--model", path, revision)
}

/// `what` is the argument or key that named the model.
fn resolve_model(what: &str, path: &str, revision: Option<&str>) -> Result<PathBuf, TrainError> {
    if Path::new(path).is_dir() {
        return Ok(PathBuf::from(path));
    }
    if hub::looks_like_id(path) {
        return Ok(hub::resolve_model(path, revision, &hub::HubOptions::from_env())?);
    }
    Err(TrainError::Input(format!(
        "{what} {path}: no such folder, and no hub id (OWNER/NAME) either"
    )))
}

/// Folder of tokenizer and template: the model's own, unless `model.tokenizer` names another.
///
/// # Errors
/// As [`model_folder`].
pub fn tokenizer_folder(model: &ModelConfig, model_folder: &Path) -> Result<PathBuf, TrainError> {
    match &model.tokenizer {
        Some(path) => resolve_model("model.tokenizer", path, None),
        None => Ok(model_folder.to_path_buf()),
    }
}

/// Data files as the user names them: files, folders, globs, hub ids.
///
/// # Errors
/// Entries that match nothing; whatever the hub says.
pub fn data_files(entries: &[String]) -> Result<Vec<PathBuf>, TrainError> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let (id, split) =
            entry.split_once(':').map_or((entry.as_str(), None), |(id, split)| (id, Some(split)));
        let found = if !Path::new(entry).exists() && hub::looks_like_id(id) {
            hub::resolve_dataset(id, None, split, &hub::HubOptions::from_env())?
        } else {
            source::resolve(std::slice::from_ref(entry))?
        };
        files.extend(found.into_iter().filter(|file| !files.contains(file)).collect::<Vec<_>>());
    }
    if files.is_empty() {
        return Err(TrainError::Input(
            "no data is named: use --data FILES or set data.train".to_string(),
        ));
    }
    Ok(files)
}

/// Tokenizer and template of a folder.
///
/// # Errors
/// Files that are missing or malformed.
pub fn renderer(folder: &Path, config: &DataConfig) -> Result<Renderer, TrainError> {
    let tokenizer = Arc::new(Tokenizer::from_folder(folder)?);
    let template = ChatTemplate::select(&config.template, &tokenizer)?;
    Ok(Renderer::new(tokenizer, template, config.render_policy()))
}

/// Every token of the tokenizer has a row of the embedding.
///
/// # Errors
/// A tokenizer with more tokens than the model.
pub fn check_vocabulary(qwen: &QwenConfig, renderer: &Renderer) -> Result<(), TrainError> {
    let tokens = renderer.tokenizer().vocab_size();
    if tokens > qwen.vocab_size {
        return Err(TrainError::Input(format!(
            "the tokenizer has {tokens} tokens, the model's vocab_size is {}: they do not belong \
             together",
            qwen.vocab_size
        )));
    }
    Ok(())
}

/// A loader over entries of data.
///
/// # Errors
/// As [`data_files`] and [`renderer`]; rows that break their format.
pub fn loader(
    entries: &[String],
    tokenizer_folder: &Path,
    config: &DataConfig,
) -> Result<Loader, TrainError> {
    let source = Source::open(&data_files(entries)?, config.format)?;
    Ok(Loader::new(source, renderer(tokenizer_folder, config)?, config.clone())?)
}
