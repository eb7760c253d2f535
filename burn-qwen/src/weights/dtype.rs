//! Values of the dtypes that checkpoints use.

use half::{bf16, f16};
use safetensors::Dtype;

/// Whether tensors of this dtype can be read as values.
pub fn is_supported(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// Appends the values of raw little-endian bytes.
///
/// # Panics
/// If the dtype is not [`is_supported`]: the header was checked first.
pub fn decode(dtype: Dtype, bytes: &[u8], values: &mut Vec<f32>) {
    let pairs = || bytes.as_chunks::<2>().0.iter().copied();
    match dtype {
        Dtype::F32 => {
            values.extend(bytes.as_chunks::<4>().0.iter().copied().map(f32::from_le_bytes));
        }
        Dtype::BF16 => values.extend(pairs().map(|b| bf16::from_le_bytes(b).to_f32())),
        Dtype::F16 => values.extend(pairs().map(|b| f16::from_le_bytes(b).to_f32())),
        other => panic!("{other:?} was to be refused when the header was read"),
    }
}

/// Rounds values (to nearest, ties to even) into raw little-endian bytes.
///
/// # Panics
/// As [`decode`].
pub fn encode(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    match dtype {
        Dtype::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Dtype::BF16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
        Dtype::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        other => panic!("{other:?} was to be refused when the header was read"),
    }
}

/// The name that configurations use.
pub fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::BF16 => "bfloat16",
        Dtype::F16 => "float16",
        _ => "float32",
    }
}
