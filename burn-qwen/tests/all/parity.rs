//! Logits, loss and every gradient of the whole model against the truth.

use std::path::Path;

use burn_qwen::block_specs;
use burn_qwen_kernels::Packing;

use crate::golden::{GoldenRow, Loaded, cases, kernels, name, read_json, rel_l2, values};

/// What a set of implementations is held to.
#[derive(Clone, Copy)]
struct Bar {
    implementation: &'static str,
    /// How far a tensor may be from the truth, in distances of torch in float32.
    worst_ratio: f64,
    /// Below this all is rounding.
    floor: f64,
}

/// References compute in float64 inside. The fused kernels are float32 throughout, as torch is: on
/// the gradients of `A_log` and `dt_bias`, a few numbers that nearly cancel over all tokens, either
/// of the two is nearer by chance.
const BARS: [Bar; 2] = [
    Bar { implementation: "reference", worst_ratio: 4.0, floor: 1e-6 },
    Bar { implementation: "auto", worst_ratio: 10.0, floor: 4e-6 },
];

/// The median over the tensors of a case of our distance over torch's.
const MEDIAN_RATIO: f64 = 1.0;

#[test]
fn cases_are_as_near_to_the_truth_as_torch() {
    for case in cases() {
        for bar in BARS {
            check(&case, bar);
        }
    }
}

fn check(case: &Path, bar: Bar) {
    let Bar { implementation, worst_ratio, floor } = bar;
    let loaded = Loaded::open(case);
    let errors = read_json(&case.join("errors.json"));
    let mut ratios = Vec::new();
    let mut failures = Vec::new();
    for part in ["single", "packed"] {
        let torch = &errors[part];
        let mut compare = |tensor: &str, error: f64, torch: f64| {
            ratios.push(error / torch);
            if error > (worst_ratio * torch).max(floor) {
                failures.push(format!("{part} {tensor}: {error:e}, torch has {torch:e}"));
            }
        };
        let row = GoldenRow::open(case, part);
        let kernels = kernels(&loaded.config, implementation, true);

        let logits = values(loaded.model().logits(row.row(), &kernels));
        let error = rel_l2(&logits, &row.truth("logits"));
        compare("logits", error, torch["logits"]["rel_l2"].as_f64().unwrap());

        let blocks: Vec<_> = loaded.blocks.iter().map(|b| b.clone().require_grad()).collect();
        let model = burn_qwen::Model::new(&loaded.config, &blocks);
        let sum = model.loss(row.row(), &row.targets, &kernels);
        let loss = values(sum.clone().inner())[0] / row.num_targets();
        let truth = row.truth("loss")[0];
        let relative = |error: f64| error / truth;
        let torch_loss = relative(torch["loss"].as_f64().unwrap());
        compare("loss", relative((loss - truth).abs()), torch_loss);

        let mut grads = sum.backward();
        for (spec, params) in block_specs(&loaded.config).iter().zip(&blocks) {
            let flat = values(params.grads(&mut grads).unwrap());
            for (offset, param) in spec.offsets() {
                let stored = loaded.checkpoint.stored_name(&param.name);
                let grad: Vec<f64> = flat[offset..offset + param.num_elements()]
                    .iter()
                    .map(|g| g / row.num_targets())
                    .collect();
                assert!(grad.iter().all(|g| g.is_finite()), "{stored} has no finite gradient");
                assert!(grad.iter().any(|&g| g != 0.0), "{stored} has no gradient");
                let error = rel_l2(&grad, &row.truth(&format!("grad.{stored}")));
                compare(&stored, error, torch["grads"][&stored]["rel_l2"].as_f64().unwrap());
            }
        }
    }
    let case = name(case);
    assert!(failures.is_empty(), "{case} ({implementation}): {failures:#?}");
    ratios.sort_by(f64::total_cmp);
    let (median, worst) = (ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    println!("{case} ({implementation}): median ratio {median:.2}, worst {worst:.2}");
    assert!(median <= MEDIAN_RATIO, "{case} ({implementation}): median ratio {median}");
}

#[test]
fn packed_documents_equal_themselves_alone() {
    for case in cases() {
        let loaded = Loaded::open(&case);
        let model = loaded.model();
        let row = GoldenRow::open(&case, "packed");
        // Rows are added up in another order where they stand elsewhere: rounding, as large as
        // that of any program in float32.
        let torch = read_json(&case.join("errors.json"))["packed"]["logits"]["rel_l2"].as_f64();
        for Bar { implementation, worst_ratio, floor } in BARS {
            let bar = (worst_ratio * torch.unwrap()).max(floor);
            let kernels = kernels(&loaded.config, implementation, false);
            let packed = values(model.logits(row.row(), &kernels));
            for document in row.packing.documents() {
                let packing = Packing::single(document.len());
                let alone = burn_qwen::Row {
                    input_ids: &row.input_ids[document.clone()],
                    position_ids: &row.position_ids[document.clone()],
                    packing: &packing,
                };
                let alone = values(model.logits(alone, &kernels));
                let vocab = loaded.config.vocab_size;
                let inside = &packed[document.start * vocab..document.end * vocab];
                let error = rel_l2(inside, &alone);
                assert!(error <= bar, "{} {implementation} {document:?}: {error:e}", name(&case));
            }
        }
    }
}
