//! Packed rows as a safetensors file.

use std::{collections::HashMap, path::Path};

use safetensors::{Dtype, tensor::TensorView};

use crate::{batch::Batch, error::DataError};

/// Writes `row00000.input_ids` (I64 `[T]`), `.position_ids` (I64 `[T]`), `.cu_seqlens` (I32
/// `[N+1]`), `.labels` (I64 `[T]`) of every row, aside first.
///
/// # Errors
/// A file that cannot be written.
pub fn write_rows(rows: &[Batch], path: &Path) -> Result<(), DataError> {
    let wide = |values: &[i32]| -> Vec<u8> {
        values.iter().flat_map(|&x| i64::from(x).to_le_bytes()).collect()
    };
    let mut tensors: Vec<(String, Dtype, usize, Vec<u8>)> = Vec::with_capacity(4 * rows.len());
    for (i, row) in rows.iter().enumerate() {
        let name = |part: &str| format!("row{i:05}.{part}");
        let tokens = row.num_tokens();
        tensors.push((name("input_ids"), Dtype::I64, tokens, wide(&row.input_ids)));
        tensors.push((name("position_ids"), Dtype::I64, tokens, wide(&row.position_ids)));
        let boundaries = row.cu_seqlens.iter().flat_map(|x| x.to_le_bytes()).collect();
        tensors.push((name("cu_seqlens"), Dtype::I32, row.cu_seqlens.len(), boundaries));
        tensors.push((name("labels"), Dtype::I64, tokens, wide(&row.labels)));
    }
    let views = tensors.iter().map(|(name, dtype, len, bytes)| {
        let view = TensorView::new(*dtype, vec![*len], bytes);
        (name, view.expect("the bytes were made for this shape"))
    });
    let aside = path.with_extension("partial");
    let metadata = HashMap::from([("rows".to_string(), rows.len().to_string())]);
    let io = |error: String| DataError::Io {
        path: path.to_path_buf(),
        source: std::io::Error::other(error),
    };
    safetensors::serialize_to_file(views, Some(metadata), &aside)
        .map_err(|error| io(error.to_string()))?;
    std::fs::rename(&aside, path)
        .map_err(|source| DataError::Io { path: path.to_path_buf(), source })
}
