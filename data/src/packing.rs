//! Documents to rows: no padding, no token lost, a document never cut by packing.

use crate::{
    batch::{Batch, IGNORE_INDEX},
    sample::Document,
};

/// Rows that a document is offered to before a new one is opened.
///
/// More find a better fit; fewer keep neighbours together and the work small.
const OPEN_ROWS: usize = 256;

/// Puts lengths into rows of up to `max_tokens`, each into the fullest open row that has room
/// (best fit); returns the positions of the documents of each row.
///
/// A function of the lengths alone, so rows can be counted without their tokens.
///
/// # Panics
/// If a length exceeds `max_tokens`: the policy for long samples comes first.
pub fn pack_lengths(lengths: &[u32], max_tokens: usize) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    // (room, row) of open rows.
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (document, &length) in lengths.iter().enumerate() {
        let length = length as usize;
        assert!(length <= max_tokens, "a document of {length} tokens in rows of {max_tokens}");
        let fits = open.iter().enumerate().filter(|(_, (room, _))| *room >= length);
        let best = fits.min_by_key(|(_, (room, row))| (*room, *row)).map(|(i, _)| i);
        if let Some(i) = best {
            let (room, row) = &mut open[i];
            rows[*row].push(document);
            *room -= length;
            if *room < 2 {
                open.swap_remove(i);
            }
        } else {
            if open.len() == OPEN_ROWS {
                let fullest = (0..open.len()).min_by_key(|&i| open[i]).unwrap_or(0);
                open.swap_remove(fullest);
            }
            open.push((max_tokens - length, rows.len()));
            rows.push(vec![document]);
        }
    }
    rows
}

/// Joins documents to a row; `sample_ids` names each.
pub fn join<'a>(documents: impl IntoIterator<Item = (u64, &'a Document)>) -> Batch {
    let mut batch = Batch { cu_seqlens: vec![0], ..Batch::default() };
    for (sample_id, document) in documents {
        let n = document.input_ids.len();
        batch.input_ids.extend(document.input_ids.iter().map(|&id| id as i32));
        batch.position_ids.extend(0..n as i32);
        batch.labels.extend((0..n).map(|t| match document.loss_mask.get(t + 1) {
            Some(true) => document.input_ids[t + 1] as i32,
            _ => IGNORE_INDEX,
        }));
        batch.cu_seqlens.push(batch.input_ids.len() as i32);
        batch.sample_ids.push(sample_id);
    }
    batch
}
