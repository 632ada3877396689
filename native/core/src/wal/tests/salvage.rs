//! Salvage keeps exactly what survived, where it was.

use super::verify::{busy, disk};
use super::*;
use crate::wal::tools::inspect::{Frames, SALVAGED, condition, segments};
use crate::wal::tools::salvage::{Keep, Options as How, Plan, salvage};
use crate::wal::tools::verify::verify;
use crate::wal::{CommitContext, Kind, State};

pub(super) const COPY: &str = "/copy";

pub(super) fn rescue(vfs: &MemoryVfs, keep: Keep) -> Result<Plan> {
    let how = How {
        keep,
        entropy: 99,
        ..How::default()
    };
    let (from, to) = (Path::new("/data"), Path::new(COPY));
    let note = |_: &Plan| Ok(b"{}".to_vec());
    salvage(&disk(vfs), from, to, &how, &note, &mut |_, _| true).map(|done| done.plan)
}

pub(super) fn open_copy(vfs: &MemoryVfs) -> Store {
    open(disk(vfs), Path::new(COPY), options()).unwrap().0
}

/// The parts of a state that salvage keeps.
fn kept(state: &State) -> State {
    let mut state = state.clone();
    for stream in state.streams.values_mut() {
        stream.epochs.retain(|(_, first)| *first > stream.low);
    }
    state
}

fn path_of(vfs: &MemoryVfs, segment: u64) -> std::path::PathBuf {
    let rows = segments(&disk(vfs), Path::new("/data")).unwrap();
    let found = rows.iter().find(|row| row.number == Some(segment));
    found.unwrap().path.clone()
}

/// The batch frames of a log, with their segments.
fn batches(vfs: &MemoryVfs, log: &str) -> Vec<(u64, crate::wal::Frame)> {
    let mut found = Vec::new();
    for row in segments(&disk(vfs), Path::new("/data")).unwrap() {
        let Some(number) = row.number else { continue };
        let frames = Frames::open(&disk(vfs), Path::new("/data"), number, Some(log), 0).unwrap();
        let frames = frames.filter_map(|row| row.frame);
        found.extend(
            frames
                .filter(|frame| frame.header.kind == Kind::Batch)
                .map(|frame| (number, frame)),
        );
    }
    found
}

#[test]
fn a_healthy_directory_is_copied_without_loss() {
    let vfs = MemoryVfs::new();
    let store = busy(&vfs);
    let state = store.state();
    let before: Vec<_> = (1..=3)
        .map(|stream| contents(store.view(), stream).unwrap())
        .collect();
    store.close().unwrap();
    drop(store);
    let plan = rescue(&vfs, Keep::Most).unwrap();
    assert_eq!((plan.losses, plan.guesses), (vec![], vec![]));
    let copy = open_copy(&vfs);
    assert_eq!(kept(&copy.state()), kept(&state));
    for (stream, before) in (1..=3).zip(before) {
        assert_eq!(contents(copy.view(), stream).unwrap(), before);
    }
    assert_eq!(append(&copy, 1, b"next").unwrap(), state.streams[&1].next);
    let seen = condition(&disk(&vfs), Path::new(COPY)).unwrap();
    assert_eq!(seen.salvaged.as_deref(), Some("{}"));
    assert!(vfs.exists(&Path::new(COPY).join(SALVAGED)).unwrap());
}

#[test]
fn without_identity_and_manifest_nothing_is_lost_but_names_of_files() {
    let vfs = MemoryVfs::new();
    let store = busy(&vfs);
    let (state, before) = (store.state(), contents(store.view(), 1).unwrap());
    drop(store);
    for path in vfs.paths() {
        let gone = ["IDENTITY", "CURRENT", "MANIFEST", "WATERMARK"];
        if gone.iter().any(|name| path.contains(name)) {
            vfs.remove(Path::new(&path)).unwrap();
        }
    }
    let plan = rescue(&vfs, Keep::Most).unwrap();
    assert_eq!(plan.losses, []);
    assert!(!plan.guesses.is_empty());
    let copy = open_copy(&vfs);
    assert_eq!(kept(&copy.state()), kept(&state));
    assert_eq!(contents(copy.view(), 1).unwrap(), before);
}

