//! Golden cases through the engine: what `burn-qwen parity` runs.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails where it stands")]

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn_qwen_kernels::KernelConfig;
use burn_qwen_trainer::parity::{self, Comparison};

fn cases(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let folders = entries.map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = folders.filter(|path| path.join("case.json").exists()).collect();
    cases.sort();
    cases
}

/// Runs all cases of a folder; returns how many.
fn check(root: &Path, kernels: &str, is_within: fn(&Comparison) -> bool) -> usize {
    let mut passed = 0;
    for case in cases(root) {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let config = KernelConfig::parse(kernels);
        let report = match parity::run(&case.join("model"), &case, &Device::flex(), &config) {
            Ok(report) => report,
            Err(error) if name.contains("moe") => {
                assert!(error.to_string().contains("mixture of experts"), "{error}");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let beyond: Vec<_> = report.comparisons.iter().filter(|c| !is_within(c)).collect();
        assert!(beyond.is_empty(), "{name} ({kernels}): {beyond:#?}");
        let median = report.median_ratio;
        println!(
            "{name} ({kernels}): {} tensors, median ratio {median:.2}",
            report.comparisons.len()
        );
        assert!(median <= 1.0, "{name} ({kernels}): median ratio {median}");
        passed += 1;
    }
    passed
}

/// The bar of the command itself, for the references; float32 throughout is granted the larger
/// distance that one rounding or another makes on a few numbers that nearly cancel.
fn check_all(root: &Path) -> usize {
    check(root, "auto", |c| c.rel_l2 <= (2.5 * c.bar).max(4e-6));
    check(root, "reference", |c| c.pass)
}

#[test]
fn cases_of_the_project() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../burn-qwen/tests/goldens");
    assert!(check_all(&root) >= 6);
}

#[test]
fn cases_beside_the_checkout() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/goldens");
    if check_all(&root) == 0 {
        println!("skipped: no golden cases in {}", root.display());
    }
}
