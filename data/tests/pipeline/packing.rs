//! Packing keeps everything, in rows that are not too long.

use burn_qwen_data::{DataConfig, IGNORE_INDEX, packing::pack_lengths};
use proptest::prelude::*;

use crate::kit::{conversations, loader, tokenizer, write};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_document_is_in_one_row_and_rows_have_room(
        lengths in prop::collection::vec(1u32..=64, 0..800),
        max_tokens in 64usize..200,
    ) {
        let rows = pack_lengths(&lengths, max_tokens);
        let mut seen: Vec<usize> = rows.iter().flatten().copied().collect();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
        for row in &rows {
            let total: u32 = row.iter().map(|&d| lengths[d]).sum();
            prop_assert!(total as usize <= max_tokens);
            prop_assert!(row.windows(2).all(|pair| pair[0] < pair[1]), "in order: {:?}", row);
        }
        // A function of the lengths alone.
        prop_assert_eq!(rows, pack_lengths(&lengths, max_tokens));
    }

    #[test]
    fn rows_are_well_filled(lengths in prop::collection::vec(1u32..=64, 400..800)) {
        let rows = pack_lengths(&lengths, 256).len() as f64;
        let tokens: u32 = lengths.iter().sum();
        let least = (f64::from(tokens) / 256.0).ceil();
        prop_assert!(rows <= 1.05 * least + 1.0, "{} rows instead of {}", rows, least);
    }
}

#[test]
fn documents_never_predict_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "a.jsonl", &conversations(60));
    let config = DataConfig { max_tokens: 200, shuffle: false, ..DataConfig::default() };
    let (rows, report) = loader(&[file], config).eval_rows().unwrap();
    let mut documents = 0;
    for row in &rows {
        assert!(row.num_tokens() <= 200);
        assert_eq!(row.cu_seqlens[0], 0);
        assert_eq!(*row.cu_seqlens.last().unwrap() as usize, row.num_tokens());
        assert_eq!(row.num_documents(), row.sample_ids.len());
        for bounds in row.cu_seqlens.windows(2) {
            let (start, end) = (bounds[0] as usize, bounds[1] as usize);
            documents += 1;
            assert_eq!(row.labels[end - 1], IGNORE_INDEX, "nothing follows a document's end");
            for t in start..end {
                assert_eq!(row.position_ids[t] as usize, t - start);
                // A label is the next token of the same document.
                assert!(row.labels[t] == IGNORE_INDEX || row.labels[t] == row.input_ids[t + 1]);
            }
        }
    }
    assert_eq!(documents, 60);
    assert_eq!(report.num_documents, 60);
    assert_eq!(
        report.num_tokens as usize,
        rows.iter().map(burn_qwen_data::Batch::num_tokens).sum::<usize>()
    );
    assert_eq!(
        report.num_trained as usize,
        rows.iter().map(burn_qwen_data::Batch::num_trained).sum::<usize>()
    );
}

#[test]
fn plain_text_trains_all_but_the_first_token_of_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    std::fs::write(&path, "{\"text\": \"One two.\"}\n{\"text\": \"Three.\"}\n{\"text\": \"4\"}\n")
        .unwrap();
    let (rows, _) = loader(&[path], DataConfig::default()).eval_rows().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].num_documents(), 3);
    // Three documents in the pack: three tokens have no target.
    assert_eq!(rows[0].num_trained(), rows[0].num_tokens() - 3);
    let last = *rows[0].input_ids.last().unwrap() as u32;
    assert!(tokenizer().eos_token_ids().contains(&last), "a text ends with an end token");
}

#[test]
fn without_packing_a_row_is_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "a.jsonl", &conversations(10));
    let config = DataConfig { packing: false, ..DataConfig::default() };
    let (rows, _) = loader(&[file], config).eval_rows().unwrap();
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row.num_documents() == 1));
}

#[test]
fn a_packed_document_is_what_it_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "a.jsonl", &conversations(60));
    let documents = |packing: bool| {
        let config = DataConfig { max_tokens: 200, packing, ..DataConfig::default() };
        let (rows, _) = loader(std::slice::from_ref(&file), config).eval_rows().unwrap();
        let mut documents = Vec::new();
        for row in &rows {
            for (bounds, &id) in row.cu_seqlens.windows(2).zip(&row.sample_ids) {
                let tokens = bounds[0] as usize..bounds[1] as usize;
                let part = (row.input_ids[tokens.clone()].to_vec(), row.labels[tokens].to_vec());
                documents.push((id, part));
            }
        }
        documents.sort_by_key(|(id, _)| *id);
        documents
    };
    assert_eq!(documents(true).len(), 60);
    assert_eq!(documents(true), documents(false));
}
