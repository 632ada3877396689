//! Operations that fail, hang, or find no space, and directories that are not as they were left.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::scope;
use std::time::Duration;

use super::driver::{kept, record};
use super::{DIR, append, contents, create, options};
use crate::error::{Error, Result};
use crate::manifest::parse_side_name;
use crate::vfs::{CrashPolicy, Fault, FaultVfs, Gate, Landed, MemoryVfs, OpKind, Rule, Vfs};
use crate::wal::{OpenReport, Options, Range, Store, Waited, open};

pub fn faulty() -> (MemoryVfs, FaultVfs) {
    let memory = MemoryVfs::new();
    let vfs = FaultVfs::new(Arc::new(memory.clone()));
    (memory, vfs)
}

pub fn open_on(vfs: &FaultVfs, entropy: u64) -> Result<(Store, OpenReport)> {
    let options = Options {
        entropy,
        ..options()
    };
    open(
        Arc::new(vfs.clone()) as Arc<dyn Vfs>,
        Path::new(DIR),
        options,
    )
}

/// Opens a gate when a failed assertion leaves its test, which would hang otherwise.
pub struct Opening<'a>(pub &'a Gate);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// What a run was promised before something failed.
#[derive(Default)]
pub struct Promised {
    created: Option<u32>,
    submitted: u64,
    acked: u64,
    low: u64,
    trimming: u64,
    closed: bool,
}

/// Open, append over several segments, trim, close, and all of it again; until something fails.
pub fn run(vfs: &FaultVfs, promised: &mut Promised) -> Result<()> {
    for tags in [1..=16, 17..=30] {
        let (store, _) = open_on(vfs, *tags.start())?;
        let result = run_open(&store, tags, promised);
        // A failed store is released, whatever state it is in.
        let closed = store.close();
        assert!(!vfs.is_locked(&Path::new(DIR).join("LOCK")).unwrap());
        result.and(closed)?;
    }
    promised.closed = true;
    Ok(())
}

fn run_open(store: &Store, tags: RangeInclusive<u64>, promised: &mut Promised) -> Result<()> {
    let log = crate::wal::NewLog {
        id: 1,
        explicit_commit: false,
        created: 0,
        name: "a".into(),
        options: Vec::new(),
    };
    let stream = match promised.created {
        Some(stream) => stream,
        None => store.create_log(log)?,
    };
    promised.created = Some(stream);
    for tag in tags {
        promised.submitted = tag;
        let kept = kept(tag, 9000);
        let group = store.append(stream, record(&kept), None)?.group;
        if let Err(error) = store.wait(group) {
            assert!(matches!(error, Error::Failed { .. }), "{error}");
            assert!(store.append(stream, record(&kept), None).is_err());
            assert!(store.sync().is_err() && store.trim(stream, 1).is_err());
            // Durable and shown all the same, if only the watermark file could not be written.
            let end = store.view().stream(stream)?.range().end;
            assert!(end == tag || end == tag + 1);
            return Err(error);
        }
        promised.acked = tag;
        let kept = contents(store.view(), stream)?.len() as u64;
        assert_eq!(kept, tag + 1 - promised.low.max(1));
        if tag % 10 == 0 {
            promised.trimming = tag - 2;
            store.trim(stream, tag - 2)?;
            promised.low = tag - 2;
        }
    }
    Ok(())
}

/// The next open on what is there serves what was promised.
fn check(image: &MemoryVfs, promised: &Promised, context: &str) {
    let vfs = FaultVfs::new(Arc::new(image.clone()));
    let (store, report) = open_on(&vfs, 2).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(!promised.closed || report.clean, "{context}: {report:?}");
    let Some(stream) = promised.created else {
        return;
    };
    let found = contents(store.view(), stream).unwrap_or_else(|e| panic!("{context}: {e}"));
    let range = store.view().stream(stream).unwrap().range();
    assert!(
        range.end > promised.acked && range.end <= promised.submitted + 1,
        "{context}"
    );
    assert!(
        range.first >= promised.low.max(1),
        "{context}: trimmed records are back"
    );
    assert!(
        range.first <= promised.trimming.max(1),
        "{context}: nobody trimmed that"
    );
    assert_eq!(found.len() as u64, range.end - range.first, "{context}");
    for (llsn, value) in found {
        assert!(value == *kept(llsn, 9000).value, "{context}: {llsn}");
    }
    append(&store, stream, b"on it goes").unwrap();
}

