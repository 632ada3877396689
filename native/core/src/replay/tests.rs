//! A model of nodes that store streams of one log, against a sort of everything in memory.

#![allow(clippy::unwrap_used)]

mod damage;
mod data;
mod dropped;
mod known;
mod places;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use data::{Rng, batch, records};

use super::{Directory, Figures, Merge, OnHole, Options};
use crate::error::{Error, Result};
use crate::vfs::{CrashPolicy, MemoryVfs, Vfs};
use crate::wal::{self, CommitContext, NewLog, Store, Verified};

const LOG: u128 = 7;

/// GLSN, stream and LLSN of a record.
type Row = (u64, u32, u64);

/// One cut: for each stream (GLSN, LLSN, length), in any number.
struct Cut {
    runs: BTreeMap<u32, (u64, u64, u64)>,
    high_watermark: u64,
}

struct Node {
    vfs: MemoryVfs,
    store: Option<Store>,
    options: wal::Options,
    /// For each stream here: the WAL's number, how many cuts were applied, whether it lags.
    streams: BTreeMap<u32, (u32, usize, bool)>,
    opened: u64,
}

impl Node {
    fn new(budget: u64) -> Self {
        let options = wal::Options {
            segment_bytes: 64 << 10,
            order_bytes_max: budget,
            ..wal::Options::default()
        };
        let mut node = Self {
            vfs: MemoryVfs::new(),
            store: None,
            options,
            streams: BTreeMap::new(),
            opened: 0,
        };
        node.open();
        node
    }

    fn open(&mut self) {
        self.opened += 1;
        let options = wal::Options {
            entropy: self.opened << 32,
            ..self.options.clone()
        };
        let vfs = Arc::new(self.vfs.clone()) as Arc<dyn Vfs>;
        let (store, _) = wal::open(vfs, Path::new("/node"), options).unwrap();
        for (number, _, _) in self.streams.values() {
            store.share_order(*number, LOG).unwrap();
        }
        self.store = Some(store);
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn create(&mut self, stream: u32, applied: usize) {
        let log = NewLog {
            id: u128::from(stream),
            explicit_commit: true,
            created: 0,
            name: format!("stream.{stream}"),
            options: Vec::new(),
        };
        let number = self.store().create_log(log).unwrap();
        self.store().share_order(number, LOG).unwrap();
        self.streams.insert(stream, (number, applied, false));
    }

    fn next(&self, stream: u32) -> u64 {
        self.store().next_llsn(self.streams[&stream].0).unwrap()
    }

    fn place(&self, stream: u32, llsn: u64, bytes: &[u8]) {
        let batches = [Verified::check(bytes).unwrap()];
        self.store()
            .place_batches(self.streams[&stream].0, 0, llsn, &batches)
            .unwrap();
    }

    /// Apply the cuts that a stream has not seen.
    fn apply(&mut self, stream: u32, cuts: &[Cut]) {
        let (number, applied, _) = self.streams[&stream];
        for (at, cut) in cuts.iter().enumerate().skip(applied) {
            let committed = self.store().with_state(|s| s.streams[&number].committed);
            let (glsn_begin, llsn_begin, length) = match cut.runs.get(&stream) {
                Some(run) => *run,
                None => (cut.high_watermark + 1, committed, 0),
            };
            if llsn_begin + length > self.next(stream) {
                break;
            }
            let context = CommitContext {
                version: at as u64 + 1,
                glsn_begin,
                llsn_begin,
                length,
                high_watermark: cut.high_watermark,
            };
            self.store().commit(number, 0, context).unwrap();
            self.streams.get_mut(&stream).unwrap().1 = at + 1;
        }
    }

    fn crash(&mut self) {
        let trace = self.vfs.trace();
        let image = trace.crash(self.vfs.operations(), CrashPolicy::DropUnsynced);
        self.store = None;
        self.vfs = image;
    }

    fn stop(&mut self) {
        if let Some(store) = self.store.take() {
            store.sync().unwrap();
            store.close().unwrap();
        }
    }

    fn directory(&self, budget: Option<u64>) -> (Arc<Directory>, BTreeMap<u32, u64>) {
        self.try_directory(budget).unwrap()
    }

    fn try_directory(&self, budget: Option<u64>) -> Result<(Arc<Directory>, BTreeMap<u32, u64>)> {
        let vfs = Arc::new(self.vfs.clone()) as Arc<dyn Vfs>;
        let options = Options {
            order_bytes_max: budget,
            ..Options::default()
        };
        let directory = Directory::open(vfs, Path::new("/node"), options)?;
        let logs = directory.logs();
        let streams = logs.iter().filter_map(|(name, (number, ..))| {
            let key = name.strip_prefix("stream.")?;
            Some((*number, key.parse().unwrap()))
        });
        let streams = streams.collect();
        Ok((Arc::new(directory), streams))
    }
}

/// The log as it should be: GLSN to (stream, LLSN).
#[derive(Default)]
struct World {
    nodes: Vec<Node>,
    cuts: Vec<Cut>,
    /// Batches of each stream by LLSN, the uncommitted too.
    batches: BTreeMap<u32, BTreeMap<u64, (u64, Vec<u8>)>>,
    committed: BTreeMap<u32, u64>,
    order: BTreeMap<u64, (u32, u64)>,
}

impl World {
    fn next(&self, stream: u32) -> u64 {
        let last = self.batches[&stream].last_key_value();
        last.map_or(1, |(llsn, (count, _))| llsn + count)
    }

