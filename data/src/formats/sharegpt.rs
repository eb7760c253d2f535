//! `conversations: [{from, value}]`, with tool calls as JSON in their own turns.

use serde_json::{Map, Value, json};

use super::{Rejection, messages::finish, missing, row_error, tools, wrong_type};
use crate::{
    error::DataError,
    sample::{Content, Message, Origin},
};

pub(super) fn convert(
    row: Map<String, Value>,
    origin: &Origin,
) -> Result<Result<Content, Rejection>, DataError> {
    let turns = match row.get("conversations") {
        Some(Value::Array(turns)) => turns,
        Some(Value::Null) => return Ok(Err("null conversations".to_string())),
        Some(other) => return Err(wrong_type(origin, "conversations", "a list", other)),
        None => return Err(missing(origin, "conversations")),
    };
    let mut messages = Vec::with_capacity(turns.len() + 1);
    match row.get("system") {
        Some(Value::String(system)) if !system.is_empty() => {
            messages.push(message("system", system));
        }
        None | Some(Value::Null | Value::String(_)) => {}
        Some(other) => return Err(wrong_type(origin, "system", "a string", other)),
    }
    for (i, turn) in turns.iter().enumerate() {
        let key = |name: &str| format!("conversations[{i}].{name}");
        let from = match turn.get("from") {
            Some(Value::String(from)) => from.as_str(),
            Some(other) => return Err(wrong_type(origin, &key("from"), "a string", other)),
            None => return Err(missing(origin, &key("from"))),
        };
        let value = match turn.get("value") {
            Some(Value::String(value)) => value,
            None | Some(Value::Null) => return Ok(Err("null turn".to_string())),
            Some(other) => return Err(wrong_type(origin, &key("value"), "a string", other)),
        };
        messages.push(match from {
            "human" | "user" => message("user", value),
            "gpt" | "assistant" | "model" | "chatgpt" | "bot" => message("assistant", value),
            "system" => message("system", value),
            "observation" | "tool" | "function_response" => message("tool", value),
            "function_call" => tool_call(value, &key("value"), origin)?,
            other => return Ok(Err(format!("unknown role \"{other}\""))),
        });
    }
    Ok(finish(messages, tools(&row, origin)?))
}

fn message(role: &str, content: &str) -> Message {
    let mut message = Message::new();
    message.insert("role".to_string(), json!(role));
    message.insert("content".to_string(), json!(content));
    message
}

/// One call or a list of calls, `{"name": .., "arguments": ..}`.
fn tool_call(value: &str, key: &str, origin: &Origin) -> Result<Message, DataError> {
    let parsed: Value = serde_json::from_str(value).map_err(|error| {
        row_error(origin, format!("{key}: the function call is no JSON: {error}"))
    })?;
    let calls = match parsed {
        Value::Array(calls) => calls,
        single => vec![single],
    };
    let calls = calls
        .into_iter()
        .map(|mut call| {
            let name = call.get("name").and_then(Value::as_str).map(str::to_string);
            let Some(name) = name else {
                return Err(row_error(origin, format!("{key}: the function call has no name")));
            };
            let mut arguments = call["arguments"].take();
            // Some exporters write the arguments as JSON inside the JSON.
            if let Value::String(text) = &arguments
                && let Ok(inner @ Value::Object(_)) = serde_json::from_str(text)
            {
                arguments = inner;
            }
            Ok(json!({"type": "function", "function": {"name": name, "arguments": arguments}}))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut message = message("assistant", "");
    message.insert("tool_calls".to_string(), Value::Array(calls));
    Ok(message)
}
