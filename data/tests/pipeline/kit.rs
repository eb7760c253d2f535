//! Small files, a small tokenizer, loaders over them.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use burn_qwen_data::{ChatTemplate, DataConfig, Loader, Renderer, Source, Tokenizer};
use serde_json::{Value, json};

/// The quickstart's tokenizer, with its ChatML template.
pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_folder(&model_folder()).unwrap())
}

pub(crate) fn model_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/recipes/quickstart")
}

pub(crate) fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

pub(crate) fn assistant(content: &str) -> Value {
    json!({"role": "assistant", "content": content})
}

/// Writes conversations as JSONL.
pub(crate) fn write(folder: &Path, name: &str, conversations: &[Vec<Value>]) -> PathBuf {
    let mut lines = String::new();
    for messages in conversations {
        writeln!(lines, "{}", json!({ "messages": messages })).unwrap();
    }
    let path = folder.join(name);
    std::fs::write(&path, lines).unwrap();
    path
}

pub(crate) fn loader(files: &[PathBuf], config: DataConfig) -> Loader {
    try_loader(files, config).unwrap()
}

pub(crate) fn try_loader(
    files: &[PathBuf],
    config: DataConfig,
) -> Result<Loader, burn_qwen_data::DataError> {
    config.validate()?;
    let tokenizer = tokenizer();
    let template = ChatTemplate::select(&config.template, &tokenizer)?;
    let renderer = Renderer::new(tokenizer, template, config.render_policy());
    Loader::new(Source::open(files, config.format)?, renderer, config)
}

/// Conversations of different lengths, each with a word of its own.
pub(crate) fn conversations(n: usize) -> Vec<Vec<Value>> {
    (0..n)
        .map(|i| {
            let words = "word ".repeat(1 + i * 7 % 13);
            let mut messages = vec![user(&format!("Question {i}: {words}")), assistant("Yes.")];
            if i % 3 == 0 {
                messages.extend([user("And?"), assistant(&format!("Number {i}."))]);
            }
            messages
        })
        .collect()
}