const KINDS: [OpKind; 10] = [
    OpKind::Open,
    OpKind::Create,
    OpKind::CreateDir,
    OpKind::Read,
    OpKind::Write,
    OpKind::WriteDurable,
    OpKind::Sync,
    OpKind::Rename,
    OpKind::Remove,
    OpKind::SyncDir,
];

#[test]
fn any_operation_may_fail_once_or_from_then_on() {
    for kind in KINDS {
        let mut failures = 0;
        for n in 0.. {
            let mut failed = false;
            for (landed, once) in [
                (Landed::Nothing, true),
                (Landed::Nothing, false),
                (Landed::Prefix(700), true),
                (Landed::All, true),
            ] {
                let (memory, vfs) = faulty();
                let rule = Rule::fail(kind, Fault::Io).after(n).landing(landed);
                vfs.add(if once { rule.once() } else { rule });
                let mut promised = Promised::default();
                let result = run(&vfs, &mut promised);
                failed |= vfs.count(kind) > n;
                let context = format!("{kind:?} {n} {landed:?} once {once}: {:?}", result.err());
                check(&memory.snapshot(), &promised, &context);
                let trace = memory.trace();
                check(
                    &trace.crash(trace.len(), CrashPolicy::DropUnsynced),
                    &promised,
                    &context,
                );
            }
            if !failed {
                break;
            }
            failures += 1;
        }
        assert!(failures > 0, "{kind:?} is never used");
    }
}

#[test]
fn no_space_at_any_point_is_said_and_loses_nothing() {
    for free in (0..40 << 10)
        .step_by(1 << 9)
        .chain((40 << 10..400 << 10).step_by(20 << 10))
    {
        let (memory, vfs) = faulty();
        vfs.set_free_bytes(Some(free));
        let mut promised = Promised::default();
        let result = run(&vfs, &mut promised);
        let text = format!("{free} bytes: {result:?}");
        match result {
            Ok(()) => {}
            Err(Error::Io { source, path, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::StorageFull, "{text}");
                assert!(path.starts_with(DIR), "{text}");
            }
            Err(Error::Failed { reason }) => assert!(reason.contains(DIR), "{text}"),
            Err(error) => panic!("{free} bytes: {error}"),
        }
        check(&memory.snapshot(), &promised, &text);
    }
}

#[test]
fn a_failed_sync_poisons_for_good() {
    let (memory, vfs) = faulty();
    let (store, _) = open_on(&vfs, 1).unwrap();
    let stream = create(&store, "a");
    append(&store, stream, b"durable").unwrap();
    let view = store.view().stream(stream).unwrap();
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::WriteDurable, &gate).once());
    vfs.add(
        Rule::fail(OpKind::WriteDurable, Fault::Io)
            .landing(Landed::All)
            .once(),
    );
    scope(|scope| {
        let _opening = Opening(&gate);
        let reader = scope.spawn(|| view.wait(2, Duration::from_secs(60), None));
        let leader = scope.spawn(|| append(&store, stream, b"lost").unwrap_err());
        gate.wait_for(1);
        let behind = scope.spawn(|| append(&store, stream, b"behind").unwrap_err());
        gate.open();
        for error in [leader.join().unwrap(), behind.join().unwrap()] {
            assert!(matches!(error, Error::Failed { .. }), "{error}");
        }
        assert_eq!(reader.join().unwrap(), Waited::Cancelled);
    });
    assert!(append(&store, stream, b"never").is_err());
    assert!(store.trim(stream, 2).is_err() && store.sync().is_err());
    assert_eq!(contents(store.view(), stream).unwrap().len(), 1);
    store.close().unwrap();
    let (next, _) = open_on(&vfs, 2).unwrap();
    assert!(contents(next.view(), stream).unwrap().len() <= 2);
    drop(next);
    assert!(!memory.is_locked(&Path::new(DIR).join("LOCK")).unwrap());
}

