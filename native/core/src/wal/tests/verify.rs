//! A healthy directory has no findings, whatever was done to it; damage anywhere is found where it is.

use super::*;
use crate::wal::tools::inspect::{FrameRow, Frames, condition, edits, index, samples, segments};
use crate::wal::tools::verify::{Report, Severity, verify};
use crate::wal::{CHECKPOINT, CommitContext, Cursor, Follower, Options, ProducerId};

pub fn disk(vfs: &MemoryVfs) -> Arc<dyn Vfs> {
    Arc::new(vfs.clone())
}

fn check(vfs: &MemoryVfs) -> Report {
    verify(&disk(vfs), Path::new("/data"), &mut |_, _| true).unwrap()
}

/// The damage found, as text.
fn damage(vfs: &MemoryVfs) -> Vec<String> {
    let report = check(vfs);
    let found = report.damage();
    found
        .map(|f| format!("{} {:?}: {}", f.path.display(), f.offset, f.what))
        .collect()
}

/// A log with explicit commits.
pub fn create_explicit(store: &Store, name: &str) -> u32 {
    let log = NewLog {
        id: 77,
        explicit_commit: true,
        created: 5,
        name: name.into(),
        options: vec![1, 2, 3],
    };
    store.create_log(log).unwrap()
}

/// Trims, rollbacks, commits, epochs, producers, cursors, a cleaner that moves, and many segments.
pub fn busy(vfs: &MemoryVfs) -> Store {
    let (store, _) = open_at(vfs).unwrap();
    let (slow, fast) = (create(&store, "slow"), create(&store, "fast"));
    let sequenced = create_explicit(&store, "sequenced");
    let producer = ProducerId { id: 9, epoch: 1 };
    for i in 0..120u64 {
        store
            .append(slow, record(&i.to_le_bytes()), Some((producer, i + 1)))
            .unwrap();
        for _ in 0..4 {
            let llsn = append(&store, fast, &[i as u8; 4000]).unwrap();
            if llsn.is_multiple_of(10) {
                store.trim(fast, llsn - 3).unwrap();
            }
        }
        turn(&store, sequenced, i);
        if store.stats().segments > 6 {
            store.clean(3, 0.9).unwrap();
        }
        let cursor = Cursor {
            position: i + 1,
            pin: false,
            touched: 1,
            lease: 0,
        };
        store.set_cursor(slow, "reader", cursor).unwrap();
    }
    store.sync().unwrap();
    store
}

/// Three records, of which the last is rolled back in a new epoch and the others are committed.
fn turn(store: &Store, stream: u32, i: u64) {
    for _ in 0..3 {
        append(store, stream, &[7; 300]).unwrap();
    }
    let end = store.state().streams[&stream].next;
    let epoch = i / 10 + 1;
    store.rollback(stream, epoch, end - 1).unwrap();
    let context = CommitContext {
        version: i + 1,
        glsn_begin: 5 * i + 1,
        llsn_begin: end - 3,
        length: 2,
        high_watermark: 5 * i + 5,
    };
    store.commit(stream, epoch, context).unwrap();
    if i % 16 == 15 {
        store.trim(stream, end - 20).unwrap();
    }
}

#[test]
fn a_healthy_directory_has_no_findings() {
    let vfs = MemoryVfs::new();
    let store = busy(&vfs);
    let running = check(&vfs);
    assert_eq!(running.findings, [], "beside the writer");
    assert!(running.segments > 2 && running.records > 150, "{running:?}");
    drop(store);
    assert_eq!(check(&vfs).findings, [], "after a crash");
    let (store, _) = open_at(&vfs).unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(check(&vfs).findings, [], "after a close");
}

#[test]
fn an_empty_directory_is_not_a_node() {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new("/data")).unwrap();
    let result = verify(&disk(&vfs), Path::new("/data"), &mut |_, _| true);
    assert!(
        matches!(result, Err(crate::Error::NotFound { .. })),
        "{result:?}"
    );
}

#[test]
fn every_file_but_the_lock_is_missed() {
    let vfs = MemoryVfs::new();
    busy(&vfs).close().unwrap();
    let names = vfs.paths();
    for path in names.iter().filter(|path| !path.ends_with('/')) {
        let harmed = vfs.snapshot();
        harmed.remove(Path::new(path)).unwrap();
        let found = damage(&harmed);
        let spare = ["LOCK", "WATERMARK", "CHECKPOINT", "BALLAST"];
        let expected = !spare.iter().any(|name| path.ends_with(name));
        assert_eq!(!found.is_empty(), expected, "{path}: {found:?}");
    }
}

