//! The first screen of a run: what was resolved, and why.

use std::fmt::Write;

use burn_qwen::flops::Flops;
use burn_qwen_trainer::plan::Plan;

/// The text, without colour.
pub(crate) fn first_screen(plan: &Plan) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:12} {value}");
    };
    let config = &plan.config;
    let qwen = &plan.qwen;
    line(
        "model",
        format!(
            "{} from {}, {:.2}M parameters ({} layers, hidden {}, vocabulary {})",
            qwen.family.model_type(),
            plan.model_folder.display(),
            plan.num_parameters() as f64 / 1e6,
            qwen.num_hidden_layers,
            qwen.hidden_size,
            qwen.vocab_size
        ),
    );
    let weights = match &plan.checkpoint {
        Some(checkpoint) if checkpoint.other_tensors().is_empty() => "pretrained".to_string(),
        Some(checkpoint) => format!(
            "pretrained; {} tensors beside the text model are kept as they are",
            checkpoint.other_tensors().len()
        ),
        None => format!("random (seed {})", config.train.seed),
    };
    line("weights", weights);
    for note in &qwen.derived {
        line("", note.clone());
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    line("device", format!("CPU (Burn Flex), f32, {threads} threads"));
    let report = &plan.data_report;
    line(
        "data",
        format!(
            "{} samples of {} rows in {}; {} documents, {} tokens, {} trained",
            report.source.num_samples,
            report.source.num_rows,
            match report.source.files.len() {
                1 => "one file".to_string(),
                files => format!("{files} files"),
            },
            report.num_documents,
            report.num_tokens,
            report.num_trained
        ),
    );
    for (reason, rejected) in report.source.rejected.iter().chain(&report.skipped) {
        line("", format!("{} left out: {reason} ({})", rejected.count, rejected.places.join(", ")));
    }
    if report.long.samples > 0 {
        line(
            "",
            format!(
                "{} samples longer than {} tokens ({:?}): {} left out, {} tokens lost",
                report.long.samples,
                config.data.max_tokens,
                config.data.long_samples,
                report.long.samples_dropped,
                report.long.tokens_lost
            )
            .to_lowercase(),
        );
    }
    if report.num_rows > 0 {
        line(
            "rows",
            format!(
                "{} of up to {} tokens, {:.1} % filled",
                report.num_rows,
                config.data.max_tokens,
                100.0 * report.fill_rate
            ),
        );
    }
    line(
        "steps",
        format!(
            "{} of up to {} tokens; {} schedule, lr {:e}, {} warm-up steps",
            plan.num_steps,
            config.train.gradient_accumulation.saturating_mul(config.data.max_tokens as u64),
            format!("{:?}", config.train.schedule).to_lowercase(),
            config.train.lr,
            config.train.warmup_steps
        ),
    );
    let row = config.data.max_tokens;
    let flops = Flops::of(qwen).train([row], row) / row as f64;
    line("work", format!("{:.1} MFLOP per token in one document of {row}", flops / 1e6));
    line("output", plan.output.display().to_string());
    for notice in &plan.notices {
        line("note", notice.clone());
    }
    let _ = writeln!(text, "kernels");
    for choice in &plan.kernel_report.choices {
        let _ = writeln!(text, "  {choice}");
    }
    text
}
