//! `generate` and `chat`.

use std::io::{BufRead, IsTerminal, Write};

use burn_qwen::{
    Model,
    generate::{Sampling, generate},
};
use burn_qwen_data::{Conversation, Message, Renderer, SampleIssue, tokenizer::StreamDecoder};
use burn_qwen_kernels::Kernels;
use burn_qwen_trainer::{TrainError, inputs};
use serde_json::json;

use super::{note, print, print_json, settings};
use crate::{
    cli::GenerateArgs,
    commands::eval::{Loaded, load_model},
};

struct Session {
    model: Model,
    kernels: Kernels,
    renderer: Renderer,
    sampling: Sampling,
    max_new_tokens: usize,
    messages: Vec<Message>,
}

impl Session {
    fn new(args: &GenerateArgs) -> Result<Self, TrainError> {
        let wrong = |what: &str| Err(TrainError::Input(what.to_string()));
        if !(args.temperature >= 0.0 && args.temperature.is_finite()) {
            return wrong("--temperature must be 0 or more");
        }
        if !(args.top_p > 0.0 && args.top_p <= 1.0) {
            return wrong("--top-p must be above 0 and at most 1");
        }
        let config = settings(&args.set)?;
        let Loaded { model, kernels, tokenizer_folder, qwen } = load_model(&args.model, &config)?;
        let renderer = inputs::renderer(&tokenizer_folder, &config.data)?;
        inputs::check_vocabulary(&qwen, &renderer)?;
        let sampling = Sampling {
            temperature: args.temperature,
            top_k: args.top_k,
            top_p: args.top_p,
            seed: args.seed,
        };
        let mut messages = Vec::new();
        messages.extend(args.system.as_deref().map(|system| message("system", system)));
        Ok(Self {
            model,
            kernels,
            renderer,
            sampling,
            max_new_tokens: args.max_new_tokens,
            messages,
        })
    }

    /// Answers to the turns so far; pieces of text go to `on_text` as they come.
    fn answer(&self, mut on_text: impl FnMut(&str)) -> Result<(String, usize), TrainError> {
        let conversation = Conversation { messages: self.messages.clone(), tools: None };
        let prompt = self.renderer.prompt(&conversation).map_err(|issue| match issue {
            SampleIssue::Skip(reason) => TrainError::Input(reason),
            SampleIssue::Fatal(error) => TrainError::Data(error),
        })?;
        Ok(self.complete(&prompt, &mut on_text))
    }

    fn complete(&self, prompt: &[u32], on_text: &mut dyn FnMut(&str)) -> (String, usize) {
        let tokenizer = self.renderer.tokenizer();
        let mut decoder = StreamDecoder::default();
        let ids = generate(
            &self.model,
            &self.kernels,
            prompt,
            &self.sampling,
            tokenizer.eos_token_ids(),
            self.max_new_tokens,
            |id| {
                on_text(&decoder.push(id, tokenizer));
                true
            },
        );
        (tokenizer.decode(&ids, true), ids.len())
    }
}

fn message(role: &str, content: &str) -> Message {
    let mut message = Message::new();
    message.insert("role".to_string(), json!(role));
    message.insert("content".to_string(), json!(content));
    message
}

fn show(text: &str) {
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(text.as_bytes());
    let _ = stdout.flush();
}

pub(crate) fn run(
    args: &GenerateArgs,
    prompt: &str,
    raw: bool,
    json: bool,
) -> Result<(), TrainError> {
    let mut session = Session::new(args)?;
    let mut on_text = |text: &str| {
        if !json {
            show(text);
        }
    };
    let (text, num_tokens) = if raw {
        let ids = session.renderer.tokenizer().encode(prompt, true)?.ids;
        if ids.is_empty() {
            return Err(TrainError::Input("--prompt is empty: give some text".to_string()));
        }
        session.complete(&ids, &mut on_text)
    } else {
        session.messages.push(message("user", prompt));
        session.answer(on_text)?
    };
    if json {
        print_json(&json!({"text": text, "tokens": num_tokens}));
    } else {
        print("");
    }
    Ok(())
}

pub(crate) fn chat(args: &GenerateArgs) -> Result<(), TrainError> {
    let mut session = Session::new(args)?;
    let interactive = std::io::stdin().is_terminal();
    if interactive {
        note("an empty line or Ctrl-D ends the conversation");
    }
    loop {
        if interactive {
            show("> ");
        }
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        read.map_err(TrainError::machine("cannot read the standard input"))?;
        let line = line.trim();
        if line.is_empty() {
            return Ok(());
        }
        session.messages.push(message("user", line));
        let (text, _) = session.answer(show)?;
        print("");
        session.messages.push(message("assistant", &text));
    }
}
