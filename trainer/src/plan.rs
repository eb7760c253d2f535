//! A run once its settings are checked: every file found, every derived value computed.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use burn_qwen::{QwenConfig, flops::num_parameters, weights::Checkpoint};
use burn_qwen_data::{DataReport, Loader, Source};
use burn_qwen_kernels::{BackendKind, Kernels, SelectionReport};

use crate::{
    checkpoint,
    config::{DtypeSetting, InitSetting, RunConfig},
    engine::AdamWConfig,
    error::TrainError,
    inputs,
    metrics::total_memory_bytes,
    schedule::Schedule,
};

/// Data sets up to this many samples are measured before a run even if its length is given in
/// steps: it takes seconds and gives the full report.
const MEASURED_SAMPLES: u64 = 20_000;

/// Everything that a run needs.
#[derive(Debug)]
pub struct Plan {
    /// The settings.
    pub config: RunConfig,
    /// Folder of the run.
    pub output: PathBuf,
    /// Step of the checkpoint to resume from.
    pub resume: Option<u64>,
    /// Whether the folder holds an earlier run that this one takes the place of.
    pub replaces: bool,
    /// Folder of the model's configuration and, unless it starts from random weights, its weights.
    pub model_folder: PathBuf,
    /// Folder of tokenizer and template.
    pub tokenizer_folder: PathBuf,
    /// The model.
    pub qwen: QwenConfig,
    /// Its weights, unless it starts from random ones.
    pub checkpoint: Option<Checkpoint>,
    /// Where it runs.
    pub device: Device,
    /// The implementation of every op.
    pub kernels: Kernels,
    /// Why these.
    pub kernel_report: SelectionReport,
    /// Packed rows of the whole run, if its length is given in epochs.
    pub num_rows: Option<u64>,
    /// Optimizer steps of the run.
    pub num_steps: u64,
    /// Training data at its beginning.
    pub loader: Loader,
    /// What the data holds.
    pub data_report: DataReport,
    /// Evaluation data.
    pub eval_loader: Option<Loader>,
    /// Questions for the trained model.
    pub exam: Option<Source>,
    /// What the user should know before the run starts.
    pub notices: Vec<String>,
}

impl Plan {
    /// Checks settings and opens every file.
    ///
    /// # Errors
    /// Anything the user has to mend.
    pub fn new(config: RunConfig, output: &Path, force: bool) -> Result<Self, TrainError> {
        check_settings(&config)?;
        let mut notices = Vec::new();
        let (resume, replaces) = check_output(&config, output, force, &mut notices)?;
        let model = &config.model;
        let model_folder = inputs::model_folder(&model.path, model.revision.as_deref())?;
        let tokenizer_folder = inputs::tokenizer_folder(model, &model_folder)?;
        let qwen = QwenConfig::from_folder(&model_folder)?;
        check_memory(&qwen)?;
        let checkpoint = match model.init {
            InitSetting::Pretrained => Some(Checkpoint::open(&model_folder, &qwen)?),
            InitSetting::Random => None,
        };
        if let Some(checkpoint) = &checkpoint {
            notices.extend(checkpoint.notices().iter().cloned());
        }
        let max_tokens = config.data.max_tokens;
        let case = qwen.kernel_case(BackendKind::Flex, DType::F32, true, max_tokens);
        let (kernels, kernel_report) = Kernels::resolve(&config.kernels, &case)?;

        let loader = inputs::loader(&config.data.train, &tokenizer_folder, &config.data)?;
        inputs::check_vocabulary(&qwen, loader.renderer())?;
        notices.push(format!("chat template: {}", loader.renderer().template().origin()));
        let (num_rows, num_steps, data_report) = length(&config, &loader)?;
        let eval_loader = if config.data.eval.is_empty() {
            None
        } else {
            Some(inputs::loader(&config.data.eval, &tokenizer_folder, &config.data)?)
        };
        let exam = match &config.exam.data {
            Some(path) => Some(Source::open(std::slice::from_ref(path), config.data.format)?),
            None => None,
        };
        if replaces {
            let sources = [Some(loader.source()), eval_loader.as_ref().map(Loader::source)];
            let sources = sources.into_iter().chain([exam.as_ref()]).flatten();
            let files = sources.flat_map(|source| &source.summary().files);
            let inputs = files.map(|file| &file.path).chain([&model_folder, &tokenizer_folder]);
            check_inputs_outside(output, inputs)?;
        }
        Ok(Self {
            config,
            output: output.to_path_buf(),
            resume,
            replaces,
            model_folder,
            tokenizer_folder,
            qwen,
            checkpoint,
            device: Device::flex(),
            kernels,
            kernel_report,
            num_rows,
            num_steps,
            loader,
            data_report,
            eval_loader,
            exam,
            notices,
        })
    }

