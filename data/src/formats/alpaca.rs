//! `instruction`, `input`, `output`, with optional `system` and `history`.

use serde_json::{Map, Value, json};

use super::{Rejection, messages::finish, missing, tools, wrong_type};
use crate::{
    error::DataError,
    sample::{Content, Message, Origin},
};

pub(super) fn convert(
    row: &Map<String, Value>,
    origin: &Origin,
) -> Result<Result<Content, Rejection>, DataError> {
    let text = |key: &str| match row.get(key) {
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        None | Some(Value::Null) => Ok(None),
        Some(other) => Err(wrong_type(origin, key, "a string", other)),
    };
    let instruction = text("instruction")?.ok_or_else(|| missing(origin, "instruction"))?;
    let input = text("input")?.unwrap_or_default();
    let output = text("output")?.unwrap_or_default();
    if output.is_empty() {
        return Ok(Err("empty output".to_string()));
    }
    let mut messages = Vec::new();
    let mut push = |role: &str, content: &str| {
        let mut message = Message::new();
        message.insert("role".to_string(), json!(role));
        message.insert("content".to_string(), json!(content));
        messages.push(message);
    };
    if let Some(system) = text("system")?.filter(|system| !system.is_empty()) {
        push("system", system);
    }
    for (i, pair) in history(row, origin)?.iter().enumerate() {
        let pair = match pair.as_array().map(Vec::as_slice) {
            Some([Value::String(user), Value::String(assistant)]) => [user, assistant],
            _ => return Err(wrong_type(origin, &format!("history[{i}]"), "two strings", pair)),
        };
        push("user", pair[0]);
        push("assistant", pair[1]);
    }
    let prompt =
        if input.is_empty() { instruction.to_string() } else { format!("{instruction}\n{input}") };
    push("user", &prompt);
    push("assistant", output);
    Ok(finish(messages, tools(row, origin)?))
}

fn history<'a>(row: &'a Map<String, Value>, origin: &Origin) -> Result<&'a [Value], DataError> {
    match row.get("history") {
        Some(Value::Array(history)) => Ok(history),
        None | Some(Value::Null) => Ok(&[]),
        Some(other) => Err(wrong_type(origin, "history", "a list", other)),
    }
}
