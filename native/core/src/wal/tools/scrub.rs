//! Reading what is on the disk before somebody needs it.
//!
//! # Theory of operation
//!
//! Damage is otherwise found by who reads it. Of old records that may be nobody, until the other copies are
//! damaged too. A pass goes through the frames of all sealed segments, a piece at a call, so that who asks
//! decides what it takes of the disk. Where a frame is damaged the whole segment is gone through once, to tell
//! which streams' readers meet the damage: behind each damaged place the next record of each stream is read as
//! a reader would. If that one is reached, so is what follows. What was trimmed, rolled back or copied to a
//! newer segment is not missed.
//!
//! The idea is that of the scrub of ZFS and of the block scanner of HDFS.
//!
//! # Invariants
//!
//! - Nothing is changed, and nothing is taken from memory, which may have what the disk has lost.
//! - A segment that was recycled meanwhile is not damaged.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::wal::format::frame::Kind;
use crate::wal::format::header::FIRST_FRAME;
use crate::wal::read::stream::{Extent, StreamView};
use crate::wal::read::view::View;
use crate::wal::segments::segment::Segment;
use crate::wal::segments::walk::Walk;
use crate::wal::tools::inspect::{Coverage, Found, Scan};
use crate::wal::write::store::Store;

/// Where a pass goes on; the default is before all segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubPlace {
    /// Number of a segment; one that is gone stands for the next.
    pub segment: u64,
    /// Where its next frame begins; 0 for its first.
    pub offset: u32,
    /// Ordinal of that frame.
    pub ordinal: u32,
}

/// Damage in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment file.
    pub path: PathBuf,
    /// First byte that cannot be trusted.
    pub offset: u64,
    /// What the check found.
    pub reason: String,
    /// Streams of which records can no longer be read, each with the first LLSN that cannot.
    pub lost: BTreeMap<u32, u64>,
}

/// What one call has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// Where to go on. Behind damage that is the next segment.
    pub next: ScrubPlace,
    /// Bytes checked.
    pub bytes: u64,
    /// What is wrong with them.
    pub damage: Option<Damage>,
}

impl Store {
    /// Check frames of sealed segments from `place` on: about `bytes_max` bytes of one segment, at least one
    /// frame. `None` where no sealed segment is left that is older than segment `before`.
    pub fn scrub(
        &self,
        place: ScrubPlace,
        before: u64,
        bytes_max: u32,
    ) -> Result<Option<Scrubbed>> {
        drop(self.guard()?);
        let segments = self.view.segments();
        let mut sealed = segments.iter().filter(|each| each.sealed().is_some());
        let Some(segment) = sealed.find(|each| (place.segment..before).contains(&each.number))
        else {
            return Ok(None);
        };
        let (mut offset, mut ordinal) = (FIRST_FRAME, 0);
        if segment.number == place.segment && place.offset > 0 {
            (offset, ordinal) = (place.offset, place.ordinal);
        }
        let mut walked = Walked {
            next: offset,
            ordinal,
            whole: false,
        };
        let damage = match self.walk_piece(segment, &mut walked, bytes_max) {
            Ok(()) => None,
            Err(_) if !self.has_segment(segment) => None,
            Err(error) => Some(self.assess(segment, error.of_written(walked.next.into()))?),
        };
        let next = if walked.whole || damage.is_some() {
            ScrubPlace {
                segment: segment.number + 1,
                ..ScrubPlace::default()
            }
        } else {
            ScrubPlace {
                segment: segment.number,
                offset: walked.next,
                ordinal: walked.ordinal,
            }
        };
        let bytes = u64::from(walked.next - offset);
        Ok(Some(Scrubbed {
            next,
            bytes,
            damage,
        }))
    }

