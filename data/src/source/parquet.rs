//! Rows of Parquet files, row group by row group.

use std::{fs::File, path::Path};

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;

use super::{Place, ROWS_PER_BLOCK};
use crate::error::DataError;

fn open(path: &Path) -> Result<SerializedFileReader<File>, DataError> {
    let file =
        File::open(path).map_err(|source| DataError::Io { path: path.to_path_buf(), source })?;
    SerializedFileReader::new(file).map_err(|error| source_error(path, &error))
}

fn source_error(path: &Path, error: &parquet::errors::ParquetError) -> DataError {
    DataError::Source {
        what: path.display().to_string(),
        problem: format!(
            "cannot be read as Parquet: {error}; if the file is whole, write it again with snappy \
             or zstd compression"
        ),
    }
}

/// First row, number of rows, place.
pub(super) fn index(path: &Path) -> Result<Vec<(u64, usize, Place)>, DataError> {
    let reader = open(path)?;
    let mut found = Vec::new();
    let mut row = 0;
    for (row_group, metadata) in reader.metadata().row_groups().iter().enumerate() {
        let rows = usize::try_from(metadata.num_rows()).unwrap_or(0);
        for skip in (0..rows).step_by(ROWS_PER_BLOCK) {
            let num_rows = ROWS_PER_BLOCK.min(rows - skip);
            found.push((row, num_rows, Place::RowGroup { row_group, skip }));
            row += num_rows as u64;
        }
    }
    Ok(found)
}

pub(super) fn read(
    path: &Path,
    row_group: usize,
    skip: usize,
    num_rows: usize,
) -> Result<Vec<Value>, DataError> {
    let reader = open(path)?;
    let error = |error| source_error(path, &error);
    let group = reader.get_row_group(row_group).map_err(error)?;
    let rows = group.get_row_iter(None).map_err(error)?;
    rows.skip(skip).take(num_rows).map(|row| Ok(row.map_err(error)?.to_json_value())).collect()
}
