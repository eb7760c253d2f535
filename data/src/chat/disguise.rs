//! What the user spelled out, kept from being recognised while a template runs.

use serde_json::Value;

use super::render::EMPTY_THINK;
use crate::{
    sample::{Conversation, Message},
    tokenizer::Tokenizer,
};

/// Three characters that the conversation does not use, to stand for what must not be recognised.
pub(super) struct Disguise {
    /// Stands before a control token that was spelled out.
    literal: char,
    /// Stands for `<think>` and `</think>` that the template shall not see.
    think: [char; 2],
    /// What must not stay whole, longest first.
    controls: Vec<String>,
}

/// The part of a control token that a text must not have. Templates write names between angle
/// brackets of their own (`<function=NAME>`), so `|..|` alone is enough to complete a token.
fn core(token: &str) -> &str {
    let inner = token.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    inner.filter(|inner| inner.len() > 2 && inner.starts_with('|')).unwrap_or(token)
}

impl Disguise {
    pub(super) fn for_conversation(conversation: &Conversation, tokenizer: &Tokenizer) -> Self {
        let text = serde_json::to_string(&(&conversation.messages, &conversation.tools))
            .unwrap_or_default();
        // Plane 15 is private use; a text would have to use all of it to leave none.
        let mut free = ('\u{f0000}'..='\u{ffffd}').filter(|c| !text.contains(*c));
        let mut next = || free.next().unwrap_or('\u{10fffd}');
        let (literal, think) = (next(), [next(), next()]);
        let tokens = tokenizer.control_tokens().keys();
        let mut controls: Vec<String> = tokens.map(|token| core(token).to_string()).collect();
        controls.sort_by_key(|token| std::cmp::Reverse(token.len()));
        Self { literal, think, controls }
    }

    /// Breaks up control tokens in all strings of a value.
    pub(super) fn hide(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(broken) = self.broken(text) {
                    *text = broken;
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.hide(value)),
            Value::Object(object) => {
                // Keys are the user's words too: names of arguments, which templates print.
                if object.keys().any(|key| self.broken(key).is_some()) {
                    let entries = std::mem::take(object).into_iter();
                    *object = entries.map(|(k, v)| (self.broken(&k).unwrap_or(k), v)).collect();
                }
                object.values_mut().for_each(|value| self.hide(value));
            }
            _ => {}
        }
    }

    /// The text with its control tokens broken up; nothing if it has none.
    fn broken(&self, text: &str) -> Option<String> {
        let mut result = None;
        for token in &self.controls {
            let text = result.as_deref().unwrap_or(text);
            if text.contains(token.as_str()) {
                let mut chars = token.chars();
                let first = chars.next().unwrap_or_default();
                let broken = format!("{first}{}{}", self.literal, chars.as_str());
                result = Some(text.replace(token.as_str(), &broken));
            }
        }
        result
    }

    /// The text as it was.
    pub(super) fn reveal(&self, text: &str) -> String {
        text.replace(self.literal, "")
    }

    /// Moves a thought into the content, where the template does not recognise it.
    pub(super) fn keep_thought(&self, message: &mut Message) {
        if message["role"] != "assistant" {
            return;
        }
        let [open, close] = self.think;
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
        let content = text("content");
        let kept = if let Some((thought, answer)) = content.split_once("</think>") {
            let thought = thought.trim_start().trim_start_matches("<think>");
            format!(
                "{open}\n{}\n{close}\n\n{}",
                thought.trim_matches('\n'),
                answer.trim_start_matches('\n')
            )
        } else if !text("reasoning_content").trim().is_empty() {
            let thought = text("reasoning_content").trim_matches('\n');
            format!("{open}\n{thought}\n{close}\n\n{}", content.trim_start_matches('\n'))
        } else {
            return;
        };
        message.remove("reasoning_content");
        message.insert("content".to_string(), Value::String(kept));
    }

    /// Puts thoughts back, without the empty one that the template wrote before them.
    pub(super) fn show_thoughts(&self, text: &str) -> String {
        let [open, close] = self.think;
        text.replace(&format!("{EMPTY_THINK}{open}"), &open.to_string())
            .replace(open, "<think>")
            .replace(close, "</think>")
    }
}
