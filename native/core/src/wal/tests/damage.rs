//! Reading segments that are not what the manifest says.

use super::*;
use crate::error::Error;
use crate::vfs::Access;
use crate::wal::read::batches::BatchRef;
use crate::wal::read::view::{View, new_pool};
use crate::wal::{
    FIRST_FRAME, FRAME_HEADER, Kind, Range, Sealed, Segment, Walk, open_tables, seal_frame,
    side_path,
};

/// A log of several segments, closed; its first segment and the LLSN behind the last one in it.
fn sealed(vfs: &MemoryVfs) -> (u32, Arc<Segment>, u64) {
    let (store, _) = open_at(vfs).unwrap();
    let stream = create(&store, "a");
    for _ in 0..30 {
        append(&store, stream, &[7; 5000]).unwrap();
    }
    store.close().unwrap();
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let (_, _, segments) = open_tables(&shared, Path::new("/data")).unwrap();
    let first = Arc::clone(&segments[0]);
    let index = first.rebuild(vfs).unwrap();
    let end = index.stream(stream, 0).unwrap().range().unwrap().end;
    (stream, first, end)
}

#[test]
fn a_frame_that_runs_past_the_sealed_end_is_corruption() {
    let vfs = MemoryVfs::new();
    let (stream, whole, end) = sealed(&vfs);
    // The manifest says that the segment ends inside its last frame.
    let sealed = whole.sealed().unwrap();
    let short = Segment::unloaded(whole.number, whole.seed.salt, whole.bytes);
    short.set_slot(Path::new("/data"), whole.slot().unwrap());
    short.set_sealed(Sealed {
        end: sealed.end - 8,
        ..sealed
    });
    short.set_index(whole.rebuild(&vfs).unwrap());
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let view = View::new(shared, "/data".into(), new_pool(), 0, 1 << 20, 1 << 20);
    view.set_segments(vec![Arc::new(short)]);
    let range = Range {
        first: 1,
        end,
        durable: end,
        epoch: 0,
    };
    view.publish(stream, range);
    let error = contents(&view, stream).unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    let stream = view.stream(stream).unwrap();
    assert!(view.get(&stream, end - 2).is_ok());
    let error = view.get(&stream, end - 1).unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
}

#[test]
fn a_frame_that_cannot_be_indexed_is_corruption_with_its_place() {
    let vfs = MemoryVfs::new();
    let (number, segment, _) = sealed(&vfs);
    let file = segment.reader(&vfs).unwrap();
    let mut walk = Walk::new(file, segment.seed, FIRST_FRAME, 0, segment.bytes);
    let second = loop {
        let frame = walk.next_frame().unwrap().unwrap();
        if frame.header.kind == Kind::Batch && frame.header.llsn == 2 {
            break frame;
        }
    };
    // Its checksum is right, its LLSN is not the next.
    let mut header = second.header;
    header.llsn += 5;
    let payload = walk.payload(&second).unwrap().to_vec();
    let mut bytes = vec![0; second.length as usize];
    bytes[FRAME_HEADER..FRAME_HEADER + payload.len()].copy_from_slice(&payload);
    let head = second.head as usize;
    seal_frame(
        &mut bytes,
        &header,
        segment.seed,
        second.offset,
        payload.len(),
        head,
    );
    let file = vfs.open(segment.path(), Access::Write).unwrap();
    file.write_all_at(&bytes, second.offset.into()).unwrap();
    vfs.remove(&side_path(Path::new("/data"), segment.number))
        .unwrap();
    let error = segment.rebuild(&vfs).unwrap_err();
    let place = u64::from(second.offset);
    assert!(
        matches!(&error, Error::Corruption { offset, .. } if *offset == place),
        "{error}"
    );
    let error = open_at(&vfs)
        .and_then(|(store, _)| contents(store.view(), number))
        .unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
}

