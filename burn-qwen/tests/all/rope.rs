//! Rotary tables as torch computes them in float32.

use burn::tensor::Device;
use burn_qwen::{context::rope_tables, weights::file::TensorFile};

use crate::golden::{f64s, folder, values};

#[test]
fn far_positions_have_float32_angles() {
    let file = TensorFile::open(&folder().join("rope_far.safetensors")).unwrap();
    let positions: Vec<i32> = f64s(&file, "position_ids").iter().map(|&p| p as i32).collect();
    assert!(positions.contains(&262_143));
    let tables = rope_tables(1e7, 64, &positions, &Device::flex());
    for (name, table) in [("cos_torch_f32", tables.cos), ("sin_torch_f32", tables.sin)] {
        let worst = values(table)
            .iter()
            .zip(f64s(&file, name))
            .map(|(ours, torch)| (ours - torch).abs())
            .fold(0.0, f64::max);
        println!("{name}: {worst:e}");
        assert!(worst < 1e-6, "{name}: {worst:e}");
    }
}