/// The next writer must not meet a write of this one that lands late.
#[test]
fn a_failed_store_keeps_its_lock_while_a_write_hangs() {
    let (memory, vfs) = faulty();
    let options = Options {
        gather_bytes: 1,
        ..options()
    };
    let (store, _) = open(Arc::new(vfs.clone()), Path::new(DIR), options).unwrap();
    let stream = create(&store, "a");
    let lock = Path::new(DIR).join("LOCK");
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::WriteDurable, &gate).once());
    scope(|scope| {
        let _opening = Opening(&gate);
        let hanging = scope.spawn(|| append(&store, stream, b"hangs").unwrap_err());
        gate.wait_for(1);
        vfs.add(Rule::fail(OpKind::WriteDurable, Fault::Io).once());
        append(&store, stream, b"fails").unwrap_err();
        let closing = scope.spawn(|| store.close());
        std::thread::sleep(Duration::from_millis(30));
        assert!(
            memory.is_locked(&lock).unwrap(),
            "released while a write hangs"
        );
        gate.open();
        closing.join().unwrap().unwrap();
        hanging.join().unwrap();
    });
    assert!(!memory.is_locked(&lock).unwrap());
    assert!(store.prepare_slot().is_err() && store.provision(1 << 20).is_err());
    assert!(store.reclaim().is_err() || store.stats().free_slots == 0);
}

#[test]
fn appends_wait_while_a_sync_hangs_and_go_on_after_it() {
    let (_, vfs) = faulty();
    let options = Options {
        unsynced_bytes_max: 20 << 10,
        wal_bytes_max: Some(64 << 20),
        ..options()
    };
    let (store, _) = open(Arc::new(vfs.clone()), Path::new(DIR), options).unwrap();
    let stream = create(&store, "a");
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::WriteDurable, &gate).once());
    let group = store
        .append(stream, super::record(&[1; 1000]), None)
        .unwrap()
        .group;
    scope(|scope| {
        let _opening = Opening(&gate);
        let first = scope.spawn(|| store.wait(group));
        gate.wait_for(1);
        let others: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let groups = (0..50).map(|_| {
                        let record = super::record(&[2; 1000]);
                        store
                            .append(stream, record, None)
                            .map(|ticket| ticket.group)
                    });
                    let last = groups.collect::<Result<Vec<_>>>()?.pop().unwrap();
                    store.wait(last)
                })
            })
            .collect();
        while !store.would_wait(stream, 1024) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(30));
        // What is there is the bound and one record of each thread at most.
        let pending = store.next_llsn(stream).unwrap() - 1;
        assert!(pending < 28, "{pending} records of 1000 bytes");
        assert_eq!(store.view().stream(stream).unwrap().range().end, 1);
        assert!(!store.wait_for(group, Duration::from_millis(5)).unwrap());
        gate.open();
        first.join().unwrap().unwrap();
        for other in others {
            other.join().unwrap().unwrap();
        }
    });
    assert_eq!(contents(store.view(), stream).unwrap().len(), 201);
}

/// A segment is sealed and another one dropped without a lock that an append or a reader takes.
#[test]
fn appends_and_reads_go_on_while_the_list_of_segments_changes() {
    for (kind, file, trims) in [
        (OpKind::Write, ".idx", false),
        (OpKind::Sync, "MANIFEST-", false),
        (OpKind::Sync, "MANIFEST-", true),
    ] {
        let (_, vfs) = faulty();
        let (store, _) = open_on(&vfs, 1).unwrap();
        let stream = create(&store, "a");
        store.provision(4 * (64 << 10)).unwrap();
        for tag in 1..=9 {
            append(&store, stream, &kept(tag, 11_000).value).unwrap();
        }
        let gate = Gate::new();
        vfs.add(Rule::hang(kind, &gate).on(file).once());
        scope(|scope| {
            let _opening = Opening(&gate);
            let change = || -> Result<()> {
                if trims {
                    return store.trim(stream, 7).map(drop);
                }
                (10..=14)
                    .try_for_each(|tag| append(&store, stream, &kept(tag, 11_000).value).map(drop))
            };
            let changing = scope.spawn(change);
            gate.wait_for(1);
            let (tell, told) = mpsc::channel();
            let store = &store;
            scope.spawn(move || {
                let view = store.view();
                let readable = view.stream(stream).unwrap();
                let Range { first, end, .. } = readable.range();
                for llsn in first..end {
                    let found = view.get(&readable, llsn).unwrap();
                    assert_eq!(found.value.unwrap(), *kept(llsn, 11_000).value);
                }
                assert_eq!(contents(view, stream).unwrap().len() as u64, end - first);
                let next = store.next_llsn(stream).unwrap();
                let placed = store.append(stream, super::record(b"on its way"), None);
                tell.send(placed.unwrap().llsn - next).unwrap();
            });
            let done = told.recv_timeout(Duration::from_secs(30));
            assert_eq!(done, Ok(0), "{kind:?} of {file}, trim: {trims}");
            gate.open();
            changing.join().unwrap().unwrap();
        });
    }
}

