//! Backups hold one place of the log, and a restore gives it back or no directory at all.

use std::collections::BTreeMap;
use std::path::Path;

use super::driver::Driver;
use super::salvage::{COPY, repaired};
use super::verify::disk;
use super::{DIR, contents, create, open_at, options, record, seeds};
use crate::batch::Compression;
use crate::error::{Error, Result};
use crate::vfs::{CrashPolicy, MemoryVfs, Vfs};
use crate::wal::tools::backup::part::Header;
use crate::wal::tools::backup::{Cut, LogCut, NewDirectory, Restore};
use crate::wal::tools::verify::verify;
use crate::wal::{Follower, Options, ProducerId, Store, open};
use proptest::prelude::*;

const TARGET: &str = "/restored";

fn follow(vfs: &MemoryVfs) -> Follower {
    Follower::open(disk(vfs), Path::new(DIR), &options()).unwrap()
}

/// Positions of a log that an earlier backup has, as parts.
type Parts = BTreeMap<u128, Vec<(u64, u64, Vec<u8>)>>;

/// Copy what `parts` lacks of a cut; nothing if a trim was faster.
fn copy(follower: &mut Follower, cut: &Cut, parts: &mut Parts, bytes_max: usize) -> Result<()> {
    follower.refresh()?;
    for log in &cut.logs {
        let had = parts.entry(log.log.id).or_default();
        let mut next = had
            .last()
            .map_or(log.first, |(_, end, _)| *end)
            .max(log.first);
        while next < log.end {
            let header = Header {
                log: log.log.id,
                stream: 1,
            };
            let mut part = header.encode();
            let begin = next;
            next = follower.copy_part(log.stream, begin, log.end, bytes_max, &mut part)?;
            had.push((begin, next, part));
        }
    }
    Ok(())
}

fn how(cut: &Cut) -> NewDirectory {
    NewDirectory {
        segment_bytes: cut.segment_bytes,
        bound: cut.bound,
        bytes: 1 << 20,
        entropy: 4711,
        holder: "a test".into(),
        note: "{}".into(),
    }
}

fn restore(vfs: &MemoryVfs, cut: &Cut, parts: &Parts) -> Result<()> {
    let mut restore = Restore::create(
        disk(vfs),
        Path::new(TARGET),
        cut.logs.clone(),
        Vec::new(),
        &how(cut),
    )?;
    for log in &cut.logs {
        for (_, end, part) in &parts[&log.log.id] {
            if *end > log.first {
                restore.place(part)?;
            }
        }
    }
    restore.finish()
}

fn open_target(vfs: &MemoryVfs) -> Result<Store> {
    Ok(open(disk(vfs), Path::new(TARGET), options())?.0)
}

/// What a log holds.
type Content = (LogCut, Vec<(u64, Vec<u8>)>);

fn content_of(store: &Store, cut: &Cut) -> Vec<Content> {
    let state = store.state();
    let mut found = Vec::new();
    for log in state.logs.values() {
        let stream = &state.streams[&log.stream];
        let old = cut.logs.iter().find(|old| old.log.id == log.log.id);
        let row = LogCut {
            log: log.log.clone(),
            stream: old.map_or(0, |old| old.stream),
            first: stream.low,
            end: stream.next,
            producers: stream.producers.clone(),
            cursors: stream.cursors.clone(),
        };
        found.push((row, contents(store.view(), log.stream).unwrap()));
    }
    found
}

fn content_at(follower: &Follower, cut: &Cut) -> Vec<Content> {
    let read = |log: &LogCut| (log.clone(), contents(follower.view(), log.stream).unwrap());
    cut.logs.iter().map(read).collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u32, usize, usize),
    Produce(u32, u64, usize),
    Columns(u32, usize, usize),
    Cursor(u32, u8, u64),
    Trim(u32, u64),
    Compress(u32, bool),
    Delete(u32),
    Sync,
    Clean(u64),
    Reopen,
    Backup(usize),
}

