//! A checkpoint's tokenizer, and which of its tokens are control tokens.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{error::DataError, hex::hex};

/// A tokenizer in the Hugging Face layout.
///
/// Control tokens are added tokens that are special or spelled `<|..|>`: they steer a model, so
/// user text must not become one by accident. Other added tokens (`<think>`, `<tool_call>`) are
/// part of the text that templates and models write.
pub struct Tokenizer {
    /// Control tokens spelled out become control tokens.
    parsing: tokenizers::Tokenizer,
    /// Control tokens spelled out are ordinary text.
    literal: tokenizers::Tokenizer,
    control: BTreeMap<String, u32>,
    config: Value,
    /// The chat template of the checkpoint and the file it is from.
    template: Option<(String, PathBuf)>,
    eos_token_ids: Vec<u32>,
    fingerprint: String,
}

/// A piece of text as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Token ids.
    pub ids: Vec<u32>,
    /// First byte of each token in the text.
    pub starts: Vec<usize>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("control", &self.control).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json`, `tokenizer_config.json` and what else a folder has.
    ///
    /// # Errors
    /// Files that are missing or malformed.
    pub fn from_folder(folder: &Path) -> Result<Self, DataError> {
        let path = folder.join("tokenizer.json");
        let error =
            |problem: String| DataError::Tokenizer { what: path.display().to_string(), problem };
        let bytes = std::fs::read(&path).map_err(|e| {
            error(format!(
                "{e}; a model folder needs the tokenizer of its checkpoint (tokenizer.json)"
            ))
        })?;
        let parsing = tokenizers::Tokenizer::from_bytes(&bytes)
            .map_err(|e| error(format!("is no tokenizer: {e}")))?;
        let mut json: Value =
            serde_json::from_slice(&bytes).map_err(|e| error(format!("is no valid JSON: {e}")))?;
        let control = mark_control_tokens(&mut json);
        let marked = serde_json::to_vec(&json).map_err(|e| error(e.to_string()))?;
        let mut literal = tokenizers::Tokenizer::from_bytes(&marked)
            .map_err(|e| error(format!("is no tokenizer: {e}")))?;
        literal.set_encode_special_tokens(true);

        let config = optional_json(&folder.join("tokenizer_config.json"))?.unwrap_or(Value::Null);
        let template = find_template(folder, &config)?;
        let generation = optional_json(&folder.join("generation_config.json"))?;
        let eos_token_ids = eos_token_ids(&config, generation.as_ref(), &control, &parsing);
        let fingerprint = hex(&Sha256::digest(&bytes));
        Ok(Self { parsing, literal, control, config, template, eos_token_ids, fingerprint })
    }

    /// Tokens of a text. With `parse_control`, control tokens that are spelled out become control
    /// tokens, as in Hugging Face's own rendering; otherwise they are ordinary text.
    ///
    /// # Errors
    /// A text that the tokenizer refuses.
    pub fn encode(&self, text: &str, parse_control: bool) -> Result<Encoded, DataError> {
        let tokenizer = if parse_control { &self.parsing } else { &self.literal };
        let encoding = tokenizer.encode(text, false).map_err(|e| DataError::Tokenizer {
            what: "tokenizer.json".to_string(),
            problem: format!(
                "cannot encode {:?}..: {e}",
                text.chars().take(40).collect::<String>()
            ),
        })?;
        Ok(Encoded {
            ids: encoding.get_ids().to_vec(),
            starts: encoding.get_offsets().iter().map(|(start, _)| *start).collect(),
        })
    }

    /// The text of tokens.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        self.parsing.decode(ids, skip_special).unwrap_or_default()
    }

    /// The bytes-level piece of one token, for display.
    pub fn piece(&self, id: u32) -> Option<String> {
        self.parsing.id_to_token(id)
    }

    /// Control tokens by their text.
    pub fn control_tokens(&self) -> &BTreeMap<String, u32> {
        &self.control
    }

    /// The id of a token.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.parsing.token_to_id(token)
    }

    /// Tokens that end an answer.
    pub fn eos_token_ids(&self) -> &[u32] {
        &self.eos_token_ids
    }

    /// Token that fills padded rows: the configured one, unless it belongs to images,
    /// video or sound.
    pub fn pad_token_id(&self) -> Option<u32> {
        let configured = token_text(&self.config["pad_token"]).filter(|text| {
            !["vision", "image", "video", "audio"].iter().any(|kind| text.contains(kind))
        });
        configured
            .as_deref()
            .and_then(|t| self.token_id(t))
            .or_else(|| self.token_id("<|endoftext|>"))
    }

    /// The text of a configured token such as `bos_token`.
    pub fn configured_token(&self, key: &str) -> Option<String> {
        token_text(&self.config[key])
    }

    /// One more than the largest token id.
    pub fn vocab_size(&self) -> usize {
        self.parsing.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// The checkpoint's chat template and the file it is from.
    pub fn template(&self) -> Option<(&str, &Path)> {
        self.template.as_ref().map(|(template, path)| (template.as_str(), path.as_path()))
    }

    /// Hash of `tokenizer.json`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// Marks every control token as special; returns them.
fn mark_control_tokens(json: &mut Value) -> BTreeMap<String, u32> {
    let mut control = BTreeMap::new();
    for token in json["added_tokens"].as_array_mut().into_iter().flatten() {
        let text = token["content"].as_str().unwrap_or_default().to_string();
        let spelled = text.len() > 4 && text.starts_with("<|") && text.ends_with("|>");
        let special = token["special"].as_bool().unwrap_or(false);
        let Some(id) = token["id"].as_u64() else { continue };
        if (spelled || special) && !text.is_empty() {
            token["special"] = Value::Bool(true);
            control.insert(text, id as u32);
        }
    }
    control
}

/// `chat_template.jinja` wins over the template in the configuration.
fn find_template(folder: &Path, config: &Value) -> Result<Option<(String, PathBuf)>, DataError> {
    let path = folder.join("chat_template.jinja");
    if path.exists() {
        let text = std::fs::read_to_string(&path)
            .map_err(|source| DataError::Io { path: path.clone(), source })?;
        return Ok(Some((text, path)));
    }
    let path = folder.join("tokenizer_config.json");
    let template = match &config["chat_template"] {
        Value::String(text) => Some(text.clone()),
        // A list of named templates.
        Value::Array(list) => {
            let named = |name: &str| list.iter().find(|t| t["name"] == name);
            let chosen = named("default").or_else(|| list.first());
            chosen.and_then(|t| t["template"].as_str()).map(str::to_string)
        }
        _ => None,
    };
    Ok(template.map(|template| (template, path)))
}

fn eos_token_ids(
    config: &Value,
    generation: Option<&Value>,
    control: &BTreeMap<String, u32>,
    tokenizer: &tokenizers::Tokenizer,
) -> Vec<u32> {
    let mut ids: Vec<u32> = Vec::new();
    if let Some(eos) = generation.map(|g| &g["eos_token_id"]) {
        let list = eos.as_array().map_or(std::slice::from_ref(eos), Vec::as_slice);
        ids.extend(list.iter().filter_map(Value::as_u64).map(|id| id as u32));
    }
    ids.extend(token_text(&config["eos_token"]).and_then(|eos| tokenizer.token_to_id(&eos)));
    ids.extend(control.get("<|im_end|>"));
    ids.extend(control.get("<|endoftext|>"));
    let mut seen = Vec::new();
    ids.retain(|id| {
        let new = !seen.contains(id);
        seen.push(*id);
        new
    });
    ids
}

/// A token given as text or as an object with `content`.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_string)
}

fn optional_json(path: &Path) -> Result<Option<Value>, DataError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path)
        .map_err(|source| DataError::Io { path: path.to_path_buf(), source })?;
    serde_json::from_str(&text).map(Some).map_err(|error| DataError::Tokenizer {
        what: path.display().to_string(),
        problem: format!("is no valid JSON: {error}"),
    })
}

/// Decodes tokens one by one into whole characters.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    ids: Vec<u32>,
    printed: usize,
}

impl StreamDecoder {
    /// The text that a token adds; empty while a character is incomplete.
    pub fn push(&mut self, id: u32, tokenizer: &Tokenizer) -> String {
        self.ids.push(id);
        let text = tokenizer.decode(&self.ids, true);
        // An unfinished character decodes to the replacement character.
        if text.ends_with('\u{fffd}') || text.len() <= self.printed {
            return String::new();
        }
        let new = text.get(self.printed..).unwrap_or_default().to_string();
        self.printed = text.len();
        new
    }
}
