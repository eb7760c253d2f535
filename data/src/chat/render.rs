//! Rendering a sample once, and mapping the assistant's turns to tokens.
//!
//! A template may write turn n differently depending on later turns, so a conversation is rendered
//! whole, never prefix by prefix. In the strings that the user supplies, every control token that is
//! spelled out is disguised first; what looks like a control token in the rendered text is then the
//! template's own, so a faked turn inside a message is never taken for a turn. The text is tokenised
//! piece by piece between control tokens, which is where tokenizers split it anyway.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    disguise::Disguise,
    template::{ChatTemplate, RenderInput},
};
use crate::{
    error::DataError,
    hex::hex,
    sample::{Content, Conversation, Document, Message, Sample},
    tokenizer::Tokenizer,
};

const TURN_START: &str = "<|im_start|>";
const TURN_END: &str = "<|im_end|>";
const ASSISTANT_HEADER: &str = "assistant\n";
/// What templates put before an answer that has no thought.
pub(super) const EMPTY_THINK: &str = "<think>\n\n</think>\n\n";

/// What becomes of control tokens that are spelled out in a sample's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecialTokensInText {
    /// They stay text.
    #[default]
    AsText,
    /// They become control tokens, as in Hugging Face's own rendering.
    Allow,
}

/// What becomes of thoughts in the conversation's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningPolicy {
    /// As the template renders them for a server: Qwen's drop those of earlier turns.
    #[default]
    AsServed,
    /// Every thought stays in its turn and is trained.
    Keep,
    /// One document for each assistant turn, with the history as served; only that turn is trained.
    SplitTurns,
}

/// Whether an empty thought that the template supplied is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskPolicy {
    /// It carries no loss: the model did not write it.
    #[default]
    WithoutTemplateThink,
    /// The whole turn is trained.
    WholeTurn,
}

/// All choices of rendering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenderPolicy {
    /// Control tokens in text.
    pub special_tokens_in_text: SpecialTokensInText,
    /// Thoughts in the history.
    pub reasoning: ReasoningPolicy,
    /// Empty thoughts of the template.
    pub mask: MaskPolicy,
    /// The template's variable of that name.
    pub enable_thinking: Option<bool>,
}

/// Why a sample gave no document.
#[derive(Debug)]
pub enum SampleIssue {
    /// It is skipped and counted under this reason.
    Skip(String),
    /// The run cannot go on.
    Fatal(DataError),
}

impl From<DataError> for SampleIssue {
    fn from(error: DataError) -> Self {
        Self::Fatal(error)
    }
}

/// A rendered conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text as a server would see it.
    pub text: String,
    /// Its tokens.
    pub input_ids: Vec<u32>,
    /// Whether the assistant wrote each token.
    pub assistant_mask: Vec<bool>,
}

/// Turns samples into documents.
#[derive(Debug)]
pub struct Renderer {
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    policy: RenderPolicy,
}

impl Renderer {
    /// A renderer.
    pub fn new(tokenizer: Arc<Tokenizer>, template: ChatTemplate, policy: RenderPolicy) -> Self {
        Self { tokenizer, template, policy }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// Hash of everything that decides the tokens of a sample.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.tokenizer.fingerprint());
        hash.update(self.template.source());
        hash.update(format!("{:?}", self.policy));
        hex(&hash.finalize())
    }

    /// The documents of a sample: one, or several if turns are split.
    ///
    /// # Errors
    /// A sample without anything to train, or whose template raised an error, is to be skipped.
    pub fn documents(&self, sample: &Sample) -> Result<Vec<Document>, SampleIssue> {
        let documents = match &sample.content {
            Content::Text(text) => vec![self.text_document(text, sample)?],
            Content::Chat(conversation) => self.chat_documents(conversation, sample)?,
        };
        if documents.iter().all(|document| !document.loss_mask.iter().skip(1).any(|&m| m)) {
            return Err(SampleIssue::Skip("nothing to train".to_string()));
        }
        Ok(documents)
    }

    fn text_document(&self, text: &str, sample: &Sample) -> Result<Document, DataError> {
        let allow = self.policy.special_tokens_in_text == SpecialTokensInText::Allow;
        let mut input_ids = self.tokenizer.encode(text, allow)?.ids;
        let end = self.tokenizer.token_id("<|endoftext|>");
        input_ids.extend(end.or_else(|| self.tokenizer.eos_token_ids().first().copied()));
        let loss_mask = vec![true; input_ids.len()];
        Ok(Document { input_ids, loss_mask, origin: sample.origin.clone() })
    }

    fn chat_documents(
        &self,
        conversation: &Conversation,
        sample: &Sample,
    ) -> Result<Vec<Document>, SampleIssue> {
        let document = |rendered: Rendered| Document {
            input_ids: rendered.input_ids,
            loss_mask: rendered.assistant_mask,
            origin: sample.origin.clone(),
        };
        if self.policy.reasoning != ReasoningPolicy::SplitTurns {
            return Ok(vec![document(self.render(conversation, false)?)]);
        }
        let turns = conversation.messages.iter().enumerate();
        let ends = turns.filter(|(_, message)| message["role"] == "assistant").map(|(i, _)| i);
        ends.map(|end| {
            let part = Conversation {
                messages: conversation.messages[..=end].to_vec(),
                tools: conversation.tools.clone(),
            };
            let mut rendered = self.render(&part, false)?;
            keep_last_span(&mut rendered.assistant_mask);
            Ok(document(rendered))
        })
        .collect()
    }

