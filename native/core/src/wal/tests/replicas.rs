//! Streams with explicit commits as replicas use them.

use super::driver::open_with;
use super::verify::create_explicit;
use super::*;
use crate::batch::BatchBuilder;
use crate::error::Error;
use crate::index::CommitRun;
use crate::vfs::{CrashPolicy, FaultVfs, Gate, OpKind, Rule};
use crate::wal::{CommitContext, Restart, Verified};

pub(super) fn batch(values: &[u64], producer: Option<(u64, u64)>) -> Vec<u8> {
    batch_of(values, producer.map(|(id, sequence)| (id, 1, sequence)))
}

/// The producer is its id, its epoch and the first sequence.
fn batch_of(values: &[u64], producer: Option<(u64, u32, u64)>) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    if let Some((id, epoch, sequence)) = producer {
        builder.set_producer(id, epoch, sequence);
    }
    for value in values {
        builder
            .push(Some(&value.to_le_bytes()), None, 3, &[])
            .unwrap();
    }
    let mut out = Vec::new();
    builder
        .encode_into(crate::batch::Compression::None, &mut out)
        .unwrap();
    out
}

pub(super) fn put(store: &Store, stream: u32, values: &[u64]) -> u64 {
    let bytes = batch(values, None);
    let verified = [Verified::check(&bytes).unwrap()];
    store.append_batches(stream, 1, &verified).unwrap()[0].llsn
}

pub(super) fn commit(store: &Store, stream: u32, version: u64, glsn: u64, llsn: u64, length: u64) {
    let context = CommitContext {
        version,
        glsn_begin: glsn,
        llsn_begin: llsn,
        length,
        high_watermark: glsn + length - 1,
    };
    store.commit(stream, 1, context).unwrap();
}

fn anew(first: u64) -> Restart {
    Restart {
        first,
        options: b"new".to_vec(),
        ..Restart::default()
    }
}

pub(super) fn read(store: &Store, stream: u32, begin: u64, end: u64) -> Vec<(u64, Vec<u64>)> {
    let found = store.read_encoded(stream, begin, end, 1 << 20).unwrap();
    found
        .iter()
        .map(|batch| {
            let view = BatchView::parse(&batch.bytes).unwrap();
            assert_eq!(view.count(), batch.count);
            let value = |r: crate::batch::RecordRef<'_>| {
                u64::from_le_bytes(r.value.unwrap().try_into().unwrap())
            };
            (batch.llsn, view.iter().map(value).collect())
        })
        .collect()
}

fn end(store: &Store, stream: u32) -> u64 {
    store.view().stream(stream).unwrap().range().end
}

#[test]
fn batches_of_a_call_are_placed_together_or_not_at_all() {
    let (store, _) = open_at(&MemoryVfs::new()).unwrap();
    let stream = create_explicit(&store, "s");
    let encoded = [
        batch(&[1, 2], Some((9, 1))),
        batch(&[3], Some((9, 3))),
        batch(&[1, 2], Some((9, 1))),
        batch(&[5], Some((9, 5))),
    ];
    let verified: Vec<_> = encoded
        .iter()
        .map(|bytes| Verified::check(bytes).unwrap())
        .collect();
    let refused = store.append_batches(stream, 1, &verified);
    assert!(
        matches!(refused, Err(Error::NotDense { expected: 4, .. })),
        "{refused:?}"
    );
    assert_eq!(store.state().streams[&stream].next, 1);
    let placed = store.append_batches(stream, 1, &verified[..3]).unwrap();
    let rows: Vec<_> = placed
        .iter()
        .map(|at| (at.llsn, at.count, at.new))
        .collect();
    assert_eq!(rows, [(1, 2, true), (3, 1, true), (1, 2, false)]);
    let gap = store.place_batches(stream, 1, 9, &verified[3..]);
    assert!(matches!(
        gap,
        Err(Error::NotDense {
            what: "LLSN",
            expected: 4,
            ..
        })
    ));
    store.place_batches(stream, 1, 4, &verified[3..]).unwrap();
    assert_eq!(store.producer(stream, 9).unwrap(), (6, Some(1)));
    let stale = store.append_batches(stream, 0, &verified[..1]);
    assert!(matches!(stale, Err(Error::StaleEpoch { .. })));
}

