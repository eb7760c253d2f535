//! The loop: evaluate, save, step, log.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicI32, Ordering},
    time::Instant,
};

use burn_qwen::{
    BlockSpec,
    init::init_block,
    weights::{ExportOptions, ExportSource, export},
};
use burn_qwen_data::Batch;
use serde::Serialize;

use crate::{
    checkpoint::{self, Manifest},
    console::Console,
    engine::Engine,
    error::TrainError,
    eval::{evaluate, first_samples},
    metrics::{EvalRecord, History, MetricsFile, StepRecord, peak_memory_bytes},
    plan::Plan,
    step::optimizer_step,
};

/// `summary.json` of a finished run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Optimizer steps of the run.
    pub steps: u64,
    /// Loss of the last step that had a target.
    pub final_loss: Option<f64>,
    /// Evaluation before the first step.
    pub initial_eval_loss: Option<f64>,
    /// Evaluation after the last step.
    pub eval_loss: Option<f64>,
    /// Tokens trained on, in this process and before it.
    pub tokens: u64,
    /// Wall time of this process from its first step on, evaluation and saving included.
    pub wall_secs: f64,
    /// Tokens per second of this process' steps alone.
    pub tokens_per_second: f64,
    /// Share of the device's peak; null where the peak is not known.
    pub mfu: Option<f64>,
    /// Largest resident memory of the process.
    pub peak_memory_bytes: Option<u64>,
    /// Share of the held-out questions answered word for word, for recipes that ask some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact_match: Option<f64>,
}

/// The signal that asked the run to stop; 0 for none.
pub type StopFlag = AtomicI32;

/// A run in progress.
struct Run<'a> {
    plan: &'a mut Plan,
    engine: Engine,
    metrics: MetricsFile,
    history: History,
    console: &'a mut Console,
    eval_rows: Vec<Batch>,
    /// Step of the newest checkpoint.
    saved: Option<u64>,
    progress: Progress,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    step: u64,
    num_rows: u64,
    num_tokens: u64,
}

/// Trains, leaving checkpoints, metrics and an export in the run's folder; returns the engine with
/// the trained model.
///
/// # Errors
/// Anything that stops a run; a signal, after a checkpoint was saved.
pub fn run(
    plan: &mut Plan,
    console: &mut Console,
    stop: &StopFlag,
) -> Result<(Summary, Engine), TrainError> {
    // Before any file changes: a run that may not go on must stay as it is.
    let (engine, progress) = start(plan, console)?;
    let eval_rows = eval_rows(plan)?;
    if plan.replaces {
        std::fs::remove_dir_all(&plan.output)
            .map_err(TrainError::machine(format!("cannot remove {}", plan.output.display())))?;
    }
    write_run_files(plan)?;
    let (metrics, history) = MetricsFile::open(&plan.output, progress.step)?;
    let saved = plan.resume;
    let mut run = Run { plan, engine, metrics, history, console, eval_rows, saved, progress };
    let summary = run.steps(stop)?;
    export_model(run.plan, &run.engine, &run.plan.output.join("export"))?;
    Ok((summary, run.engine))
}

/// The engine at the beginning of the run, or where its checkpoint was saved.
fn start(plan: &mut Plan, console: &Console) -> Result<(Engine, Progress), TrainError> {
    let Some(step) = plan.resume else {
        let seed = plan.config.train.seed;
        let engine = build_engine(plan, |spec| match &plan.checkpoint {
            Some(checkpoint) => Ok(checkpoint.read_block(spec)?),
            None => Ok(init_block(&plan.qwen, spec, seed)),
        })?;
        return Ok((engine, Progress::default()));
    };
    let folder = checkpoint::folder(&plan.output, step);
    let manifest = checkpoint::load(&folder)?;
    let notices = checkpoint::check_same_run(&manifest.config, &plan.config)?;
    for notice in notices {
        console.notice(&notice);
    }
    // Every value is replaced by the checkpoint's.
    let mut engine = build_engine(plan, |spec| Ok(vec![0.0; spec.num_elements()]))?;
    engine.restore(&folder, &manifest, &plan.device)?;
    plan.loader.restore(&manifest.loader)?;
    console.notice(&format!("resumed after step {step}"));
    let Manifest { step, num_rows, num_tokens, .. } = manifest;
    Ok((engine, Progress { step, num_rows, num_tokens }))
}

