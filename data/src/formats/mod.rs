//! Rows of the common chat formats to samples.
//!
//! A row that breaks its schema (a missing key, a wrong type in a key that is used) is an error with
//! its place; a row that is well-formed but holds nothing to train is rejected and counted.
//!
//! | row or turn | what becomes of it |
//! | --- | --- |
//! | a null row, null `messages`, `conversations` or `text` | rejected |
//! | no turns, or none of the assistant | rejected |
//! | a turn without content (null), and without tool calls | row rejected |
//! | a role that templates do not know | row rejected, the role is named |
//! | content in parts, all of text | the same as their text |
//! | content in parts, one of another kind (an image) | row rejected |
//! | the user has the last word | kept; that turn carries no loss |
//! | the user twice in a row, or the assistant first | kept |
//! | `tools` empty or null | the same as no `tools`; JSON text is parsed |
//! | Alpaca: no `input` | empty; else it follows the instruction on a new line |
//! | Alpaca: empty `output` | rejected |
//! | Alpaca: no `instruction` | error |

mod alpaca;
mod messages;
mod sharegpt;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::DataError,
    sample::{Content, Origin, Sample},
};

/// Every top-level key that some format uses.
pub(crate) const USED_KEYS: &[&str] = &[
    "messages",
    "conversations",
    "tools",
    "system",
    "instruction",
    "input",
    "output",
    "history",
    "text",
];

/// The layout of a data set's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataFormat {
    /// By the keys of the first row.
    #[default]
    Auto,
    /// `messages: [{role, content}]`, as in ultrachat_200k.
    Messages,
    /// `conversations: [{from, value}]`.
    ShareGpt,
    /// `instruction`, `input`, `output`.
    Alpaca,
    /// `text`: every token is trained.
    Text,
}

impl DataFormat {
    /// The format that a row's keys tell.
    ///
    /// # Errors
    /// Keys that belong to none.
    pub fn detect(row: &Map<String, Value>, place: &str) -> Result<Self, DataError> {
        let formats = [
            ("messages", Self::Messages),
            ("conversations", Self::ShareGpt),
            ("instruction", Self::Alpaca),
            ("text", Self::Text),
        ];
        formats.into_iter().find(|(key, _)| row.contains_key(*key)).map(|(_, f)| f).ok_or_else(
            || {
                let keys: Vec<_> = row.keys().map(String::as_str).collect();
                DataError::Row {
                    place: place.to_string(),
                    problem: format!(
                        "no known format has the keys {}; expected messages, conversations \
                         (ShareGPT), instruction (Alpaca) or text; set data.format",
                        keys.join(", ")
                    ),
                }
            },
        )
    }
}

impl fmt::Display for DataFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Messages => "messages",
            Self::ShareGpt => "sharegpt",
            Self::Alpaca => "alpaca",
            Self::Text => "text",
        })
    }
}

impl FromStr for DataFormat {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let all = [Self::Auto, Self::Messages, Self::ShareGpt, Self::Alpaca, Self::Text];
        all.into_iter().find(|format| format.to_string() == name).ok_or_else(|| DataError::Config {
            key: "format",
            value: name.to_string(),
            problem: "is no format; expected auto, messages, sharegpt, alpaca or text".to_string(),
        })
    }
}

/// Why a well-formed row holds nothing to train.
pub type Rejection = String;

/// Converts a row; the inner error is a rejection.
///
/// # Errors
/// A row that breaks its schema.
pub fn convert(
    format: DataFormat,
    row: Value,
    origin: Origin,
) -> Result<Result<Sample, Rejection>, DataError> {
    let row = match row {
        Value::Object(row) => row,
        Value::Null => return Ok(Err("null row".to_string())),
        other => {
            return Err(row_error(&origin, format!("expected an object, found {}", kind(&other))));
        }
    };
    let content = match format {
        DataFormat::Messages => messages::convert(row, &origin)?,
        DataFormat::ShareGpt => sharegpt::convert(row, &origin)?,
        DataFormat::Alpaca => alpaca::convert(&row, &origin)?,
        DataFormat::Text => text(&row, &origin)?,
        DataFormat::Auto => {
            let format = DataFormat::detect(&row, &origin.to_string())?;
            return convert(format, Value::Object(row), origin);
        }
    };
    Ok(content.map(|content| Sample { content, origin }))
}

fn text(
    row: &Map<String, Value>,
    origin: &Origin,
) -> Result<Result<Content, Rejection>, DataError> {
    match row.get("text") {
        Some(Value::String(text)) if text.is_empty() => Ok(Err("empty text".to_string())),
        Some(Value::String(text)) => Ok(Ok(Content::Text(text.clone()))),
        Some(Value::Null) => Ok(Err("null text".to_string())),
        Some(other) => Err(wrong_type(origin, "text", "a string", other)),
        None => Err(missing(origin, "text")),
    }
}

/// A list of tools, given as such or as JSON in a string; an empty list is none.
fn tools(row: &Map<String, Value>, origin: &Origin) -> Result<Option<Vec<Value>>, DataError> {
    let parsed = match row.get("tools") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(Value::String(text)) => serde_json::from_str(text)
            .map_err(|error| row_error(origin, format!("tools is no JSON: {error}")))?,
        Some(other) => other.clone(),
    };
    match parsed {
        Value::Array(tools) if tools.is_empty() => Ok(None),
        Value::Array(tools) => Ok(Some(tools)),
        Value::Null => Ok(None),
        other => Err(wrong_type(origin, "tools", "a list or a list as JSON text", &other)),
    }
}

fn row_error(origin: &Origin, problem: String) -> DataError {
    DataError::Row { place: origin.to_string(), problem }
}

fn missing(origin: &Origin, key: &str) -> DataError {
    row_error(origin, format!("the key {key} is missing"))
}

fn wrong_type(origin: &Origin, key: &str, expected: &str, found: &Value) -> DataError {
    row_error(origin, format!("{key} must be {expected}, found {}", kind(found)))
}

/// The kind of a JSON value, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