#[test]
fn a_rollback_brings_the_epoch_of_a_producer_back_also_after_a_roll_and_a_reopen() {
    let vfs = MemoryVfs::new();
    let (mut store, _) = open_at(&vfs).unwrap();
    let stream = create_explicit(&store, "s");
    let put = |store: &Store, epoch, sequence| {
        let bytes = batch_of(&[1, 2], Some((9, epoch, sequence)));
        let placed = store.append_batches(stream, 1, &[Verified::check(&bytes)?])?;
        Ok::<_, Error>((placed[0].llsn, placed[0].new))
    };
    put(&store, 1, 1).unwrap();
    put(&store, 1, 3).unwrap();
    commit(&store, stream, 1, 1, 1, 4);
    assert_eq!(put(&store, 2, 1).unwrap(), (5, true));
    let fenced = put(&store, 1, 3).map(|_| ());
    assert!(matches!(fenced, Err(Error::StaleEpoch { .. })));
    // The next segment begins with the state as it is here.
    let noise = create(&store, "noise");
    let first = store.view().segments().len();
    while store.view().segments().len() == first {
        append(&store, noise, &[7; 9000]).unwrap();
    }
    drop(store);
    store = open_at(&vfs).unwrap().0;
    assert_eq!(store.producer(stream, 9).unwrap(), (3, Some(2)));
    // What a learner is given ends where the stream is committed.
    let below = store.producers_below(stream, 5).unwrap();
    store.rollback(stream, 2, 5).unwrap();
    assert_eq!(store.producers_below(stream, 5).unwrap(), below);
    assert_eq!(store.producer(stream, 9).unwrap(), (5, Some(1)));
    let repeated = batch_of(&[1, 2], Some((9, 1, 3)));
    let repeated = [Verified::check(&repeated).unwrap()];
    let placed = store.append_batches(stream, 2, &repeated).unwrap();
    assert_eq!((placed[0].llsn, placed[0].new), (3, false));
}

#[test]
fn a_damaged_batch_is_refused() {
    let mut bytes = batch(&[1, 2, 3], None);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert!(matches!(
        Verified::check(&bytes),
        Err(Error::Malformed { .. })
    ));
    bytes[last] ^= 1;
    bytes.push(0);
    assert!(Verified::check(&bytes).is_err());
}

#[test]
fn a_commit_is_seen_at_once_where_records_are_durable_and_not_before() {
    let (store, _) = open_at(&MemoryVfs::new()).unwrap();
    let stream = create_explicit(&store, "s");
    put(&store, stream, &[1, 2]);
    store.sync().unwrap();
    put(&store, stream, &[3]);
    commit(&store, stream, 1, 10, 1, 3);
    assert_eq!(end(&store, stream), 3, "the third is not durable");
    store.sync().unwrap();
    assert_eq!(end(&store, stream), 4);
    // Durable once, then rolled back and written anew: what is there now is not durable.
    put(&store, stream, &[4, 5]);
    store.sync().unwrap();
    store.rollback(stream, 1, 5).unwrap();
    put(&store, stream, &[50, 60]);
    commit(&store, stream, 2, 20, 4, 3);
    assert_eq!(end(&store, stream), 5);
    store.sync().unwrap();
    assert_eq!(end(&store, stream), 7);
    let values: Vec<_> = contents(store.view(), stream).unwrap();
    assert_eq!(values[4].1, 50u64.to_le_bytes());
}

#[test]
fn a_commit_is_seen_while_the_group_that_was_sealed_without_it_is_written() {
    let memory = MemoryVfs::new();
    let fault = FaultVfs::new(Arc::new(memory));
    let (store, _) = open(Arc::new(fault.clone()), Path::new(DIR), options()).unwrap();
    let stream = create_explicit(&store, "s");
    put(&store, stream, &[1]);
    store.sync().unwrap();
    put(&store, stream, &[2]);
    let gate = Gate::new();
    fault.add(Rule::hang(OpKind::WriteDurable, &gate).once());
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| store.sync());
        gate.wait_for(1);
        commit(&store, stream, 1, 1, 1, 2);
        assert_eq!(end(&store, stream), 2);
        put(&store, stream, &[3]);
        // In a file, in flight, gathering.
        assert_eq!(
            read(&store, stream, 1, 9),
            [(1, vec![1]), (2, vec![2]), (3, vec![3])]
        );
        gate.open();
        syncing.join().unwrap().unwrap();
    });
    assert_eq!(end(&store, stream), 3);
}

