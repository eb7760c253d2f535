//! `messages: [{role, content}]`, with whatever else a template may read.

use serde_json::{Map, Value};

use super::{Rejection, kind, missing, row_error, tools, wrong_type};
use crate::{
    error::DataError,
    sample::{Content, Conversation, Message, Origin},
};

/// Roles that templates know.
const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool"];

pub(super) fn convert(
    row: Map<String, Value>,
    origin: &Origin,
) -> Result<Result<Content, Rejection>, DataError> {
    let turns = match row.get("messages") {
        Some(Value::Array(turns)) => turns,
        Some(Value::Null) => return Ok(Err("null messages".to_string())),
        Some(other) => return Err(wrong_type(origin, "messages", "a list", other)),
        None => return Err(missing(origin, "messages")),
    };
    let mut messages = Vec::with_capacity(turns.len());
    for (i, turn) in turns.iter().enumerate() {
        let Value::Object(turn) = turn else {
            return Err(wrong_type(origin, &format!("messages[{i}]"), "an object", turn));
        };
        match message(turn, i, origin)? {
            Ok(message) => messages.push(message),
            Err(rejection) => return Ok(Err(rejection)),
        }
    }
    Ok(finish(messages, tools(&row, origin)?))
}

/// What makes a conversation trainable, in any format.
pub(super) fn finish(
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
) -> Result<Content, Rejection> {
    if messages.is_empty() {
        return Err("no turns".to_string());
    }
    if !messages.iter().any(|message| message["role"] == "assistant") {
        return Err("no assistant turn".to_string());
    }
    Ok(Content::Chat(Conversation { messages, tools }))
}

fn message(
    turn: &Map<String, Value>,
    index: usize,
    origin: &Origin,
) -> Result<Result<Message, Rejection>, DataError> {
    let role = match turn.get("role") {
        Some(Value::String(role)) if ROLES.contains(&role.as_str()) => role.clone(),
        Some(Value::String(role)) => return Ok(Err(format!("unknown role \"{role}\""))),
        Some(other) => {
            return Err(wrong_type(origin, &format!("messages[{index}].role"), "a string", other));
        }
        None => return Err(missing(origin, &format!("messages[{index}].role"))),
    };
    // Null columns of a table are keys that the turn does not have.
    let mut message: Message =
        turn.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let has_calls =
        message.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
    if !has_calls {
        message.remove("tool_calls");
    }
    match turn.get("content") {
        Some(Value::String(_)) => {}
        Some(Value::Array(parts)) => match join_parts(parts, index, origin)? {
            Ok(text) => {
                message.insert("content".to_string(), Value::String(text));
            }
            Err(rejection) => return Ok(Err(rejection)),
        },
        None | Some(Value::Null) if role == "assistant" && has_calls => {
            message.insert("content".to_string(), Value::String(String::new()));
        }
        None | Some(Value::Null) => return Ok(Err("null turn".to_string())),
        Some(other) => {
            let key = format!("messages[{index}].content");
            return Err(wrong_type(origin, &key, "a string or a list of parts", other));
        }
    }
    Ok(Ok(message))
}

/// `[{"type": "text", "text": ..}]` is the same as its text.
fn join_parts(
    parts: &[Value],
    index: usize,
    origin: &Origin,
) -> Result<Result<String, Rejection>, DataError> {
    let mut text = String::new();
    for part in parts {
        match part {
            Value::String(part) => text.push_str(part),
            Value::Object(object) => match object.get("type").and_then(Value::as_str) {
                Some("text") | None => match object.get("text") {
                    Some(Value::String(part)) => text.push_str(part),
                    other => {
                        let found = other.map_or("nothing", kind);
                        return Err(row_error(
                            origin,
                            format!("messages[{index}].content: a part has no text, found {found}"),
                        ));
                    }
                },
                Some(other) => return Ok(Err(format!("\"{other}\" content (text only)"))),
            },
            other => {
                let key = format!("messages[{index}].content");
                return Err(wrong_type(origin, &key, "a list of parts", other));
            }
        }
    }
    Ok(Ok(text))
}
