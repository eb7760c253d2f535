//! Held-out questions with one right answer each, answered by the trained model.

use burn_qwen::{
    Model,
    generate::{Sampling, generate},
};
use burn_qwen_data::{Content, Conversation, Renderer, SampleIssue, Source};
use burn_qwen_kernels::Kernels;
use serde::Serialize;

use crate::error::TrainError;

/// Tokens that an answer may have more than the right one.
const SLACK: usize = 8;

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The last user turn.
    pub question: String,
    /// The right answer.
    pub expected: String,
    /// The model's.
    pub answer: String,
}

impl Answer {
    /// Word for word.
    pub fn is_right(&self) -> bool {
        self.answer.trim() == self.expected.trim()
    }
}

/// Asks every conversation of a source for its last assistant turn.
///
/// # Errors
/// Conversations that cannot be read or rendered.
pub fn run(
    model: &Model,
    kernels: &Kernels,
    renderer: &Renderer,
    source: &Source,
    mut on_answer: impl FnMut(),
) -> Result<Vec<Answer>, TrainError> {
    let mut answers = Vec::new();
    for block in 0..source.num_blocks() {
        for sample in source.read_block(block)? {
            let Content::Chat(conversation) = sample.content else { continue };
            let Some((last, before)) = conversation.messages.split_last() else { continue };
            let text = |message: &burn_qwen_data::Message| {
                message.get("content").and_then(|c| c.as_str()).unwrap_or_default().to_string()
            };
            let question =
                before.iter().rev().find(|m| m["role"] == "user").map(text).unwrap_or_default();
            let expected = text(last);
            let conversation =
                Conversation { messages: before.to_vec(), tools: conversation.tools.clone() };
            let prompt = renderer.prompt(&conversation).map_err(|issue| match issue {
                SampleIssue::Skip(reason) => {
                    TrainError::Input(format!("{}: {reason}", sample.origin))
                }
                SampleIssue::Fatal(error) => TrainError::Data(error),
            })?;
            let tokenizer = renderer.tokenizer();
            let longest = tokenizer.encode(&expected, false)?.ids.len() + SLACK;
            let stop = tokenizer.eos_token_ids();
            let ids =
                generate(model, kernels, &prompt, &Sampling::greedy(), stop, longest, |_| true);
            answers.push(Answer { question, expected, answer: tokenizer.decode(&ids, true) });
            on_answer();
        }
    }
    Ok(answers)
}
