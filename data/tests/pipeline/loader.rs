//! The sequence of rows: the same for any number of threads, and from any saved position.

use burn_qwen_data::{Batch, DataConfig, LoaderState};

use crate::kit::{conversations, loader, try_loader, write};

fn config() -> DataConfig {
    DataConfig { max_tokens: 120, seed: 3, ..DataConfig::default() }
}

#[test]
fn resuming_at_any_row_goes_on_alike() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        write(folder.path(), "a.jsonl", &conversations(40)),
        write(folder.path(), "b.jsonl", &conversations(9)),
    ];
    let mut whole = loader(&files, config());
    let (rows_per_epoch, _) = whole.measure(3).unwrap();
    let num_rows = rows_per_epoch.iter().sum::<u64>() as usize;
    let mut states: Vec<LoaderState> = vec![whole.state()];
    let mut rows: Vec<(u64, Batch)> = Vec::new();
    for _ in 0..num_rows {
        rows.push(whole.next_row().unwrap());
        states.push(whole.state());
    }
    for (at, state) in states.iter().enumerate().take(num_rows) {
        // Through JSON, as in a checkpoint.
        let state = serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap();
        let mut resumed = loader(&files, config());
        resumed.restore(&state).unwrap();
        for expected in rows[at..].iter().take(15) {
            assert_eq!(&resumed.next_row().unwrap(), expected, "after row {at}");
        }
    }
    // An epoch has every sample once, and the next one another order.
    let per_epoch = rows_per_epoch[0] as usize;
    let ids = |rows: &[(u64, Batch)]| -> Vec<u64> {
        rows.iter().flat_map(|(_, row)| row.sample_ids.clone()).collect()
    };
    let (first, second) = (ids(&rows[..per_epoch]), ids(&rows[per_epoch..2 * per_epoch]));
    let sorted = |mut ids: Vec<u64>| {
        ids.sort_unstable();
        ids
    };
    assert_eq!(sorted(first.clone()), (0..49).collect::<Vec<u64>>());
    assert_eq!(sorted(second.clone()), sorted(first.clone()));
    assert_ne!(first, second);
    assert!(rows[..per_epoch].iter().all(|(epoch, _)| *epoch == 0));
    assert_eq!(rows[per_epoch].0, 1);
}

#[test]
fn threads_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let files = [write(folder.path(), "a.jsonl", &conversations(200))];
    let rows = |workers: usize| -> Vec<_> {
        let mut loader = loader(&files, DataConfig { workers, ..config() });
        (0..120).map(|_| loader.next_row().unwrap()).collect()
    };
    let one = rows(1);
    assert_eq!(one, rows(2));
    assert_eq!(one, rows(4));
    assert_ne!(
        one[0],
        loader(&files, DataConfig { seed: 4, ..config() }).next_row().unwrap(),
        "another seed, another order"
    );
}

#[test]
fn rows_that_were_counted_are_the_rows_that_come() {
    let folder = tempfile::tempdir().unwrap();
    let files = [write(folder.path(), "a.jsonl", &conversations(77))];
    let mut loader = loader(&files, config());
    let (rows_per_epoch, report) = loader.measure(4).unwrap();
    let mut counted = vec![0; 4];
    let mut tokens = 0;
    loop {
        let (epoch, row) = loader.next_row().unwrap();
        if epoch == 4 {
            break;
        }
        counted[epoch as usize] += 1;
        if epoch == 0 {
            tokens += row.num_tokens() as u64;
        }
    }
    assert_eq!(counted, rows_per_epoch);
    assert_eq!(tokens, report.num_tokens);
}

#[test]
fn a_position_in_other_data_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = [write(folder.path(), "a.jsonl", &conversations(20))];
    let state = loader(&files, config()).state();
    let other_settings = DataConfig { max_tokens: 121, ..config() };
    let error = loader(&files, other_settings).restore(&state).unwrap_err().to_string();
    assert!(error.contains("[data] settings"), "{error}");
    write(folder.path(), "a.jsonl", &conversations(21));
    let error = loader(&files, config()).restore(&state).unwrap_err().to_string();
    assert!(error.contains("other data files"), "{error}");
}

#[test]
fn settings_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let files = [write(folder.path(), "a.jsonl", &conversations(2))];
    for (config, key) in [
        (DataConfig { max_tokens: 1, ..config() }, "max_tokens"),
        (DataConfig { workers: usize::MAX, ..config() }, "workers"),
        (DataConfig { template: "no-such.jinja".into(), ..config() }, "template"),
    ] {
        let error = try_loader(&files, config).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}
