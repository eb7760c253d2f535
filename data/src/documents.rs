//! Samples to documents that fit a row, with every loss of a token counted.

use rayon::prelude::*;

use crate::{
    chat::{Renderer, SampleIssue},
    config::LongSamples,
    error::DataError,
    report::DataReport,
    sample::{Document, Sample},
};

/// A sample's number in its data set, and one of its documents.
pub(crate) type Numbered = (u64, Document);

/// Renders samples in parallel and in order, applies the policy for long ones, counts.
pub(crate) fn documents(
    samples: &[(u64, Sample)],
    renderer: &Renderer,
    max_tokens: usize,
    policy: LongSamples,
    report: &mut DataReport,
) -> Result<Vec<Numbered>, DataError> {
    let rendered: Vec<_> =
        samples.par_iter().map(|(id, sample)| (*id, sample, renderer.documents(sample))).collect();
    let mut documents = Vec::with_capacity(rendered.len());
    for (id, sample, result) in rendered {
        match result {
            Ok(found) => {
                for document in found {
                    fit(document, max_tokens, policy, report, |d| documents.push((id, d)));
                }
            }
            Err(SampleIssue::Skip(reason)) => {
                report.skipped.entry(reason).or_default().add(&sample.origin.to_string());
            }
            Err(SampleIssue::Fatal(error)) => return Err(error),
        }
    }
    Ok(documents)
}

fn fit(
    document: Document,
    max_tokens: usize,
    policy: LongSamples,
    report: &mut DataReport,
    mut keep: impl FnMut(Document),
) {
    let mut keep = |document: Document, report: &mut DataReport| {
        report.add_document(document.input_ids.len() as u64, trained(&document));
        keep(document);
    };
    let n = document.input_ids.len();
    if n <= max_tokens {
        return keep(document, report);
    }
    report.long.samples += 1;
    let drop = |document: &Document, report: &mut DataReport| {
        report.long.samples_dropped += 1;
        report.long.tokens_lost += n as u64;
        if report.long.dropped_places.len() < 3 {
            report.long.dropped_places.push(document.origin.to_string());
        }
    };
    match policy {
        LongSamples::Drop => drop(&document, report),
        LongSamples::Cut => {
            let part = part(&document, 0, max_tokens);
            if trained(&part) == 0 {
                drop(&document, report);
            } else {
                report.long.tokens_kept += max_tokens as u64;
                report.long.tokens_lost += (n - max_tokens) as u64;
                keep(part, report);
            }
        }
        LongSamples::Split => {
            report.long.tokens_kept += n as u64;
            for start in (0..n).step_by(max_tokens) {
                keep(part(&document, start, max_tokens.min(n - start)), report);
            }
        }
    }
}

fn part(document: &Document, start: usize, len: usize) -> Document {
    Document {
        input_ids: document.input_ids[start..start + len].to_vec(),
        loss_mask: document.loss_mask[start..start + len].to_vec(),
        origin: document.origin.clone(),
    }
}

/// Positions that carry a loss: a document's first token is nobody's target.
fn trained(document: &Document) -> u64 {
    document.loss_mask.iter().skip(1).filter(|&&m| m).count() as u64
}
