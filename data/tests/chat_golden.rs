//! The golden conversations: text, tokens and mask equal to Hugging Face's.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use burn_qwen_data::{
    ChatTemplate, Conversation, Renderer, SampleIssue, Tokenizer,
    chat::{MaskPolicy, RenderPolicy, SpecialTokensInText},
};
use serde_json::Value;

fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(name)
}

#[test]
fn golden_conversations() {
    let folder = shared("tokenizer-qwen3");
    let cases = shared("goldens/chat/conversations.json");
    if !folder.exists() || !cases.exists() {
        println!("skipped: {} or {} is absent", folder.display(), cases.display());
        return;
    }
    let tokenizer = Arc::new(Tokenizer::from_folder(&folder).unwrap());
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(cases).unwrap()).unwrap();
    let mut failures = Vec::new();
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let setting = match case["template"].as_str().unwrap() {
            "qwen3" => "checkpoint".to_string(),
            _ => shared("goldens/chat/features.jinja").display().to_string(),
        };
        let template = ChatTemplate::select(&setting, &tokenizer).unwrap();
        let policy = RenderPolicy {
            special_tokens_in_text: SpecialTokensInText::Allow,
            mask: MaskPolicy::WholeTurn,
            enable_thinking: case["enable_thinking"].as_bool(),
            ..RenderPolicy::default()
        };
        let renderer = Renderer::new(tokenizer.clone(), template, policy);
        let conversation = Conversation {
            messages: serde_json::from_value(case["messages"].clone()).unwrap(),
            tools: serde_json::from_value(case["tools"].clone()).unwrap(),
        };
        let prompt = case["add_generation_prompt"].as_bool().unwrap_or(false);
        let rendered = renderer.render(&conversation, prompt);
        if let Some(error) = case["error"].as_str() {
            match rendered {
                Err(SampleIssue::Skip(message)) if message.contains(error) => {}
                other => failures.push(format!("{name}: expected error {error:?}, got {other:?}")),
            }
            continue;
        }
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(error) => {
                failures.push(format!("{name}: {error:?}"));
                continue;
            }
        };
        if rendered.text != case["text"].as_str().unwrap() {
            failures.push(format!(
                "{name}: text\n{:?}\n{:?}",
                rendered.text,
                case["text"].as_str().unwrap()
            ));
            continue;
        }
        let ids: Vec<u32> = serde_json::from_value(case["input_ids"].clone()).unwrap();
        if rendered.input_ids != ids {
            failures.push(format!("{name}: ids differ"));
            continue;
        }
        let mask: Vec<u8> = serde_json::from_value(case["assistant_mask"].clone()).unwrap();
        let ours: Vec<u8> = rendered.assistant_mask.iter().map(|&m| u8::from(m)).collect();
        if ours != mask {
            let at = ours.iter().zip(&mask).position(|(a, b)| a != b);
            failures.push(format!("{name}: mask differs first at {at:?}"));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    assert!(cases.len() > 10, "all cases were read");
}
