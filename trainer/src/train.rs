//! The loop: evaluate, step, log, save.

use std::{
    path::Path,
    sync::atomic::{AtomicI32, Ordering},
    time::Instant,
};

use burn_qwen::{
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
    eval::{Evaluation, evaluate},
    metrics::{EvalRecord, MetricsFile, StepRecord, peak_memory_bytes},
    plan::Plan,
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
    /// Wall time of this process' steps.
    pub wall_secs: f64,
    /// Tokens per second of this process' steps.
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
    console: &'a mut Console,
    eval_rows: Vec<Batch>,
    step: u64,
    num_rows: u64,
    num_tokens: u64,
    final_loss: Option<f64>,
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
    let engine = build_engine(plan)?;
    write_run_files(plan)?;
    let metrics = MetricsFile::open(&plan.output, plan.resume.unwrap_or(0))?;
    let mut eval_rows = match &plan.eval_loader {
        Some(loader) => loader.eval_rows()?.0,
        None => Vec::new(),
    };
    if plan.config.eval.samples > 0 {
        eval_rows.truncate(plan.config.eval.samples);
    }
    let mut run = Run {
        plan,
        engine,
        metrics,
        console,
        eval_rows,
        step: 0,
        num_rows: 0,
        num_tokens: 0,
        final_loss: None,
    };
    run.resume()?;
    let summary = run.steps(stop)?;
    export_model(run.plan, &run.engine, &run.plan.output.join("export"))?;
    Ok((summary, run.engine))
}

fn build_engine(plan: &Plan) -> Result<Engine, TrainError> {
    let seed = plan.config.train.seed;
    Engine::new(
        plan.qwen.clone(),
        plan.device.clone(),
        plan.kernels.clone(),
        plan.config.engine.recompute,
        |spec| match &plan.checkpoint {
            Some(checkpoint) => Ok(checkpoint.read_block(spec)?),
            None => Ok(init_block(&plan.qwen, spec, seed)),
        },
    )
}