#[test]
fn a_free_slot_that_is_missing_or_short_costs_nothing() {
    let vfs = MemoryVfs::new();
    let store = busy(&vfs);
    store.ensure_slot().unwrap();
    store.close().unwrap();
    let rows = segments(&disk(&vfs), Path::new("/data")).unwrap();
    let free = rows.iter().find(|row| row.number.is_none()).unwrap();
    let (gone, short) = (vfs.snapshot(), vfs.snapshot());
    gone.remove(&free.path).unwrap();
    short.remove(&free.path).unwrap();
    short.create_zeroed(&free.path, 4096).unwrap();
    for harmed in [gone, short] {
        let found: Vec<_> = check(&harmed).damage().cloned().collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].severity, &found[0].path),
            (Severity::Degraded, &free.path)
        );
    }
}

#[test]
fn a_flipped_bit_is_found_at_its_place() {
    let vfs = MemoryVfs::new();
    busy(&vfs).close().unwrap();
    let dir = Path::new("/data");
    for row in segments(&disk(&vfs), dir).unwrap() {
        let Some(number) = row.number else { continue };
        for frame in Frames::open(&disk(&vfs), dir, number, None, 0)
            .unwrap()
            .step_by(7)
        {
            let padding = 8;
            for at in [frame.offset, frame.offset + frame.length - padding - 1] {
                let harmed = vfs.snapshot();
                harmed.flip_bit(&row.path, at, 3).unwrap();
                let found = check(&harmed).findings;
                let here = (&row.path, Some(frame.offset));
                assert!(
                    found.iter().any(|f| (&f.path, f.offset) == here),
                    "bit at {at} of {here:?} {found:?}"
                );
                let bad = Frames::open(&disk(&harmed), dir, number, None, 0).unwrap();
                let bad: Vec<_> = bad.filter(|row| row.problem.is_some()).collect();
                assert_eq!(bad.len(), 1, "{bad:?}");
                assert_eq!(bad[0].offset, frame.offset);
            }
        }
    }
}

/// Everything that readers see, read on and on, and record by record.
fn readable(vfs: &MemoryVfs) -> crate::Result<Vec<(u32, u64, Vec<u8>)>> {
    let follower = Follower::open(disk(vfs), Path::new("/data"), &Options::default())?;
    let (view, mut seen) = (follower.view(), Vec::new());
    for (number, stream) in view.streams() {
        let (range, mut position) = (stream.range(), crate::wal::Position::default());
        let mut next = range.first;
        while next < range.end {
            let found = view.read(&stream, next, range.end, 1 << 20, &mut position)?;
            for batch in &found {
                next = batch.next();
            }
        }
        for llsn in range.first..range.end {
            seen.push((number, llsn, view.get(&stream, llsn)?.value.unwrap()));
        }
    }
    Ok(seen)
}

#[test]
fn damage_is_of_dead_bytes_only_if_every_reader_comes_past_it() {
    let vfs = MemoryVfs::new();
    busy(&vfs).close().unwrap();
    let (dir, whole) = (Path::new("/data"), readable(&vfs).unwrap());
    let (mut dead, mut live) = (0, 0);
    for row in segments(&disk(&vfs), dir).unwrap() {
        let Some(number) = row.number else { continue };
        for frame in Frames::open(&disk(&vfs), dir, number, None, 0).unwrap() {
            let harmed = vfs.snapshot();
            harmed.flip_bit(&row.path, frame.offset + 3, 0).unwrap();
            let report = check(&harmed);
            if report.damage().next().is_some() {
                live += 1;
                continue;
            }
            assert!(report.findings[0].what.contains("dead bytes"));
            assert_eq!(readable(&harmed).unwrap(), whole, "{report:?}");
            dead += 1;
        }
    }
    assert!(dead > 20 && live > 200, "{dead} dead, {live} live");
}

#[test]
fn what_is_left_of_a_log_that_was_deleted_is_dead() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let kept = create(&store, "kept");
    append(&store, kept, b"first").unwrap();
    let gone = create(&store, "gone");
    let at = append(&store, gone, &[7; 3000]).unwrap();
    while store.stats().segments < 3 {
        append(&store, kept, &[1; 3000]).unwrap();
    }
    store.sync().unwrap();
    let rows = Frames::open(&disk(&vfs), Path::new("/data"), 1, Some("gone"), 0).unwrap();
    let mine = |row: &FrameRow| row.frame.as_ref().is_some_and(|f| f.header.llsn == at);
    let frame = rows.filter(mine).last().unwrap();
    let path = &segments(&disk(&vfs), Path::new("/data")).unwrap()[0].path;
    // Its records, not its header: readers of the other log step over it.
    let offset = frame.offset + 1000;
    let id = u128::from(crc32c::crc32c(b"gone")) + 1;
    let before = vfs.snapshot();
    before.flip_bit(path, offset, 0).unwrap();
    assert!(!damage(&before).is_empty());
    store.delete_log(id).unwrap();
    store.close().unwrap();
    vfs.flip_bit(path, offset, 0).unwrap();
    assert_eq!(damage(&vfs), [""; 0]);
    let notes = check(&vfs).findings;
    assert!(notes[0].what.contains("dead bytes"), "{notes:?}");
}

