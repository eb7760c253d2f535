//! Golden files of ops: inputs in f32, results in f64, torch's own error beside them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use burn::tensor::Device;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::{Array, Call, Comparison, Report, VerifyError, rel_l2, run};
use crate::{BackendKind, ops::rms_norm::NormForm, registry};

/// A tensor may be this many times as far from the truth as torch is.
const WORST_RATIO: f64 = 4.0;
/// Errors below this are rounding, whatever torch has.
const FLOOR: f64 = 1e-6;

/// Checks a file, or all `*.safetensors` of a folder, with one implementation or all of each op.
///
/// # Errors
/// Files that cannot be read; a name that an op does not have.
pub fn check(
    path: &Path,
    implementation: Option<&str>,
    device: &Device,
    backend: BackendKind,
) -> Result<Report, VerifyError> {
    let mut report = Report::default();
    for file in files(path)? {
        let golden = Golden::open(&file)?;
        let Some(op) = golden.op() else {
            report.skipped.push(format!("{}: no op of this project", golden.name));
            continue;
        };
        let names = registry::implementation_names(op);
        for name in names.into_iter().filter(|name| implementation.is_none_or(|i| i == *name)) {
            match golden.outputs(op, name, device, backend)? {
                Ok(outputs) => golden.compare(op, name, &outputs, &mut report.comparisons),
                Err(reason) => report.skipped.push(format!("{}: {name} {reason}", golden.name)),
            }
        }
    }
    Ok(report)
}

/// The median over comparisons of our distance over torch's; `None` without any.
pub fn median_ratio<'a>(comparisons: impl IntoIterator<Item = &'a Comparison>) -> Option<f64> {
    let ratio = |c: &Comparison| Some(c.rel_l2 / c.torch_rel_l2.filter(|&torch| torch > 0.0)?);
    let mut ratios: Vec<f64> = comparisons.into_iter().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied()
}

fn files(path: &Path) -> Result<Vec<PathBuf>, VerifyError> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = std::fs::read_dir(path).map_err(|error| problem(path, error))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "safetensors"));
    files.sort();
    if files.is_empty() {
        return Err(problem(path, "holds no *.safetensors"));
    }
    Ok(files)
}

fn problem(path: &Path, problem: impl std::fmt::Display) -> VerifyError {
    VerifyError::File { path: path.display().to_string(), problem: problem.to_string() }
}

struct Golden {
    /// File name without extension.
    name: String,
    path: PathBuf,
    meta: Value,
    /// Inputs and upstream gradients.
    inputs: BTreeMap<String, Array>,
    /// Integers: boundaries, labels.
    integers: BTreeMap<String, Vec<i32>>,
    truth: BTreeMap<String, Vec<f64>>,
    /// Torch's errors of this file.
    torch: Value,
}

