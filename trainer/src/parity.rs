//! A golden case, run and compared: logits, loss, every gradient, five AdamW steps, packed rows.
//!
//! Truth is float64. Beside each error stands the error of torch in float32 on the same case; an
//! implementation of equal quality has errors of the same size.

use std::{collections::BTreeMap, path::Path};

use burn::tensor::{DType, Device};
use burn_qwen::{
    QwenConfig, Row, block_specs,
    weights::{Checkpoint, file::TensorFile},
};
use burn_qwen_data::Batch;
use burn_qwen_kernels::{BackendKind, KernelConfig, Kernels, Packing};
use serde::Serialize;
use serde_json::Value;

use crate::{
    engine::{AdamWConfig, Engine, Recompute},
    error::TrainError,
};

/// A tensor may be this many times as far from the truth as torch is.
const WORST_RATIO: f64 = 4.0;
/// The median over all tensors of a case.
const MEDIAN_RATIO: f64 = 1.0;
/// Errors below this are rounding, whatever torch has.
const FLOOR: f64 = 1e-6;

/// One compared tensor.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// `single`, `packed`, `train`, `step1`, `step5`, `documents`.
    pub part: String,
    /// The tensor.
    pub tensor: String,
    /// Relative L2 distance to the truth.
    pub rel_l2: f64,
    /// The same of torch in float32; absent where there is none.
    pub torch_rel_l2: Option<f64>,
    /// What `rel_l2` may be.
    pub bar: f64,
    /// Whether it is.
    pub pass: bool,
}

impl Comparison {
    fn new(part: &str, tensor: &str, rel_l2: f64, torch: Option<f64>) -> Self {
        let bar = torch.map_or(FLOOR, |torch| (WORST_RATIO * torch).max(FLOOR));
        let (part, tensor) = (part.to_string(), tensor.to_string());
        Self { part, tensor, rel_l2, torch_rel_l2: torch, bar, pass: rel_l2 <= bar }
    }

    /// Our error over torch's, where both are known.
    pub fn ratio(&self) -> Option<f64> {
        self.torch_rel_l2.filter(|&torch| torch > 0.0).map(|torch| self.rel_l2 / torch)
    }
}

/// All comparisons of a case.
#[derive(Clone, Debug, Serialize)]
pub struct ParityReport {
    /// The case's name.
    pub case: String,
    /// Every tensor.
    pub comparisons: Vec<Comparison>,
    /// Median over all tensors of our error over torch's.
    pub median_ratio: f64,
    /// Parts of the case that this build does not run, and why.
    pub not_run: Vec<String>,
    /// Whether every tensor and the median are within their bars.
    pub pass: bool,
}

/// Runs the case in `golden` with the weights in `model`.
///
/// # Errors
/// Files that are missing or malformed, models that are not supported.
pub fn run(
    model: &Path,
    golden: &Path,
    device: &Device,
    kernels: &KernelConfig,
) -> Result<ParityReport, TrainError> {
    let case = Case::open(model, golden, device, kernels)?;
    let mut comparisons = Vec::new();
    for part in ["single", "packed"] {
        case.gradients(part, &mut comparisons)?;
    }
    case.documents(&mut comparisons)?;
    case.training(&mut comparisons)?;
    let mut ratios: Vec<f64> = comparisons.iter().filter_map(Comparison::ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let median_ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(0.0);
    let mut not_run = Vec::new();
    if golden.join("packed_bf16.safetensors").exists() {
        not_run.push("packed_bf16: this build computes in f32".to_string());
    }
    let pass = comparisons.iter().all(|c| c.pass) && median_ratio <= MEDIAN_RATIO;
    Ok(ParityReport { case: case.name.clone(), comparisons, median_ratio, not_run, pass })
}

struct Case<'a> {
    name: String,
    settings: Value,
    errors: Value,
    golden: &'a Path,
    config: QwenConfig,
    checkpoint: Checkpoint,
    device: &'a Device,
    kernels: Kernels,
}

impl<'a> Case<'a> {
    fn open(
        model: &Path,
        golden: &'a Path,
        device: &'a Device,
        kernels: &KernelConfig,
    ) -> Result<Self, TrainError> {
        let settings = read_json(&golden.join("case.json"))?;
        let errors = read_json(&golden.join("errors.json"))?;
        let config = QwenConfig::from_folder(model)?;
        let checkpoint = Checkpoint::open(model, &config)?;
        let case = config.kernel_case(BackendKind::Flex, DType::F32, true, 4096);
        let (kernels, _) = Kernels::resolve(kernels, &case)?;
        let name = settings["name"].as_str().unwrap_or("unnamed").to_string();
        Ok(Self { name, settings, errors, golden, config, checkpoint, device, kernels })
    }

    fn engine(&self) -> Result<Engine, TrainError> {
        Engine::new(
            self.config.clone(),
            self.device.clone(),
            self.kernels.clone(),
            Recompute::Full,
            |spec| Ok(self.checkpoint.read_block(spec)?),
        )
    }

