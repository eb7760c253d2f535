//! `kernels verify`: every output and gradient beside the truth.

use std::{collections::BTreeMap, path::Path};

use burn::tensor::Device;
use burn_qwen_kernels::{
    BackendKind,
    registry::{OPS, implementation_names},
    verify::{
        Comparison, Report, VerifyError, golden,
        random::{self, LENGTHS, Random},
    },
};
use burn_qwen_trainer::TrainError;

use crate::commands::{print, print_json};

/// What is checked.
#[derive(Clone, Copy)]
pub(crate) struct Only<'a> {
    pub(crate) op: Option<&'a str>,
    pub(crate) implementation: Option<&'a str>,
}

impl Only<'_> {
    /// Names that do not exist are errors, not empty checks.
    fn check(self) -> Result<(), TrainError> {
        if let Some(op) = self.op
            && !OPS.contains(&op)
        {
            let known = OPS.join(", ");
            return Err(TrainError::Input(format!(
                "--op {op}: there is no such op; the ops are {known}"
            )));
        }
        if let Some(name) = self.implementation {
            let ops = OPS.iter().filter(|op| self.includes(op));
            if !ops.flat_map(|op| implementation_names(op)).any(|known| known == name) {
                let of = self.op.unwrap_or("any op");
                return Err(TrainError::Input(format!(
                    "--implementation {name}: there is no such implementation of {of}; \
                     `burn-qwen kernels list` shows all"
                )));
            }
        }
        Ok(())
    }

    fn includes(self, op: &str) -> bool {
        self.op.is_none_or(|only| only == op)
    }
}

pub(crate) fn run(
    golden: Option<&Path>,
    only: Only<'_>,
    seed: u64,
    json: bool,
) -> Result<(), TrainError> {
    only.check()?;
    let mut report = match golden {
        Some(path) => golden::check(path, only.implementation, &Device::flex(), BackendKind::Flex)
            .map_err(|error| input(&error))?,
        None => random_report(only, seed).map_err(|error| input(&error))?,
    };
    report.comparisons.retain(|c| only.includes(c.op));
    if json {
        print_json(&report);
    } else {
        table(&report, golden.is_some());
    }
    let beyond = report.comparisons.iter().filter(|c| !c.passes()).count();
    if report.comparisons.is_empty() {
        return Err(TrainError::Input("nothing was compared".to_string()));
    }
    if beyond > 0 {
        let all = report.comparisons.len();
        return Err(TrainError::Check(format!("{beyond} of {all} tensors are beyond their bar")));
    }
    Ok(())
}

fn input(error: &VerifyError) -> TrainError {
    TrainError::Input(error.to_string())
}

fn random_report(only: Only<'_>, seed: u64) -> Result<Report, VerifyError> {
    let mut report = Report::default();
    let mut random = Random::new(seed);
    for num_tokens in LENGTHS {
        for call in random.calls(num_tokens) {
            if only.includes(call.op) {
                let (device, backend) = (Device::flex(), BackendKind::Flex);
                random::check(&call, only.implementation, &device, backend, &mut report)?;
            }
        }
    }
    Ok(report)
}

/// A line per case of golden files, or per op; every tensor that does not pass.
fn table(report: &Report, by_case: bool) {
    let mut groups: BTreeMap<(&str, &str), Vec<&Comparison>> = BTreeMap::new();
    for c in &report.comparisons {
        let group = if by_case { c.case.as_str() } else { c.op };
        groups.entry((group, c.implementation)).or_default().push(c);
    }
    print(&format!(
        "{:32} {:12} {:>7} {:>11} {:>12} {:>12}",
        "", "", "tensors", "worst error", "of its bar", "torch median"
    ));
    for ((group, implementation), comparisons) in groups {
        let share = |c: &&&Comparison| c.rel_l2 / c.bar;
        let worst = comparisons.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
        let Some(worst) = worst else { continue };
        let median = golden::median_ratio(comparisons.iter().copied());
        let median = median.map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
        print(&format!(
            "{group:32} {implementation:12} {:7} {:11.1e} {:12.2} {median:>12}",
            comparisons.len(),
            worst.rel_l2,
            worst.rel_l2 / worst.bar,
        ));
        for c in comparisons.iter().filter(|c| !c.passes()) {
            print(&format!(
                "  FAILED {}: {} {:.1e} over {:.1e}",
                c.case, c.tensor, c.rel_l2, c.bar
            ));
        }
    }
    for skipped in &report.skipped {
        print(&format!("not run: {skipped}"));
    }
}