    /// The prompt for an answer.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn prompt(&self, conversation: &Conversation) -> Result<Vec<u32>, SampleIssue> {
        Ok(self.render(conversation, true)?.input_ids)
    }

    /// Text, tokens and mask of a conversation.
    ///
    /// # Errors
    /// What the template raised; an assistant turn that cannot be found in the rendered text.
    pub fn render(
        &self,
        conversation: &Conversation,
        add_generation_prompt: bool,
    ) -> Result<Rendered, SampleIssue> {
        let disguise = Disguise::for_conversation(conversation, &self.tokenizer);
        let mut messages = conversation.messages.clone();
        if self.policy.reasoning == ReasoningPolicy::Keep {
            for message in &mut messages {
                disguise.keep_thought(message);
            }
        }
        for value in messages.iter_mut().flat_map(|message| message.values_mut()) {
            disguise.hide(value);
        }
        let mut tools = conversation.tools.clone();
        for tool in tools.iter_mut().flatten() {
            disguise.hide(tool);
        }
        let text = self
            .template
            .render(RenderInput {
                messages: &messages,
                tools: tools.as_deref(),
                add_generation_prompt,
                enable_thinking: self.policy.enable_thinking,
            })
            .map_err(|error| SampleIssue::Skip(format!("chat template: {error}")))?;
        self.tokenize(&disguise.show_thoughts(&text), &disguise, conversation)
    }

    fn tokenize(
        &self,
        text: &str,
        disguise: &Disguise,
        conversation: &Conversation,
    ) -> Result<Rendered, SampleIssue> {
        let allow = self.policy.special_tokens_in_text == SpecialTokensInText::Allow;
        let assistants: Vec<&Message> =
            conversation.messages.iter().filter(|m| m["role"] == "assistant").collect();
        let mut rendered = Rendered::default();
        let mut in_answer = false;
        let mut after_turn_start = false;
        let mut turn = 0;
        let mut answer_start = 0;
        for piece in split(text, &self.tokenizer) {
            match piece {
                Piece::Control(token, id) => {
                    rendered.text.push_str(token);
                    rendered.input_ids.push(id);
                    rendered.assistant_mask.push(in_answer);
                    in_answer &= token != TURN_END;
                    after_turn_start = token == TURN_START;
                }
                Piece::Text(text) => {
                    let text = disguise.reveal(text);
                    let mut answer_from = if in_answer { 0 } else { usize::MAX };
                    if after_turn_start && text.starts_with(ASSISTANT_HEADER) {
                        in_answer = true;
                        answer_start = rendered.input_ids.len();
                        answer_from = ASSISTANT_HEADER.len();
                        if self.policy.mask == MaskPolicy::WithoutTemplateThink
                            && text[answer_from..].starts_with(EMPTY_THINK)
                            && assistants.get(turn).is_none_or(|m| !has_thought(m))
                        {
                            answer_from += EMPTY_THINK.len();
                        }
                        turn += 1;
                    }
                    after_turn_start = false;
                    let encoded = self.tokenizer.encode(&text, allow)?;
                    rendered.text.push_str(&text);
                    rendered.input_ids.extend(&encoded.ids);
                    rendered
                        .assistant_mask
                        .extend(encoded.starts.iter().map(|&start| start >= answer_from));
                }
            }
        }
        if in_answer {
            // A turn that is not closed is the beginning of an answer still to be written.
            rendered.assistant_mask[answer_start..].fill(false);
        }
        if turn == 0 && !assistants.is_empty() {
            return Err(SampleIssue::Fatal(DataError::Tokenizer {
                what: self.template.origin().to_string(),
                problem: format!(
                    "no assistant turn is found in the rendered text: answers must begin with \
                     {TURN_START}assistant and end with {TURN_END}; set data.template = \"chatml\""
                ),
            }));
        }
        Ok(rendered)
    }
}

/// Whether a message brings a thought of its own.
fn has_thought(message: &Message) -> bool {
    let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
    !text("reasoning_content").trim().is_empty() || text("content").contains("</think>")
}

fn keep_last_span(mask: &mut [bool]) {
    let Some(end) = mask.iter().rposition(|&m| m) else { return };
    let start = mask[..end].iter().rposition(|&m| !m).map_or(0, |i| i + 1);
    mask[..start].fill(false);
}

enum Piece<'a> {
    Control(&'a str, u32),
    Text(&'a str),
}

/// Cuts a text at its control tokens.
fn split<'a>(text: &'a str, tokenizer: &'a Tokenizer) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        let candidates = tokenizer.control_tokens().iter();
        let longest =
            candidates.filter(|(t, _)| rest.starts_with(t.as_str())).max_by_key(|(t, _)| t.len());
        if let Some((token, &id)) = longest {
            if start < at {
                pieces.push(Piece::Text(&text[start..at]));
            }
            pieces.push(Piece::Control(&text[at..at + token.len()], id));
            at += token.len();
            start = at;
        } else {
            // Control tokens begin with an ASCII character, most with '<': skip to the next one.
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    if start < text.len() {
        pieces.push(Piece::Text(&text[start..]));
    }
    pieces
}
