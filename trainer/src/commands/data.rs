//! `data show`, `data stats`, `data pack`.

use burn_qwen_data::{DataReport, SampleIssue, Tokenizer, pack::write_rows};
use burn_qwen_trainer::{TrainError, inputs};
use serde_json::json;

use super::{print, print_json, settings};
use crate::cli::{DataCommand, InputArgs};

pub(crate) fn run(command: DataCommand) -> Result<(), TrainError> {
    match command {
        DataCommand::Show { input, samples, json } => show(&input, samples, json),
        DataCommand::Stats { input, json } => stats(&input, json),
        DataCommand::Pack { input, output, force, json } => pack(&input, &output, force, json),
    }
}

fn show(args: &InputArgs, count: usize, json: bool) -> Result<(), TrainError> {
    let config = settings(&args.set)?;
    let folder = inputs::model_folder(&args.model, None)?;
    let loader = inputs::loader(&args.data, &folder, &config.data)?;
    let mut shown = Vec::new();
    let source = loader.source();
    'blocks: for block in 0..source.num_blocks() {
        for sample in source.read_block(block)? {
            if shown.len() == count {
                break 'blocks;
            }
            let place = sample.origin.to_string();
            match loader.renderer().documents(&sample) {
                Ok(documents) => {
                    for document in documents {
                        let trained = document.loss_mask.iter().filter(|&&m| m).count();
                        let text = marked(
                            &document.input_ids,
                            &document.loss_mask,
                            loader.renderer().tokenizer(),
                        );
                        shown.push(json!({"place": place, "tokens": document.input_ids.len(),
                            "trained": trained, "text": text, "input_ids": document.input_ids,
                            "loss_mask": document.loss_mask}));
                    }
                }
                Err(SampleIssue::Skip(reason)) => {
                    shown.push(json!({"place": place, "skipped": reason}));
                }
                Err(SampleIssue::Fatal(error)) => return Err(error.into()),
            }
        }
    }
    if json {
        print_json(&shown);
        return Ok(());
    }
    for sample in &shown {
        let place = sample["place"].as_str().unwrap_or_default();
        match sample["skipped"].as_str() {
            Some(reason) => print(&format!("== {place}: skipped: {reason}")),
            None => print(&format!(
                "== {place}: {} tokens, {} trained (between \u{ab} and \u{bb})\n{}",
                sample["tokens"],
                sample["trained"],
                sample["text"].as_str().unwrap_or_default()
            )),
        }
    }
    Ok(())
}

/// The text with each trained run between guillemets.
fn marked(ids: &[u32], mask: &[bool], tokenizer: &Tokenizer) -> String {
    let mut text = String::new();
    let mut start = 0;
    while start < ids.len() {
        let len = mask[start..].iter().take_while(|&&m| m == mask[start]).count();
        let piece = tokenizer.decode(&ids[start..start + len], false);
        if mask[start] {
            text.extend(["\u{ab}", &piece, "\u{bb}"]);
        } else {
            text.push_str(&piece);
        }
        start += len;
    }
    text
}

fn stats(args: &InputArgs, json: bool) -> Result<(), TrainError> {
    let config = settings(&args.set)?;
    let folder = inputs::model_folder(&args.model, None)?;
    let loader = inputs::loader(&args.data, &folder, &config.data)?;
    let (_, report) = loader.measure(1)?;
    if json {
        print_json(&report);
    } else {
        print(&table(&report, config.data.max_tokens));
    }
    Ok(())
}

fn table(report: &DataReport, max_tokens: usize) -> String {
    let mut lines = Vec::new();
    for file in &report.source.files {
        lines.push(format!("{}: {} rows ({:?})", file.path.display(), file.num_rows, file.format));
    }
    lines.push(format!(
        "samples    {} accepted of {} rows",
        report.source.num_samples, report.source.num_rows
    ));
    for (reason, rejected) in report.source.rejected.iter().chain(&report.skipped) {
        lines.push(format!(
            "           {} left out: {reason} ({})",
            rejected.count,
            rejected.places.join(", ")
        ));
    }
    let long = &report.long;
    lines.push(format!(
        "long       {} over {max_tokens} tokens: {} left out, {} tokens kept, {} lost",
        long.samples, long.samples_dropped, long.tokens_kept, long.tokens_lost
    ));
    lines.push(format!("documents  {}, longest {} tokens", report.num_documents, report.longest));
    let share = 100.0 * report.num_trained as f64 / report.num_tokens.max(1) as f64;
    lines.push(format!(
        "tokens     {}, {} trained ({share:.1} %)",
        report.num_tokens, report.num_trained
    ));
    lines.push(format!(
        "rows       {} of up to {max_tokens} tokens, {:.1} % filled",
        report.num_rows,
        100.0 * report.fill_rate
    ));
    lines.push("lengths".to_string());
    for (bound, count) in &report.lengths {
        lines.push(format!("  up to {bound:7} tokens: {count}"));
    }
    lines.join("\n")
}

fn pack(
    args: &InputArgs,
    output: &std::path::Path,
    force: bool,
    json: bool,
) -> Result<(), TrainError> {
    if output.exists() && !force {
        return Err(TrainError::Input(format!(
            "--output {}: exists; use --force to replace it",
            output.display()
        )));
    }
    let config = settings(&args.set)?;
    let folder = inputs::model_folder(&args.model, None)?;
    let loader = inputs::loader(&args.data, &folder, &config.data)?;
    let (rows, report) = loader.eval_rows()?;
    write_rows(&rows, output)?;
    if json {
        print_json(&report);
    } else {
        print(&format!(
            "{} rows, {} documents, {} tokens ({:.1} % filled) -> {}",
            report.num_rows,
            report.num_documents,
            report.num_tokens,
            100.0 * report.fill_rate,
            output.display()
        ));
    }
    Ok(())
}