/// Of a segment without its side file a damaged frame hides what is behind it. That is never taken for the end, and
/// what other segments hold is read, found by time and let go as ever.
#[test]
fn an_index_that_cannot_be_made_again_hides_its_segment_and_no_other() {
    for head in [false, true] {
        let vfs = MemoryVfs::new();
        let (number, first, end) = sealed(&vfs);
        let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let (.., segments) = open_tables(&shared, Path::new("/data")).unwrap();
        let second = &segments[1];
        let behind = second.rebuild(&vfs).unwrap();
        let behind = behind.stream(number, 0).unwrap().range().unwrap().end;
        vfs.remove(&side_path(Path::new("/data"), second.number))
            .unwrap();
        let at = if head { FIRST_FRAME + 9 } else { 30_000 };
        let mut bytes = vfs.read(second.path(), 1 << 20).unwrap();
        bytes[at as usize..][..8192].fill(0xa5);
        let file = vfs.open(second.path(), Access::Write).unwrap();
        file.write_all_at(&bytes, 0).unwrap();

        let (store, _) = open_at(&vfs).unwrap();
        let other = create(&store, "other");
        append(&store, other, b"fine").unwrap();
        assert_eq!(contents(store.view(), other).unwrap().len(), 1);
        let stream = store.view().stream(number).unwrap();
        let mut refused = 0;
        for llsn in 1..stream.range().end {
            match store.view().get(&stream, llsn) {
                Ok(record) => assert_eq!(record.value.unwrap(), [7; 5000], "{llsn}"),
                Err(Error::Corruption { path, .. }) => {
                    assert_eq!(path, second.path());
                    let hidden = if head { 1 } else { end };
                    assert!((hidden..behind).contains(&llsn), "{llsn}");
                    refused += 1;
                }
                Err(error) => panic!("{llsn}: {error}"),
            }
        }
        assert_eq!(refused, behind - if head { 1 } else { end });
        let error = contents(store.view(), number).unwrap_err();
        assert!(matches!(error, Error::Corruption { .. }), "{error}");
        // The cleaner could not tell what is replaced in there.
        let cleaned = store.clean(1, 1.0).unwrap_err();
        assert!(matches!(cleaned, Error::Corruption { .. }), "{cleaned}");
        let segments = store.view().segments();
        assert_eq!(segments[0].number, first.number);
        store.trim(number, behind).unwrap();
        let left = store.view().segments();
        assert!(left.iter().all(|segment| segment.number != first.number));
        assert_eq!(
            contents(store.view(), number).unwrap().len() as u64,
            31 - behind
        );
    }
}

/// A step back begins before what it returns, so it meets damage that no reader asked for yet.
#[test]
fn what_is_behind_damage_is_read_backwards_first() {
    let vfs = MemoryVfs::new();
    let (number, segment, _) = sealed(&vfs);
    let (store, _) = open_at(&vfs).unwrap();
    let view = store.view();
    let stream = view.stream(number).unwrap();
    let found = view
        .read(&stream, 5, 6, 1, &mut Position::default())
        .unwrap();
    let (path, offset) = found[0].place().unwrap();
    assert_eq!(path, segment.path());
    let file = vfs.open(path, Access::Write).unwrap();
    file.write_all_at(&[0xff; 8], u64::from(offset) + 400)
        .unwrap();
    let mut next = stream.range().end;
    let error = loop {
        match view.read_back(&stream, 1, next, 1 << 20) {
            Ok(step) => {
                assert_eq!(step.last().map(BatchRef::next), Some(next));
                next = step[0].first();
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert_eq!(next, found[0].next(), "and no later");
}

#[test]
fn a_read_of_no_bytes_still_gives_a_batch() {
    let vfs = MemoryVfs::new();
    let (store, _) = open(
        Arc::new(vfs.clone()),
        Path::new("/data"),
        Options {
            recent_bytes_max: 0,
            ..options()
        },
    )
    .unwrap();
    let number = create(&store, "a");
    append(&store, number, &vec![7; 50_000]).unwrap_err();
    append(&store, number, &[7; 12_000]).unwrap();
    let stream = store.view().stream(number).unwrap();
    let mut position = Position::default();
    let batches = store.view().read(&stream, 1, 2, 0, &mut position).unwrap();
    assert_eq!(batches.len(), 1);
}

#[test]
fn a_header_that_wants_more_than_there_is_ends_a_read() {
    let vfs = MemoryVfs::new();
    let (number, segment, _) = sealed(&vfs);
    let index = segment.rebuild(&vfs).unwrap();
    let first = index.stream(number, 0).unwrap().first().unwrap();
    let file = vfs.open(segment.path(), Access::Write).unwrap();
    // Length and checked bytes of a frame that could only stand in a larger segment.
    for (at, value) in [(0, 1u32 << 20), (12, 1 << 19)] {
        let offset = u64::from(first.offset) + at;
        file.write_all_at(&value.to_le_bytes(), offset).unwrap();
    }
    let (store, _) = open_at(&vfs).unwrap();
    let stream = store.view().stream(number).unwrap();
    let mut position = Position::default();
    let error = store
        .view()
        .read(&stream, 1, 2, 4096, &mut position)
        .err()
        .unwrap();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
}

/// The heads of side files have a checksum of their own.
#[test]
fn an_open_reads_no_more_of_a_side_file_than_its_head() {
    let vfs = MemoryVfs::new();
    let (stream, first, _) = sealed(&vfs);
    let path = side_path(Path::new("/data"), first.number);
    let file = vfs.open(&path, Access::Write).unwrap();
    let last = file.len().unwrap() - 1;
    file.write_all_at(&[0xa5], last).unwrap();
    // Behind a close in good order it reads nothing of them.
    let (store, _) = open_at(&vfs).unwrap();
    append(&store, stream, &[7; 10]).unwrap();
    drop(store);
    let (store, _) = open_at(&vfs).unwrap();
    let segments = store.view().segments();
    assert!(
        segments[..2]
            .iter()
            .all(|sealed| sealed.index_memory() == 0)
    );
    // The rest is noticed when it is needed.
    assert_eq!(contents(store.view(), stream).unwrap().len(), 31);
}
