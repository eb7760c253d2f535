//! `train`: settings, plan, first screen, run, exam.

use std::path::{Path, PathBuf};

use burn_qwen_trainer::{
    TrainError,
    config::RunConfig,
    console::Console,
    engine::Engine,
    exam::{self, Answer},
    plan::{self, Plan},
    settings,
    train::{self, StopFlag, Summary},
};

use super::{note, print, print_json, recipes};
use crate::{banner, cli::TrainArgs};

/// The quickstart's files: name and content.
const QUICKSTART: &[(&str, &str)] = &[
    ("model/config.json", include_str!("../../recipes/quickstart/config.json")),
    (
        "model/generation_config.json",
        include_str!("../../recipes/quickstart/generation_config.json"),
    ),
    ("model/tokenizer.json", include_str!("../../recipes/quickstart/tokenizer.json")),
    ("model/tokenizer_config.json", include_str!("../../recipes/quickstart/tokenizer_config.json")),
    ("train.jsonl", include_str!("../../recipes/quickstart/train.jsonl")),
    ("test.jsonl", include_str!("../../recipes/quickstart/test.jsonl")),
];

/// Where a recipe's text says that the quickstart's files are.
const QUICKSTART_PREFIX: &str = "quickstart/";

pub(crate) fn run(args: TrainArgs, stop: &StopFlag) -> Result<(), TrainError> {
    let (mut config, name) = configuration(&args)?;
    let output = args.output.clone().unwrap_or_else(|| free_folder(&name));
    if name == "quickstart" {
        plan::check(&config, &output, args.force)?;
        unpack_quickstart(&mut config, &output)?;
    }
    let mut plan = Plan::new(config, &output, args.force)?;
    note(&banner::first_screen(&plan));
    let mut console = Console::new(plan.config.log.every_steps);
    let (mut summary, engine) = train::run(&mut plan, &mut console, stop)?;
    let answers = take_exam(&plan, &engine, &console)?;
    if let Some(answers) = &answers {
        let right = answers.iter().filter(|answer| answer.is_right()).count();
        summary.exact_match = Some(right as f64 / answers.len().max(1) as f64);
    }
    write_summary(&output, &summary)?;
    if args.json {
        print_json(&summary);
    } else {
        report(&plan, &summary, answers.as_deref());
    }
    Ok(())
}

/// The settings, and a name for the run's folder.
fn configuration(args: &TrainArgs) -> Result<(RunConfig, String), TrainError> {
    let (mut config, name) = match (&args.recipe, &args.config) {
        (Some(recipe), _) => {
            let recipe = recipes::find(recipe)?;
            let origin = format!("recipe {}", recipe.name);
            (settings::load(recipe.text, &origin, &args.set)?, recipe.name.to_string())
        }
        (None, Some(path)) => {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (settings::load_file(path, &args.set)?, name)
        }
        (None, None) => {
            let config = settings::load("", "the defaults", &args.set)?;
            let model = args.model.clone().unwrap_or_default();
            let name = model.trim_end_matches('/').rsplit('/').next().unwrap_or("run").to_string();
            (config, if name.is_empty() { "run".to_string() } else { name })
        }
    };
    if let Some(model) = &args.model {
        config.model.path.clone_from(model);
    }
    if !args.data.is_empty() {
        config.data.train.clone_from(&args.data);
    }
    if let Some(resume) = &args.resume {
        config.checkpoint.resume.clone_from(resume);
    }
    if let Some(steps) = args.max_steps {
        config.train.epochs = None;
        config.train.steps = Some(steps);
    } else if config.train.epochs.is_none() && config.train.steps.is_none() {
        config.train.epochs = Some(1);
    }
    Ok((config, name))
}

/// The first of `runs/NAME`, `runs/NAME-2`, .. that does not exist.
fn free_folder(name: &str) -> PathBuf {
    let first = PathBuf::from("runs").join(name);
    if !first.exists() {
        return first;
    }
    let numbered = (2..).map(|i| PathBuf::from("runs").join(format!("{name}-{i}")));
    numbered.into_iter().find(|path| !path.exists()).expect("numbers do not run out")
}

/// Writes the embedded files beside the run and points the settings at them.
fn unpack_quickstart(config: &mut RunConfig, output: &Path) -> Result<(), TrainError> {
    let name = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = output.with_file_name(format!("{name}-files"));
    for (name, content) in QUICKSTART {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(&folder);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, content))
            .map_err(TrainError::machine(format!("cannot write {}", path.display())))?;
    }
    let place = |path: &str| match path.strip_prefix(QUICKSTART_PREFIX) {
        Some(rest) => folder.join(rest).display().to_string(),
        None => path.to_string(),
    };
    config.model.path = place(&config.model.path);
    config.data.train.iter_mut().for_each(|path| *path = place(path));
    config.data.eval.iter_mut().for_each(|path| *path = place(path));
    if let Some(path) = &mut config.exam.data {
        *path = PathBuf::from(place(&path.display().to_string()));
    }
    Ok(())
}

fn take_exam(
    plan: &Plan,
    engine: &Engine,
    console: &Console,
) -> Result<Option<Vec<Answer>>, TrainError> {
    let Some(source) = &plan.exam else { return Ok(None) };
    console.notice(&format!("answering {} held-out questions", source.summary().num_samples));
    let model = engine.model();
    let answers = exam::run(&model, engine.kernels(), plan.loader.renderer(), source, || {})?;
    Ok(Some(answers))
}

fn write_summary(output: &Path, summary: &Summary) -> Result<(), TrainError> {
    let path = output.join("summary.json");
    let text = serde_json::to_string_pretty(summary).expect("a summary is plain values");
    std::fs::write(&path, text)
        .map_err(TrainError::machine(format!("cannot write {}", path.display())))
}

fn report(plan: &Plan, summary: &Summary, answers: Option<&[Answer]>) {
    let export = plan.output.join("export");
    if let Some(answers) = answers {
        print("");
        for answer in answers.iter().take(plan.config.exam.show) {
            let mark = if answer.is_right() { "right" } else { "WRONG" };
            print(&format!("  {}\n    -> {}   [{mark}]", answer.question, answer.answer));
            if !answer.is_right() {
                print(&format!("       expected: {}", answer.expected));
            }
        }
        let right = answers.iter().filter(|answer| answer.is_right()).count();
        print(&format!(
            "\n{right} of {} held-out questions answered exactly right ({:.1} %)",
            answers.len(),
            100.0 * summary.exact_match.unwrap_or(0.0)
        ));
    }
    let losses = match (summary.initial_eval_loss, summary.eval_loss) {
        (Some(first), Some(last)) => format!(", evaluation loss {first:.4} -> {last:.4}"),
        (None, Some(last)) => format!(", evaluation loss {last:.4}"),
        _ => String::new(),
    };
    print(&format!(
        "{} steps, {} tokens in {:.0} s ({:.0} tokens/s){losses}",
        summary.steps, summary.tokens, summary.wall_secs, summary.tokens_per_second
    ));
    print(&format!("model: {}", export.display()));
    print("\nnext:");
    print(&format!("  burn-qwen chat --model {}", export.display()));
    if plan.config.exam.data.is_some() {
        print("  burn-qwen train full --model Qwen/Qwen3-0.6B --data your-chats.jsonl");
    } else {
        print(&format!("  burn-qwen eval --model {} --data HELD_OUT.jsonl", export.display()));
    }
}
