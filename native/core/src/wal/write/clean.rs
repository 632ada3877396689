//! The cleaner: copies the little that is alive out of the oldest segments, so that a slow stream cannot hold
//! the space of fast ones.
//!
//! What it copies keeps its LLSNs, and is indexed in *lanes* beside the frames written to the segment
//! first: each lane is a dense run, so that any order of cleaning is fine.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codec::Put;
use crate::error::{Error, Result};
use crate::index::{CommitRun, NATIVE, SegmentIndex, StreamSummary};
use crate::wal::format::frame::{Frame, Kind};
use crate::wal::format::header::FIRST_FRAME;
use crate::wal::read::stream::UNKNOWN;
use crate::wal::segments::segment::Segment;
use crate::wal::segments::walk::Walk;
use crate::wal::write::reclaim::Reclaimed;
use crate::wal::write::store::Store;

/// Commit runs in one frame: few enough for the smallest segment.
const RUNS_PER_FRAME: usize = 512;

impl Store {
    /// Free the oldest segments, copying forward what is alive in them, as long as at most
    /// `live_max` (a fraction) of a segment is alive and until `target` segments are free.
    ///
    /// Needs no order from the streams: a stream that is never trimmed is copied again each lap of the
    /// log, which `live_max` keeps in bounds.
    pub fn clean(&self, target: u64, live_max: f64) -> Result<Reclaimed> {
        let _one = self.cleaning.lock();
        // What is dead anyway costs no copy.
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
                // Mostly alive: copying costs more than it frees.
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
                // Without the lock, as a slot takes long to make.
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
                    // Copies fill the memory no more than appends do.
                    drop(inner);
                    self.sync()?;
                }
            };
            if moved_frame.is_some() {
                moved += u64::from(frame.length);
            }
        }
        if walk.offset < limit {
            // Damage. What stands behind it was not copied, so the segment must not be dropped.
            let reason = walk.ended.unwrap_or_default();
            return Err(Error::corrupt(segment.path(), walk.offset.into(), reason));
        }
        self.move_runs(segment)?;
        // Before the caller drops the segment that they come from.
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
        if !header.kind.is_data() {
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
            let reason = "the index of this segment can neither be read nor made again, so the cleaner stops";
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