/// `config.toml`, `kernels.json`, `data-report.json`.
fn write_run_files(plan: &Plan) -> Result<(), TrainError> {
    let folder = &plan.output;
    std::fs::create_dir_all(folder)
        .map_err(TrainError::machine(format!("cannot create {}", folder.display())))?;
    let config = toml::to_string(&plan.config).expect("settings are plain values");
    let json = |value: &serde_json::Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let kernels = serde_json::to_value(&plan.kernel_report).unwrap_or_default();
    let report = serde_json::to_value(&plan.data_report).unwrap_or_default();
    for (name, text) in [
        ("config.toml", config),
        ("kernels.json", json(&kernels)),
        ("data-report.json", json(&report)),
    ] {
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
    /// Puts everything back to where the checkpoint was saved.
    fn resume(&mut self) -> Result<(), TrainError> {
        let Some(step) = self.plan.resume else { return Ok(()) };
        let folder = checkpoint::folder(&self.plan.output, step);
        let manifest = checkpoint::load(&folder)?;
        let notices = checkpoint::check_same_run(&manifest.config, &self.plan.config)?;
        notices.iter().for_each(|notice| self.console.notice(notice));
        self.engine.restore(&folder, &manifest, &self.plan.device)?;
        self.plan.loader.restore(&manifest.loader)?;
        self.step = manifest.step;
        self.num_rows = manifest.num_rows;
        self.num_tokens = manifest.num_tokens;
        self.console.notice(&format!("resumed after step {step}"));
        Ok(())
    }

    fn steps(&mut self, stop: &StopFlag) -> Result<Summary, TrainError> {
        let num_steps = self.plan.num_steps;
        let initial_eval_loss = if self.step == 0 { self.evaluate()? } else { None };
        let mut eval_loss = initial_eval_loss;
        let start = Instant::now();
        let tokens_before = self.num_tokens;
        self.console.start(self.step, num_steps);
        while self.step < num_steps {
            let record = self.one_step()?;
            self.metrics.write(&record)?;
            self.console.step(&record, num_steps);
            let every = self.plan.config.checkpoint.every_steps;
            let is_last = self.step == num_steps;
            let signal = stop.load(Ordering::SeqCst);
            if signal != 0 || is_last || (every > 0 && self.step.is_multiple_of(every)) {
                self.save()?;
            }
            if signal != 0 && !is_last {
                self.console.finish();
                return Err(TrainError::Stopped(signal));
            }
            let every = self.plan.config.eval.every_steps;
            if is_last || (every > 0 && self.step.is_multiple_of(every)) {
                eval_loss = self.evaluate()?.or(eval_loss);
            }
        }
        self.console.finish();
        let wall_secs = start.elapsed().as_secs_f64();
        Ok(Summary {
            steps: self.step,
            final_loss: self.final_loss,
            initial_eval_loss,
            eval_loss,
            tokens: self.num_tokens,
            wall_secs,
            tokens_per_second: (self.num_tokens - tokens_before) as f64 / wall_secs,
            mfu: None,
            peak_memory_bytes: peak_memory_bytes(),
            exact_match: None,
        })
    }

    /// One optimizer step: its packed rows, the update, the record.
    fn one_step(&mut self) -> Result<StepRecord, TrainError> {
        let start = Instant::now();
        let accumulation = self.plan.config.train.gradient_accumulation;
        let left = self.plan.num_rows.map_or(u64::MAX, |rows| rows.saturating_sub(self.num_rows));
        let micro_batches = accumulation.min(left);
        let (mut loss, mut tokens, mut trained, mut samples) = (0.0, 0, 0, 0);
        let mut data_wait_secs = 0.0;
        let mut epoch = 0;
        for _ in 0..micro_batches {
            let waiting = Instant::now();
            let (row_epoch, batch) = self.plan.loader.next_row()?;
            data_wait_secs += waiting.elapsed().as_secs_f64();
            epoch = row_epoch;
            loss += self.engine.forward_backward(&batch).map_err(|e| self.locate(e, &batch))?;
            tokens += batch.num_tokens() as u64;
            trained += batch.num_trained();
            samples += batch.num_documents() as u64;
        }
        self.step += 1;
        let lr = self.plan.schedule().lr(self.step);
        let grad_norm = self.engine.update(trained, lr, &self.plan.adamw());
        let grad_norm = grad_norm.map_err(|error| self.at_step(error))?;
        let loss = (trained > 0).then(|| loss / trained as f64);
        if grad_norm.is_none() {
            self.console
                .notice(&format!("step {} has no trained token: nothing changes", self.step));
        }
        self.final_loss = loss.or(self.final_loss);
        self.num_rows += micro_batches;
        self.num_tokens += tokens;
        let step_secs = start.elapsed().as_secs_f64();
        Ok(StepRecord {
            step: self.step,
            epoch,
            loss,
            lr,
            grad_norm,
            micro_batches,
            tokens,
            tokens_real: tokens,
            tokens_trained: trained as u64,
            samples,
            step_secs,
            data_wait_secs,
            tokens_per_second: tokens as f64 / step_secs,
            trained_tokens_per_second: trained as f64 / step_secs,
            mfu: None,
            hfu: None,
            peak_memory_bytes: peak_memory_bytes(),
        })
    }

    /// Adds step and samples to a number that left the finite range.
    fn locate(&self, error: TrainError, batch: &Batch) -> TrainError {
        match error {
            TrainError::NotFinite(what) => TrainError::NotFinite(format!(
                "step {}: {what}; samples {:?}",
                self.step + 1,
                batch.sample_ids
            )),
            other => other,
        }
    }

    fn at_step(&self, error: TrainError) -> TrainError {
        match error {
            TrainError::NotFinite(what) => {
                TrainError::NotFinite(format!("step {}: {what}", self.step))
            }
            other => other,
        }
    }

    fn evaluate(&mut self) -> Result<Option<f64>, TrainError> {
        if self.eval_rows.is_empty() {
            return Ok(None);
        }
        let model = self.engine.model();
        self.console.phase("evaluating");
        let Evaluation { loss, targets, .. } =
            evaluate(&model, self.engine.kernels(), &self.eval_rows, || {});
        let record = EvalRecord { step: self.step, eval_loss: loss, eval_tokens: targets };
        self.metrics.write(&record)?;
        self.console.evaluation(&record);
        Ok(Some(loss))
    }

    fn save(&mut self) -> Result<(), TrainError> {
        self.console.phase("saving");
        let plan = &self.plan;
        let manifest = Manifest {
            step: self.step,
            num_updates: self.engine.num_updates,
            num_rows: self.num_rows,
            num_tokens: self.num_tokens,
            loader: plan.loader.state(),
            config: plan.config.clone(),
            model_folder: plan.model_folder.clone(),
            tokenizer_folder: plan.tokenizer_folder.clone(),
            kernels: checkpoint::kernel_lines(&plan.kernel_report),
            files: std::collections::BTreeMap::new(),
        };
        checkpoint::save(&plan.output, &self.engine, manifest, plan.config.checkpoint.keep)
    }
}
