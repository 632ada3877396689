//! How much later than the first replica of a stream each of the others is durable.
//!
//! *Theory of operation.* A cut waits for the last replica of a stream, so what counts is when the leader hears from
//! each of them that it has the same records on its disk. The first one that reports a new end sets a mark; how long
//! the mark waits for another replica is the lag of that one. A stream has one mark at a time, so a report costs the
//! same however many appends are on their way. The lags of a node are gathered over a window. A mark that still waits
//! at the end of a window counts with its age, or a replica that does not answer at all would not be seen.
//!
//! *Invariants.* Marks are set in an epoch that all replicas have entered, so none of them has something else to do
//! first. Whoever is heard is measured by the leader's clock alone. Marks and lags are bounded.

use std::collections::{BTreeMap, BTreeSet};

use super::{Metadata, Reports, Stream, Told};

/// Lags of one node in a window.
pub const LAGS_MAX: usize = 128;
/// Marks that wait at a time: a cluster with many streams is measured by some.
pub const MARKS_MAX: usize = 256;

/// Number of the state of a replica that runs in its epoch.
const RUNNING: u64 = 2;

/// An end that one replica has reached and others are waited for.
struct Mark {
    epoch: u64,
    end: u64,
    since: f64,
    waiting: BTreeSet<u64>,
    /// The greatest end that any replica has reported: behind it comes the next mark.
    top: u64,
}

/// Lags of the replicas, as the leader sees them; times are in seconds.
#[derive(Default)]
pub struct AnswerTimes {
    marks: BTreeMap<u64, Mark>,
    /// Streams whose mark waits, in the order in which those were set.
    open: Vec<u64>,
    lags: BTreeMap<u64, Vec<f64>>,
}

impl AnswerTimes {
    /// Take a report that was news to `reports`; `full` ones come when it is time, not when something was written.
    pub fn heard<M: Metadata, T>(
        &mut self,
        metadata: &M,
        reports: &Reports<T>,
        (node, full): (u64, bool),
        streams: impl Iterator<Item = (u64, Told)>,
        now: f64,
    ) -> Result<(), M::Error> {
        if full {
            // It may end a wait and begins none.
            for number in self.open.clone() {
                if let Some(told) = reports.told(node, number) {
                    self.reached(number, node, told, now);
                }
            }
            return Ok(());
        }
        for (number, told) in streams {
            let known = self.marks.get(&number);
            if let Some(mark) = known.filter(|mark| mark.epoch == told.epoch) {
                if !mark.waiting.is_empty() {
                    self.reached(number, node, &told, now);
                    continue;
                }
                if told.end <= mark.top {
                    continue;
                }
            }
            self.begin(metadata, reports, node, (number, &told), now)?;
        }
        Ok(())
    }

    fn reached(&mut self, number: u64, node: u64, told: &Told, now: f64) {
        let Some(mark) = self.marks.get_mut(&number) else {
            return;
        };
        if mark.epoch != told.epoch {
            return;
        }
        mark.top = mark.top.max(told.end);
        if told.end < mark.end || !mark.waiting.remove(&node) {
            return;
        }
        let (lag, over) = (now - mark.since, mark.waiting.is_empty());
        if over {
            self.open.retain(|open| *open != number);
        }
        self.note(node, lag);
    }

    fn begin<M: Metadata, T>(
        &mut self,
        metadata: &M,
        reports: &Reports<T>,
        node: u64,
        (number, first): (u64, &Told),
        now: f64,
    ) -> Result<(), M::Error> {
        let Some(stream) = metadata.stream(number)? else {
            return Ok(());
        };
        let replicated = stream.replicas.contains(&node) && stream.replicas.len() > 1;
        if !replicated || self.open.len() >= MARKS_MAX || first.epoch != stream.epoch {
            return Ok(());
        }
        let (mut top, mut waiting) = (0, BTreeSet::new());
        for each in &stream.replicas {
            let runs = |told: &&Told| told.epoch == stream.epoch && told.state == RUNNING;
            let Some(told) = reports.told(*each, number).filter(runs) else {
                return Ok(());
            };
            top = top.max(told.end);
            if told.end < first.end {
                waiting.insert(*each);
            }
        }
        // Unless it is the first one, what came before was not marked.
        let is_first = waiting.len() == stream.replicas.len() - 1;
        let mark = Mark {
            epoch: stream.epoch,
            end: first.end,
            since: now,
            waiting: if is_first { waiting } else { BTreeSet::new() },
            top,
        };
        self.marks.insert(number, mark);
        if is_first {
            self.open.push(number);
            self.note(node, 0.0);
        }
        Ok(())
    }

    fn note(&mut self, node: u64, lag: f64) {
        let lags = self.lags.entry(node).or_default();
        if lags.len() < LAGS_MAX {
            lags.push(lag);
        }
    }

    /// The median lag of each node since the last call.
    ///
    /// A mark that still waits counts if it is at least `least` old.
    pub fn take<M: Metadata>(
        &mut self,
        metadata: &M,
        now: f64,
        least: f64,
    ) -> Result<BTreeMap<u64, f64>, M::Error> {
        for number in std::mem::take(&mut self.open) {
            let epoch = self.marks.get(&number).map(|mark| mark.epoch);
            let stream = metadata.stream(number)?;
            if let Some(stream) = stream.filter(|stream| Some(stream.epoch) == epoch) {
                self.age(number, &stream, now, least);
                self.open.push(number);
            } else {
                self.marks.remove(&number);
            }
        }
        let numbers: Vec<u64> = self.marks.keys().copied().collect();
        for number in numbers {
            if metadata.stream(number)?.is_none() {
                self.marks.remove(&number);
            }
        }
        let lags = std::mem::take(&mut self.lags);
        let median = |(node, lags): (u64, Vec<f64>)| (node, median(lags));
        Ok(lags.into_iter().map(median).collect())
    }

    fn age(&mut self, number: u64, stream: &Stream, now: f64, least: f64) {
        let mark = &self.marks[&number];
        let age = now - mark.since;
        let waits = |node: &u64| mark.waiting.contains(node);
        let waiting: Vec<u64> = stream.replicas.iter().copied().filter(waits).collect();
        for node in waiting {
            let lags = self.lags.get(&node).into_iter().flatten();
            let seen = lags.copied().fold(0.0, f64::max);
            // The lag will be longer than that. If it may still be one like those that were seen it says nothing.
            if age >= least && age > seen {
                self.note(node, age);
            }
        }
    }

    /// Drop what was measured while the leader itself was late.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}
