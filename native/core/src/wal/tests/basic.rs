//! What a log does without faults: append, read, reopen, roll, trim, follow.

use super::*;
use crate::error::Error;
use crate::wal::{Follower, ProducerId};

#[test]
fn appended_records_are_read_back_and_survive_reopen() {
    let vfs = MemoryVfs::new();
    let (store, report) = open_at(&vfs).unwrap();
    assert!(report.created);
    let stream = create(&store, "a");
    for i in 0..100u32 {
        assert_eq!(
            append(&store, stream, &i.to_le_bytes()).unwrap(),
            u64::from(i) + 1
        );
    }
    let before = contents(store.view(), stream).unwrap();
    assert_eq!(before.len(), 100);
    store.close().unwrap();
    drop(store);
    let (store, report) = open_at(&vfs).unwrap();
    assert!(report.clean && report.torn.is_none());
    assert_eq!(contents(store.view(), stream).unwrap(), before);
    assert_eq!(append(&store, stream, b"next").unwrap(), 101);
}

#[test]
fn the_log_rolls_and_trimmed_segments_are_recycled() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    let value = vec![7; 5000];
    for i in 1..=400u64 {
        assert_eq!(append(&store, stream, &value).unwrap(), i);
        if i % 20 == 0 {
            store.trim(stream, i - 5).unwrap();
        }
    }
    let slots = vfs
        .paths()
        .iter()
        .filter(|path| path.contains("slot-"))
        .count();
    assert!(slots <= 5, "{slots} slots");
    assert_eq!(contents(store.view(), stream).unwrap().len(), 6);
    let view = store.view().stream(stream).unwrap();
    let early = store.view().get(&view, 1);
    assert!(
        matches!(early, Err(Error::Trimmed { first: 395, .. })),
        "{early:?}"
    );
    assert_eq!(store.view().get(&view, 396).unwrap().value, Some(value));
    store.close().unwrap();
    drop(store);
    let (store, _) = open_at(&vfs).unwrap();
    assert_eq!(contents(store.view(), stream).unwrap().len(), 6);
}

#[test]
fn a_full_log_refuses_appends_until_it_is_trimmed() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    let value = vec![7; 5000];
    let mut last = 0;
    let error = loop {
        match append(&store, stream, &value) {
            Ok(llsn) => last = llsn,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::LogFull { .. }), "{error}");
    assert!(last > 80, "{last} records in 1 MiB");
    assert_eq!(contents(store.view(), stream).unwrap().len() as u64, last);
    store.trim(stream, last).unwrap();
    assert_eq!(append(&store, stream, &value).unwrap(), last + 1);
}

#[test]
fn many_records_in_one_group_share_a_batch_and_are_found_one_by_one() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    let mut group = 0;
    for i in 0..2000u32 {
        let value = vec![(i % 251) as u8; 1 + (i % 300) as usize];
        group = store
            .append(if i % 3 == 0 { b } else { a }, record(&value), None)
            .unwrap()
            .group;
    }
    store.wait(group).unwrap();
    let all = contents(store.view(), a).unwrap();
    drop(store);
    let (store, report) = open_at(&vfs).unwrap();
    assert!(!report.clean);
    assert_eq!(contents(store.view(), a).unwrap(), all);
    let view = store.view().stream(a).unwrap();
    for (llsn, value) in all {
        assert_eq!(
            store.view().get(&view, llsn).unwrap().value,
            Some(value),
            "{llsn}"
        );
    }
}

#[test]
fn a_repeated_sequence_returns_the_original_position_also_after_restart() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    let producer = ProducerId { id: 9, epoch: 0 };
    let push = |store: &Store, sequence| {
        let ticket = store.append(stream, record(b"x"), Some((producer, sequence)))?;
        store.wait(ticket.group)?;
        Ok(ticket.llsn)
    };
    for sequence in 1..=5 {
        assert_eq!(push(&store, sequence).unwrap(), sequence);
    }
    assert_eq!(append(&store, stream, b"other").unwrap(), 6);
    assert_eq!(push(&store, 3).unwrap(), 3);
    assert!(matches!(
        push(&store, 7),
        Err(Error::NotDense { expected: 6, .. })
    ));
    drop(store);
    let (store, _) = open_at(&vfs).unwrap();
    assert_eq!(push(&store, 3).unwrap(), 3);
    assert_eq!(push(&store, 6).unwrap(), 7);
    assert_eq!(contents(store.view(), stream).unwrap().len(), 7);
}

#[test]
fn a_second_writer_is_refused_and_a_follower_sees_what_is_durable() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    assert!(matches!(open_at(&vfs), Err(Error::Locked { .. })));
    let stream = create(&store, "a");
    let mut follower =
        Follower::open(Arc::new(vfs.clone()), Path::new("/data"), &options()).unwrap();
    let mut written = 0;
    for round in 0..60 {
        for _ in 0..5 {
            append(&store, stream, &vec![round; 2000]).unwrap();
            written += 1;
        }
        store.append(stream, record(b"not durable"), None).unwrap();
        follower.refresh().unwrap();
        let seen = contents(follower.view(), stream).unwrap();
        assert_eq!(seen.len(), written, "round {round}");
        store.sync().unwrap();
        written += 1;
    }
    store.trim(stream, 200).unwrap();
    follower.refresh().unwrap();
    assert_eq!(
        contents(follower.view(), stream).unwrap(),
        contents(store.view(), stream).unwrap()
    );
}

#[test]
fn the_cleaner_frees_segments_that_a_slow_stream_pins() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let (slow, fast) = (create(&store, "slow"), create(&store, "fast"));
    for i in 0..100u32 {
        append(&store, slow, &i.to_le_bytes()).unwrap();
        for _ in 0..4 {
            let llsn = append(&store, fast, &[1; 4000]).unwrap();
            if llsn.is_multiple_of(10) {
                store.trim(fast, llsn).unwrap();
            }
        }
        if store.stats().segments > 6 {
            store.clean(3, 0.5).unwrap();
            assert!(store.stats().segments <= 5);
        }
    }
    let all = contents(store.view(), slow).unwrap();
    assert_eq!(all.len(), 100);
    store.close().unwrap();
    drop(store);
    let (store, _) = open_at(&vfs).unwrap();
    assert_eq!(contents(store.view(), slow).unwrap(), all);
    let view = store.view().stream(slow).unwrap();
    for (llsn, value) in all {
        assert_eq!(store.view().get(&view, llsn).unwrap().value, Some(value));
    }
}