#[test]
fn damage_to_the_small_files_is_found() {
    let vfs = MemoryVfs::new();
    busy(&vfs).close().unwrap();
    let names = vfs.paths();
    // Damage to the close edit, the last one, cannot be told from a torn write.
    let closing = edits(&vfs, Path::new("/data")).unwrap();
    let closing = closing.rows.last().unwrap().offset;
    for path in names.iter().filter(|path| {
        ["IDENTITY", "CURRENT", "MANIFEST-", ".idx"]
            .iter()
            .any(|part| path.contains(part))
    }) {
        let len = vfs.read(Path::new(path), 1 << 20).unwrap().len() as u64;
        for at in (0..len).step_by(13) {
            let harmed = vfs.snapshot();
            harmed.flip_bit(Path::new(path), at, 0).unwrap();
            let report = check(&harmed);
            let worst = report.findings.iter().map(|f| f.severity).max();
            let expected = if path.contains(".idx") {
                Severity::Degraded
            } else if path.contains("MANIFEST") && at >= closing {
                Severity::Note
            } else {
                Severity::Corruption
            };
            assert_eq!(worst, Some(expected), "{path} at {at}");
        }
    }
}

#[test]
fn a_watermark_from_a_later_segment_shows_that_the_manifest_lost_edits() {
    let vfs = MemoryVfs::new();
    let store = busy(&vfs);
    store.close().unwrap();
    drop(store);
    let (mark, mut later) = (Path::new("/data/WATERMARK"), Vec::new());
    let known = crate::wal::Watermark::decode(&vfs.read(mark, 64).unwrap()).unwrap();
    later.extend(
        crate::wal::Watermark {
            segment: known.segment + 1,
            ..known
        }
        .encode(),
    );
    vfs.replace(mark, &later).unwrap();
    assert!(damage(&vfs)[0].contains("the watermark file shows that segment"));
}

#[test]
fn a_torn_tail_is_a_note_and_strangers_are_too() {
    let vfs = MemoryVfs::new();
    drop(busy(&vfs));
    let newest = segments(&disk(&vfs), Path::new("/data")).unwrap();
    let newest = newest.iter().rfind(|row| row.number.is_some()).unwrap();
    let frames = Frames::open(
        &disk(&vfs),
        Path::new("/data"),
        newest.number.unwrap(),
        None,
        0,
    );
    let last = frames.unwrap().last().unwrap();
    vfs.flip_bit(&newest.path, last.offset + 50, 1).unwrap();
    assert_eq!(damage(&vfs).len(), 1, "the watermark says it was durable");
    vfs.remove(Path::new("/data/WATERMARK")).unwrap();
    vfs.replace(Path::new("/data/notes.txt"), b"mine").unwrap();
    let report = check(&vfs);
    assert_eq!(report.damage().count(), 0, "{report:?}");
    assert_eq!(report.findings.len(), 3, "{report:?}");
    let seen = condition(&disk(&vfs), Path::new("/data")).unwrap();
    assert_eq!(seen.recovery, "torn tail");
    assert!(open_at(&vfs).unwrap().1.torn.is_some());
}

#[test]
fn a_directory_in_the_place_of_a_file_is_damage() {
    for name in ["LOCK", "WATERMARK", "CHECKPOINT"] {
        let vfs = MemoryVfs::new();
        drop(busy(&vfs));
        let path = Path::new("/data").join(name);
        if vfs.exists(&path).unwrap() {
            vfs.remove(&path).unwrap();
        }
        vfs.create_dir_all(&path).unwrap();
        let found = damage(&vfs);
        assert!(
            found
                .iter()
                .any(|what| what.contains("where a file belongs")),
            "{found:?}"
        );
        let report = check(&vfs);
        let here = report.findings.iter().filter(|f| f.path == path);
        assert_eq!(here.count(), 1, "one thing is said of it: {report:?}");
    }
}