    fn append(&mut self, rng: &mut Rng, stream: u32) {
        let (llsn, count) = (self.next(stream), 1 + rng.below(4));
        let len = [10, 200, 900][rng.below(3) as usize];
        let bytes = batch(stream, llsn, count, len);
        for node in &self.nodes {
            if node.store.is_some()
                && node.streams.contains_key(&stream)
                && node.next(stream) == llsn
            {
                node.place(stream, llsn, &bytes);
            }
        }
        self.batches
            .get_mut(&stream)
            .unwrap()
            .insert(llsn, (count, bytes));
    }

    /// A backup that was away gets what it lacks.
    fn copy(&mut self, at: usize, stream: u32, most: usize) {
        let node = &self.nodes[at];
        for _ in 0..most {
            let next = node.next(stream);
            let Some((_, bytes)) = self.batches[&stream].get(&next) else {
                break;
            };
            node.place(stream, next, bytes);
        }
        let lags = self.nodes[at].next(stream) < self.next(stream);
        let node = &mut self.nodes[at];
        node.apply(stream, &self.cuts);
        node.streams.get_mut(&stream).unwrap().2 = lags;
    }

    fn cut(&mut self, rng: &mut Rng) {
        let mut next = self.cuts.last().map_or(0, |cut| cut.high_watermark) + 1;
        let mut runs = BTreeMap::new();
        for stream in self.batches.keys().copied().collect::<Vec<_>>() {
            let from = self.committed[&stream];
            // Up to the end of some batch.
            let ends = self.batches[&stream]
                .range(from..)
                .map(|(llsn, (count, _))| llsn + count);
            let ends: Vec<u64> = ends.collect();
            let take = rng.below(ends.len() as u64 + 1) as usize;
            let Some(end) = take.checked_sub(1).map(|at| ends[at]) else {
                continue;
            };
            runs.insert(stream, (next, from, end - from));
            for llsn in from..end {
                self.order.insert(next + (llsn - from), (stream, llsn));
            }
            next += end - from;
            self.committed.insert(stream, end);
        }
        if !runs.is_empty() {
            let high_watermark = next - 1;
            self.cuts.push(Cut {
                runs,
                high_watermark,
            });
        }
    }

    /// Cuts reach the replicas, but not those that lag.
    fn deliver(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.store.is_some()) {
            for stream in node.streams.keys().copied().collect::<Vec<_>>() {
                if !node.streams[&stream].2 {
                    node.apply(stream, &self.cuts);
                }
            }
        }
    }

