//! Reclaiming segments: drop those that hold nothing alive, and copy the little that is alive out of
//! the oldest, so that a slow stream cannot hold the space of fast ones.
//!
//! What it copies keeps its LLSNs, and is indexed in *lanes* beside the frames written to the segment
//! first: each lane is a dense run, so that any order of cleaning is fine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::codec::Put;
use crate::error::{Error, Result};
use crate::index::{CommitRun, NATIVE, SegmentIndex, StreamIndex, StreamSummary};
use crate::wal::frame::{Frame, Kind};
use crate::wal::segment::FIRST_FRAME;
use crate::wal::segments::{Segment, is_data};
use crate::wal::state::State;
use crate::wal::store::Store;
use crate::wal::view::UNKNOWN;
use crate::wal::walk::Walk;

/// Commit runs in one frame: few enough for the smallest segment.
const RUNS_PER_FRAME: usize = 512;

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

    fn reclaim_dead(&self, cleaned: &dyn Fn(u64) -> bool) -> Result<Reclaimed> {
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
    fn lows(&self) -> BTreeMap<u32, u64> {
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

    /// Free the oldest segments, copying forward what is alive in them, as long as at most
    /// `live_max` (a fraction) of a segment is alive and until `target` segments are free.
    ///
    /// Needs no order from the streams: a stream that is never trimmed is copied again each lap of the
    /// log, which `live_max` keeps in bounds.
    pub fn clean(&self, target: u64, live_max: f64) -> Result<Reclaimed> {
        let _one = self.cleaning.lock();
        let mut total = self.reclaim_dead(&|_| false)?;
        while total.segments < target {
            let segments = self.view.segments();
            let Some(oldest) = segments
                .first()
                .filter(|segment| segment.sealed().is_some())
            else {
                break;
            };
            if self.live_fraction(oldest)? > live_max {
                break;
            }
            total.moved_bytes += self.move_live(oldest)?;
            let number = oldest.number;
            total.segments += self.reclaim_dead(&|segment| segment == number)?.segments;
        }
        Ok(total)
    }

    /// How much of a sealed segment is alive, by stream bytes; partly trimmed streams by numbers.
    fn live_fraction(&self, segment: &Segment) -> Result<f64> {
        let lows = self.lows();
        let summary = segment.summary(&*self.view.vfs, &self.view.dir)?;
        let live: f64 = summary.iter().map(|entry| live_bytes(entry, &lows)).sum();
        Ok(live / f64::from(segment.bytes))
    }

    /// Copy a segment's live batches to the end of the log; durable on return.
    fn move_live(&self, segment: &Arc<Segment>) -> Result<u64> {
        let vfs = &*self.view.vfs;
        let limit = segment.sealed().map_or(segment.bytes, |sealed| sealed.end);
        let mut walk = Walk::new(segment.reader(vfs)?, segment.seed, FIRST_FRAME, 0, limit);
        let mut moved = 0;
        let mut rollbacks = self.rollbacks()?;
        while let Some(frame) = walk.next_frame()? {
            let header = frame.header;
            let payload = walk.payload(&frame)?;
            let moved_frame = loop {
                let Some(count) = self.live_records(segment, &frame)? else {
                    break None;
                };
                self.ensure_slot()?;
                let mut inner = self.guard()?;
                if inner.appender.rollbacks != rollbacks {
                    // Placed since: what it cut must not be copied behind it.
                    drop(inner);
                    rollbacks = self.rollbacks()?;
                } else if inner.appender.unsealed_bytes() < self.options.unsynced_bytes_max {
                    inner.appender.append_moved(
                        header.stream,
                        header.epoch,
                        header.llsn,
                        count,
                        payload,
                    )?;
                    break Some(count);
                } else {
                    drop(inner);
                    self.sync()?;
                }
            };
            if moved_frame.is_some() {
                moved += u64::from(frame.length);
            }
        }
        if walk.offset < limit {
            let reason = walk.ended.unwrap_or_default();
            return Err(Error::corrupt(segment.path(), walk.offset.into(), reason));
        }
        self.move_runs(segment)?;
        self.sync()?;
        Ok(moved)
    }

    /// How many rollbacks were placed; readers see the segments of all of them.
    fn rollbacks(&self) -> Result<u64> {
        let placed = self.guard()?.appender.rollbacks;
        self.sync()?;
        Ok(placed)
    }

    /// How many records of a frame must be kept; `None` if the frame is dead or not data.
    fn live_records(&self, segment: &Arc<Segment>, frame: &Frame) -> Result<Option<u32>> {
        let header = &frame.header;
        if !is_data(header.kind) {
            return Ok(None);
        }
        let Ok(stream) = self.view.stream(header.stream) else {
            return Ok(None);
        };
        let range = stream.range();
        // Only where this segment is the owner; a newer copy or a rollback may have replaced it.
        let (extents, cut) = self.view.owned(&stream)?;
        if let Some(unknown) = extents.iter().find(|extent| extent.lane == UNKNOWN) {
            // Whether it replaces what is here cannot be said, and what is not copied goes.
            let reason = "its index can neither be read nor made again, so nothing is cleaned";
            return Err(Error::corrupt(unknown.segment.path(), 0, reason));
        }
        let owner = extents.iter().find(|extent| {
            Arc::ptr_eq(&extent.segment, segment)
                && (extent.lane > NATIVE) == (header.kind == Kind::Moved)
                && extent.begin < header.llsn + u64::from(header.count)
                && header.llsn < extent.end
        });
        let Some(owner) = owner else { return Ok(None) };
        let (vfs, dir) = (&*self.view.vfs, self.view.dir.as_path());
        let count = segment.with_index(vfs, dir, |index| {
            index.clip(
                header.stream,
                owner.lane,
                header.llsn,
                header.count,
                frame.offset,
            )
        })?;
        // Of what was taken back behind the stream's end nothing else may tell: a rollback goes with its segment.
        let end = owner.end.min(cut).min(range.durable);
        let count = u64::from(count).min(end.saturating_sub(header.llsn)) as u32;
        Ok((count > 0 && header.llsn + u64::from(count) > range.first).then_some(count))
    }

    /// Copy the commit runs of live records; those may lie in other segments.
    fn move_runs(&self, segment: &Segment) -> Result<()> {
        let (vfs, dir) = (&*self.view.vfs, self.view.dir.as_path());
        for (stream, low) in self.lows() {
            let runs = segment.with_index(vfs, dir, |index| live_runs(index, stream, low))?;
            for runs in runs.chunks(RUNS_PER_FRAME) {
                self.ensure_slot()?;
                let payload = encode_runs(runs);
                self.guard()?.appender.append_moved_runs(stream, &payload)?;
            }
        }
        Ok(())
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

fn live_runs(index: &SegmentIndex, stream: u32, low: u64) -> Vec<CommitRun> {
    let mut runs: Vec<CommitRun> = index
        .lanes(stream)
        .flat_map(|(_, lane)| lane.runs().to_vec())
        .filter(|run| low < run.llsn_end())
        .collect();
    runs.sort_by_key(|run| run.llsn_begin);
    runs
}

fn encode_runs(runs: &[CommitRun]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(runs.len() as u32);
    for run in runs {
        out.put_u64(run.glsn_begin);
        out.put_u64(run.llsn_begin);
        out.put_u64(run.length);
    }
    out
}

fn is_live(entry: &StreamSummary, lows: &BTreeMap<u32, u64>) -> bool {
    let low = lows.get(&entry.stream);
    entry
        .range
        .as_ref()
        .is_some_and(|range| low.is_some_and(|low| *low < range.end))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a fraction, for a decision that may be rough"
)]
fn live_bytes(entry: &StreamSummary, lows: &BTreeMap<u32, u64>) -> f64 {
    let (Some(range), Some(low)) = (&entry.range, lows.get(&entry.stream)) else {
        return 0.0;
    };
    let records = (range.end - range.start).max(1);
    let live = range.end.saturating_sub((*low).max(range.start));
    entry.bytes as f64 * live as f64 / records as f64
}