    fn walk_piece(&self, segment: &Segment, walked: &mut Walked, bytes_max: u32) -> Result<()> {
        let limit = segment.sealed().map_or(segment.bytes, |sealed| sealed.end);
        let file = segment.reader(&*self.view.vfs)?;
        let from = walked.next;
        let mut walk = Walk::new(file, segment.seed, from, walked.ordinal, limit);
        while walk.next_frame()?.is_some() {
            (walked.next, walked.ordinal) = (walk.offset, walk.ordinal);
            if walk.offset < limit && walk.offset - from >= bytes_max {
                return Ok(());
            }
        }
        if walk.offset < limit {
            let reason = walk.ended.unwrap_or_default();
            return Err(Error::corrupt(segment.path(), walk.offset.into(), reason));
        }
        walked.whole = true;
        Ok(())
    }

    fn has_segment(&self, segment: &Arc<Segment>) -> bool {
        let segments = self.view.segments();
        segments.iter().any(|each| Arc::ptr_eq(each, segment))
    }

    /// What damage costs; an error that speaks of no damage is given back.
    fn assess(&self, segment: &Segment, error: Error) -> Result<Damage> {
        let (path, offset, reason) = match error {
            Error::Corruption {
                path,
                offset,
                reason,
            } => (path, offset, reason),
            Error::Missing { path, reason } => (path, 0, reason),
            other => return Err(other),
        };
        let lost = self.view.lost_in(segment)?;
        Ok(Damage {
            path,
            offset,
            reason,
            lost,
        })
    }
}

impl View {
    /// Streams of which a reader meets damage in a sealed segment, each with the first LLSN at which it does.
    pub fn lost_in(&self, segment: &Segment) -> Result<BTreeMap<u32, u64>> {
        let mut stakes = self.stakes(segment)?;
        let (mut seen, mut lost) = (Coverage::default(), BTreeMap::new());
        if let Ok(file) = segment.reader(&*self.vfs) {
            let limit = segment.sealed().map_or(segment.bytes, |sealed| sealed.end);
            let mut scan = Scan::new(file, segment.seed, limit);
            while let Some(found) = scan.next_found().filter(|_| !stakes.is_empty()) {
                match found {
                    Found::Bad(_) => self.probe(&mut stakes, &seen, &mut lost),
                    Found::Frame(frame) if frame.header.kind.is_data() => seen.note(0, &frame),
                    Found::Frame(frame) if frame.header.kind == Kind::Rollback => {
                        seen.cut(frame.header.stream, frame.header.llsn);
                    }
                    Found::Frame(_) => {}
                }
            }
        }
        self.probe(&mut stakes, &seen, &mut lost);
        Ok(lost)
    }

    /// What readers look for in a segment.
    fn stakes(&self, segment: &Segment) -> Result<Vec<Stake>> {
        let mut stakes = Vec::new();
        for stream in self.streams().into_values() {
            let (extents, cut) = self.owned(&stream)?;
            let range = stream.range();
            let end = range.durable.min(cut);
            let here = |extent: &&Extent| extent.segment.number == segment.number;
            for extent in extents.iter().filter(here) {
                let records = extent.begin.max(range.first)..extent.end.min(end);
                let stream = Arc::clone(&stream);
                stakes.push(Stake { stream, records });
            }
        }
        stakes.retain(|stake| !stake.records.is_empty());
        Ok(stakes)
    }

    /// Move the stakes of which the first record that was not seen yet cannot be read to what is lost.
    fn probe(&self, stakes: &mut Vec<Stake>, seen: &Coverage, lost: &mut BTreeMap<u32, u64>) {
        stakes.retain(|Stake { stream, records }| {
            let holes = seen.holes(stream.number, records);
            let Some(llsn) = holes.first().map(|hole| hole.start) else {
                return true;
            };
            let read = self.read_stored(stream, llsn);
            let gone = matches!(read, Err(Error::Corruption { .. } | Error::Missing { .. }));
            if gone {
                let first = lost.entry(stream.number).or_insert(llsn);
                *first = llsn.min(*first);
            }
            !gone
        });
    }
}

/// Records of a stream that readers look for in a segment.
struct Stake {
    stream: Arc<StreamView>,
    records: Range<u64>,
}

/// How far a piece got.
struct Walked {
    next: u32,
    ordinal: u32,
    /// Whether that is the end of the segment.
    whole: bool,
}