    fn roll_back(&mut self, rng: &mut Rng, stream: u32) {
        let from = self.committed[&stream];
        let begins: Vec<u64> = self.batches[&stream]
            .range(from..)
            .map(|(llsn, _)| *llsn)
            .collect();
        if begins.is_empty() || self.nodes.iter().any(|node| node.store.is_none()) {
            return;
        }
        let llsn = begins[rng.below(begins.len() as u64) as usize];
        self.batches.get_mut(&stream).unwrap().split_off(&llsn);
        for node in &self.nodes {
            if let Some((number, ..)) = node.streams.get(&stream)
                && node.next(stream) > llsn
            {
                node.store().rollback(*number, 0, llsn).unwrap();
            }
        }
    }
}

/// Everything a merge gives out: (GLSN, stream, LLSN), after checking the values.
fn drain(merge: &mut Merge) -> Result<Vec<Row>> {
    let mut found = Vec::new();
    while let Some(piece) = merge.next()? {
        records(&piece, &mut found);
    }
    Ok(found)
}

fn merged(world: &World, which: &[usize], on_hole: OnHole) -> Result<(Vec<Row>, Figures)> {
    let sources: Vec<_> = which
        .iter()
        .map(|at| world.nodes[*at].directory(None))
        .collect();
    let mut merge = Merge::new(&sources, None, None, on_hole)?;
    let found = drain(&mut merge)?;
    Ok((found, merge.figures()))
}

fn expected(world: &World, end: u64) -> Vec<Row> {
    let range = world.order.range(..end);
    range
        .map(|(glsn, (stream, llsn))| (*glsn, *stream, *llsn))
        .collect()
}

/// Streams of a skew, replicas that fall behind and come back, rollbacks, reopens, one killed at the end.
fn story(seed: u64, steps: u64, budget: u64, calm: bool) -> World {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::default();
    let streams = 1 + rng.below(5) as u32;
    for _ in 0..3 {
        world.nodes.push(Node::new(budget));
    }
    for stream in 1..=streams {
        world.batches.insert(stream, BTreeMap::new());
        world.committed.insert(stream, 1);
        for node in &mut world.nodes {
            node.create(stream, 0);
        }
    }
    for _ in 0..steps {
        let stream = 1
            + (rng
                .below(u64::from(streams))
                .min(rng.below(u64::from(streams)))) as u32;
        let at = rng.below(3) as usize;
        match rng.below(if calm { 14 } else { 20 }) {
            0..=8 => world.append(&mut rng, stream),
            9..=13 => {
                world.cut(&mut rng);
                world.deliver();
            }
            14 => {
                let lagging = world.nodes[at].streams.get_mut(&stream).unwrap();
                lagging.2 = true;
            }
            15 | 16 => world.copy(at, stream, 5),
            17 => world.roll_back(&mut rng, stream),
            18 => world.nodes[at].store().sync().unwrap(),
            _ if rng.one_in(4) => {
                world.nodes[at].stop();
                world.nodes[at].open();
            }
            _ => {}
        }
    }
    for at in 0..3 {
        for stream in 1..=streams {
            world.copy(at, stream, usize::MAX);
        }
    }
    world
}

#[test]
fn what_comes_out_is_the_log_sorted_in_memory() {
    for seed in 1..60 {
        let mut world = story(seed, 600, 8_000, seed % 3 == 0);
        world.nodes.iter_mut().for_each(Node::stop);
        let all = expected(&world, u64::MAX);
        for which in [&[0][..], &[1], &[2, 0], &[0, 1, 2]] {
            let (found, figures) = merged(&world, which, OnHole::Fail).unwrap();
            assert_eq!(found, all, "seed {seed}, nodes {which:?}");
            let copies = (which.len() as u64 - 1) * all.len() as u64;
            assert_eq!(figures.duplicates, copies, "seed {seed}");
            for source in &figures.sources {
                assert!(
                    source.pending_bytes_peak <= 8_000,
                    "seed {seed}: {source:?}"
                );
            }
        }
    }
}