#[test]
fn batches_are_read_whole_and_without_what_was_rolled_back() {
    let (store, _) = open_at(&MemoryVfs::new()).unwrap();
    let stream = create_explicit(&store, "s");
    put(&store, stream, &[1, 2, 3]);
    store.sync().unwrap();
    put(&store, stream, &[4, 5, 6]);
    assert_eq!(
        read(&store, stream, 2, 5),
        [(1, vec![1, 2, 3]), (4, vec![4, 5, 6])]
    );
    assert_eq!(read(&store, stream, 1, 4), [(1, vec![1, 2, 3])]);
    let one = store.read_encoded(stream, 1, 9, 1).unwrap();
    assert_eq!(one.len(), 1);
    store.rollback(stream, 1, 5).unwrap();
    assert_eq!(read(&store, stream, 4, 9), [(4, vec![4])]);
    store.rollback(stream, 1, 3).unwrap();
    assert_eq!(read(&store, stream, 1, 9), [(1, vec![1, 2])]);
    store.sync().unwrap();
    assert_eq!(read(&store, stream, 1, 9), [(1, vec![1, 2])]);
    put(&store, stream, &[30]);
    assert_eq!(read(&store, stream, 1, 9), [(1, vec![1, 2]), (3, vec![30])]);
    let beyond = store.read_encoded(stream, 5, 9, 1);
    assert!(matches!(beyond, Err(Error::BeyondEnd { next: 4, .. })));
}

/// Everything that was committed, for a stream that got every third number of its log.
#[test]
fn numbers_are_found_over_segments_trims_copies_and_reopens() {
    let vfs = MemoryVfs::new();
    let (mut store, _) = open_at(&vfs).unwrap();
    let stream = create_explicit(&store, "s");
    let noise = create(&store, "noise");
    let (mut low, mut most) = (1, 0);
    for i in 0..60u64 {
        let llsn = put(&store, stream, &[i, i]);
        commit(&store, stream, i + 1, 6 * i + 1, llsn, 2);
        let last = append(&store, noise, &[7; 9000]).unwrap();
        if i % 15 == 14 {
            store.trim(noise, last).unwrap();
            store.clean(2, 0.9).unwrap();
        }
        if i == 30 {
            low = 9;
            store.submit_trim(stream, low).unwrap();
            store.sync().unwrap();
            drop(store);
            store = open_at(&vfs).unwrap().0;
        }
        most = most.max(store.view().segments().len());
        check_numbers(&store, stream, low, i);
    }
    assert!(most > 2);
}

fn check_numbers(store: &Store, stream: u32, low: u64, last: u64) {
    let glsn_of = |llsn: u64| 6 * ((llsn - 1) / 2) + 1 + (llsn - 1) % 2;
    let next = 2 * last + 3;
    let runs = store.commit_runs(stream, 1, u64::MAX).unwrap();
    let listed: Vec<_> = runs
        .iter()
        .flat_map(|run| (0..run.length).map(|i| (run.llsn_begin + i, run.glsn_begin + i)))
        .collect();
    let expected: Vec<_> = (low..next).map(|llsn| (llsn, glsn_of(llsn))).collect();
    assert_eq!(listed, expected);
    let middle = store.commit_runs(stream, low + 1, low + 2).unwrap();
    assert_eq!(
        middle,
        [CommitRun {
            glsn_begin: glsn_of(low + 1),
            llsn_begin: low + 1,
            length: 1
        }]
    );
    for glsn in (0..6 * last + 9).step_by(7) {
        let below = expected.iter().rev().find(|(_, found)| *found <= glsn);
        let above = expected.iter().find(|(_, found)| *found >= glsn);
        let floor = store.glsn_floor(stream, glsn).unwrap();
        assert_eq!(floor.map(|point| (point.llsn, point.glsn)), below.copied());
        let ceil = store.glsn_ceil(stream, glsn).unwrap();
        assert_eq!(ceil.map(|point| (point.llsn, point.glsn)), above.copied());
    }
}

