//! Random operations against the dumb model, with reopening, killing, cleaning and trimming anywhere.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::driver::Driver;
use super::{DIR, options, seeds};
use crate::batch::Compression;
use crate::error::Error;
use crate::index::{CommitPoint, CommitRun};
use crate::vfs::CrashPolicy;
use crate::wal::{Follower, NewIndex, NewTable, Options, Position, Table, TableChange, pin_of};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u32, usize, usize),
    Produce(u32, u64, usize),
    Columns(u32, usize, usize, usize),
    Commit(u32, u64),
    Rollback(u32, u64),
    Cursor(u32, u8, u64),
    Trim(u32, u64),
    Table(u32, u8),
    Compress(u32, bool),
    Delete(u32),
    Sync,
    Clean(u64),
    Reclaim,
    Prepare,
    Reopen,
    Kill(CrashPolicy),
    Look(u64),
}

/// Streams that a run uses; which log has which number changes as logs are deleted.
const STREAMS: u32 = 4;

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..STREAMS;
    let policy = prop_oneof![
        Just(CrashPolicy::KeepAll),
        Just(CrashPolicy::DropUnsynced),
        any::<u64>().prop_map(|seed| CrashPolicy::Torn { seed }),
        any::<u64>().prop_map(|seed| CrashPolicy::Subset { seed }),
    ];
    let len = prop_oneof![8..200usize, 8..3000usize, 3000..14_000usize];
    prop_oneof![
        12 => (stream.clone(), 1..8usize, len.clone()).prop_map(|(s, n, l)| Step::Push(s, n, l)),
        4 => (stream.clone(), 1..5u64, 8..400usize).prop_map(|(s, p, l)| Step::Produce(s, p, l)),
        6 => (stream.clone(), 1..30usize, 8..1500usize, 500..15_000usize)
            .prop_map(|(s, n, l, t)| Step::Columns(s, n, l, t)),
        6 => (stream.clone(), 0..12u64).prop_map(|(s, n)| Step::Commit(s, n)),
        3 => (stream.clone(), 0..9u64).prop_map(|(s, n)| Step::Rollback(s, n)),
        2 => (stream.clone(), 0..3u8, 0..9u64).prop_map(|(s, n, p)| Step::Cursor(s, n, p)),
        5 => (stream.clone(), 0..40u64).prop_map(|(s, n)| Step::Trim(s, n)),
        3 => (stream.clone(), any::<u8>()).prop_map(|(s, n)| Step::Table(s, n)),
        1 => (stream.clone(), any::<bool>()).prop_map(|(s, c)| Step::Compress(s, c)),
        1 => stream.prop_map(Step::Delete),
        8 => Just(Step::Sync),
        3 => (1..4u64).prop_map(Step::Clean),
        1 => Just(Step::Reclaim),
        1 => Just(Step::Prepare),
        2 => Just(Step::Reopen),
        2 => policy.prop_map(Step::Kill),
        4 => any::<u64>().prop_map(Step::Look),
    ]
}

struct Run {
    driver: Driver,
    follower: Option<Follower>,
    names: u32,
    slots: BTreeMap<u32, u32>,
}

impl Run {
    fn new(recent: bool, lookup_bytes_max: usize, index_bytes_max: usize) -> Self {
        let options = Options {
            wal_bytes_max: Some(10 * (64 << 10)),
            recent_bytes_max: if recent { 100 << 10 } else { 0 },
            index_bytes_max,
            lookup_bytes_max,
            ..options()
        };
        let mut run = Self {
            driver: Driver::new(options),
            follower: None,
            names: 0,
            slots: BTreeMap::new(),
        };
        (0..STREAMS).for_each(|slot| run.create(slot));
        run
    }

    fn create(&mut self, slot: u32) {
        self.names += 1;
        let name = format!("log {}", self.names);
        let stream = self.driver.create(&name, slot % 2 == 1);
        self.slots.insert(slot, stream);
    }

    /// The stream in that slot; made anew if a crash took its creation back.
    fn stream(&mut self, slot: u32) -> u32 {
        let live = self.driver.history.live();
        if !live.contains(&self.slots[&slot]) {
            self.create(slot);
        }
        self.slots[&slot]
    }