type Records = Vec<(u64, Vec<u8>)>;

/// A directory at [`COPY`] whose log "a" lacks position 30, as a declared hole.
pub(super) fn repaired(vfs: &MemoryVfs) {
    plain(vfs);
    let (segment, frame) = batches(vfs, "a")[29];
    let offset = u64::from(frame.offset) + 2000;
    vfs.flip_bit(&path_of(vfs, segment), offset, 1).unwrap();
    rescue(vfs, Keep::All).unwrap();
}

/// Many records of two logs, nothing trimmed.
fn plain(vfs: &MemoryVfs) -> (Records, Records) {
    let (store, _) = open_at(vfs).unwrap();
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    for i in 0..100u8 {
        append(&store, a, &[i; 3000]).unwrap();
        append(&store, b, &[i; 100]).unwrap();
    }
    let all = (
        contents(store.view(), a).unwrap(),
        contents(store.view(), b).unwrap(),
    );
    store.close().unwrap();
    all
}

#[test]
fn a_hole_leaves_the_side_that_was_chosen() {
    for (keep, at, expected) in [
        (Keep::Most, 30, 31..101),
        (Keep::Most, 70, 1..70),
        (Keep::Newest, 70, 71..101),
        (Keep::Oldest, 30, 1..30),
    ] {
        let vfs = MemoryVfs::new();
        let (a, b) = plain(&vfs);
        let (segment, frame) = batches(&vfs, "a")[at - 1];
        let path = path_of(&vfs, segment);
        vfs.flip_bit(&path, u64::from(frame.offset) + 2000, 1)
            .unwrap();
        let plan = rescue(&vfs, keep).unwrap();
        let log = plan.logs.iter().find(|log| log.name == "a").unwrap();
        assert_eq!(log.kept, expected, "{keep:?}");
        let lost: u64 = plan.losses.iter().map(|loss| loss.records).sum();
        assert_eq!(lost, 100 - (expected.end - expected.start));
        let copy = open_copy(&vfs);
        let survivors: Vec<_> = a
            .into_iter()
            .filter(|(llsn, _)| expected.contains(llsn))
            .collect();
        assert_eq!(contents(copy.view(), 1).unwrap(), survivors);
        assert_eq!(contents(copy.view(), 2).unwrap(), b);
        assert_eq!(append(&copy, 1, b"next").unwrap(), expected.end);
    }
}

/// Position and value of a record.
type Found = (u64, Vec<u8>);

/// What can be read of a stream, and where nothing can.
fn with_holes(store: &Store, stream: u32) -> (Vec<Found>, Vec<(u64, u64)>) {
    let (view, mut found, mut holes) = (store.view(), Vec::new(), Vec::new());
    let stream = view.stream(stream).unwrap();
    let range = stream.range();
    for llsn in range.first..range.end {
        match view.get(&stream, llsn) {
            Ok(record) => found.push((llsn, record.value.unwrap())),
            Err(crate::Error::Lost { first, end }) if (first..end).contains(&llsn) => {
                if holes.last() != Some(&(first, end)) {
                    holes.push((first, end));
                }
            }
            Err(error) => panic!("{llsn}: {error}"),
        }
    }
    (found, holes)
}