#[test]
fn the_condition_tells_what_the_next_open_does() {
    let vfs = MemoryVfs::new();
    let store = busy(&vfs);
    let dir = Path::new("/data");
    let seen = condition(&disk(&vfs), dir).unwrap();
    assert_eq!((seen.recovery, seen.fault), ("in use", None));
    let state = store.state();
    store.close().unwrap();
    drop(store);
    let seen = condition(&disk(&vfs), dir).unwrap();
    assert_eq!((seen.recovery, seen.holder), ("clean", None));
    assert_eq!(seen.logs.len(), 3);
    for log in seen.logs {
        assert_eq!(log.stream, state.streams[&log.number]);
    }
    let newest = segments(&disk(&vfs), dir).unwrap();
    let newest = newest.iter().rfind(|row| row.number.is_some()).unwrap();
    // Behind which the open would not look.
    vfs.remove(&dir.join(CHECKPOINT)).unwrap();
    vfs.flip_bit(&newest.path, 4096 + 60, 0).unwrap();
    let seen = condition(&disk(&vfs), dir).unwrap();
    assert_eq!(seen.recovery, "corruption");
    assert!(
        seen.fault.unwrap().contains("at offset 4096"),
        "names the place"
    );
    assert!(open_at(&vfs).is_err());
}

#[test]
fn rows_agree_with_each_other() {
    let vfs = MemoryVfs::new();
    let store = busy(&vfs);
    let (vfs, dir) = (disk(&vfs), Path::new("/data"));
    let rows = segments(&vfs, dir).unwrap();
    let of_segments: u64 = rows.iter().map(|row| row.records).sum();
    let totals = index(&vfs, dir, None, None).unwrap();
    let of_index: u64 = totals
        .iter()
        .map(|row| row.range.end - row.range.first)
        .sum();
    assert_eq!(of_segments, of_index);
    let counted: u64 = totals.iter().map(|row| row.samples).sum();
    assert_eq!(
        counted,
        samples(&vfs, dir, None, None).unwrap().len() as u64
    );
    let one = index(&vfs, dir, None, Some("fast")).unwrap();
    assert!(
        one.iter()
            .all(|row| row.range.log.as_deref() == Some("fast"))
    );
    assert!(index(&vfs, dir, None, Some("nobody")).is_err());
    assert!(index(&vfs, dir, Some(9999), None).is_err());
    assert!(edits(&*vfs, dir).unwrap().rows.len() > 3);
    let newest = rows.iter().rev().find_map(|row| row.number).unwrap();
    let frames = Frames::open(&vfs, dir, newest, Some("slow"), 0).unwrap();
    let frames: Vec<_> = frames.collect();
    assert!(frames.iter().all(|row| row.problem.is_none()));
    let batch = frames.iter().find_map(|row| row.batch.clone()).unwrap();
    assert_eq!((batch.producer, batch.producer_epoch), (9, 1));
    let behind = frames.last().unwrap().offset + frames.last().unwrap().length;
    let none = Frames::open(&vfs, dir, newest, Some("slow"), behind as u32).unwrap();
    assert_eq!(none.count(), 0);
    drop(store);
}

/// What a crash leaves behind is not damage, and the condition is what the open then reports.
#[test]
fn after_any_crash_nothing_is_damaged_unless_the_open_refuses() {
    let vfs = MemoryVfs::new();
    busy(&vfs).close().unwrap();
    let trace = vfs.trace();
    let mut looked = 0;
    for (at, (cut, policy, image)) in trace.crashes(1).enumerate() {
        let named = image.exists(Path::new("/data/CURRENT")).unwrap();
        if at % 29 != 0 || !named {
            continue;
        }
        let report = check(&image);
        let seen = condition(&disk(&image), Path::new("/data")).unwrap();
        let (_, opened) = open_at(&image).unwrap();
        assert_eq!(report.damage().count(), 0, "{cut} {policy:?} {report:?}");
        assert_eq!(seen.recovery == "clean", opened.clean, "{cut} {policy:?}");
        looked += 1;
    }
    assert!(looked > 50, "{looked} crashes");
}

/// A flipped bit in the newest segment: the open refuses exactly where verification finds damage.
#[test]
fn verification_and_recovery_agree_on_the_newest_segment() {
    let vfs = MemoryVfs::new();
    drop(busy(&vfs));
    // With it the open looks behind it only.
    vfs.remove(&Path::new("/data").join(CHECKPOINT)).unwrap();
    let rows = segments(&disk(&vfs), Path::new("/data")).unwrap();
    let newest = rows.iter().rfind(|row| row.number.is_some()).unwrap();
    for at in (0..newest.end).step_by(173) {
        for with_mark in [true, false] {
            let harmed = vfs.snapshot();
            harmed.flip_bit(&newest.path, at, 2).unwrap();
            if !with_mark {
                harmed.remove(Path::new("/data/WATERMARK")).unwrap();
            }
            let found = damage(&harmed);
            let opened = open_at(&harmed).map(|(_, report)| report);
            assert_eq!(
                found.is_empty(),
                opened.is_ok(),
                "{at} {found:?} {opened:?}"
            );
        }
    }
}