fn build_engine(
    plan: &Plan,
    values: impl FnMut(&BlockSpec) -> Result<Vec<f32>, TrainError>,
) -> Result<Engine, TrainError> {
    let (config, device, kernels) = (plan.qwen.clone(), plan.device.clone(), plan.kernels.clone());
    Engine::new(config, device, kernels, plan.config.engine.recompute, values)
}

fn eval_rows(plan: &Plan) -> Result<Vec<Batch>, TrainError> {
    let Some(loader) = &plan.eval_loader else { return Ok(Vec::new()) };
    let (mut rows, _) = loader.eval_rows()?;
    if plan.config.eval.samples > 0 {
        rows = first_samples(rows, plan.config.eval.samples);
    }
    if rows.iter().all(|row| row.num_trained() == 0) {
        return Err(TrainError::Input(format!(
            "data.eval = {:?}: none of its {} rows has a trained token; `burn-qwen data stats` \
             tells the reasons",
            plan.config.data.eval,
            rows.len()
        )));
    }
    Ok(rows)
}

/// `config.toml`, `kernels.json`, `data-report.json`.
fn write_run_files(plan: &Plan) -> Result<(), TrainError> {
    let folder = &plan.output;
    std::fs::create_dir_all(folder)
        .map_err(TrainError::machine(format!("cannot create {}", folder.display())))?;
    let config = toml::to_string(&plan.config).expect("settings are plain values");
    let kernels = serde_json::to_string_pretty(&plan.kernel_report);
    let kernels = kernels.expect("a report is plain values");
    let report = serde_json::to_string_pretty(&plan.data_report);
    let report = report.expect("a report is plain values");
    for (name, text) in
        [("config.toml", config), ("kernels.json", kernels), ("data-report.json", report)]
    {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .map_err(TrainError::machine(format!("cannot write {}", path.display())))?;
    }
    Ok(())
}

/// Writes the trained model as a folder that other tools load.
///
/// # Errors
/// As [`export`].
pub fn export_model(plan: &Plan, engine: &Engine, folder: &Path) -> Result<(), TrainError> {
    let source = match &plan.checkpoint {
        Some(checkpoint) => ExportSource::Checkpoint(checkpoint),
        None => ExportSource::Fresh,
    };
    let options = ExportOptions {
        companions: Some(plan.tokenizer_folder.clone()),
        force: true,
        ..ExportOptions::default()
    };
    let values = |block, param| engine.store.param_values(block, param);
    Ok(export(source, &plan.qwen, &values, folder, &options)?)
}

