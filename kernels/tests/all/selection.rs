//! Choosing implementations: by name, automatically, strictly; and saying so.

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_qwen_kernels::{
    BackendKind, KernelCase, KernelConfig, KernelError, Kernels,
    registry::{OPS, implementation_names, list},
    verify::Call,
};

use crate::outputs;

fn case() -> KernelCase {
    KernelCase {
        backend: BackendKind::Flex,
        dtype: DType::F32,
        training: true,
        max_tokens: 512,
        hidden_size: 64,
        intermediate_size: 128,
        vocab_size: 300,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 64,
        linear_num_key_heads: 2,
        linear_num_value_heads: 4,
        linear_key_head_dim: 32,
        linear_value_head_dim: 32,
        linear_conv_kernel_dim: 4,
    }
}

#[test]
fn automatic_choice_takes_the_first_that_can() {
    let (_, report) = Kernels::resolve(&KernelConfig::default(), &case()).unwrap();
    insta::assert_snapshot!(report.to_string());
    assert_eq!(report.choices.len(), OPS.len());
    for op in OPS {
        let first = list(&case()).into_iter().find(|l| l.op == *op && l.refusal.is_none());
        let chosen = report.choices.iter().find(|choice| choice.op == *op).unwrap();
        assert_eq!(chosen.implementation, first.unwrap().implementation, "{op}");
    }
}

#[test]
fn a_refusal_is_explained_and_the_next_is_taken() {
    let half = KernelCase { dtype: DType::F16, ..case() };
    let (_, report) = Kernels::resolve(&KernelConfig::parse("swiglu=auto"), &half).unwrap();
    let swiglu = report.choices.iter().find(|choice| choice.op == "swiglu").unwrap();
    assert_eq!(swiglu.implementation, "reference");
    assert_eq!(swiglu.refusals[0].implementation, "flex");
    assert_eq!(swiglu.refusals[0].reason, "computes in f32, the run is in F16");
}

#[test]
fn a_name_is_a_demand() {
    let config = KernelConfig::parse("reference,swiglu=flex");
    let (_, report) = Kernels::resolve(&config, &case()).unwrap();
    for choice in &report.choices {
        let expected = if choice.op == "swiglu" { "flex" } else { "reference" };
        assert_eq!(choice.implementation, expected, "{}", choice.op);
    }
    let half = KernelCase { dtype: DType::F16, ..case() };
    let refused = Kernels::resolve(&KernelConfig::parse("swiglu=flex"), &half).unwrap_err();
    assert!(matches!(refused, KernelError::Refused { op: "swiglu", .. }), "{refused}");
    let unknown = Kernels::resolve(&KernelConfig::parse("swiglu=fast"), &case()).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "kernels.swiglu = \"fast\": there is no such implementation; choose from auto, flex, \
         reference"
    );
    let unknown = Kernels::resolve(&KernelConfig::parse("swigluu=flex"), &case()).unwrap_err();
    assert!(unknown.to_string().starts_with("kernels.swigluu: there is no such op"), "{unknown}");
}

#[test]
fn strict_refuses_a_reference() {
    let mut config = KernelConfig::parse("rope=reference");
    config.strict = true;
    // Something of the default choice is a reference too; rope is demanded.
    let error = Kernels::resolve(&config, &case()).unwrap_err();
    assert!(matches!(error, KernelError::Strict { .. }), "{error}");
}

#[test]
fn calls_are_counted_on_what_ran() {
    let (kernels, _) = Kernels::resolve(&KernelConfig::default(), &case()).unwrap();
    assert!(kernels.calls().values().all(|&calls| calls == 0));
    let x = Tensor::<2>::ones([2, 3], &Device::flex());
    let shared = kernels.clone();
    for _ in 0..3 {
        let _ = shared.swiglu().forward(x.clone(), x.clone());
    }
    let calls = kernels.calls();
    assert_eq!(calls["swiglu"], 3);
    assert_eq!(calls.values().sum::<u64>(), 3);
}

#[test]
fn every_name_of_the_registry_can_be_demanded() {
    for op in OPS {
        for name in implementation_names(op) {
            let config = KernelConfig::parse(&format!("{op}={name}"));
            let (_, report) = Kernels::resolve(&config, &case()).unwrap();
            assert_eq!(report.choice(op).unwrap().implementation, name);
            assert!(report.to_string().contains(&format!("{op} = {name} (as configured)\n")));
        }
    }
}

#[test]
fn another_backend_or_dtype_is_refused_in_words() {
    let half = KernelCase { dtype: DType::BF16, ..case() };
    let (_, report) = Kernels::resolve(&KernelConfig::default(), &half).unwrap();
    insta::assert_snapshot!(report.to_string());
    let cube = KernelCase { backend: BackendKind::Cube, ..case() };
    for listing in list(&cube) {
        let expected = (listing.implementation == "flex")
            .then(|| "runs on the Flex CPU backend only".to_string());
        assert_eq!(listing.refusal, expected, "{}", listing.op);
    }
    let refused = Kernels::resolve(&KernelConfig::parse("rope=flex"), &half).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "kernels.rope = \"flex\" cannot run this model: computes in f32, the run is in BF16; set \
         it to \"auto\""
    );
}

/// The counters count ops; that the chosen implementation is what ran shows in its bits.
#[test]
fn what_was_chosen_is_what_runs() {
    // Sums of 300 terms, which the reference makes in f64 and flex in f32.
    let mut call = Call::new("linear");
    for (name, shape) in [("x", [65, 300]), ("w", [40, 300])] {
        let values = (0..shape[0] * shape[1]).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.5);
        call.insert(name, &shape, values.collect());
    }
    let tensor = |name: &str| {
        let array = &call.tensors[name];
        let data = TensorData::new(array.values.clone(), array.shape.clone());
        Tensor::<2>::from_data(data, &Device::flex())
    };
    let mut bits = Vec::new();
    for name in ["flex", "reference"] {
        let config = KernelConfig::parse(&format!("linear={name}"));
        let (kernels, _) = Kernels::resolve(&config, &case()).unwrap();
        let y = kernels.linear().forward(tensor("x"), tensor("w"), None, None);
        let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
        assert_eq!(y, outputs(&call, name).unwrap()["y"], "{name}");
        assert_eq!(kernels.calls()["linear"], 1);
        bits.push(y.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    }
    assert_ne!(bits[0], bits[1], "the implementations cannot be told apart by this call");
}
