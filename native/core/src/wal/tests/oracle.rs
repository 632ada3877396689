//! A dumb model of what a store promises: per stream plain vectors and maps, and every version of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{values_back, values_of};
use crate::wal::{State, Stream, Tables, View, pin_of};

/// One record as it was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub value: Arc<[u8]>,
    pub timestamp: i64,
}

/// What one stream holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub name: String,
    pub explicit: bool,
    pub low: u64,
    pub committed: u64,
    pub epoch: u64,
    /// By LLSN from 1, trimmed ones included.
    pub values: Vec<Kept>,
    pub cursors: BTreeMap<String, u64>,
    /// Next sequence of each producer.
    pub sequences: BTreeMap<u64, u64>,
    /// Where each (producer, sequence) went, rolled back ones taken out.
    pub placed: BTreeMap<(u64, u64), u64>,
    pub version: u64,
    pub glsn: u64,
    /// GLSN of each committed LLSN, trimmed ones included.
    pub glsns: BTreeMap<u64, u64>,
}

impl Expected {
    pub fn new(name: &str, explicit: bool) -> Self {
        Self {
            name: name.into(),
            explicit,
            low: 1,
            committed: 1,
            glsn: 1,
            ..Self::default()
        }
    }

    pub fn next(&self) -> u64 {
        self.values.len() as u64 + 1
    }

    pub fn push(&mut self, kept: Kept, producer: Option<(u64, u64)>) {
        if let Some((id, sequence)) = producer {
            self.sequences.insert(id, sequence + 1);
            self.placed.insert((id, sequence), self.next());
        }
        self.values.push(kept);
        if !self.explicit {
            self.committed = self.next();
        }
    }

    pub fn roll_back(&mut self, from: u64) {
        self.values.truncate(from as usize - 1);
        self.placed.retain(|_, llsn| *llsn < from);
        let mut sequences = BTreeMap::new();
        for (id, sequence) in self.placed.keys() {
            sequences.insert(*id, sequence + 1);
        }
        self.sequences = sequences;
    }

    /// LLSNs and values that can be read.
    pub fn readable(&self) -> Vec<(u64, &[u8])> {
        (self.low..self.committed)
            .map(|llsn| (llsn, &*self.values[llsn as usize - 1].value))
            .collect()
    }

    /// The naive answer to [`View::find`].
    pub fn find(&self, timestamp: i64) -> Option<u64> {
        (self.low..self.committed)
            .find(|llsn| self.values[*llsn as usize - 1].timestamp >= timestamp)
    }

    /// Whether the state of a stream says the same, contents apart.
    pub fn agrees(&self, name: &str, stream: &Stream) -> bool {
        let cursors: BTreeMap<String, u64> = stream
            .cursors
            .iter()
            .map(|(name, cursor)| (name.clone(), cursor.position))
            .collect();
        let sequences = self
            .sequences
            .iter()
            .all(|(id, next)| stream.producers.next_sequence(*id) == *next);
        name == self.name
            && (stream.low, stream.committed, stream.next, stream.epoch)
                == (self.low, self.committed, self.next(), self.epoch)
            && stream.explicit_commit == self.explicit
            && cursors == self.cursors
            && sequences
            && stream.producers.len() == self.sequences.len()
    }

    /// Panic unless the stream reads as expected: sequentially, by position and by time.
    pub fn check(&self, view: &View, number: u32, context: &str) {
        let stream = view.stream(number).unwrap();
        let range = stream.range();
        let expected = (self.low, self.committed, self.next());
        assert_eq!(
            (range.first, range.end, range.durable),
            expected,
            "{context}: range of stream {number}"
        );
        for (read, way) in [
            (values_of(view, &stream, self.low, 6000), "forwards"),
            (values_back(view, &stream, self.low, 6000), "backwards"),
        ] {
            let context = format!("{context}: stream {number}, {way}");
            let found = read.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_same(&found, &self.readable(), &context);
        }
    }

    /// Panic unless every record is found by itself, and by its timestamp.
    pub fn check_points(&self, view: &View, number: u32, step: usize, context: &str) {
        let stream = view.stream(number).unwrap();
        for (llsn, value) in self.readable().into_iter().step_by(step) {
            let found = view.get(&stream, llsn);
            let found = found
                .unwrap_or_else(|error| panic!("{context}: stream {number} at {llsn}: {error}"));
            assert!(
                found.value.as_deref() == Some(value),
                "{context}: {number} at {llsn}"
            );
        }
        for timestamp in [0, 500, 900, 990, 999, 1000] {
            let found = view.find(&stream, timestamp);
            let found =
                found.unwrap_or_else(|error| panic!("{context}: stream {number}, time: {error}"));
            assert_eq!(
                found,
                self.find(timestamp),
                "{context}: {number} {timestamp}"
            );
        }
    }
}

pub fn assert_same(found: &[(u64, Vec<u8>)], expected: &[(u64, &[u8])], context: &str) {
    let same = found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(found, expected)| found.0 == expected.0 && found.1 == expected.1);
    if !same {
        let at = found
            .iter()
            .zip(expected)
            .position(|(found, expected)| found.0 != expected.0 || found.1 != expected.1);
        panic!(
            "{context}: {} records, expected {}, first difference at {at:?}: LLSN {:?} against {:?}",
            found.len(),
            expected.len(),
            at.map(|at| found[at].0),
            at.map(|at| expected[at].0)
        );
    }
}

