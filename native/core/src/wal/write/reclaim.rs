//! Reclaiming segments: drop those that hold nothing alive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::index::{StreamIndex, StreamSummary};
use crate::wal::format::state::State;
use crate::wal::read::stream::UNKNOWN;
use crate::wal::segments::segment::Segment;
use crate::wal::write::store::Store;

/// What a reclaim or a cleaning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Segments whose slots are free again.
    pub segments: u64,
    /// Bytes copied forward.
    pub moved_bytes: u64,
}

impl Store {
    /// Drop every sealed segment that holds no live record. Any order: what is live elsewhere stays.
    pub fn reclaim(&self) -> Result<Reclaimed> {
        let _one = self.cleaning.lock();
        let mut files = self.files.lock();
        // Left by a kill before the open; removing them was too slow for the open itself.
        files.collect_slots()?;
        files.collect_sides()?;
        drop(files);
        let done = self.reclaim_dead(&|_| false)?;
        self.inner.lock().reclaim_due = false;
        Ok(done)
    }

    /// Drop what a kill before the open left, if that has not been done yet; returns whether it was.
    pub(super) fn reclaim_leftovers(&self) -> Result<bool> {
        let due = self.guard()?.reclaim_due;
        if due {
            self.reclaim()?;
        }
        Ok(due)
    }

    pub(super) fn reclaim_dead(&self, cleaned: &dyn Fn(u64) -> bool) -> Result<Reclaimed> {
        // Segments first: a stream that begins between the two is in the later one.
        let segments = self.view.segments();
        let lows = self.lows();
        let owners = self.owners(&lows)?;
        let (mut dead, mut rolled_back) = (Vec::new(), false);
        for segment in segments.iter().filter(|segment| segment.sealed().is_some()) {
            let summary = match segment.summary(&*self.view.vfs, &self.view.dir) {
                // What it holds is not known, so it stays; who reads it or verifies the log is told.
                Err(Error::Corruption { .. }) => continue,
                found => found?,
            };
            let mut live = summary.iter().filter(|entry| is_live(entry, &lows));
            let owned = |entry: &StreamSummary| {
                let owners = owners.get(&entry.stream);
                owners.is_none_or(|owners| owners.contains(&segment.number))
            };
            let trimmed = live.clone().next().is_none();
            let dead_now = cleaned(segment.number)
                || !(live.any(owned) || self.has_live_runs(segment, &summary, &lows)?);
            if dead_now {
                dead.push(segment.number);
                rolled_back |= !trimmed;
            }
        }
        if dead.is_empty() {
            return Ok(Reclaimed::default());
        }
        if rolled_back {
            // What took the records back may only be placed: after a crash they would be there again.
            self.sync()?;
        }
        // First out of the readers' table, then out of the manifest: a slot is written again only after both.
        let kept = |segments: &[Arc<Segment>]| -> Vec<Arc<Segment>> {
            segments
                .iter()
                .filter(|segment| !dead.contains(&segment.number))
                .cloned()
                .collect()
        };
        let mut files = self.files.lock();
        let listed = self.view.segments();
        self.view.set_segments(kept(&listed));
        let dropped = files.drop_segments(&dead);
        if let Err(error) = dropped {
            if error.is_exhausted() {
                // They are listed as before. Nothing was begun meanwhile: that takes the lock of the files.
                self.view.set_segments(listed.to_vec());
                return Err(error);
            }
            // Which segments the manifest lists is unknown now; nothing may be reused.
            self.inner
                .lock()
                .failed
                .get_or_insert_with(|| error.to_string());
            return Err(error);
        }
        drop(files);
        let mut inner = self.inner.lock();
        // Blocks in memory keep these segments for long, but not their files.
        for segment in segments.iter() {
            if dead.contains(&segment.number) {
                segment.close_files();
            }
        }
        inner.appender.freed(dead.len() as u64);
        Ok(Reclaimed {
            segments: dead.len() as u64,
            moved_bytes: 0,
        })
    }

    /// First live LLSN of each stream. A stream is dead once its deletion is durable; one that readers do
    /// not see yet is alive.
    pub(super) fn lows(&self) -> BTreeMap<u32, u64> {
        let mut lows: BTreeMap<u32, u64> =
            self.with_state(|state| state.streams.keys().map(|number| (*number, 0)).collect());
        for (number, stream) in self.view.streams() {
            lows.insert(number, stream.range().first);
        }
        lows
    }

    /// Segments that hold a live record, of each stream with explicit commits: records above the first that
    /// is kept may have been rolled back, or have a copy in a later segment.
    fn owners(&self, lows: &BTreeMap<u32, u64>) -> Result<BTreeMap<u32, BTreeSet<u64>>> {
        let explicit = |state: &State| -> Vec<(u32, u64)> {
            let streams = state.streams.iter();
            let explicit = streams.filter(|(_, stream)| stream.explicit_commit);
            explicit
                .map(|(number, stream)| (*number, stream.next))
                .collect()
        };
        let mut owners = BTreeMap::new();
        for (number, next) in self.with_state(explicit) {
            let Some(low) = lows.get(&number) else {
                continue;
            };
            // One that readers do not see yet is in no segment that could go.
            let Ok(stream) = self.view.stream(number) else {
                continue;
            };
            let (extents, cut) = self.view.owned(&stream)?;
            if extents.iter().any(|extent| extent.lane == UNKNOWN) {
                // What it replaces cannot be said, so all that may be alive stays.
                continue;
            }
            let end = next.min(cut);
            let live = extents.iter();
            let live = live.filter(|extent| extent.begin < end && *low < extent.end.min(end));
            let segments = live.map(|extent| extent.segment.number).collect();
            owners.insert(number, segments);
        }
        Ok(owners)
    }

    /// Whether a segment holds the commit of a live record; the record itself may lie in another one.
    fn has_live_runs(
        &self,
        segment: &Segment,
        summary: &[StreamSummary],
        lows: &BTreeMap<u32, u64>,
    ) -> Result<bool> {
        let (vfs, dir) = (&*self.view.vfs, self.view.dir.as_path());
        for entry in summary.iter().filter(|entry| entry.glsns.is_some()) {
            if let Some(low) = lows.get(&entry.stream)
                && segment.with_index(vfs, dir, |index| {
                    let lane = index.stream(entry.stream, entry.lane);
                    lane.and_then(StreamIndex::committed_end)
                        .is_some_and(|end| *low < end)
                })?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_live(entry: &StreamSummary, lows: &BTreeMap<u32, u64>) -> bool {
    let low = lows.get(&entry.stream);
    entry
        .range
        .as_ref()
        .is_some_and(|range| low.is_some_and(|low| *low < range.end))
}