    /// The learning rate's schedule.
    pub fn schedule(&self) -> Schedule {
        let train = &self.config.train;
        Schedule {
            kind: train.schedule,
            lr: train.lr,
            warmup_steps: train.warmup_steps,
            decay_steps: train.decay_steps,
            min_lr_ratio: train.min_lr_ratio,
            num_steps: self.num_steps,
        }
    }

    /// The optimizer's settings.
    pub fn adamw(&self) -> AdamWConfig {
        let train = &self.config.train;
        AdamWConfig {
            betas: train.betas,
            eps: train.eps,
            weight_decay: train.weight_decay,
            max_grad_norm: train.max_grad_norm,
        }
    }

    /// Trainable parameters.
    pub fn num_parameters(&self) -> usize {
        num_parameters(&self.qwen)
    }
}

/// Checks what can be checked before any input exists.
///
/// # Errors
/// Settings that make no sense; a folder that may not be used.
pub fn check(config: &RunConfig, output: &Path, force: bool) -> Result<(), TrainError> {
    check_settings(config)?;
    check_output(config, output, force, &mut Vec::new())?;
    Ok(())
}

fn check_settings(config: &RunConfig) -> Result<(), TrainError> {
    let refuse = |problem: String| Err(TrainError::Input(problem));
    let train = &config.train;
    if config.model.dtype == DtypeSetting::Bf16 {
        return refuse(
            "model.dtype = \"bf16\": this build trains in f32 on the CPU; set it to auto or f32"
                .to_string(),
        );
    }
    match (train.epochs, train.steps) {
        (None, None) => return refuse("set train.epochs or train.steps".to_string()),
        (Some(_), Some(_)) => {
            return refuse(
                "train.epochs and train.steps are both set; remove one of them".to_string(),
            );
        }
        (Some(0), None) | (None, Some(0)) => {
            return refuse("train.epochs and train.steps must be at least 1".to_string());
        }
        _ => {}
    }
    if train.gradient_accumulation == 0 {
        return refuse("train.gradient_accumulation must be at least 1".to_string());
    }
    let positive = [
        ("train.lr", train.lr),
        ("train.eps", train.eps),
        ("train.max_grad_norm", train.max_grad_norm),
    ];
    for (key, value) in positive {
        if !(value > 0.0 && value.is_finite()) {
            return refuse(format!("{key} = {value}: a number above 0 is needed"));
        }
    }
    for (key, value) in [("train.betas[0]", train.betas[0]), ("train.betas[1]", train.betas[1])] {
        if !(0.0..1.0).contains(&value) {
            return refuse(format!("{key} = {value}: a number from 0 to below 1 is needed"));
        }
    }
    if !(0.0..=1.0).contains(&train.min_lr_ratio) || !(0.0..1e3).contains(&train.weight_decay) {
        return refuse(format!(
            "train.min_lr_ratio = {} must be from 0 to 1 and train.weight_decay = {} not negative",
            train.min_lr_ratio, train.weight_decay
        ));
    }
    config.data.validate()?;
    Ok(())
}

/// Bytes of a parameter in training: value, gradient and two moments in f32.
const BYTES_PER_PARAMETER: u64 = 16;

