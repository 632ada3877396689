//! A pass over old segments finds what readers would, and changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::error::Error;
use crate::vfs::{Access, Fault, FaultVfs, OpKind, Rule};
use crate::wal::{FIRST_FRAME, ScrubPlace, Scrubbed, Segment};

/// What a whole pass sees, `bytes_max` at a time.
fn pass(store: &Store, bytes_max: u32) -> Vec<Scrubbed> {
    let (mut place, mut seen) = (ScrubPlace::default(), Vec::new());
    while let Some(scrubbed) = store.scrub(place, u64::MAX, bytes_max).unwrap() {
        assert_ne!(scrubbed.next, place);
        place = scrubbed.next;
        seen.push(scrubbed);
    }
    seen
}

fn damages(seen: &[Scrubbed]) -> Vec<(PathBuf, BTreeMap<u32, u64>)> {
    let found = seen.iter().filter_map(|scrubbed| scrubbed.damage.clone());
    found.map(|damage| (damage.path, damage.lost)).collect()
}

/// Three streams over several segments: one is trimmed, one is rare, one was deleted.
fn filled(vfs: &MemoryVfs) -> (Store, [u32; 2]) {
    let (store, _) = open_at(vfs).unwrap();
    let (often, rare) = (create(&store, "often"), create(&store, "rare"));
    let gone = create(&store, "gone");
    for i in 0..90_u32 {
        append(&store, often, &[i as u8; 3000]).unwrap();
        if i % 9 == 0 {
            append(&store, rare, &[i as u8; 700]).unwrap();
            append(&store, gone, &[i as u8; 700]).unwrap();
        }
    }
    store.trim(often, 30).unwrap();
    let id = u128::from(crc32c::crc32c(b"gone")) + 1;
    store.delete_log(id).unwrap();
    (store, [often, rare])
}

fn sealed(store: &Store) -> Vec<Arc<Segment>> {
    let segments = store.view().segments();
    let sealed = segments.iter().filter(|each| each.sealed().is_some());
    sealed.cloned().collect()
}

/// Streams of which reading meets damage, and the first record that it meets it at.
fn unreadable(store: &Store, streams: [u32; 2]) -> BTreeMap<u32, u64> {
    let mut found = BTreeMap::new();
    for number in streams {
        let stream = store.view().stream(number).unwrap();
        let range = stream.range();
        let broken = (range.first..range.end).find(|llsn| {
            let read = store.view().read_stored(&stream, *llsn);
            matches!(read, Err(Error::Corruption { .. }))
        });
        found.extend(broken.map(|llsn| (number, llsn)));
    }
    found
}

#[test]
fn a_pass_sees_every_byte_of_sealed_segments_once() {
    let vfs = MemoryVfs::new();
    let (store, _) = filled(&vfs);
    let bytes: u64 = sealed(&store)
        .iter()
        .map(|each| u64::from(each.sealed().unwrap().end - FIRST_FRAME))
        .sum();
    assert!(sealed(&store).len() >= 4);
    for bytes_max in [1, 5000, 1 << 20] {
        let seen = pass(&store, bytes_max);
        assert_eq!(damages(&seen), [], "{bytes_max}");
        assert_eq!(seen.iter().map(|each| each.bytes).sum::<u64>(), bytes);
        // A frame more than what was asked for, at most.
        let most = u64::from(bytes_max) + 8192;
        assert!(seen.iter().all(|each| each.bytes <= most), "{bytes_max}");
    }
    let segments = sealed(&store);
    assert_eq!(pass(&store, 1 << 20).len(), segments.len());
    let below = |before| store.scrub(ScrubPlace::default(), before, 1).unwrap();
    assert!(below(segments[0].number).is_none() && below(segments[1].number).is_some());
}

