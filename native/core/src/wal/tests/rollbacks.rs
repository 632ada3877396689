//! Space of streams with explicit commits: what was rolled back, and logs that are full.

use super::driver::open_with;
use super::replicas::{batch, bounded, commit, put, read};
use super::space::cursor;
use super::verify::create_explicit;
use super::*;
use crate::error::Error;
use crate::vfs::CrashPolicy;
use crate::wal::Verified;

#[test]
fn what_is_rolled_back_again_and_again_holds_no_segment() {
    let vfs = MemoryVfs::new();
    let (mut store, _) = open_with(&vfs, &bounded(), 7).unwrap();
    let stream = create_explicit(&store, "s");
    put(&store, stream, &[1, 2]);
    commit(&store, stream, 1, 1, 1, 2);
    store.submit_trim(stream, 3).unwrap();
    // A seal that takes the tail back, each time after more than a segment of it.
    for lap in 0..8 {
        for _ in 0..15 {
            put(&store, stream, &[lap; 400]);
            store.sync().unwrap();
        }
        store.rollback(stream, 1, 3).unwrap();
        store.sync().unwrap();
        store.reclaim().unwrap();
        if lap == 4 {
            drop(store);
            store = open_with(&vfs, &bounded(), 8).unwrap().0;
        }
    }
    assert!(store.stats().segments <= 3, "{:?}", store.stats());
    put(&store, stream, &[8, 9]);
    commit(&store, stream, 2, 3, 3, 2);
    store.sync().unwrap();
    assert_eq!(read(&store, stream, 3, 5), [(3, vec![8, 9])]);
    drop(store);
    let (store, _) = open_with(&vfs, &bounded(), 9).unwrap();
    assert_eq!(read(&store, stream, 3, 5), [(3, vec![8, 9])]);
}

#[test]
fn a_segment_goes_only_when_the_rollback_of_what_it_holds_is_durable() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_with(&vfs, &bounded(), 7).unwrap();
    let stream = create_explicit(&store, "s");
    for _ in 0..25 {
        put(&store, stream, &[1; 400]);
        store.sync().unwrap();
    }
    let before = store.view().segments().len();
    store.rollback(stream, 1, 1).unwrap();
    assert!(store.reclaim().unwrap().segments > 0);
    assert!(store.view().segments().len() < before);
    let trace = vfs.trace();
    for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll] {
        let image = trace.crash(trace.len(), policy);
        let (store, _) = open_with(&image, &bounded(), 8).unwrap();
        assert_eq!(store.state().streams[&stream].next, 1);
    }
}

#[test]
fn commits_of_other_streams_leave_a_full_log_its_reserve() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_with(&vfs, &bounded(), 7).unwrap();
    let stream = create_explicit(&store, "s");
    let bytes = batch(&[7; 200], None);
    let verified = [Verified::check(&bytes).unwrap()];
    let mut next = 1;
    while store.place_batches(stream, 1, next, &verified).is_ok() {
        next += 200;
        store.sync().unwrap();
    }
    commit(&store, stream, 1, 1, 1, next - 1);
    // What the log goes on with elsewhere: cuts that give this stream nothing, for five segments.
    for version in 2..3500 {
        commit(&store, stream, version, version + next, next, 0);
        if version % 50 == 0 {
            store.sync().unwrap();
            store.reclaim().unwrap();
        }
    }
    store.submit_trim(stream, next).unwrap();
    store.sync().unwrap();
    assert!(store.reclaim().unwrap().segments > 1);
    store.place_batches(stream, 1, next, &verified).unwrap();
}

#[test]
fn a_tail_is_settled_and_trimmed_however_little_reserve_a_full_log_has() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_with(&vfs, &bounded(), 7).unwrap();
    let stream = create_explicit(&store, "s");
    let bytes = batch(&[7; 400], None);
    let verified = [Verified::check(&bytes).unwrap()];
    let mut next = 1;
    while store.place_batches(stream, 1, next, &verified).is_ok() {
        next += 400;
        store.sync().unwrap();
    }
    let bound = store.stats().segments_max;
    // Record by record: far more than two segments of commits, and none of them may be dropped.
    for llsn in 1..next {
        commit(&store, stream, llsn, llsn, llsn, 1);
    }
    store.sync().unwrap();
    assert!(
        store.stats().segments > bound + 2,
        "{}",
        store.stats().segments
    );
    // What is only wished for gets no such room.
    let wish = |position: u64| store.set_cursor(stream, "c", cursor(1 + position % 10));
    let refused = (0..20_000_u64).find_map(|position| wish(position).err());
    assert!(
        matches!(refused, Some(Error::LogFull { .. })),
        "{refused:?}"
    );
    store.trim(stream, next).unwrap();
    assert!(
        store.stats().segments <= bound,
        "{}",
        store.stats().segments
    );
    store.place_batches(stream, 1, next, &verified).unwrap();
}