/// Which logs there are is told by the log alone: no edit can be lost that would contradict it.
#[test]
fn the_catalog_needs_no_manifest() {
    let (memory, vfs) = faulty();
    let (store, _) = open_on(&vfs, 1).unwrap();
    let names = ["a", "b", "c", "d"];
    append(&store, create(&store, names[0]), b"first").unwrap();
    for kind in [OpKind::Create, OpKind::Write, OpKind::Sync, OpKind::Rename] {
        vfs.add(Rule::fail(kind, Fault::Io).on("MANIFEST"));
        vfs.add(Rule::fail(kind, Fault::Io).on("CURRENT"));
    }
    let streams = names[1..].iter().map(|name| create(&store, name));
    let last = streams.last().unwrap();
    append(&store, last, b"last").unwrap();
    let id = |name: &str| u128::from(crc32c::crc32c(name.as_bytes())) + 1;
    store.delete_log(id("b")).unwrap();
    let group = store.submit_alter(id("c"), b"changed".to_vec()).unwrap();
    store.wait(group).unwrap();
    let state = store.state();
    let image = memory
        .trace()
        .crash(memory.operations(), CrashPolicy::DropUnsynced);
    let (store, _) = open_on(&FaultVfs::new(Arc::new(image)), 2).unwrap();
    assert_eq!(store.state(), state);
    assert_eq!(contents(store.view(), last).unwrap().len(), 1);
}

/// Others that wait for the same group and give up wake the rest each time.
#[test]
fn a_wait_ends_in_time_however_often_it_is_woken() {
    let (_, vfs) = faulty();
    let (store, _) = open(Arc::new(vfs.clone()), Path::new(DIR), options()).unwrap();
    let stream = create(&store, "a");
    let gate = Gate::new();
    vfs.add(Rule::hang(OpKind::WriteDurable, &gate).once());
    let group = |value| {
        let ticket = store.append(stream, super::record(value), None);
        ticket.unwrap().group
    };
    let first = group(b"hangs");
    scope(|scope| {
        let _opening = Opening(&gate);
        scope.spawn(|| store.wait(first));
        gate.wait_for(1);
        let behind = group(b"behind");
        let store = &store;
        let waiting =
            scope.spawn(move || store.wait_for(behind, Duration::from_millis(100)).unwrap());
        for _ in 0..2000 {
            store.wait_for(behind, Duration::from_millis(1)).unwrap();
            if waiting.is_finished() {
                break;
            }
        }
        assert!(waiting.is_finished());
        assert!(!waiting.join().unwrap());
    });
}

#[test]
fn a_side_file_that_cannot_be_removed_stops_nothing_and_goes_later() {
    let (memory, vfs) = faulty();
    let (store, _) = open_on(&vfs, 1).unwrap();
    let stream = create(&store, "a");
    let mut last = 0;
    for _ in 0..30 {
        last = append(&store, stream, &[7; 9000]).unwrap();
    }
    let sides = |memory: &MemoryVfs| {
        let names = memory.list(&Path::new(DIR).join("wal")).unwrap();
        let sides = names.iter().filter_map(|name| parse_side_name(name));
        sides.count() as u64
    };
    let all = sides(&memory);
    vfs.add(Rule::fail(OpKind::Remove, Fault::Io).on(".idx"));
    store.trim(stream, last).unwrap();
    assert!(all > 2 && sides(&memory) == all);
    assert_eq!(store.stats().side_files_left, all);
    append(&store, stream, b"on").unwrap();
    // An open after a kill meets the same.
    let image = FaultVfs::new(Arc::new(memory.snapshot()));
    image.add(Rule::fail(OpKind::Remove, Fault::Io).on(".idx"));
    let (other, _) = open_on(&image, 2).unwrap();
    assert_eq!(other.stats().side_files_left, all);
    vfs.clear();
    store.reclaim().unwrap();
    assert_eq!((sides(&memory), store.stats().side_files_left), (0, 0));
}
