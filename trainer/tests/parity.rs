//! Every golden case that is present passes.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn_qwen_kernels::KernelConfig;
use burn_qwen_trainer::parity;

fn cases(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let folders = entries.map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = folders.filter(|path| path.join("case.json").exists()).collect();
    cases.sort();
    cases
}

fn check(root: &Path, kernels: &KernelConfig) -> usize {
    let mut passed = 0;
    for case in cases(root) {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let report = match parity::run(&case.join("model"), &case, &Device::flex(), kernels) {
            Ok(report) => report,
            Err(error) if name.contains("moe") => {
                assert!(error.to_string().contains("mixture of experts"), "{error}");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        for c in report.comparisons.iter().filter(|c| !c.pass) {
            println!("{name} {} {}: {:e} over {:e}", c.part, c.tensor, c.rel_l2, c.bar);
        }
        println!(
            "{name}: {} tensors, median ratio {:.2}",
            report.comparisons.len(),
            report.median_ratio
        );
        assert!(report.pass, "{name} does not pass");
        passed += 1;
    }
    passed
}

#[test]
fn all_cases_beside_the_checkout() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/goldens");
    for kernels in [KernelConfig::default(), KernelConfig::all("reference")] {
        if check(&root, &kernels) == 0 {
            println!("skipped: no golden cases in {}", root.display());
        }
    }
}
