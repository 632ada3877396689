//! Where a scan has to begin to meet a record: a segment, and an offset in it.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::index::{NATIVE, StreamIndex};
use crate::wal::read::stream::{Extent, StreamView};
use crate::wal::read::view::View;
use crate::wal::segments::segment::Segment;

/// A place to read from: a segment, up to an offset, and the LLSNs it owns.
pub(crate) struct Place {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u32,
    pub(crate) begin: u64,
    pub(super) end: u64,
    pub(crate) lane: u32,
}

impl View {
    /// The segment and offset from which a scan certainly meets `llsn`.
    pub(crate) fn locate(&self, stream: &StreamView, llsn: u64) -> Result<Place> {
        let segments = self.segments();
        let (vfs, dir) = (&*self.vfs, self.dir.as_path());
        let active = segments.last().filter(|newest| newest.sealed().is_none());
        let in_active = |moved: bool| -> Result<Option<Place>> {
            let Some(active) = active else {
                return Ok(None);
            };
            let found = active.with_index(vfs, dir, |index| {
                let lanes = index.lanes(stream.number);
                let mut lanes = lanes.filter(|(lane, _)| (*lane > NATIVE) == moved);
                lanes.find_map(|(lane, entry)| place_in(lane, entry, llsn))
            })?;
            Ok(found.map(|(lane, offset, begin, end)| Place {
                segment: Arc::clone(active),
                offset,
                begin,
                end,
                lane,
            }))
        };
        if let Some(place) = in_active(false)? {
            return Ok(place);
        }
        // A copy in the active segment may not be written yet; once it is durable its origin goes.
        let Some(extent) = self.owner(stream, llsn)? else {
            if let Some(place) = in_active(true)? {
                return Ok(place);
            }
            let path = segments.last().map_or(dir, |segment| segment.path());
            let reason = format!("no segment holds LLSN {llsn} of stream {}", stream.number);
            return Err(Error::corrupt(path, 0, reason));
        };
        let found = extent.segment.with_index(vfs, dir, |index| {
            place_in(extent.lane, index.stream(stream.number, extent.lane)?, llsn)
        })?;
        let (_, offset, ..) = found.ok_or_else(|| {
            let reason = format!("the index does not know LLSN {llsn}");
            Error::corrupt(extent.segment.path(), 0, reason)
        })?;
        let Extent {
            begin,
            end,
            segment,
            lane,
        } = extent;
        Ok(Place {
            segment,
            offset,
            begin,
            end,
            lane,
        })
    }
}

/// Where a scan for `llsn` begins in a lane that has it: (lane, offset, begin, end).
fn place_in(lane: u32, entry: &StreamIndex, llsn: u64) -> Option<(u32, u32, u64, u64)> {
    let found = entry.floor(llsn)?;
    let range = entry.range()?;
    Some((lane, found.offset, range.start, range.end))
}
