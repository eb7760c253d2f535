//! Saving then loading is the identity; rounding is to nearest, ties to even.

use std::cell::Cell;

use burn_qwen::{
    block_specs,
    weights::{
        Checkpoint, ExportOptions, ExportSource,
        dtype::{decode, encode},
        export,
    },
};
use proptest::prelude::*;
use safetensors::Dtype;

use crate::tiny;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn save_then_load_is_identity(
        family in 0usize..3,
        tied: bool,
        bias: bool,
        seeds in prop::array::uniform4(any::<u32>()),
    ) {
        let mut json = tiny::config(["qwen2", "qwen3", "qwen3_5_text"][family]);
        json["tie_word_embeddings"] = tied.into();
        json["attention_bias"] = bias.into();
        let config = burn_qwen::QwenConfig::from_json(json, "test").unwrap();
        let specs = block_specs(&config);
        // Any finite bits, so that nothing but a copy can be right.
        let values = |block: usize, param: usize| -> Vec<f32> {
            let state = Cell::new(seeds[block % 4] ^ (param as u32).wrapping_mul(0x9e37_79b9) | 1);
            let bits = || {
                state.set(state.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
                f32::from_bits(state.get() & 0xbfff_ffff)
            };
            (0..specs[block].params[param].num_elements()).map(|_| bits()).collect()
        };
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("export");
        export(ExportSource::Fresh, &config, &values, &target, &ExportOptions::default()).unwrap();
        let checkpoint = Checkpoint::open(&target, &config).unwrap();
        for (b, spec) in specs.iter().enumerate() {
            let written: Vec<f32> = (0..spec.params.len()).flat_map(|p| values(b, p)).collect();
            prop_assert_eq!(checkpoint.read_block(spec).unwrap(), written);
        }
    }

    #[test]
    fn bf16_is_the_nearest(x in any::<f32>().prop_filter("finite", |x| x.abs() < 3e38)) {
        let mut back = Vec::new();
        decode(Dtype::BF16, &encode(Dtype::BF16, &[x]), &mut back);
        let bits = x.to_bits();
        let (below, above) = (bits & 0xffff_0000, (bits & 0xffff_0000).wrapping_add(0x1_0000));
        let rest = bits & 0xffff;
        let up = rest > 0x8000 || (rest == 0x8000 && below & 0x1_0000 != 0);
        let expected = f32::from_bits(if up { above } else { below });
        prop_assert_eq!(back[0].to_bits(), expected.to_bits());
    }

    #[test]
    fn stored_values_come_back(values in prop::collection::vec(any::<u16>(), 0..40)) {
        for dtype in [Dtype::BF16, Dtype::F16] {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let mut decoded = Vec::new();
            decode(dtype, &bytes, &mut decoded);
            let again = encode(dtype, &decoded);
            let mut twice = Vec::new();
            decode(dtype, &again, &mut twice);
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            prop_assert!(decoded.iter().zip(&twice).all(same));
        }
    }
}
