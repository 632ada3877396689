//! A process without descriptors: what needs one is refused or waits, and nothing is failed for good.

use std::sync::Arc;
use std::time::Duration;

use super::driver::{kept, record};
use super::faults::{faulty, open_on};
use super::{append, contents, create, options};
use crate::error::{Error, Result};
use crate::limits::READERS_MAX;
use crate::vfs::{CrashPolicy, Fault, FaultVfs, MemoryVfs, OpKind, Rule, Vfs};
use crate::wal::{Options, Store, open};

/// What takes a descriptor.
const KINDS: [OpKind; 4] = [OpKind::Open, OpKind::Create, OpKind::SyncDir, OpKind::List];

/// How many calls in a row find none.
const TIMES: u64 = 3;

/// Try until there is a descriptor; any other error ends the test.
fn patiently<T>(context: &str, mut call: impl FnMut() -> Result<T>) -> T {
    for _ in 0..100 {
        match call() {
            Ok(value) => return value,
            Err(error) => assert!(error.is_exhausted(), "{context}: {error}"),
        }
    }
    panic!("{context}: refused for ever");
}

/// Open, append over several segments, trim, close, and all of it again.
fn run(vfs: &FaultVfs, context: &str) {
    let mut stream = None;
    for tags in [1..=20, 21..=40] {
        let store = patiently(context, || open_on(vfs, *tags.start())).0;
        let stream = *stream.get_or_insert_with(|| {
            let log = crate::wal::NewLog {
                id: 1,
                explicit_commit: false,
                created: 0,
                name: "a".into(),
                options: Vec::new(),
            };
            patiently(context, || store.create_log(log.clone()))
        });
        for tag in tags {
            let value = kept(tag, 9000);
            let ticket = patiently(context, || store.append(stream, record(&value), None));
            assert_eq!(ticket.llsn, tag, "{context}: a refused append was placed");
            store.wait(ticket.group).unwrap();
            if tag % 10 == 0 {
                patiently(context, || store.trim(stream, tag - 2));
            }
            let count = patiently(context, || contents(store.view(), stream)).len() as u64;
            assert_eq!(
                count,
                if tag < 10 { tag } else { tag % 10 + 3 },
                "{context}"
            );
        }
        if let Err(error) = store.close() {
            assert!(error.is_exhausted(), "{context}: {error}");
        }
    }
}

#[test]
fn a_lack_of_descriptors_at_any_point_fails_nothing_for_good() {
    for kind in KINDS {
        let mut met = 0;
        for n in 0.. {
            let (memory, vfs) = faulty();
            for more in 0..TIMES {
                vfs.add(Rule::fail(kind, Fault::NoDescriptor).after(n + more).once());
            }
            let context = format!("{kind:?} {n}");
            run(&vfs, &context);
            // After a crash, too.
            let trace = memory.trace();
            let image = trace.crash(trace.len(), CrashPolicy::DropUnsynced);
            let (store, _) =
                open(Arc::new(image) as Arc<dyn Vfs>, DIR.as_ref(), options()).unwrap();
            let found = contents(store.view(), 1).unwrap();
            assert_eq!(found.len(), 3, "{context}");
            if vfs.count(kind) <= n {
                break;
            }
            met += 1;
        }
        assert!(met > 0, "{kind:?} is never used");
    }
}

const DIR: &str = super::DIR;

fn lacking() -> (FaultVfs, Store, u32) {
    let (_, vfs) = faulty();
    let store = open_on(&vfs, 1).unwrap().0;
    let stream = create(&store, "a");
    append(&store, stream, b"before").unwrap();
    (vfs, store, stream)
}

/// Make the next group of a store one that begins a segment and finds no descriptor for it.
fn stall(vfs: &FaultVfs, store: &Store, stream: u32) -> u64 {
    // A free slot is there, so nothing refuses the append.
    store.provision(64 << 10).unwrap();
    for kind in [OpKind::Open, OpKind::Create] {
        vfs.add(Rule::fail(kind, Fault::NoDescriptor));
    }
    loop {
        let group = store
            .append(stream, record(&kept(1, 9000)), None)
            .unwrap()
            .group;
        if !store.wait_for(group, Duration::from_millis(50)).unwrap() {
            return group;
        }
    }
}

#[test]
fn a_group_that_found_no_descriptor_is_written_later_and_nothing_is_placed_behind_it() {
    let (vfs, store, stream) = lacking();
    let group = stall(&vfs, &store, stream);
    let next = store.next_llsn(stream).unwrap();
    let refused = store
        .append(stream, record(&kept(1, 10)), None)
        .unwrap_err();
    assert!(refused.is_exhausted(), "{refused}");
    assert_eq!(store.next_llsn(stream).unwrap(), next);
    assert!(
        store.would_wait(stream, 10),
        "nobody is let in without a wait"
    );
    vfs.clear();
    store.wait(group).unwrap();
    assert_eq!(append(&store, stream, b"after").unwrap(), next);
    store.close().unwrap();
}

#[test]
fn a_sync_thread_writes_it_without_anybody_who_waits() {
    let (vfs, store, stream) = lacking();
    let group = stall(&vfs, &store, stream);
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| store.sync_next(group - 1));
        vfs.clear();
        assert!(syncs.join().unwrap().unwrap() >= group);
    });
    store.close().unwrap();
}

#[test]
fn a_close_that_finds_no_descriptor_says_so_and_lets_go_of_the_directory() {
    let (vfs, store, stream) = lacking();
    stall(&vfs, &store, stream);
    let error = store.close().unwrap_err();
    assert!(error.is_exhausted(), "{error}");
    vfs.clear();
    let again = open_on(&vfs, 2).unwrap().0;
    append(&again, stream, b"after").unwrap();
}

#[test]
fn readers_keep_few_files_open() {
    let memory = MemoryVfs::new();
    let options = Options {
        wal_bytes_max: Some(16 << 20),
        recent_bytes_max: 0,
        ..options()
    };
    let (store, _) = open(Arc::new(memory) as Arc<dyn Vfs>, DIR.as_ref(), options).unwrap();
    let stream = create(&store, "a");
    for tag in 1..=800 {
        append(&store, stream, &kept(tag, 9000).value).unwrap();
    }
    let segments = store.view().segments();
    assert!(segments.len() > READERS_MAX + 10, "{}", segments.len());
    assert_eq!(contents(store.view(), stream).unwrap().len(), 800);
    let open = segments.iter().filter(|segment| segment.is_open()).count();
    assert!(open <= READERS_MAX, "{open}");
    assert!(!matches!(store.sync(), Err(Error::Failed { .. })));
}