    /// Torch's error of a tensor; losses have a bare absolute number.
    fn torch(&self, path: &[&str], truth: f64) -> Option<f64> {
        let entry = path.iter().fold(&self.errors, |value, key| &value[*key]);
        entry["rel_l2"].as_f64().or_else(|| entry.as_f64().map(|abs| abs / truth.abs()))
    }

    fn row(&self, part: &str) -> Result<GoldenRow, TrainError> {
        GoldenRow::open(&self.golden.join(format!("{part}.safetensors")))
    }

    /// Logits, loss and every gradient of a row.
    fn gradients(&self, part: &str, out: &mut Vec<Comparison>) -> Result<(), TrainError> {
        let row = self.row(part)?;
        let mut engine = self.engine()?;
        let logits = self.logits(&engine, &row.batch);
        let torch = self.torch(&[part, "logits"], 0.0);
        let error = rel_l2(&logits, &row.file.f64s("logits")?);
        out.push(Comparison::new(part, "logits", error, torch));

        let targets = row.batch.num_trained();
        let loss = engine.forward_backward(&row.batch)? / targets.max(1) as f64;
        let truth = row.file.f64s("loss")?[0];
        let torch = self.torch(&[part, "loss"], truth);
        out.push(Comparison::new(part, "loss", (loss - truth).abs() / truth.abs(), torch));

        for (block, spec) in block_specs(&self.config).iter().enumerate() {
            let grad = engine.store.grad(block).unwrap_or_else(|| vec![0.0; spec.num_elements()]);
            for (offset, param) in spec.offsets() {
                let name = self.checkpoint.stored_name(&param.name);
                let ours: Vec<f64> = grad[offset..offset + param.num_elements()]
                    .iter()
                    .map(|&g| f64::from(g) / targets.max(1) as f64)
                    .collect();
                let error = rel_l2(&ours, &row.file.f64s(&format!("grad.{name}"))?);
                let torch = self.torch(&[part, "grads", &name], 0.0);
                out.push(Comparison::new(part, &format!("grad.{name}"), error, torch));
            }
        }
        Ok(())
    }

    /// The packed row against each of its documents alone.
    fn documents(&self, out: &mut Vec<Comparison>) -> Result<(), TrainError> {
        let row = self.row("packed")?;
        let engine = self.engine()?;
        let packed = self.logits(&engine, &row.batch);
        let vocab = self.config.vocab_size;
        for (i, range) in row.batch.cu_seqlens.windows(2).enumerate() {
            let (start, end) = (range[0] as usize, range[1] as usize);
            let alone = Batch {
                input_ids: row.batch.input_ids[start..end].to_vec(),
                position_ids: row.batch.position_ids[start..end].to_vec(),
                cu_seqlens: vec![0, (end - start) as i32],
                labels: row.batch.labels[start..end].to_vec(),
                sample_ids: Vec::new(),
            };
            let logits = self.logits(&engine, &alone);
            let error = rel_l2(&packed[start * vocab..end * vocab], &logits);
            let tensor = format!("logits of document {i} ({} tokens)", end - start);
            let torch = self.torch(&["packed", "logits"], 0.0);
            let mut comparison = Comparison::new("documents", &tensor, error, torch);
            // Not the same question as torch's error, only of the same size.
            comparison.torch_rel_l2 = None;
            out.push(comparison);
        }
        Ok(())
    }

    /// Five optimizer steps on the packed row.
    fn training(&self, out: &mut Vec<Comparison>) -> Result<(), TrainError> {
        let row = self.row("packed")?;
        let truth = TensorFile::open(&self.golden.join("train.safetensors"))?;
        let truth = GoldenFile(truth);
        let losses = truth.f64s("losses")?;
        let norms = truth.f64s("grad_norms")?;
        let settings = &self.settings["optimizer"];
        let number = |key: &str| {
            settings[key].as_f64().ok_or_else(|| {
                let place = self.golden.join("case.json");
                TrainError::Input(format!("{}: optimizer.{key} must be a number", place.display()))
            })
        };
        let adamw = AdamWConfig {
            betas: [number("beta1")?, number("beta2")?],
            eps: number("eps")?,
            weight_decay: number("weight_decay")?,
            max_grad_norm: number("clip_global_norm")?,
        };
        let lr = number("lr")?;
        let targets = row.batch.num_trained();
        let mut engine = self.engine()?;
        let start = engine.store.all_values();
        let mut our_losses = Vec::new();
        let mut our_norms = Vec::new();
        for step in 1..=norms.len() {
            our_losses.push(engine.forward_backward(&row.batch)? / targets as f64);
            our_norms.push(engine.update(targets, lr, &adamw)?.unwrap_or(0.0));
            if step == 1 || step == 5 {
                self.changes(out, step, &engine, &start, &truth)?;
            }
        }
        our_losses.push(engine.loss(&row.batch) / targets as f64);
        self.sequence(out, "losses", "loss_abs", &our_losses, &losses);
        self.sequence(out, "grad_norms", "grad_norm_abs", &our_norms, &norms);
        Ok(())
    }