const STREAMS: u32 = 3;

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..STREAMS;
    let len = prop_oneof![8..200usize, 8..3000usize, 3000..14_000usize];
    prop_oneof![
        12 => (stream.clone(), 1..8usize, len).prop_map(|(s, n, l)| Step::Push(s, n, l)),
        6 => (stream.clone(), 1..5u64, 8..400usize).prop_map(|(s, p, l)| Step::Produce(s, p, l)),
        6 => (stream.clone(), 1..30usize, 8..1500usize).prop_map(|(s, n, l)| Step::Columns(s, n, l)),
        3 => (stream.clone(), 0..3u8, 0..9u64).prop_map(|(s, n, p)| Step::Cursor(s, n, p)),
        5 => (stream.clone(), 0..40u64).prop_map(|(s, n)| Step::Trim(s, n)),
        1 => (stream.clone(), any::<bool>()).prop_map(|(s, c)| Step::Compress(s, c)),
        1 => stream.prop_map(Step::Delete),
        6 => Just(Step::Sync),
        3 => (1..4u64).prop_map(Step::Clean),
        2 => Just(Step::Reopen),
        6 => (1..40_000usize).prop_map(Step::Backup),
    ]
}

/// A writer, and the backups of it, each on top of the one before.
struct Run {
    driver: Driver,
    streams: BTreeMap<u32, u32>,
    names: u32,
    parts: Parts,
    /// Where a cut was taken that is not copied yet.
    pending: Option<(Cut, Vec<Content>, usize)>,
}

impl Run {
    fn new() -> Self {
        let driver = Driver::new(Options {
            wal_bytes_max: Some(10 * (64 << 10)),
            ..options()
        });
        let (streams, parts) = (BTreeMap::new(), Parts::new());
        let mut run = Self {
            driver,
            streams,
            names: 0,
            parts,
            pending: None,
        };
        (0..STREAMS).for_each(|slot| run.create(slot));
        run
    }

    fn create(&mut self, slot: u32) {
        self.names += 1;
        let stream = self.driver.create(&format!("log {}", self.names), false);
        self.streams.insert(slot, stream);
    }

    fn take(&mut self, step: Step) {
        let at = |slot: &u32| self.streams[slot];
        let driver = &mut self.driver;
        match step {
            Step::Push(slot, count, len) => {
                for _ in 0..count {
                    _ = driver.push(at(&slot), len);
                }
            }
            Step::Produce(slot, producer, len) => _ = driver.produce(at(&slot), producer, len),
            Step::Columns(slot, count, len) => {
                _ = driver.columns(at(&slot), &vec![len; count], 3000);
            }
            Step::Cursor(slot, name, position) => {
                let next = driver.history.get(at(&slot)).next();
                driver.set_cursor(at(&slot), &format!("c{name}"), position.clamp(1, next));
            }
            Step::Trim(slot, left) => {
                driver.sync();
                let expected = driver.history.get(at(&slot));
                let first = expected.next().saturating_sub(left).max(expected.low);
                driver.trim(at(&slot), first);
            }
            Step::Compress(slot, on) => {
                let way = [Compression::None, Compression::Zstd][usize::from(on)];
                driver.compress(at(&slot), way);
            }
            Step::Delete(slot) => {
                driver.delete(at(&slot));
                self.create(slot);
            }
            Step::Sync => driver.sync(),
            Step::Clean(target) => _ = driver.clean(target),
            Step::Reopen => driver.reopen(),
            Step::Backup(bytes_max) => {
                self.finish();
                let follower = follow(&self.driver.vfs);
                let cut = follower.cut();
                let content = content_at(&follower, &cut);
                // Copied when more has happened.
                self.pending = Some((cut, content, bytes_max));
            }
        }
    }