#[test]
fn a_writer_without_the_rule_is_found_out() {
    let overrun = |budget: u64, promised: u64| {
        let mut world = story(5, 900, budget, false);
        world.nodes.iter_mut().for_each(Node::stop);
        let source = world.nodes[0].directory(Some(promised));
        let mut merge = Merge::new(&[source], None, None, OnHole::Fail).unwrap();
        drain(&mut merge).map(|found| assert_eq!(found, expected(&world, u64::MAX)))
    };
    overrun(5_000, 5_000).unwrap();
    // The budget of the writer is so large that the rule never acts.
    let error = overrun(1 << 40, 5_000).unwrap_err();
    assert!(
        matches!(error, Error::OverBudget { budget: 5_000, .. }),
        "{error}"
    );
    overrun(1 << 40, 1 << 40).unwrap();
}

#[test]
fn killed_nodes_give_a_prefix_or_together_more() {
    for seed in 100..130 {
        let mut world = story(seed, 400, 6_000, false);
        world.nodes[0].crash();
        world.nodes[1].crash();
        let all = expected(&world, u64::MAX);
        let mut longest = 0;
        for which in [&[0][..], &[1], &[0, 1]] {
            let (found, figures) = merged(&world, which, OnHole::Stop).unwrap();
            assert_eq!(
                found[..],
                all[..found.len()],
                "seed {seed}, nodes {which:?}"
            );
            assert_eq!(figures.next, found.len() as u64 + 1);
            assert!(found.len() >= longest || which.len() == 1, "seed {seed}");
            longest = longest.max(found.len());
        }
        world.nodes[2].stop();
        let (found, _) = merged(&world, &[0, 1, 2], OnHole::Fail).unwrap();
        assert_eq!(
            found, all,
            "seed {seed}: holes of one are filled from another"
        );
    }
}

#[test]
fn a_hundred_times_the_log_needs_no_more_memory() {
    let peak = |steps| {
        let mut world = story(9, steps, 40_000, true);
        world.nodes.iter_mut().for_each(Node::stop);
        let (found, figures) = merged(&world, &[1], OnHole::Fail).unwrap();
        assert_eq!(found, expected(&world, u64::MAX));
        assert_eq!(figures.sources[0].late_bytes, 0, "all of it is in order");
        figures.sources[0].pending_bytes_peak
    };
    let (short, long) = (peak(300), peak(6_000));
    assert!(short > 0 && long <= 40_000, "{short} and {long}");
}

#[test]
fn a_hole_in_all_directories_is_named_or_passed() {
    let mut node = Node::new(1 << 20);
    node.create(1, 0);
    node.create(2, 0);
    node.place(1, 1, &batch(1, 1, 2, 10));
    node.place(2, 1, &batch(2, 1, 2, 10));
    let runs = BTreeMap::from([(1, (1, 1, 2)), (3, (3, 1, 4)), (2, (7, 1, 2))]);
    let cuts = [Cut {
        runs,
        high_watermark: 8,
    }];
    node.apply(1, &cuts);
    node.apply(2, &cuts);
    node.stop();
    let world = World {
        nodes: vec![node],
        ..World::default()
    };
    let (found, figures) = merged(&world, &[0], OnHole::Stop).unwrap();
    assert_eq!((found.len(), figures.holes), (2, vec![(3, 7)]));
    let (found, figures) = merged(&world, &[0], OnHole::Skip).unwrap();
    assert_eq!((found.len(), figures.holes), (4, vec![(3, 7)]));
    let error = merged(&world, &[0], OnHole::Fail).unwrap_err();
    assert!(matches!(error, Error::Hole { begin: 3, end: 7 }), "{error}");
}

#[test]
fn a_running_node_is_refused() {
    let node = Node::new(1 << 20);
    let vfs = Arc::new(node.vfs.clone()) as Arc<dyn Vfs>;
    let opened = Directory::open(vfs, Path::new("/node"), Options::default());
    assert!(matches!(opened.err(), Some(Error::Locked { .. })));
}