/// A message now is better than the system ending the process later.
fn check_memory(qwen: &QwenConfig) -> Result<(), TrainError> {
    let parameters = num_parameters(qwen) as u64;
    let needed = parameters.saturating_mul(BYTES_PER_PARAMETER);
    let Some(there) = total_memory_bytes().filter(|&there| there < needed) else { return Ok(()) };
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(TrainError::Input(format!(
        "weights, gradients and moments of {:.1}M parameters need {:.1} GiB, this machine has \
         {:.1} GiB: take a smaller model or a larger machine",
        parameters as f64 / 1e6,
        gib(needed),
        gib(there)
    )))
}

/// Decides whether the folder may be used: the step to resume from, and whether an earlier run is
/// to be replaced.
fn check_output(
    config: &RunConfig,
    output: &Path,
    force: bool,
    notices: &mut Vec<String>,
) -> Result<(Option<u64>, bool), TrainError> {
    let is_empty = std::fs::read_dir(output).map_or(true, |mut entries| entries.next().is_none());
    if output.as_os_str().is_empty() {
        return Err(TrainError::Input("--output is empty: name the run's folder".to_string()));
    }
    if output.is_file() {
        return Err(TrainError::Input(format!("--output {}: is a file", output.display())));
    }
    let resume = checkpoint::resolve(output, &config.checkpoint.resume, notices)?;
    if resume.is_some() || is_empty {
        if resume.is_none() && config.checkpoint.resume == "auto" {
            notices.push("no checkpoint to resume from: starting anew".to_string());
        }
        return Ok((resume, false));
    }
    let is_run = output.join("config.toml").exists();
    if force && is_run {
        return Ok((None, true));
    }
    if config.checkpoint.resume == "auto" && is_run {
        notices.push("no complete checkpoint in the run's folder: starting anew".to_string());
        return Ok((None, false));
    }
    let advice = if force {
        "it is not the folder of a run, so --force does not remove it: choose another folder"
    } else {
        "use --resume auto to go on, --force to replace it, or another --output"
    };
    Err(TrainError::Input(format!(
        "--output {}: exists and is not empty; {advice}",
        output.display()
    )))
}

/// A run must not remove what it reads.
fn check_inputs_outside<'a>(
    output: &Path,
    mut inputs: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), TrainError> {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let output = whole(output);
    match inputs.find(|path| whole(path).starts_with(&output)) {
        Some(path) => Err(TrainError::Input(format!(
            "--force would remove {}, which this run reads: use another --output",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Rows (if counted), optimizer steps, and the report of one pass.
fn length(
    config: &RunConfig,
    loader: &Loader,
) -> Result<(Option<u64>, u64, DataReport), TrainError> {
    let accumulation = config.train.gradient_accumulation;
    if let Some(epochs) = config.train.epochs {
        let (rows, report) = loader.measure(epochs)?;
        let rows: u64 = rows.iter().sum();
        if rows == 0 {
            return Err(no_rows(&report, config.data.max_tokens));
        }
        return Ok((Some(rows), rows.div_ceil(accumulation), report));
    }
    let steps = config.train.steps.unwrap_or(1);
    let summary = loader.source().summary();
    if summary.num_samples > MEASURED_SAMPLES {
        let report = DataReport { source: summary.clone(), ..DataReport::default() };
        return Ok((None, steps, report));
    }
    let (rows, report) = loader.measure(1)?;
    if rows[0] == 0 {
        return Err(no_rows(&report, config.data.max_tokens));
    }
    Ok((None, steps, report))
}

/// Nothing to train on, and why.
fn no_rows(report: &DataReport, max_tokens: usize) -> TrainError {
    let left_out =
        report.source.rejected.iter().chain(&report.skipped).map(|(reason, rejected)| {
            format!("{} left out: {reason} ({})", rejected.count, rejected.places.join(", "))
        });
    let long = (report.long.samples_dropped > 0).then(|| {
        format!("{} left out: longer than {max_tokens} tokens", report.long.samples_dropped)
    });
    let reasons: Vec<String> = left_out.chain(long).collect();
    TrainError::Input(format!(
        "no sample of data.train gives a row, of {} samples: {}",
        report.source.num_rows,
        reasons.join("; ")
    ))
}
