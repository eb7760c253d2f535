//! Rows of Parquet files, row group by row group.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use parquet::{
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row, reader::RowIter},
    schema::types::Type,
};
use serde_json::{Map, Value};

use super::{Place, ROWS_PER_BLOCK};
use crate::{error::DataError, formats::USED_KEYS};

/// The most blocks of a row group: each is reached by decoding the rows before it.
const BLOCKS_PER_GROUP: usize = 16;
/// The most rows of a block, whatever the size of the row group.
const MAX_ROWS_PER_BLOCK: usize = 16 << 10;

fn open(path: &Path) -> Result<SerializedFileReader<File>, DataError> {
    let file =
        File::open(path).map_err(|source| DataError::Io { path: path.to_path_buf(), source })?;
    guard(path, || SerializedFileReader::new(file).map_err(|error| error.to_string()))
}

/// Runs a part of the reader, which panics on some malformed files.
fn guard<T>(path: &Path, read: impl FnOnce() -> Result<T, String>) -> Result<T, DataError> {
    let problem = match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(problem)) => problem,
        Err(_) => "the file is malformed".to_string(),
    };
    Err(DataError::Source {
        what: path.display().to_string(),
        problem: format!(
            "cannot be read as Parquet: {problem}; if the file is whole, write it again with \
             snappy or zstd compression"
        ),
    })
}

/// First row, number of rows, place.
pub(super) fn index(path: &Path) -> Result<Vec<(u64, usize, Place)>, DataError> {
    let reader = open(path)?;
    let mut found = Vec::new();
    let mut row = 0;
    for (row_group, metadata) in reader.metadata().row_groups().iter().enumerate() {
        let rows = usize::try_from(metadata.num_rows()).unwrap_or(0);
        let step = rows.div_ceil(BLOCKS_PER_GROUP).clamp(ROWS_PER_BLOCK, MAX_ROWS_PER_BLOCK);
        for skip in (0..rows).step_by(step) {
            let num_rows = step.min(rows - skip);
            found.push((row, num_rows, Place::RowGroup { row_group, skip }));
            row += num_rows as u64;
        }
    }
    Ok(found)
}

/// Reads runs of rows of one row group, each run handed over before the next is read.
pub(super) fn read(
    path: &Path,
    row_group: usize,
    skip: usize,
    runs: &[usize],
    mut each: impl FnMut(usize, Vec<Value>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let reader = open(path)?;
    let text = |error: ParquetError| error.to_string();
    let group = guard(path, || reader.get_row_group(row_group).map_err(text))?;
    let schema = group.metadata().schema_descr().root_schema();
    let projection = project(schema).map_err(|error| DataError::Source {
        what: path.display().to_string(),
        problem: format!("cannot be read as Parquet: {error}"),
    })?;
    let mut rows: RowIter = guard(path, || group.get_row_iter(projection).map_err(text))?;
    for (run, &num_rows) in runs.iter().enumerate() {
        let values = guard(path, || {
            let skip = if run == 0 { skip } else { 0 };
            let rows = rows.by_ref().skip(skip).take(num_rows);
            let values: Vec<_> =
                rows.map(|row| row.map_err(text).and_then(object)).collect::<Result<_, _>>()?;
            if values.len() == num_rows {
                Ok(values)
            } else {
                Err(format!("row group {row_group} ends before its {num_rows} rows"))
            }
        })?;
        each(run, values)?;
    }
    Ok(())
}

/// The columns that formats use; all of them where none is known, for the error to name.
fn project(schema: &Type) -> Result<Option<Type>, ParquetError> {
    let fields = schema.get_fields();
    let used: Vec<Arc<Type>> =
        fields.iter().filter(|field| USED_KEYS.contains(&field.name())).cloned().collect();
    if used.is_empty() || used.len() == fields.len() {
        return Ok(None);
    }
    Type::group_type_builder(schema.name()).with_fields(used).build().map(Some)
}

fn object(row: Row) -> Result<Value, String> {
    let mut object = Map::new();
    for (name, field) in row.into_columns() {
        object.insert(name, value(&field)?);
    }
    Ok(Value::Object(object))
}

fn value(field: &Field) -> Result<Value, String> {
    Ok(match field {
        Field::Group(row) => {
            let fields = row.get_column_iter();
            let fields = fields.map(|(name, field)| Ok((name.clone(), value(field)?)));
            Value::Object(fields.collect::<Result<_, String>>()?)
        }
        Field::ListInternal(list) => {
            Value::Array(list.elements().iter().map(value).collect::<Result<_, _>>()?)
        }
        // Writers that do not mark their strings as such.
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Value::String(text.to_string()),
            Err(_) => return Err("a column of bytes holds no UTF-8 text".to_string()),
        },
        other => other.to_json_value(),
    })
}