impl Run<'_> {
    fn steps(&mut self, stop: &StopFlag) -> Result<Summary, TrainError> {
        let num_steps = self.plan.num_steps;
        let started = Instant::now();
        let tokens_before = self.progress.num_tokens;
        let mut step_secs = 0.0;
        self.console.start(self.progress.step, num_steps);
        loop {
            let signal = stop.load(Ordering::SeqCst);
            let is_last = self.progress.step >= num_steps;
            // A signal leaves an evaluation that is due to the process that resumes.
            if (signal == 0 || is_last) && self.is_eval_due() {
                self.evaluate()?;
            }
            let every = self.plan.config.checkpoint.every_steps;
            let step = self.progress.step;
            let is_due = every > 0 && step > 0 && step.is_multiple_of(every);
            if (is_due || is_last || signal != 0) && self.saved != Some(step) {
                self.save()?;
            }
            if is_last {
                break;
            }
            if signal != 0 {
                self.console.finish();
                return Err(TrainError::Stopped(signal));
            }
            let record = self.one_step()?;
            step_secs += record.step_secs;
            self.metrics.write(&record)?;
            self.console.step(&record, num_steps);
        }
        self.console.finish();
        let tokens = self.progress.num_tokens;
        Ok(Summary {
            steps: self.progress.step,
            final_loss: self.history.final_loss,
            initial_eval_loss: self.history.initial_eval_loss,
            eval_loss: self.history.last_eval.map(|(_, loss)| loss),
            tokens,
            wall_secs: started.elapsed().as_secs_f64(),
            tokens_per_second: rate(tokens - tokens_before, step_secs),
            mfu: None,
            peak_memory_bytes: peak_memory_bytes(),
            exact_match: None,
        })
    }

    /// One optimizer step and its record.
    fn one_step(&mut self) -> Result<StepRecord, TrainError> {
        let started = Instant::now();
        let rows = self.progress.num_rows;
        let left = self.plan.num_rows.map_or(u64::MAX, |all| all.saturating_sub(rows));
        let micro_batches = self.plan.config.train.gradient_accumulation.min(left);
        let step = self.progress.step + 1;
        let (lr, adamw) = (self.plan.schedule().lr(step), self.plan.adamw());
        let loader = &mut self.plan.loader;
        let mut next_row = || loader.next_row();
        let done =
            optimizer_step(&mut self.engine, &mut next_row, micro_batches, step, lr, &adamw)?;
        if done.grad_norm.is_none() {
            self.console.notice(&format!("step {step} has no trained token: nothing changes"));
        }
        self.history.final_loss = done.loss.or(self.history.final_loss);
        self.progress.step = step;
        self.progress.num_rows += micro_batches;
        self.progress.num_tokens += done.num_tokens;
        let step_secs = started.elapsed().as_secs_f64();
        Ok(StepRecord {
            step,
            epoch: done.epoch,
            loss: done.loss,
            lr,
            grad_norm: done.grad_norm,
            micro_batches,
            tokens: done.num_tokens,
            tokens_real: done.num_tokens,
            tokens_trained: done.num_trained,
            samples: done.sample_ids.len() as u64,
            step_secs,
            data_wait_secs: done.data_wait_secs,
            tokens_per_second: rate(done.num_tokens, step_secs),
            trained_tokens_per_second: rate(done.num_trained, step_secs),
            mfu: None,
            hfu: None,
            peak_memory_bytes: peak_memory_bytes(),
        })
    }

    /// Before the first step, after the last, and at multiples of `eval.every_steps`; not twice.
    fn is_eval_due(&self) -> bool {
        let step = self.progress.step;
        let every = self.plan.config.eval.every_steps;
        let is_due =
            step == 0 || step >= self.plan.num_steps || (every > 0 && step.is_multiple_of(every));
        let is_done = self.history.last_eval.is_some_and(|(evaluated, _)| evaluated == step);
        is_due && !is_done && !self.eval_rows.is_empty()
    }

    fn evaluate(&mut self) -> Result<(), TrainError> {
        self.console.phase("evaluating");
        let model = self.engine.model();
        let result = evaluate(&model, self.engine.kernels(), &self.eval_rows, || {});
        let step = self.progress.step;
        let record = EvalRecord { step, eval_loss: result.loss, eval_tokens: result.targets };
        self.metrics.write(&record)?;
        self.history.evaluated(step, result.loss);
        self.console.evaluation(&record);
        Ok(())
    }

    fn save(&mut self) -> Result<(), TrainError> {
        self.console.phase("saving");
        self.metrics.sync()?;
        let plan = &self.plan;
        let Progress { step, num_rows, num_tokens } = self.progress;
        // The update that breaks a model is noticed by the next step's loss: do not save it.
        if let Some(place) = self.engine.first_non_finite_param() {
            return Err(TrainError::NotFinite(format!(
                "step {step}: {place}; lower train.lr; nothing was saved"
            )));
        }
        let manifest = Manifest {
            step,
            num_updates: self.engine.num_updates,
            num_rows,
            num_tokens,
            loader: plan.loader.state(),
            config: plan.config.clone(),
            model_folder: absolute(&plan.model_folder),
            tokenizer_folder: absolute(&plan.tokenizer_folder),
            kernels: checkpoint::kernel_lines(&plan.kernel_report),
            files: BTreeMap::new(),
        };
        checkpoint::save(&plan.output, &self.engine, manifest, plan.config.checkpoint.keep)?;
        self.saved = Some(step);
        Ok(())
    }
}

/// An export is written from any folder.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Zero where no time has passed.
fn rate(count: u64, secs: f64) -> f64 {
    if secs > 0.0 { count as f64 / secs } else { 0.0 }
}