#[test]
fn a_restart_is_there_wholly_or_not_at_all() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create_explicit(&store, "s");
    put(&store, stream, &[1, 2, 3]);
    commit(&store, stream, 1, 1, 1, 2);
    store.sync().unwrap();
    vfs.settle();
    let fresh = store.restart(77, 4, anew(100)).unwrap();
    assert_ne!(fresh, stream);
    let bytes = batch(&[9], None);
    let verified = [Verified::check(&bytes).unwrap()];
    let fenced = store.append_batches(fresh, 3, &verified);
    assert!(matches!(fenced, Err(Error::StaleEpoch { .. })));
    store.place_batches(fresh, 4, 100, &verified).unwrap();
    assert_eq!(read(&store, fresh, 100, 200), [(100, vec![9])]);
    store.sync().unwrap();
    assert!(store.view().stream(stream).is_err());
    let state = store.state();
    drop(store);
    let mut seen = [false; 2];
    for (_, _, image) in vfs.trace().crashes(4) {
        let (store, _) = open_at(&image).unwrap();
        let log = store.state().log_named("s").unwrap().clone();
        let is_new = log.stream == fresh;
        seen[usize::from(is_new)] = true;
        if is_new {
            assert_eq!(log.log.options, b"new");
            let found = &store.state().streams[&fresh];
            assert_eq!((found.low, found.epoch), (100, 4));
            assert_eq!(found.context.llsn_begin, 100);
        } else {
            assert_eq!(read(&store, stream, 1, 9), [(1, vec![1, 2, 3])]);
        }
    }
    assert_eq!(seen, [true, true]);
    let trace = vfs.trace();
    let image = trace.crash(trace.len(), CrashPolicy::DropUnsynced);
    assert_eq!(open_at(&image).unwrap().0.state(), state);
}

#[test]
fn only_a_log_with_explicit_commits_begins_anew() {
    let (store, _) = open_at(&MemoryVfs::new()).unwrap();
    create(&store, "plain");
    let id = u128::from(crc32c::crc32c(b"plain")) + 1;
    assert!(matches!(
        store.restart(id, 0, anew(5)),
        Err(Error::InvalidArgument(_))
    ));
    create_explicit(&store, "s");
    assert!(matches!(
        store.restart(77, 0, anew(0)),
        Err(Error::InvalidArgument(_))
    ));
    assert!(matches!(
        store.restart(5, 0, anew(1)),
        Err(Error::NotFound { .. })
    ));
}

#[test]
fn a_run_may_come_in_pieces_of_one_version() {
    let (store, _) = open_at(&MemoryVfs::new()).unwrap();
    let stream = create_explicit(&store, "s");
    put(&store, stream, &[1, 2, 3]);
    commit(&store, stream, 5, 10, 1, 1);
    commit(&store, stream, 5, 11, 2, 1);
    let older = CommitContext {
        version: 4,
        glsn_begin: 12,
        llsn_begin: 3,
        length: 1,
        high_watermark: 12,
    };
    assert!(matches!(
        store.commit(stream, 1, older),
        Err(Error::NotDense { .. })
    ));
    let empty = CommitContext {
        version: 5,
        length: 0,
        ..older
    };
    assert!(store.commit(stream, 1, empty).is_err());
}

/// Room for five segments of the smallest size, of which records may take three.
pub(super) fn bounded() -> Options {
    Options {
        wal_bytes_max: Some(5 * (64 << 10)),
        ..options()
    }
}

#[test]
fn entries_that_decide_on_trims_find_room_where_records_do_not() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_with(&vfs, &bounded(), 7).unwrap();
    let records = create_explicit(&store, "s");
    let group = NewLog {
        id: 99,
        explicit_commit: true,
        created: 0,
        name: "g".into(),
        options: Vec::new(),
    };
    let entries = store.create_log(group).unwrap();
    let mut next = 1;
    let bytes = batch(&[7; 200], None);
    let verified = [Verified::check(&bytes).unwrap()];
    let full = loop {
        match store.place_batches(records, 1, next, &verified) {
            Ok(()) => next += 200,
            Err(error) => break error,
        }
        store.sync().unwrap();
    };
    assert!(matches!(full, Error::LogFull { .. }), "{full}");
    let entry = batch(&[1], None);
    let entry = [Verified::check(&entry).unwrap()];
    let refused = store.place_batches(entries, 0, 1, &verified);
    assert!(matches!(refused, Err(Error::LogFull { .. })), "{refused:?}");
    for llsn in 1..=100 {
        store.place_reserved(entries, 0, llsn, &entry).unwrap();
        store.sync().unwrap();
    }
    // Bounded all the same, and what frees space has room left.
    let mut last = 101;
    let full = loop {
        match store.place_reserved(entries, 0, last, &verified) {
            Ok(()) => last += 200,
            Err(error) => break error,
        }
        store.sync().unwrap();
    };
    assert!(matches!(full, Error::LogFull { .. }), "{full}");
    commit(&store, records, 1, 1, 1, next - 1);
    store.sync().unwrap();
    store.trim(records, next).unwrap();
    store.place_batches(records, 1, next, &verified).unwrap();
}