#[test]
fn both_sides_of_a_hole_are_kept_and_the_hole_is_declared() {
    for at in [1, 30, 100] {
        let vfs = MemoryVfs::new();
        let (a, b) = plain(&vfs);
        let (segment, frame) = batches(&vfs, "a")[at - 1];
        let path = path_of(&vfs, segment);
        vfs.flip_bit(&path, u64::from(frame.offset) + 2000, 1)
            .unwrap();
        let plan = rescue(&vfs, Keep::All).unwrap();
        let log = plan.logs.iter().find(|log| log.name == "a").unwrap();
        let lost = at as u64..at as u64 + 1;
        // Nobody can be reading before the first record that is left.
        let hole = (at > 1).then(|| lost.clone());
        assert_eq!(log.kept, if at == 1 { 2..101 } else { 1..101 });
        assert_eq!(log.holes, hole.iter().cloned().collect::<Vec<_>>());
        assert_eq!(plan.losses.len(), 1);
        let survivors: Vec<_> = a.into_iter().filter(|(n, _)| !lost.contains(n)).collect();
        let holes: Vec<_> = hole.iter().map(|hole| (hole.start, hole.end)).collect();
        let identity = vfs.read(&Path::new(COPY).join("IDENTITY"), 64).unwrap();
        assert_eq!(identity[4], if hole.is_some() { 2 } else { 1 });
        for _ in 0..2 {
            let copy = open_copy(&vfs);
            assert_eq!(with_holes(&copy, 1), (survivors.clone(), holes.clone()));
            assert_eq!(contents(copy.view(), 2).unwrap(), b);
            copy.close().unwrap();
        }
        let report = verify(&disk(&vfs), Path::new(COPY), &mut |_, _| true).unwrap();
        let declared = report.findings.iter().filter(|f| f.what.contains("hole"));
        assert_eq!(declared.count(), holes.len(), "{report:?}");
        assert_eq!(report.damage().count(), 0);
        // A position is never given to another record.
        assert_eq!(append(&open_copy(&vfs), 1, b"next").unwrap(), 101);
    }
}

#[test]
fn a_declared_hole_survives_the_cleaner_another_repair_and_more_damage() {
    let vfs = MemoryVfs::new();
    let (a, _) = plain(&vfs);
    let frames = batches(&vfs, "a");
    for at in [20, 21, 60] {
        let (segment, frame) = frames[at - 1];
        let path = path_of(&vfs, segment);
        vfs.flip_bit(&path, u64::from(frame.offset) + 2000, 1)
            .unwrap();
    }
    rescue(&vfs, Keep::All).unwrap();
    let lost = [20, 21, 60];
    let survivors: Vec<_> = a.into_iter().filter(|(n, _)| !lost.contains(n)).collect();
    let holes = vec![(20, 22), (60, 61)];
    let copy = open_copy(&vfs);
    assert_eq!(with_holes(&copy, 1), (survivors.clone(), holes.clone()));
    let stream = copy.view().stream(1).unwrap();
    assert_eq!(copy.view().find(&stream, i64::MIN).unwrap(), Some(1));
    copy.clean(64, 1.0).unwrap();
    assert_eq!(with_holes(&copy, 1), (survivors.clone(), holes.clone()));
    copy.close().unwrap();
    drop(copy);
    let how = How::default();
    let (from, to) = (Path::new(COPY), Path::new("/again"));
    let note = |_: &Plan| Ok(Vec::new());
    let done = salvage(&disk(&vfs), from, to, &how, &note, &mut |_, _| true).unwrap();
    assert_eq!(done.plan.losses, []);
    let again = open(disk(&vfs), to, options()).unwrap().0;
    assert_eq!(with_holes(&again, 1), (survivors, holes));
    assert_eq!(vfs.read(&to.join("IDENTITY"), 64).unwrap()[4], 2);
}

#[test]
fn every_damaged_frame_costs_no_more_than_it_held() {
    let vfs = MemoryVfs::new();
    let (a, b) = plain(&vfs);
    let rows = segments(&disk(&vfs), Path::new("/data")).unwrap();
    for row in rows.iter().filter(|row| row.number.is_some()) {
        let number = row.number.unwrap();
        let frames = Frames::open(&disk(&vfs), Path::new("/data"), number, None, 0).unwrap();
        for frame in frames.filter_map(|row| row.frame) {
            let harmed = vfs.snapshot();
            // The header: nothing tells what the frame was.
            harmed
                .flip_bit(&row.path, u64::from(frame.offset) + 33, 0)
                .unwrap();
            let plan = rescue(&harmed, Keep::Most).unwrap();
            let copy = open_copy(&harmed);
            for (stream, all) in [(1, &a), (2, &b)] {
                let Ok(view) = copy.view().stream(stream) else {
                    continue;
                };
                let range = view.range();
                let survivors: Vec<_> = all
                    .iter()
                    .filter(|(llsn, _)| (range.first..range.end).contains(llsn))
                    .cloned()
                    .collect();
                let found = contents(copy.view(), stream).unwrap();
                assert_eq!(found, survivors, "{frame:?} {plan:?}");
                let hit = frame.header.kind == Kind::Batch && frame.header.stream == stream;
                assert!(found.len() as u64 >= if hit { 50 } else { 100 }, "{plan:?}");
            }
        }
    }
}

