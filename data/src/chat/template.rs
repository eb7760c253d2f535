//! A chat template in Jinja, as `apply_chat_template` runs it.

use std::{collections::BTreeMap, path::Path};

use minijinja::{
    Environment, Error, ErrorKind, Value,
    syntax::SyntaxConfig,
    value::{Kwargs, Serde},
};
use serde::Serialize;

use crate::{error::DataError, sample::Message, tokenizer::Tokenizer};

/// ChatML, for checkpoints without a template.
const CHATML: &str = "{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
";

const NAME: &str = "chat_template";

/// A compiled template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    origin: String,
    /// Named tokens that templates may print.
    tokens: BTreeMap<&'static str, String>,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// What a template sees.
#[derive(Clone, Copy, Debug)]
pub struct RenderInput<'a> {
    /// The turns.
    pub messages: &'a [Message],
    /// Tool descriptions.
    pub tools: Option<&'a [serde_json::Value]>,
    /// Whether to end with the header of an answer.
    pub add_generation_prompt: bool,
    /// The variable of that name; not defined if `None`.
    pub enable_thinking: Option<bool>,
}

impl ChatTemplate {
    /// The template that `setting` (`checkpoint`, `chatml`, or a file) means.
    ///
    /// # Errors
    /// A file that cannot be read, a template that does not compile.
    pub fn select(setting: &str, tokenizer: &Tokenizer) -> Result<Self, DataError> {
        let (source, origin) = match setting {
            "checkpoint" => {
                if let Some((source, path)) = tokenizer.template() {
                    (source.to_string(), path.display().to_string())
                } else {
                    let origin = "built-in ChatML (the checkpoint has no chat template)";
                    (CHATML.to_string(), origin.to_string())
                }
            }
            "chatml" => (CHATML.to_string(), "built-in ChatML".to_string()),
            file => {
                let source = std::fs::read_to_string(file).map_err(|error| DataError::Config {
                    key: "template",
                    value: file.to_string(),
                    problem: format!("{error}; expected checkpoint, chatml or a Jinja file"),
                })?;
                (source, Path::new(file).display().to_string())
            }
        };
        let names = ["bos_token", "eos_token", "pad_token", "unk_token"];
        let tokens =
            names.into_iter().filter_map(|n| Some((n, tokenizer.configured_token(n)?))).collect();
        Self::compile(source, origin, tokens)
    }

    /// Compiles a template; `origin` names it in errors.
    ///
    /// # Errors
    /// A template that does not compile, with line and cause.
    pub fn compile(
        source: String,
        origin: String,
        tokens: BTreeMap<&'static str, String>,
    ) -> Result<Self, DataError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("only white space differs from the default syntax"));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_template_owned(NAME, without_generation_tags(&source)).map_err(
            |error| DataError::Tokenizer {
                what: format!(
                    "{origin}{}",
                    error.line().map_or(String::new(), |l| format!(":{l}"))
                ),
                problem: format!("the chat template does not compile: {error}"),
            },
        )?;
        Ok(Self { environment, source, origin, tokens })
    }

    /// The template's file, or what it is.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// The message that the template raised, or what went wrong in it.
    pub fn render(&self, input: RenderInput<'_>) -> Result<String, String> {
        let mut context = BTreeMap::from([
            ("messages", Value::from(Serde(input.messages))),
            ("tools", Value::from(Serde(input.tools))),
            ("add_generation_prompt", Value::from(input.add_generation_prompt)),
        ]);
        if let Some(thinking) = input.enable_thinking {
            context.insert("enable_thinking", Value::from(thinking));
        }
        for (name, token) in &self.tokens {
            context.insert(name, Value::from(token.as_str()));
        }
        let template = self.environment.get_template(NAME).map_err(|error| error.to_string())?;
        template.render(context).map_err(|error| match error.detail() {
            Some(detail) if error.kind() == ErrorKind::InvalidOperation => detail.to_string(),
            _ => error.to_string(),
        })
    }
}

/// `{% generation %}` marks spans for one tool only and prints nothing.
fn without_generation_tags(source: &str) -> String {
    let mut result = source.to_string();
    for word in ["generation", "endgeneration"] {
        for open in ["{%", "{%-"] {
            for close in ["%}", "-%}"] {
                let (comment_open, comment_close) =
                    (open.replace('%', "#"), close.replace('%', "#"));
                let tag = format!("{open} {word} {close}");
                result = result.replace(&tag, &format!("{comment_open} {word} {comment_close}"));
            }
        }
    }
    result
}

/// JSON as Python writes it: `", "` and `": "`, characters as they are.
#[expect(clippy::needless_pass_by_value, reason = "the signature of a filter")]
fn to_json(value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let mut out = Vec::new();
    let result = match indent {
        Some(indent) => {
            let spaces = vec![b' '; indent];
            let formatter = serde_json::ser::PrettyFormatter::with_indent(&spaces);
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))
        }
        None => {
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, PythonFormatter))
        }
    };
    result.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let text = String::from_utf8(out)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(text))
}

struct PythonFormatter;

impl serde_json::ser::Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}