/// Versions of all streams: `None` before creation and after deletion.
#[derive(Clone, Default)]
pub struct History {
    versions: BTreeMap<u32, Vec<Option<Arc<Expected>>>>,
    /// Versions of the tables; nothing says that there never were any.
    tables: Vec<Arc<Tables>>,
}

/// How many versions each stream had, and under 0 the tables.
pub type Moment = BTreeMap<u32, usize>;

impl History {
    pub fn now(&self) -> Moment {
        let counts = self.versions.iter();
        let counts = counts.map(|(stream, all)| (*stream, all.len()));
        counts.chain([(0, self.tables.len().max(1))]).collect()
    }

    pub fn change_tables(&mut self, tables: Tables) {
        if self.tables.is_empty() {
            self.tables.push(Arc::default());
        }
        self.tables.push(Arc::new(tables));
    }

    /// The tables as a recovered state has them: some version from the acknowledged one on. All of an entry is there
    /// or nothing, so no other will do; and each table has its cursor.
    fn locate_tables(&self, state: &State, acked: &Moment, submitted: &Moment, context: &str) {
        let first = acked.get(&0).map_or(0, |count| count - 1);
        let last = submitted.get(&0).copied().unwrap_or(0).max(1);
        let never = [Arc::default()];
        let versions = if self.tables.is_empty() {
            &never[..]
        } else {
            &self.tables[..]
        };
        assert!(
            versions[first..last]
                .iter()
                .any(|all| **all == state.tables),
            "{context}: tables are in no acceptable state: {:?}, acknowledged {:?}",
            state.tables,
            versions[first]
        );
        let cursors = state
            .streams
            .values()
            .flat_map(|stream| stream.cursors.keys());
        let pins = cursors
            .filter_map(|name| pin_of(name))
            .collect::<BTreeSet<u128>>();
        let tables = state.tables.iter().map(|table| table.id).collect();
        assert_eq!(pins, tables, "{context}: pins of tables");
    }

    pub fn get(&self, stream: u32) -> &Expected {
        let newest = self.versions[&stream].last().unwrap();
        newest.as_ref().expect("the stream lives")
    }

    pub fn create(&mut self, stream: u32, expected: Expected) {
        self.versions
            .insert(stream, vec![None, Some(Arc::new(expected))]);
    }

    pub fn delete(&mut self, stream: u32) {
        self.versions.get_mut(&stream).unwrap().push(None);
    }

    pub fn change(&mut self, stream: u32, change: impl FnOnce(&mut Expected)) {
        let mut next = self.get(stream).clone();
        change(&mut next);
        let next = Some(Arc::new(next));
        self.versions.get_mut(&stream).unwrap().push(next);
    }

    /// Streams that live.
    pub fn live(&self) -> Vec<u32> {
        let live = self
            .versions
            .iter()
            .filter(|(_, all)| matches!(all.last(), Some(Some(_))));
        live.map(|(stream, _)| *stream).collect()
    }

    /// Every stream as a recovered state has it: some version from the acknowledged one to the one
    /// submitted last. Panics if there is none.
    pub fn locate(&self, state: &State, acked: &Moment, submitted: &Moment, context: &str) -> Self {
        self.locate_tables(state, acked, submitted, context);
        let mut found = Self {
            tables: vec![Arc::new(state.tables.clone())],
            ..Self::default()
        };
        let names: BTreeMap<u32, &str> = state
            .logs
            .values()
            .map(|log| (log.stream, log.log.name.as_str()))
            .collect();
        assert!(
            state.streams.keys().all(|s| self.versions.contains_key(s)),
            "{context}: a stream that nobody created"
        );
        for (stream, versions) in &self.versions {
            let first = acked.get(stream).map_or(0, |count| count - 1);
            let last = submitted.get(stream).copied().unwrap_or(0).max(1);
            let now = state.streams.get(stream);
            let matches = |version: &&Option<Arc<Expected>>| match (version, now) {
                (None, None) => true,
                (Some(version), Some(now)) => version.agrees(names[stream], now),
                _ => false,
            };
            let Some(version) = versions[first..last].iter().find(matches) else {
                let newest = versions[first].as_ref();
                panic!(
                    "{context}: stream {stream} is in no acceptable state: {now:?}; acknowledged: next {:?} low {:?} committed {:?} epoch {:?} cursors {:?} sequences {:?}",
                    newest.map(|v| v.next()),
                    newest.map(|v| v.low),
                    newest.map(|v| v.committed),
                    newest.map(|v| v.epoch),
                    newest.map(|v| v.cursors.clone()),
                    newest.map(|v| v.sequences.clone()),
                );
            };
            found.versions.insert(*stream, vec![version.clone()]);
        }
        found
    }

    /// Panic unless every live stream reads as its newest version.
    pub fn check(&self, view: &View, context: &str) {
        for stream in self.live() {
            self.get(stream).check(view, stream, context);
        }
    }

    /// As [`History::check`], each `step`-th record by itself too.
    pub fn check_points(&self, view: &View, step: usize, context: &str) {
        for stream in self.live() {
            self.get(stream).check_points(view, stream, step, context);
        }
    }
}