#[test]
fn a_lost_creation_is_guessed() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    append(&store, stream, b"one").unwrap();
    append(&store, stream, b"two").unwrap();
    let expected = contents(store.view(), stream).unwrap();
    store.close().unwrap();
    drop(store);
    let frames = Frames::open(&disk(&vfs), Path::new("/data"), 1, None, 0).unwrap();
    let catalog = frames
        .filter_map(|row| row.frame)
        .find(|frame| frame.header.kind == Kind::Catalog)
        .unwrap();
    let path = path_of(&vfs, 1);
    vfs.flip_bit(&path, u64::from(catalog.offset) + 50, 0)
        .unwrap();
    let plan = rescue(&vfs, Keep::Most).unwrap();
    assert!(plan.guesses[0].contains("recovered-1"), "{plan:?}");
    let copy = open_copy(&vfs);
    assert_eq!(contents(copy.view(), stream).unwrap(), expected);
}

#[test]
fn a_log_of_which_nothing_is_left_goes_on_where_it_ended() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = create(&store, "a");
    for i in 0..100u8 {
        append(&store, stream, &[i; 2000]).unwrap();
    }
    let other = create(&store, "b");
    for _ in 0..40 {
        append(&store, other, &[1; 2000]).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let gone: std::collections::BTreeSet<_> = batches(&vfs, "a")
        .into_iter()
        .map(|(segment, _)| path_of(&vfs, segment))
        .collect();
    for path in gone {
        vfs.remove(&path).unwrap();
    }
    let plan = rescue(&vfs, Keep::Most).unwrap();
    assert_eq!(plan.losses[0].records, 100);
    let copy = open_copy(&vfs);
    assert_eq!(contents(copy.view(), stream).unwrap(), []);
    assert_eq!(append(&copy, stream, b"next").unwrap(), 101);
}

#[test]
fn commit_contexts_come_back() {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let stream = super::verify::create_explicit(&store, "s");
    for i in 0..200u64 {
        append(&store, stream, &[1; 1000]).unwrap();
        let context = CommitContext {
            version: 3 * i + 1,
            glsn_begin: 2 * i + 1 + i / 50,
            llsn_begin: i + 1,
            length: 1,
            high_watermark: 2 * i + 9 + i / 50,
        };
        store.commit(stream, 0, context).unwrap();
    }
    append(&store, stream, b"not committed").unwrap();
    let state = store.state();
    store.close().unwrap();
    drop(store);
    rescue(&vfs, Keep::Most).unwrap();
    let copy = open_copy(&vfs);
    assert_eq!(copy.state(), state);
}

#[test]
fn it_refuses_a_directory_in_use_and_a_target_that_is_there() {
    let vfs = MemoryVfs::new();
    let store = busy(&vfs);
    let locked = rescue(&vfs, Keep::Most);
    assert!(
        matches!(locked, Err(crate::Error::Locked { .. })),
        "{locked:?}"
    );
    drop(store);
    vfs.create_dir_all(Path::new(COPY)).unwrap();
    vfs.replace(&Path::new(COPY).join("mine"), b"x").unwrap();
    let there = rescue(&vfs, Keep::Most);
    assert!(
        matches!(there, Err(crate::Error::AlreadyExists { .. })),
        "{there:?}"
    );
}

#[test]
fn a_file_that_was_cut_short_gives_what_is_left_of_it() {
    let vfs = MemoryVfs::new();
    let (a, b) = plain(&vfs);
    let path = path_of(&vfs, 2);
    vfs.truncate_file(&path, 30_000).unwrap();
    let plan = rescue(&vfs, Keep::Oldest).unwrap();
    assert!(plan.damage[0].what.contains("read"), "{:?}", plan.damage);
    let copy = open_copy(&vfs);
    for (stream, all) in [(1, a), (2, b)] {
        let found = contents(copy.view(), stream).unwrap();
        assert!((20..40).contains(&found.len()), "{}", found.len());
        assert_eq!(found, all[..found.len()]);
    }
}
