//! `parity`: a golden case, and how far from the truth we are beside torch.

use std::path::Path;

use burn::tensor::Device;
use burn_qwen_kernels::KernelConfig;
use burn_qwen_trainer::{TrainError, parity};

use super::{print, print_json};

pub(crate) fn run(
    model: Option<&Path>,
    golden: &Path,
    kernels: &str,
    json: bool,
) -> Result<(), TrainError> {
    let own = golden.join("model");
    let model = model.unwrap_or(&own);
    let kernels = KernelConfig::parse(kernels);
    let report = parity::run(model, golden, &Device::flex(), &kernels)?;
    if json {
        print_json(&report);
    } else {
        print(&format!(
            "{:10} {:60} {:>9} {:>9} {:>6}",
            "part", "tensor", "error", "torch", "ratio"
        ));
        for c in &report.comparisons {
            let torch = c.torch_rel_l2.map_or("-".to_string(), |t| format!("{t:.1e}"));
            let ratio = c.ratio().map_or("-".to_string(), |r| format!("{r:.2}"));
            let mark = if c.pass { "" } else { "  FAILED" };
            print(&format!(
                "{:10} {:60} {:9.1e} {torch:>9} {ratio:>6}{mark}",
                c.part, c.tensor, c.rel_l2
            ));
        }
        for part in &report.not_run {
            print(&format!("not run: {part}"));
        }
        print(&format!(
            "{}: {} tensors, {} beyond their bar, median ratio {:.2}: {}",
            report.case,
            report.comparisons.len(),
            report.comparisons.iter().filter(|c| !c.pass).count(),
            report.median_ratio,
            if report.pass { "pass" } else { "does not pass" }
        ));
    }
    if report.pass {
        return Ok(());
    }
    Err(TrainError::Check(format!("{} is not reproduced to the accuracy of torch", report.case)))
}