    /// Copy what was cut a while ago, and compare what comes back with what was there then.
    fn finish(&mut self) {
        let Some((cut, content, bytes_max)) = self.pending.take() else {
            return;
        };
        let mut follower = follow(&self.driver.vfs);
        match copy(&mut follower, &cut, &mut self.parts, bytes_max) {
            Ok(()) => {}
            // A trim or the end of a log was faster: another cut would need less.
            Err(Error::Trimmed { .. } | Error::NotFound { .. }) => return,
            Err(error) => panic!("{error}"),
        }
        let image = self
            .driver
            .vfs
            .trace()
            .crash(self.driver.vfs.operations(), CrashPolicy::KeepAll);
        restore(&image, &cut, &self.parts).unwrap();
        let report = verify(&disk(&image), Path::new(TARGET), &mut |_, _| true).unwrap();
        assert_eq!(report.findings, []);
        let store = open_target(&image).unwrap();
        assert_eq!(content_of(&store, &cut), content);
        for log in store.state().logs.values() {
            let next = store.state().streams[&log.stream].next;
            assert_eq!(super::append(&store, log.stream, b"more").unwrap(), next);
        }
        store.close().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60 * seeds() as u32,
        failure_persistence: None,
        max_shrink_iters: 400,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_restored_is_what_was_there_at_the_cut(
        steps in prop::collection::vec(step(), 1..90),
    ) {
        let mut run = Run::new();
        for step in steps {
            run.take(step);
        }
        run.take(Step::Backup(9000));
        run.finish();
    }
}

/// A cut of a store with two logs, one of them trimmed, and its parts.
fn sample() -> (Cut, Parts, Vec<Content>) {
    let vfs = MemoryVfs::new();
    let (store, _) = open_at(&vfs).unwrap();
    let (a, b) = (create(&store, "a"), create(&store, "b"));
    let producer = ProducerId { id: 3, epoch: 1 };
    for i in 0..40u64 {
        let sequenced = Some((producer, i + 1));
        store
            .append(a, record(&[i as u8; 3000]), sequenced)
            .unwrap();
        store.append(b, record(&i.to_le_bytes()), None).unwrap();
        store.sync().unwrap();
    }
    store.trim(a, 11).unwrap();
    let mut follower = follow(&vfs);
    let cut = follower.cut();
    let content = content_at(&follower, &cut);
    let mut parts = Parts::new();
    copy(&mut follower, &cut, &mut parts, 20_000).unwrap();
    (cut, parts, content)
}

#[test]
fn a_crash_of_a_restore_leaves_all_of_it_or_nothing_that_opens() {
    let (cut, parts, content) = sample();
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new("/")).unwrap();
    restore(&vfs, &cut, &parts).unwrap();
    let trace = vfs.trace();
    let (mut whole, mut again) = (0, 0);
    for at in 0..=trace.len() {
        for policy in CrashPolicy::all(seeds()) {
            let text = format!("cut {at} {policy:?}");
            let image = trace.crash(at, policy);
            let names = image.list(Path::new(TARGET)).unwrap_or_default();
            let begun = names.iter().any(|name| name == "RESTORING");
            let untouched = names
                .iter()
                .all(|name| name == "LOCK" || name == "RESTORING.tmp");
            match (begun || !untouched).then(|| open_target(&image)) {
                Some(Ok(store)) => {
                    assert_eq!(content_of(&store, &cut), content, "{text}");
                    let refused = restore(&image, &cut, &parts);
                    assert!(
                        matches!(refused, Err(Error::AlreadyExists { .. })),
                        "{text}"
                    );
                    whole += 1;
                }
                None | Some(Err(Error::Missing { .. })) => {
                    // It is not half there, and the same command does it.
                    restore(&image, &cut, &parts).unwrap_or_else(|error| panic!("{text}: {error}"));
                    let store = open_target(&image).unwrap();
                    assert_eq!(content_of(&store, &cut), content, "{text}");
                    again += 1;
                }
                Some(Err(error)) => panic!("{text}: {error}"),
            }
        }
    }
    assert!(whole > 2 && again > 100, "{whole} {again}");
}

#[test]
fn an_interrupted_restore_is_named_by_the_open_and_never_begun_over_by_it() {
    let (cut, ..) = sample();
    let vfs = MemoryVfs::new();
    let begun = Restore::create(
        disk(&vfs),
        Path::new(TARGET),
        cut.logs.clone(),
        Vec::new(),
        &how(&cut),
    );
    let second = restore(&vfs, &cut, &Parts::new());
    assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
    drop(begun.unwrap());
    let refused = open_target(&vfs).err().unwrap();
    assert!(refused.to_string().contains("did not finish"), "{refused}");
    let read = Follower::open(disk(&vfs), Path::new(TARGET), &options());
    assert!(matches!(read, Err(Error::Missing { .. })));
}