    /// Numbers of all steps as one vector; torch's errors are given one by one.
    fn sequence(
        &self,
        out: &mut Vec<Comparison>,
        name: &str,
        key: &str,
        ours: &[f64],
        truth: &[f64],
    ) {
        let errors = self.errors["train"][key].as_array();
        let torch = errors.map(|errors| {
            let squares = errors.iter().filter_map(Value::as_f64).map(|abs| abs * abs);
            (squares.sum::<f64>() / truth.iter().map(|x| x * x).sum::<f64>()).sqrt()
        });
        out.push(Comparison::new("train", name, rel_l2(ours, truth), torch));
    }

    /// How far each parameter has moved since the start.
    fn changes(
        &self,
        out: &mut Vec<Comparison>,
        step: usize,
        engine: &Engine,
        start: &[Vec<Vec<f32>>],
        truth: &GoldenFile,
    ) -> Result<(), TrainError> {
        let part = format!("step{step}");
        let now = engine.store.all_values();
        for (block, spec) in block_specs(&self.config).iter().enumerate() {
            for (i, param) in spec.params.iter().enumerate() {
                let name = self.checkpoint.stored_name(&param.name);
                let truth = truth.f64s(&format!("{part}.{name}"))?;
                let start = &start[block][i];
                let change = |w: f64, w0: &f32| w - f64::from(*w0);
                let ours: Vec<f64> = now[block][i]
                    .iter()
                    .zip(start)
                    .map(|(&w, w0)| change(f64::from(w), w0))
                    .collect();
                let truth: Vec<f64> =
                    truth.iter().zip(start).map(|(&w, w0)| change(w, w0)).collect();
                let torch = self.torch(&[&part, "weights", &name], 0.0);
                out.push(Comparison::new(&part, &name, rel_l2(&ours, &truth), torch));
            }
        }
        Ok(())
    }

    fn logits(&self, engine: &Engine, batch: &Batch) -> Vec<f64> {
        let packing = Packing::new(batch.cu_seqlens.as_slice());
        let row = Row {
            input_ids: &batch.input_ids,
            position_ids: &batch.position_ids,
            packing: &packing,
        };
        let logits = engine.model().logits(row, &self.kernels).into_data_dtype(DType::F64);
        logits.try_into_vec::<f64>().expect("the data was just read as f64")
    }
}

struct GoldenRow {
    batch: Batch,
    file: GoldenFile,
}

impl GoldenRow {
    fn open(path: &Path) -> Result<Self, TrainError> {
        let file = GoldenFile(TensorFile::open(path)?);
        let ints = |name: &str| -> Result<Vec<i32>, TrainError> {
            Ok(file.f64s(name)?.into_iter().map(|x| x as i32).collect())
        };
        let batch = Batch {
            input_ids: ints("input_ids")?,
            position_ids: ints("position_ids")?,
            cu_seqlens: ints("cu_seqlens")?,
            labels: ints("targets")?,
            sample_ids: Vec::new(),
        };
        Ok(Self { batch, file })
    }
}

struct GoldenFile(TensorFile);

impl GoldenFile {
    fn f64s(&self, name: &str) -> Result<Vec<f64>, TrainError> {
        use safetensors::Dtype;
        let bytes = self.0.read(name)?;
        let dtype = self.0.tensors[name].dtype;
        Ok(match dtype {
            Dtype::F64 => bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
            Dtype::F32 => {
                bytes.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect()
            }
            Dtype::I64 => {
                bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f64).collect()
            }
            Dtype::I32 => {
                bytes.as_chunks().0.iter().map(|&b| f64::from(i32::from_le_bytes(b))).collect()
            }
            other => {
                let path = self.0.path.display();
                return Err(TrainError::Input(format!(
                    "{path}: {name} is {other:?}, not a number"
                )));
            }
        })
    }
}

fn read_json(path: &Path) -> Result<Value, TrainError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        TrainError::Input(format!("{}: {error}; is this a golden case?", path.display()))
    })?;
    serde_json::from_str(&text)
        .map_err(|error| TrainError::Input(format!("{}: is not JSON: {error}", path.display())))
}

/// L2 norm of the difference over that of the truth; the norm of the difference itself where the
/// truth is 0.
fn rel_l2(ours: &[f64], truth: &[f64]) -> f64 {
    if ours.len() != truth.len() {
        return f64::INFINITY;
    }
    let difference: f64 = ours.iter().zip(truth).map(|(a, b)| (a - b).powi(2)).sum();
    let norm: f64 = truth.iter().map(|b| b * b).sum();
    if norm == 0.0 { difference.sqrt() } else { (difference / norm).sqrt() }
}

/// Comparisons by part, for a table.
pub fn by_part(report: &ParityReport) -> BTreeMap<&str, Vec<&Comparison>> {
    let mut parts: BTreeMap<&str, Vec<&Comparison>> = BTreeMap::new();
    for comparison in &report.comparisons {
        parts.entry(&comparison.part).or_default().push(comparison);
    }
    parts
}
