//! Lines and arrays of JSON.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use serde_json::{Value, value::RawValue};

use super::{
    Place, ROWS_PER_BLOCK,
    files::{BOM, utf8},
};
use crate::{error::DataError, sample::Origin};

/// First row, number of rows, place.
type Found = (u64, usize, Place);

/// Blocks of lines; blank lines are no rows.
pub(super) fn index_lines(path: &Path) -> Result<Vec<Found>, DataError> {
    let io = |source| DataError::Io { path: path.to_path_buf(), source };
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    let mut found = Vec::new();
    let (mut offset, mut line_number, mut row) = (0u64, 1u64, 0u64);
    let mut start = (0u64, 1u64, 0u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(io)?;
        offset += read as u64;
        let is_row = !trim(&line).is_empty();
        row += u64::from(is_row);
        let rows_here = (row - start.2) as usize;
        if rows_here == ROWS_PER_BLOCK || (read == 0 && rows_here > 0) {
            let (from, first_line, first_row) = start;
            let place = Place::Lines { offset: from, num_bytes: offset - from, first_line };
            found.push((first_row, rows_here, place));
            start = (offset, line_number + 1, row);
        }
        if read == 0 {
            return Ok(found);
        }
        line_number += 1;
    }
}

fn trim(line: &[u8]) -> &[u8] {
    line.strip_prefix(BOM).unwrap_or(line).trim_ascii()
}

pub(super) fn read_lines(
    path: &Path,
    offset: u64,
    num_bytes: u64,
    first_line: u64,
    first_row: u64,
    origin: impl Fn(u64, Option<u64>) -> Origin,
) -> Result<Vec<(Value, Origin)>, DataError> {
    let bytes = read_range(path, offset, num_bytes)?;
    let mut rows = Vec::new();
    for (i, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = trim(line);
        if line.is_empty() {
            continue;
        }
        let origin = origin(first_row + rows.len() as u64, Some(first_line + i as u64));
        let row = parse(line, &origin)?;
        rows.push((row, origin));
    }
    Ok(rows)
}

fn read_range(path: &Path, offset: u64, num_bytes: u64) -> Result<Vec<u8>, DataError> {
    let io = |source| DataError::Io { path: path.to_path_buf(), source };
    let mut file = File::open(path).map_err(io)?;
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut bytes = Vec::with_capacity(num_bytes as usize);
    file.take(num_bytes).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

fn parse(text: &[u8], origin: &Origin) -> Result<Value, DataError> {
    let error = |problem| DataError::Row { place: origin.to_string(), problem };
    let text = std::str::from_utf8(text).map_err(|e| {
        error(format!("is no valid UTF-8 (byte {} of the row); convert it", e.valid_up_to() + 1))
    })?;
    serde_json::from_str(text).map_err(|e| {
        // The position inside the row; the line of the file is in the origin.
        let message = e.to_string();
        let message = message.split(" at line").next().unwrap_or(&message);
        error(format!("is no valid JSON: {message} (column {})", e.column()))
    })
}

/// Blocks of elements of one array.
pub(super) fn index_array(path: &Path) -> Result<Vec<Found>, DataError> {
    let bytes =
        std::fs::read(path).map_err(|source| DataError::Io { path: path.to_path_buf(), source })?;
    let text = utf8(bytes.strip_prefix(BOM).unwrap_or(&bytes), path)?;
    let skipped = bytes.len() - text.len();
    let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| DataError::Row {
        place: format!("{}:{}", path.display(), error.line()),
        problem: format!("is no valid JSON array: {error}"),
    })?;
    let (mut line, mut counted) = (1u64, 0);
    let mut places = Vec::with_capacity(elements.len());
    for element in elements {
        let element = element.get();
        let at = element.as_ptr() as usize - text.as_ptr() as usize;
        line += text[counted..at].matches('\n').count() as u64;
        counted = at;
        places.push(((at + skipped) as u64, element.len() as u32, line));
    }
    let blocks = places.chunks(ROWS_PER_BLOCK).enumerate();
    Ok(blocks
        .map(|(i, places)| {
            ((i * ROWS_PER_BLOCK) as u64, places.len(), Place::Elements(places.to_vec()))
        })
        .collect())
}

pub(super) fn read_elements(
    path: &Path,
    elements: &[(u64, u32, u64)],
    first_row: u64,
    origin: impl Fn(u64, Option<u64>) -> Origin,
) -> Result<Vec<(Value, Origin)>, DataError> {
    let (Some(first), Some(last)) = (elements.first(), elements.last()) else {
        return Ok(Vec::new());
    };
    let bytes = read_range(path, first.0, last.0 + u64::from(last.1) - first.0)?;
    elements
        .iter()
        .enumerate()
        .map(|(i, &(offset, len, line))| {
            let origin = origin(first_row + i as u64, Some(line));
            let start = (offset - first.0) as usize;
            let text = bytes.get(start..start + len as usize).unwrap_or_default();
            Ok((parse(text, &origin)?, origin))
        })
        .collect()
}
