//! Commit runs of a stream over all segments: from its numbers to those of its log, and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::index::{CommitPoint, CommitRun, NATIVE, SegmentIndex};
use crate::wal::read::commits::{add_runs, ceil, earlier, merged};
use crate::wal::segments::segment::Segment;
use crate::wal::write::store::Store;

impl Store {
    /// The runs of the stream's LLSNs `begin..end`, rising, each as long as it can be.
    pub fn commit_runs(&self, stream: u32, begin: u64, end: u64) -> Result<Vec<CommitRun>> {
        let begin = begin.max(self.low(stream)?);
        let mut found = self.of_segments(stream, begin, |segments| {
            let mut found = Vec::new();
            for segment in segments {
                self.look(stream, segment, |index| {
                    add_runs(index, stream, begin..end, &mut found);
                })?;
            }
            Ok(found)
        })?;
        found.sort_by_key(|run| run.llsn_begin);
        Ok(merged(&found, begin, end))
    }

    /// The committed record of the stream with the greatest GLSN not above `glsn`.
    pub fn glsn_floor(&self, stream: u32, glsn: u64) -> Result<Option<CommitPoint>> {
        let low = self.low(stream)?;
        self.of_segments(stream, low, |segments| {
            let mut best: Option<CommitPoint> = None;
            for segment in segments.iter().rev() {
                let mut native = false;
                self.look(stream, segment, |index| {
                    for (lane, index) in index.lanes(stream) {
                        let point = index.glsn_floor(glsn).filter(|point| point.llsn >= low);
                        native |= lane == NATIVE && point.is_some();
                        best = later(best, point);
                    }
                })?;
                // Commits rise from segment to segment, so older ones have nothing nearer. Copies do not count: they
                // are of older commits than the segment that they are in.
                if native {
                    break;
                }
            }
            Ok(best)
        })
    }

    /// The committed record of the stream with the smallest GLSN not below `glsn`.
    pub fn glsn_ceil(&self, stream: u32, glsn: u64) -> Result<Option<CommitPoint>> {
        let low = self.low(stream)?;
        self.of_segments(stream, low, |segments| {
            let mut best: Option<CommitPoint> = None;
            for segment in segments {
                self.look(stream, segment, |index| {
                    for (_, lane) in index.lanes(stream) {
                        best = earlier(best, ceil(lane.runs(), glsn, low));
                    }
                })?;
            }
            Ok(best)
        })
    }

    fn low(&self, stream: u32) -> Result<u64> {
        Ok(self.guard()?.appender.state.stream(stream)?.low)
    }

    /// Run `f` on all segments, those that are not durable yet included, oldest first.
    fn of_segments<T>(
        &self,
        stream: u32,
        from: u64,
        f: impl Fn(&[Arc<Segment>]) -> Result<T>,
    ) -> Result<T> {
        let view = self.view.stream(stream)?;
        self.view.retrying(&view, from, || {
            let mut segments: BTreeMap<u64, Arc<Segment>> = BTreeMap::new();
            let mut add = |segment: &Arc<Segment>| {
                segments.insert(segment.number, Arc::clone(segment));
            };
            let inner = self.guard()?;
            self.view.segments().iter().for_each(&mut add);
            // Commits are known as soon as they are placed, so segments of groups in flight and of the one that
            // gathers count too.
            let in_flight = inner.flights.iter().flat_map(|flight| &flight.group.parts);
            in_flight.for_each(|part| add(&part.segment));
            inner
                .appender
                .parts
                .iter()
                .for_each(|part| add(&part.segment));
            add(&inner.appender.active.segment);
            drop(inner);
            f(&segments.into_values().collect::<Vec<_>>())
        })
    }

    fn look(&self, stream: u32, segment: &Segment, f: impl FnOnce(&SegmentIndex)) -> Result<()> {
        self.view.look(stream, segment, f)
    }
}

/// The one with the greater GLSN.
fn later(one: Option<CommitPoint>, other: Option<CommitPoint>) -> Option<CommitPoint> {
    let both = one.into_iter().chain(other);
    both.max_by_key(|point| point.glsn)
}
