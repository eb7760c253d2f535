//! Golden cases: `tests/goldens`, and more beside the checkout where there are some.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, Tensor};
use burn_qwen::{
    BlockParams, Model, QwenConfig, Row, block_specs,
    weights::{Checkpoint, file::TensorFile},
};
use burn_qwen_kernels::{BackendKind, KernelConfig, Kernels, Packing};
use safetensors::Dtype;
use serde_json::Value;

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

/// Every case of a family that this crate has.
pub fn cases() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/goldens");
    if !beside.exists() {
        println!("skipped: there are no cases in {}", beside.display());
    }
    let mut cases: Vec<PathBuf> = [folder(), beside]
        .iter()
        .filter_map(|root| std::fs::read_dir(root).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("case.json").exists() && !path.to_string_lossy().contains("moe"))
        .collect();
    cases.sort();
    assert!(cases.len() >= 6, "the cases of this folder are missing: {cases:?}");
    cases
}

pub fn name(case: &Path) -> String {
    case.file_name().unwrap().to_string_lossy().into_owned()
}

pub fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Kernels for a model, each op on `implementation` (or `auto`).
pub fn kernels(config: &QwenConfig, implementation: &str, training: bool) -> Kernels {
    let case = config.kernel_case(BackendKind::Flex, DType::F32, training, 4096);
    Kernels::resolve(&KernelConfig::all(implementation), &case).unwrap().0
}

/// The checkpoint of a case and its parameters.
pub struct Loaded {
    pub config: QwenConfig,
    pub checkpoint: Checkpoint,
    pub blocks: Vec<BlockParams>,
}

impl Loaded {
    pub fn open(case: &Path) -> Self {
        let model = case.join("model");
        let config = QwenConfig::from_folder(&model).unwrap();
        let checkpoint = Checkpoint::open(&model, &config).unwrap();
        let params = |spec| {
            let flat: Vec<f32> = checkpoint.read_block(spec).unwrap();
            BlockParams::from_flat(spec, &Tensor::from_data(flat.as_slice(), &Device::flex()))
        };
        let blocks = block_specs(&config).iter().map(params).collect();
        Self { config, checkpoint, blocks }
    }

    pub fn model(&self) -> Model {
        Model::new(&self.config, &self.blocks)
    }
}

/// A row of a case with its results.
pub struct GoldenRow {
    pub input_ids: Vec<i32>,
    pub position_ids: Vec<i32>,
    pub targets: Vec<i32>,
    pub packing: Packing,
    file: TensorFile,
}

impl GoldenRow {
    pub fn open(case: &Path, part: &str) -> Self {
        let file = TensorFile::open(&case.join(format!("{part}.safetensors"))).unwrap();
        let ints =
            |name: &str| -> Vec<i32> { f64s(&file, name).iter().map(|&x| x as i32).collect() };
        Self {
            input_ids: ints("input_ids"),
            position_ids: ints("position_ids"),
            targets: ints("targets"),
            packing: Packing::new(ints("cu_seqlens")),
            file,
        }
    }

    pub fn row(&self) -> Row<'_> {
        Row { input_ids: &self.input_ids, position_ids: &self.position_ids, packing: &self.packing }
    }

    pub fn num_targets(&self) -> f64 {
        self.targets.iter().filter(|&&target| target >= 0).count() as f64
    }

    pub fn truth(&self, name: &str) -> Vec<f64> {
        f64s(&self.file, name)
    }
}

/// Any tensor of numbers, as f64.
pub fn f64s(file: &TensorFile, name: &str) -> Vec<f64> {
    let bytes = file.read(name).unwrap();
    match file.tensors[name].dtype {
        Dtype::F64 => bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
        Dtype::F32 => {
            bytes.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect()
        }
        Dtype::I64 => bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f64).collect(),
        Dtype::I32 => {
            bytes.as_chunks().0.iter().map(|&b| f64::from(i32::from_le_bytes(b))).collect()
        }
        other => panic!("{name} is {other:?}"),
    }
}

pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data_dtype(DType::F64).try_into_vec().unwrap()
}

/// L2 norm of the difference over that of the truth.
pub fn rel_l2(ours: &[f64], truth: &[f64]) -> f64 {
    assert_eq!(ours.len(), truth.len());
    let difference: f64 = ours.iter().zip(truth).map(|(a, b)| (a - b).powi(2)).sum();
    let norm: f64 = truth.iter().map(|b| b * b).sum();
    if norm == 0.0 { difference.sqrt() } else { (difference / norm).sqrt() }
}
