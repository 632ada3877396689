//! A follower of a damaged log: it refuses what a writer refuses, and does not go on behind it.

use super::*;
use crate::error::Error;
use crate::vfs::{Access, FaultVfs, Gate, OpKind, Rule};
use crate::wal::format::frame::{FRAME_HEADER, Kind, seal};
use crate::wal::{FIRST_FRAME, Follower, Walk, open_tables};

const DIR: &str = "/data";

/// The bytes of the frame with the second batch, and its place in the newest segment.
fn second_batch(vfs: &MemoryVfs) -> (std::path::PathBuf, u64, Vec<u8>, Vec<u8>) {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let (_, _, segments) = open_tables(&shared, Path::new(DIR)).unwrap();
    let segment = segments.last().unwrap();
    let file = segment.reader(vfs).unwrap();
    let mut walk = Walk::new(
        Arc::clone(&file),
        segment.seed,
        FIRST_FRAME,
        0,
        segment.bytes,
    );
    loop {
        let frame = walk.next_frame().unwrap().unwrap();
        if frame.header.kind != Kind::Batch || frame.header.llsn != 2 {
            continue;
        }
        let mut good = vec![0; frame.length as usize];
        file.read_exact_at(&mut good, frame.offset.into()).unwrap();
        // A frame like it that does not apply: its checksum is right, its LLSN is not the next.
        let mut bad = good.clone();
        let mut header = frame.header;
        header.llsn += 5;
        let (payload, head) = (frame.payload as usize, frame.head as usize);
        assert!(bad.len() >= FRAME_HEADER + payload);
        seal(&mut bad, &header, segment.seed, frame.offset, payload, head);
        return (segment.path().to_owned(), frame.offset.into(), good, bad);
    }
}

#[test]
fn a_frame_that_does_not_apply_is_never_skipped() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    append(&store, stream, b"one").unwrap();
    let follow = || Follower::open(Arc::new(vfs.clone()), Path::new(DIR), &options());
    let mut follower = follow().unwrap();
    for value in [b"two", b"three".as_slice()] {
        append(&store, stream, value).unwrap();
    }
    let all = contents(store.view(), stream).unwrap();
    drop(store);
    let (path, offset, good, bad) = second_batch(&vfs);
    let write = |bytes: &[u8]| {
        let file = vfs.open(&path, Access::Write).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    };
    write(&bad);
    let refused = |error: Option<Error>| {
        let text = error.unwrap().to_string();
        assert!(text.contains("does not apply"), "{text}");
    };
    refused(follow().err());
    for _ in 0..3 {
        refused(follower.refresh().err());
    }
    refused(open_at(&vfs).err());
    write(&good);
    follower.refresh().unwrap();
    assert_eq!(contents(follower.view(), stream).unwrap(), all);
}

#[test]
fn what_is_not_committed_is_read_whole_under_a_lock_of_ones_own() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    append(&store, stream, b"one").unwrap();
    append(&store, stream, b"two").unwrap();
    let written = store.read_encoded(stream, 1, 3, 1 << 20).unwrap();
    drop(store);
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let _held = shared.lock(&Path::new(DIR).join("LOCK"), "a test").unwrap();
    let follower = Follower::open_locked(shared, Path::new(DIR), &options()).unwrap();
    let read = |begin| follower.read_encoded(stream, begin, 9, 1 << 20);
    assert_eq!(read(1).unwrap(), written);
    assert_eq!(read(2).unwrap(), written[1..]);
    assert!(read(3).unwrap().is_empty());
    assert!(matches!(read(4), Err(Error::BeyondEnd { next: 3, .. })));
    assert!(matches!(read(0), Err(Error::Trimmed { first: 1, .. })));
}

#[test]
fn what_is_shown_without_a_writer_was_synced_after_it_was_read() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    append(&store, stream, b"one").unwrap();
    drop(store);
    let fault = FaultVfs::new(Arc::new(vfs.clone()));
    let gate = Gate::new();
    fault.add(Rule::hang(OpKind::Sync, &gate).once());
    let shown = std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let shared: Arc<dyn Vfs> = Arc::new(fault.clone());
            Follower::open(shared, Path::new(DIR), &options()).unwrap()
        });
        gate.wait_for(1);
        // A writer that begins meanwhile: what it writes from here on this sync may not cover.
        let (store, _) = open_at(&vfs).unwrap();
        append(&store, stream, b"two").unwrap();
        gate.open();
        let follower = opening.join().unwrap();
        contents(follower.view(), stream).unwrap().len()
    });
    assert_eq!(shown, 1);
}

#[test]
fn a_follower_names_what_is_missing_as_a_writer_does() {
    let vfs = MemoryVfs::new();
    let follow = || Follower::open(Arc::new(vfs.clone()), Path::new(DIR), &options()).map(|_| ());
    assert!(matches!(follow(), Err(Error::NotFound { .. })));
    drop(open_at(&vfs).unwrap());
    vfs.remove(&Path::new(DIR).join("IDENTITY")).unwrap();
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let raw = open_tables(&shared, Path::new(DIR)).map(|_| ());
    for refused in [follow(), raw, open_at(&vfs).map(|_| ())] {
        assert!(
            matches!(&refused, Err(Error::Missing { path, .. }) if path.ends_with("IDENTITY")),
            "{refused:?}"
        );
    }
}