    fn take(&mut self, step: Step) {
        let driver = &mut self.driver;
        let fits = |result: Result<u64, Error>| match result {
            Ok(_) | Err(Error::LogFull { .. }) => {}
            Err(error) => panic!("{error}"),
        };
        match step {
            Step::Push(stream, count, len) => {
                (0..count).for_each(|_| fits(driver.push(stream, len)));
            }
            Step::Produce(stream, producer, len) => fits(driver.produce(stream, producer, len)),
            Step::Columns(stream, count, len, target) => {
                fits(driver.columns(stream, &vec![len; count], target));
            }
            Step::Commit(stream, count) => {
                let expected = driver.history.get(stream);
                if expected.explicit {
                    driver.commit(stream, count.min(expected.next() - expected.committed));
                }
            }
            Step::Rollback(stream, back) => {
                let expected = driver.history.get(stream);
                if expected.explicit {
                    let from = expected.next().saturating_sub(back).max(expected.committed);
                    let epoch = expected.epoch + 1;
                    driver.roll_back(stream, from);
                    driver.raise_epoch(stream, epoch);
                }
            }
            Step::Cursor(stream, name, position) => {
                let next = driver.history.get(stream).next();
                driver.set_cursor(stream, &format!("c{name}"), position.clamp(1, next));
            }
            Step::Trim(stream, left) => {
                driver.sync();
                let expected = driver.history.get(stream);
                let first = expected.committed.saturating_sub(left).max(expected.low);
                // No further than tables allow.
                let pins = expected.cursors.iter();
                let pins = pins.filter(|(name, _)| pin_of(name).is_some());
                let pin = pins.map(|(_, position)| *position).min();
                driver.trim(stream, first.min(pin.unwrap_or(first)).max(expected.low));
            }
            Step::Table(stream, random) => self.table(stream, random),
            Step::Compress(stream, on) => {
                let compression = if on {
                    Compression::Zstd
                } else {
                    Compression::None
                };
                driver.compress(stream, compression);
            }
            Step::Delete(stream) => {
                self.drop_tables(stream);
                self.driver.delete(stream);
            }
            Step::Sync => driver.sync(),
            Step::Clean(target) => _ = driver.clean(target),
            Step::Reclaim => {
                driver.sync();
                driver.store.reclaim().unwrap();
            }
            Step::Prepare => _ = driver.store.prepare_slot().unwrap(),
            Step::Reopen => driver.reopen(),
            Step::Kill(policy) => {
                self.follower = None;
                _ = self.driver.kill(policy);
            }
            Step::Look(random) => self.look(random),
        }
    }