impl Golden {
    fn open(path: &Path) -> Result<Self, VerifyError> {
        let bytes = std::fs::read(path).map_err(|error| problem(path, error))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| problem(path, error))?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| problem(path, e))?;
        let meta = header.metadata().as_ref().and_then(|m| m.get("meta"));
        let meta = meta.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let errors = path.with_file_name("errors.json");
        let errors = std::fs::read(&errors).map_err(|error| problem(&errors, error))?;
        let errors: Value = serde_json::from_slice(&errors)
            .map_err(|error| problem(&path.with_file_name("errors.json"), error))?;
        let mut golden = Self {
            torch: errors[&name].clone(),
            name,
            path: path.to_path_buf(),
            meta,
            inputs: BTreeMap::new(),
            integers: BTreeMap::new(),
            truth: BTreeMap::new(),
        };
        for (name, view) in file.tensors() {
            let data = view.data();
            match view.dtype() {
                Dtype::F32 => {
                    let values = data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b));
                    let (shape, values) = (view.shape().to_vec(), values.collect());
                    golden.inputs.insert(name, Array { shape, values });
                }
                Dtype::F64 => {
                    let values = data.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b));
                    golden.truth.insert(name, values.collect());
                }
                Dtype::I32 => {
                    let values = data.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b));
                    golden.integers.insert(name, values.collect());
                }
                Dtype::I64 => {
                    let values = data.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as i32);
                    golden.integers.insert(name, values.collect());
                }
                other => return Err(problem(path, format!("{name} is {other:?}"))),
            }
        }
        Ok(golden)
    }

    fn op(&self) -> Option<&'static str> {
        let prefixes = [
            ("delta_rule", "gated_delta_rule"),
            ("conv1d_silu", "causal_conv1d"),
            ("rmsnorm", "rms_norm"),
            ("rope", "rope"),
            ("attention", "attention"),
            ("attn_gate", "attention"),
            ("decay_gate", "decay_gate"),
            ("swiglu", "swiglu"),
            ("linear_cross_entropy", "linear_cross_entropy"),
            ("adamw", "adamw"),
        ];
        prefixes.iter().find(|(prefix, _)| self.name.starts_with(prefix)).map(|(_, op)| *op)
    }

    fn input(&self, name: &str) -> Result<&Array, VerifyError> {
        self.inputs.get(name).ok_or_else(|| problem(&self.path, format!("has no F32 {name}")))
    }

    fn outputs(
        &self,
        op: &'static str,
        implementation: &str,
        device: &Device,
        backend: BackendKind,
    ) -> Result<Result<BTreeMap<String, Vec<f32>>, String>, VerifyError> {
        if op == "adamw" {
            return self.adamw(implementation, device, backend);
        }
        let call = if self.name == "attn_gate" { self.gate_call()? } else { self.call(op)? };
        run(&call, implementation, device, backend)
    }

    fn call(&self, op: &'static str) -> Result<Call, VerifyError> {
        let mut call = Call::new(op);
        call.tensors = self.inputs.clone();
        call.cu_seqlens = self.integers.get("cu_seqlens").cloned().unwrap_or_default();
        call.settings.eps = self.meta["eps"].as_f64().unwrap_or(call.settings.eps);
        match op {
            "causal_conv1d" => {
                // Stored `[C, 1, K]`.
                let w = self.input("w")?;
                let shape = [w.shape[0], w.values.len() / w.shape[0]];
                call.insert("w", &shape, w.values.clone());
            }
            "rms_norm" if self.meta["kind"] == "zero_centered" => {
                call.settings.form = NormForm::ZeroCentered;
            }
            "rope" => {
                // Angles in float32, as models were trained with.
                for (name, table) in [("cos", "cos_torch_f32"), ("sin", "sin_torch_f32")] {
                    call.tensors.insert(name.to_string(), self.input(table)?.clone());
                }
            }
            "linear_cross_entropy" => {
                call.ids = self.integers.get("labels").cloned().unwrap_or_default();
                let targets = call.ids.iter().filter(|&&label| label >= 0).count();
                call.settings.scale = 1.0 / targets.max(1) as f64;
            }
            _ => {}
        }
        Ok(call)
    }

    /// Attention of documents of one token passes its values on, so its output is the gate alone.
    fn gate_call(&self) -> Result<Call, VerifyError> {
        let (o, projected) = (self.input("o")?, self.input("q_proj_out")?);
        let &[num_tokens, num_heads, head_dim] = o.shape.as_slice() else {
            return Err(problem(&self.path, "o is not [T, H, D]"));
        };
        // Per head, the query comes first and the gate second.
        let half = |second: usize| -> Vec<f32> {
            let pairs = projected.values.chunks_exact(2 * head_dim);
            pairs.flat_map(|pair| &pair[second * head_dim..][..head_dim]).copied().collect()
        };
        let shape = [num_tokens, num_heads, head_dim];
        let mut call = Call::new("attention");
        call.insert("q", &shape, half(0));
        call.insert("k", &shape, half(0));
        call.insert("v", &shape, o.values.clone());
        call.insert("gate", &shape, half(1));
        call.insert("up_o", &shape, self.input("up_y")?.values.clone());
        call.cu_seqlens = (0..=num_tokens as i32).collect();
        Ok(call)
    }

    /// All steps on all tensors.
    fn adamw(
        &self,
        implementation: &str,
        device: &Device,
        backend: BackendKind,
    ) -> Result<Result<BTreeMap<String, Vec<f32>>, String>, VerifyError> {
        let number = |key: &str| {
            let value = self.meta[key].as_f64();
            value.ok_or_else(|| problem(&self.path, format!("meta.{key} is no number")))
        };
        let mut outputs = BTreeMap::new();
        let names = ["matrix", "vector", "conv"];
        let mut state = BTreeMap::new();
        for name in names {
            let zero = vec![0.0; self.input(name)?.values.len()];
            state.insert(name, (self.input(name)?.values.clone(), zero.clone(), zero));
        }
        for step in 1..=number("steps")? as u64 {
            let norm = self.truth.get("grad_norms").map_or(0.0, |norms| norms[step as usize - 1]);
            for name in names {
                let mut call = Call::new("adamw");
                let (param, exp_avg, exp_avg_sq) = state[name].clone();
                let shape = [param.len()];
                call.insert("param", &shape, param);
                call.insert("exp_avg", &shape, exp_avg);
                call.insert("exp_avg_sq", &shape, exp_avg_sq);
                let grad = self.input(&format!("grad{step}.{name}"))?;
                call.insert("grad", &shape, grad.values.clone());
                call.settings.step = step;
                call.settings.eps = number("eps")?;
                call.settings.lr = number("lr")?;
                call.settings.betas = [number("beta1")?, number("beta2")?];
                let is_matrix = self.input(name)?.shape.len() >= 2;
                call.settings.weight_decay = if is_matrix { number("weight_decay")? } else { 0.0 };
                call.settings.scale = (number("clip_global_norm")? / (norm + 1e-6)).min(1.0);
                let mut new = match run(&call, implementation, device, backend)? {
                    Ok(new) => new,
                    Err(reason) => return Ok(Err(reason)),
                };
                let mut take = |key: &str| new.remove(key).unwrap_or_default();
                let new = (take("param"), take("exp_avg"), take("exp_avg_sq"));
                outputs.insert(format!("step{step}.{name}"), new.0.clone());
                outputs.insert(format!("m.{name}"), new.1.clone());
                outputs.insert(format!("v.{name}"), new.2.clone());
                state.insert(name, new);
            }
        }
        Ok(Ok(outputs))
    }

    fn compare(
        &self,
        op: &'static str,
        implementation: &'static str,
        outputs: &BTreeMap<String, Vec<f32>>,
        out: &mut Vec<Comparison>,
    ) {
        for (tensor, ours) in outputs {
            let (truth, torch) = if self.name == "attn_gate" {
                match tensor.as_str() {
                    "o" => (self.truth.get("y").cloned(), &self.torch["y"]),
                    "grad_v" => (self.truth.get("grad_o").cloned(), &self.torch["grad_o"]),
                    "grad_gate" => (self.gate_truth(), &self.torch["grad_q_proj_out"]),
                    _ => continue,
                }
            } else if self.name == "rope_far" {
                // Exact angles are not what models were trained with; see `call`.
                (self.rotated(tensor), &Value::Null)
            } else {
                (self.truth.get(tensor).cloned(), &self.torch[tensor])
            };
            let Some(truth) = truth else { continue };
            let torch_rel_l2 = torch["rel_l2"].as_f64();
            out.push(Comparison {
                case: self.name.clone(),
                op,
                implementation,
                tensor: tensor.clone(),
                rel_l2: rel_l2(ours, &truth),
                torch_rel_l2,
                bar: torch_rel_l2.map_or(FLOOR, |torch| (WORST_RATIO * torch).max(FLOOR)),
            });
        }
    }

    /// The gate's half of the gradient of `q_proj_out`.
    fn gate_truth(&self) -> Option<Vec<f64>> {
        let head_dim = *self.inputs.get("o")?.shape.last()?;
        let pairs = self.truth.get("grad_q_proj_out")?.chunks_exact(2 * head_dim);
        Some(pairs.flat_map(|pair| &pair[head_dim..]).copied().collect())
    }

    /// The rotation by torch's tables; the gradient is the rotation back.
    fn rotated(&self, tensor: &str) -> Option<Vec<f64>> {
        let (source, sign) = match tensor {
            "y" => (self.inputs.get("x")?, 1.0),
            "grad_x" => (self.inputs.get("up_y")?, -1.0),
            _ => return None,
        };
        let (cos, sin) = (self.inputs.get("cos_torch_f32")?, self.inputs.get("sin_torch_f32")?);
        let (heads, width, half) = (source.shape[1], source.shape[2], cos.shape[1]);
        let mut out: Vec<f64> = source.values.iter().map(|&x| f64::from(x)).collect();
        for (row, head) in out.chunks_exact_mut(width).enumerate() {
            let t = row / heads;
            for j in 0..half {
                let (c, s) = (cos.values[t * half + j], sin.values[t * half + j]);
                let (c, s) = (f64::from(c), sign * f64::from(s));
                let (a, b) = (head[j], head[j + half]);
                (head[j], head[j + half]) = (a * c - b * s, b * c + a * s);
            }
        }
        Some(out)
    }
}