#[test]
fn the_marker_of_a_finished_restore_does_not_outlive_the_first_open() {
    let (cut, parts, _) = sample();
    let vfs = MemoryVfs::new();
    restore(&vfs, &cut, &parts).unwrap();
    let marker = Path::new(TARGET).join("RESTORING");
    assert!(!vfs.exists(&marker).unwrap());
    vfs.replace(&marker, b"{}").unwrap();
    open_target(&vfs).unwrap().close().unwrap();
    assert!(!vfs.exists(&marker).unwrap());
}

#[test]
fn a_restore_refuses_what_is_there() {
    let (cut, parts, _) = sample();
    for name in ["IDENTITY", "MANIFEST-000001", "notes.txt", "CURRENT"] {
        let vfs = MemoryVfs::new();
        vfs.create_dir_all(Path::new(TARGET)).unwrap();
        vfs.replace(&Path::new(TARGET).join(name), b"mine").unwrap();
        let refused = restore(&vfs, &cut, &parts);
        assert!(
            matches!(refused, Err(Error::AlreadyExists { .. })),
            "{name}"
        );
        assert_eq!(vfs.read(&Path::new(TARGET).join(name), 9).unwrap(), b"mine");
        assert_eq!(vfs.list(Path::new(TARGET)).unwrap(), [name]);
    }
}

#[test]
fn a_restore_without_a_part_does_not_finish() {
    let (cut, parts, _) = sample();
    for (id, had) in &parts {
        for left_out in 0..had.len() {
            let vfs = MemoryVfs::new();
            let mut some = parts.clone();
            some.get_mut(id).unwrap().remove(left_out);
            let refused = restore(&vfs, &cut, &some);
            assert!(matches!(refused, Err(Error::NotDense { .. })));
            assert!(matches!(open_target(&vfs), Err(Error::Missing { .. })));
        }
    }
}

#[test]
fn declared_holes_come_back_as_holes() {
    let vfs = MemoryVfs::new();
    repaired(&vfs);
    let mut follower = Follower::open(disk(&vfs), Path::new(COPY), &options()).unwrap();
    let cut = follower.cut();
    let mut parts = Parts::new();
    copy(&mut follower, &cut, &mut parts, 9000).unwrap();
    restore(&vfs, &cut, &parts).unwrap();
    let store = open_target(&vfs).unwrap();
    let log = cut.logs.iter().find(|log| log.log.name == "a").unwrap();
    let number = store.with_state(|state| state.logs[&log.log.id].stream);
    let stream = store.view().stream(number).unwrap();
    assert!(store.view().get(&stream, 29).is_ok() && store.view().get(&stream, 31).is_ok());
    let lost = store.view().get(&stream, 30);
    assert!(matches!(lost, Err(Error::Lost { .. })));
}

#[test]
fn a_restored_directory_has_an_identity_of_its_own() {
    let (cut, parts, _) = sample();
    let vfs = MemoryVfs::new();
    restore(&vfs, &cut, &parts).unwrap();
    let again = Follower::open(disk(&vfs), Path::new(TARGET), &options())
        .unwrap()
        .cut();
    assert_ne!(again.wal, cut.wal);
    assert_eq!(
        (again.segment_bytes, again.bound),
        (cut.segment_bytes, cut.bound)
    );
}

#[test]
fn empty_directories_can_be_backed_up() {
    let vfs = MemoryVfs::new();
    open_at(&vfs).unwrap().0.close().unwrap();
    let cut = follow(&vfs).cut();
    assert_eq!(cut.logs, []);
    restore(&vfs, &cut, &Parts::new()).unwrap();
    let store = open_target(&vfs).unwrap();
    assert_eq!(store.state().logs.len(), 0);
    assert_eq!(create(&store, "first"), 1);
}
