//! Initial values: by role, by name and seed, and by nothing else.

use burn_qwen::{BlockSpec, ParamRole, QwenConfig, block_specs, init::init_block};

use crate::tiny;

fn config() -> QwenConfig {
    let mut json = tiny::config("qwen3_5_text");
    json["hidden_size"] = 128.into();
    json["vocab_size"] = 200.into();
    QwenConfig::from_json(json, "test").unwrap()
}

#[test]
fn every_role_has_its_values() {
    let config = config();
    for block in block_specs(&config) {
        let values = init_block(&config, &block, 1);
        assert_eq!(values.len(), block.num_elements());
        for (offset, param) in block.offsets() {
            let values = &values[offset..offset + param.num_elements()];
            let n = values.len() as f64;
            let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
            let name = &param.name;
            match param.role {
                ParamRole::Embedding | ParamRole::Matrix | ParamRole::Conv => {
                    let square = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n;
                    let std = config.initializer_range;
                    // Five standard errors.
                    assert!(mean.abs() < 5.0 * std / n.sqrt(), "{name}: mean {mean}");
                    let ratio = (square / std.powi(2) - 1.0).abs();
                    assert!(ratio < 5.0 * (2.0 / n).sqrt(), "{name}: variance off by {ratio}");
                }
                ParamRole::Norm => assert!(values.iter().all(|&x| x == 1.0), "{name}"),
                ParamRole::DtBias => {
                    let step = |x: f32| f64::from(x).exp().ln_1p();
                    let bounds = 0.000_999..=0.100_1;
                    assert!(values.iter().all(|&x| bounds.contains(&step(x))), "{name}");
                    assert!(values.iter().any(|x| x != &values[0]), "{name}");
                }
                ParamRole::ZeroCenteredNorm | ParamRole::Bias => {
                    assert!(values.iter().all(|&x| x == 0.0), "{name}");
                }
                ParamRole::ALog => {
                    let bounds = 0.01_f32.ln()..=16.0_f32.ln();
                    assert!(values.iter().all(|x| bounds.contains(x)), "{name}: {values:?}");
                }
            }
        }
    }
}

#[test]
fn values_depend_on_seed_and_name_alone() {
    let config = config();
    let block = &block_specs(&config)[1];
    let values = init_block(&config, block, 7);
    let mut params = block.params.clone();
    params.reverse();
    let reversed = BlockSpec { name: block.name.clone(), params };
    let other = init_block(&config, &reversed, 7);
    for (offset, param) in block.offsets() {
        let (there, _) = reversed.offsets().find(|(_, p)| p.name == param.name).unwrap();
        let n = param.num_elements();
        assert_eq!(values[offset..offset + n], other[there..there + n], "{}", param.name);
    }
    assert_ne!(values, init_block(&config, block, 8));
    let next = &block_specs(&config)[2];
    assert_ne!(values, init_block(&config, next, 7), "layers differ");
}