/// One bit anywhere: whoever cannot be read is named, and nobody else.
#[test]
fn a_flipped_bit_is_found_and_costs_what_readers_miss() {
    let (mut hits, mut harmless) = (0, 0);
    for step in 0..230_u64 {
        let vfs = MemoryVfs::new();
        let (store, streams) = filled(&vfs);
        let segments = sealed(&store);
        let segment = &segments[(step % segments.len() as u64) as usize];
        let end = u64::from(segment.sealed().unwrap().end - FIRST_FRAME);
        let offset = u64::from(FIRST_FRAME) + step * 7919 % end;
        let before = vfs.read(segment.path(), 1 << 20).unwrap();
        vfs.flip_bit(segment.path(), offset, (step % 8) as u8)
            .unwrap();
        let damaged = vfs.read(segment.path(), 1 << 20).unwrap();
        assert_ne!(before, damaged);

        let expected = unreadable(&store, streams);
        let found = damages(&pass(&store, 9000));
        assert_eq!(vfs.read(segment.path(), 1 << 20).unwrap(), damaged);
        match found.as_slice() {
            // The padding between two groups says nothing.
            [] => assert_eq!(expected, BTreeMap::new(), "{step}"),
            [(path, lost)] => {
                assert_eq!(path, segment.path());
                assert_eq!(*lost, expected, "{step} at {offset}");
                hits += usize::from(!lost.is_empty());
                harmless += usize::from(lost.is_empty());
            }
            more => panic!("{step}: {more:?}"),
        }
    }
    assert!(hits > 60 && harmless > 20, "{hits} {harmless}");
}

#[test]
fn several_damaged_segments_are_each_told_of() {
    let vfs = MemoryVfs::new();
    let (store, streams) = filled(&vfs);
    let segments = sealed(&store);
    let (whole, cut) = (&segments[2], &segments[3]);
    let noise = vec![0xa5; 40_000];
    let file = vfs.open(whole.path(), Access::Write).unwrap();
    file.write_all_at(&noise, FIRST_FRAME.into()).unwrap();
    vfs.flip_bit(cut.path(), 30_000, 3).unwrap();
    let found = damages(&pass(&store, 1 << 20));
    let paths: Vec<_> = found.iter().map(|(path, _)| path.as_path()).collect();
    assert_eq!(paths, [whole.path(), cut.path()]);
    assert_eq!(found[0].1, unreadable(&store, streams));
}

#[test]
fn what_the_device_cannot_read_is_lost_and_other_errors_are_not() {
    for (fault, is_damage) in [(Fault::Io, true), (Fault::Denied, false)] {
        let vfs = MemoryVfs::new();
        drop(filled(&vfs));
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let (store, _) = open(Arc::new(faults.clone()), Path::new(DIR), options()).unwrap();
        let streams = store.view().streams();
        let segment = Arc::clone(&sealed(&store)[2]);
        segment.reader(&faults).unwrap();
        for stream in streams.values() {
            store.view().extents(stream).unwrap();
        }
        let name = segment.path().file_name().unwrap().to_str().unwrap();
        faults.add(Rule::fail(OpKind::Read, fault).on(name));
        let at = ScrubPlace {
            segment: segment.number,
            ..ScrubPlace::default()
        };
        let stream = store.view().stream(1).unwrap();
        let read = store.view().read_stored(&stream, 40);
        match (store.scrub(at, u64::MAX, 1 << 20), is_damage) {
            (Ok(Some(scrubbed)), true) => {
                let damage = scrubbed.damage.unwrap();
                assert!(
                    damage.reason.contains("cannot be read"),
                    "{}",
                    damage.reason
                );
                assert!(damage.lost.contains_key(&1), "{damage:?}");
                assert!(matches!(read, Err(Error::Corruption { .. })));
            }
            (Err(Error::Io { .. }), false) => {
                assert!(matches!(read, Err(Error::Io { .. })));
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

/// While a pass goes on, segments are recycled and the store fails or is closed.
#[test]
fn a_pass_goes_on_behind_segments_that_are_gone() {
    let vfs = MemoryVfs::new();
    let (store, [often, rare]) = filled(&vfs);
    let first = store
        .scrub(ScrubPlace::default(), u64::MAX, 4096)
        .unwrap()
        .unwrap();
    assert_eq!(first.next.segment, 1);
    store.trim(often, 91).unwrap();
    store.trim(rare, 11).unwrap();
    store.reclaim().unwrap();
    let oldest = sealed(&store).first().map(|each| each.number);
    let next = store.scrub(first.next, u64::MAX, 4096).unwrap();
    assert_eq!(next.map(|seen| seen.next.segment), oldest);
    assert!(oldest.is_none_or(|number| number > 3));
    store.close().unwrap();
    assert!(store.scrub(ScrubPlace::default(), u64::MAX, 4096).is_err());
}