    /// Create a table, or change the one that there is: drop it, move its pin, or give it another name and more.
    fn table(&mut self, stream: u32, random: u8) {
        let state = self.driver.store.state();
        let logs = state.logs.iter();
        let log = *logs
            .clone()
            .find(|(_, log)| log.stream == stream)
            .unwrap()
            .0;
        self.names += 1;
        let id = u128::from(self.names) << 40;
        let index = NewIndex {
            tree: id + 9,
            name: format!("index {id}"),
            spec: vec![random; 9],
        };
        let found = state.tables.iter().find(|table| table.log == log);
        let start = state.streams[&stream].low;
        let create = TableChange::Create(NewTable {
            id,
            name: format!("table {id}"),
            log,
            created: 1,
            start,
            primary: id + 1,
            options: Vec::new(),
            indexes: Vec::new(),
        });
        let changes = match (found, random % 5) {
            (None, _) => vec![create],
            (Some(table), 0) => vec![TableChange::Drop(table.id), create],
            (Some(table), 1 | 2) => {
                let next = self.driver.history.get(stream).next();
                self.driver.sync();
                self.driver.move_table_pin(stream, table.id, next);
                return;
            }
            (Some(table), 3) if table.indexes.len() < 3 => vec![
                TableChange::Rename(table.id, format!("renamed {id}")),
                TableChange::Build(table.id, index, start),
                create,
            ],
            (Some(table), _) => vec![TableChange::Drop(table.id)],
        };
        match self.driver.change_tables(&changes) {
            Ok(()) | Err(Error::LogFull { .. } | Error::StateFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn drop_tables(&mut self, stream: u32) {
        let state = self.driver.store.state();
        let of = |table: &&Table| state.logs[&table.log].stream == stream;
        let drops = state.tables.iter().filter(of);
        let drops: Vec<TableChange> = drops.map(|table| TableChange::Drop(table.id)).collect();
        if !drops.is_empty() {
            self.driver.change_tables(&drops).unwrap();
        }
    }

    /// Writer, follower and model say the same.
    fn look(&mut self, random: u64) {
        self.driver.sync();
        self.driver.check("writer");
        self.driver
            .history
            .check_points(self.driver.store.view(), 3, "writer");
        self.positions(random);
        self.commits(random);
        let follower = if let Some(mut follower) = self.follower.take() {
            follower.refresh().unwrap();
            follower
        } else {
            let vfs = Arc::new(self.driver.vfs.clone());
            Follower::open(vfs, Path::new(DIR), &self.driver.options).unwrap()
        };
        self.driver.history.check(follower.view(), "follower");
        self.driver
            .history
            .check_points(follower.view(), 7, "follower");
        assert_eq!(follower.state(), self.driver.store.state(), "follower");
        self.follower = Some(follower);
    }

    /// Numbers of the log and of the stream, both ways.
    fn commits(&self, random: u64) {
        let store = &self.driver.store;
        for number in self.driver.history.live() {
            let expected = self.driver.history.get(number);
            let kept: Vec<(u64, u64)> = expected
                .glsns
                .range(expected.low..)
                .map(|(llsn, glsn)| (*llsn, *glsn))
                .collect();
            let pairs = |runs: Vec<CommitRun>| -> Vec<(u64, u64)> {
                let of = |run: CommitRun| {
                    (0..run.length).map(move |at| (run.llsn_begin + at, run.glsn_begin + at))
                };
                runs.into_iter().flat_map(of).collect()
            };
            let (low, end) = (expected.low, expected.committed);
            assert_eq!(pairs(store.commit_runs(number, 1, end).unwrap()), kept);
            let view = store.view().commit_runs(number, low, end).unwrap();
            assert_eq!(pairs(view), kept);
            for at in [random, random.rotate_left(17), random.rotate_left(40)] {
                let glsn = at % (expected.glsn + 5);
                let floor = kept.iter().rfind(|(_, found)| *found <= glsn);
                let ceil = kept.iter().find(|(_, found)| *found >= glsn);
                let point = |point: Option<CommitPoint>| point.map(|it| (it.llsn, it.glsn));
                let found = store.glsn_floor(number, glsn).unwrap();
                assert_eq!(point(found), floor.copied(), "floor of {glsn}");
                let found = store.glsn_ceil(number, glsn).unwrap();
                assert_eq!(point(found), ceil.copied(), "ceil of {glsn}");
                let found = store.view().glsn_ceil(number, glsn).unwrap();
                assert_eq!(point(found), ceil.copied(), "ceil of {glsn}");
            }
        }
    }

    /// Reads from and to anywhere, resumed with one position, and what is out of range.
    fn positions(&self, random: u64) {
        let view = self.driver.store.view();
        for number in self.driver.history.live() {
            let expected = self.driver.history.get(number);
            let stream = view.stream(number).unwrap();
            let (low, end) = (expected.low, expected.committed);
            let mut position = Position::default();
            let mut next = low + random % (end - low + 1);
            while next < end {
                let to = next + 1 + random.rotate_left(next as u32) % 7;
                let found = view.read(&stream, next, to, 9000, &mut position).unwrap();
                assert!(!found.is_empty());
                for batch in found {
                    assert_eq!(batch.first(), next);
                    next = batch.next();
                    assert!(next <= to);
                }
            }
            assert!(matches!(
                view.get(&stream, end),
                Err(Error::BeyondEnd { next, .. }) if next == end
            ));
            if low > 1 {
                let early = view.get(&stream, low - 1);
                assert!(matches!(early, Err(Error::Trimmed { first, .. }) if first == low));
            }
        }
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
    fn random_operations_agree_with_the_model(
        recent in any::<bool>(),
        lookup_bytes_max in prop_oneof![Just(0), Just(10_000), Just(16 << 20)],
        index_bytes_max in prop_oneof![1 => Just(0), 3 => Just(4000)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut run = Run::new(recent, lookup_bytes_max, index_bytes_max);
        for step in steps {
            let step = match step {
                Step::Push(s, n, l) => Step::Push(run.stream(s), n, l),
                Step::Produce(s, p, l) => Step::Produce(run.stream(s), p, l),
                Step::Columns(s, n, l, t) => Step::Columns(run.stream(s), n, l, t),
                Step::Commit(s, n) => Step::Commit(run.stream(s), n),
                Step::Rollback(s, n) => Step::Rollback(run.stream(s), n),
                Step::Cursor(s, n, p) => Step::Cursor(run.stream(s), n, p),
                Step::Trim(s, n) => Step::Trim(run.stream(s), n),
                Step::Table(s, n) => Step::Table(run.stream(s), n),
                Step::Compress(s, c) => Step::Compress(run.stream(s), c),
                Step::Delete(s) => Step::Delete(run.stream(s)),
                other => other,
            };
            run.take(step);
        }
        run.look(17);
        run.driver.reopen();
        run.follower = None;
        run.look(5);
        run.driver.store.close().unwrap();
    }
}
