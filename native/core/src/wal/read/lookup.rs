//! Looking one record up: by position, and by time.

use std::sync::Arc;

use crate::batch::{
    BatchHead, BatchView, OwnedHead, OwnedRecord, PointPlan, first_at_or_after, parse_head,
    read_record,
};
use crate::error::{Error, Result};
use crate::index::NATIVE;
use crate::limits::{BLOCK_BYTES, PAGE_BYTES};
use crate::vfs::{PooledBuf, VfsFile};
use crate::wal::format::frame::{FRAME_HEADER, Frame, Kind, bytes_to_check, parse};
use crate::wal::read::batches::Position;
use crate::wal::read::cache::KeptHead;
use crate::wal::read::locate::Place;
use crate::wal::read::stream::StreamView;
use crate::wal::read::view::View;
use crate::wal::segments::segment::read_written;

/// Bytes read at a time while looking for a frame: what lies between two samples and some of the frame
/// itself, so that one read finds a small batch and the offsets of a large one.
const PROBE_BYTES: usize = 6 << 10;

/// A record and its position.
pub type FoundRecord = (u64, OwnedRecord);

impl View {
    /// The record at `llsn`. Reads and verifies only the pages of the batch that hold it.
    ///
    /// Fails with [`Error::Trimmed`], [`Error::BeyondEnd`] or [`Error::Corruption`].
    pub fn get(&self, stream: &StreamView, llsn: u64) -> Result<OwnedRecord> {
        let range = stream.range();
        if llsn < range.first {
            return Err(Error::Trimmed {
                position: llsn,
                first: range.first,
            });
        }
        if llsn >= range.end {
            return Err(Error::BeyondEnd {
                position: llsn,
                next: range.end,
            });
        }
        if let Some((placed, part)) = stream.recent(llsn) {
            let at = placed.at as usize;
            let bytes = &part.buf[at..at + placed.len as usize];
            let head = parse_head(bytes)?;
            head.check_there(placed.llsn)?;
            let body = &bytes[head.head_len()..];
            return read_record(&head, (llsn - placed.llsn) as u32, |range| Ok(&body[range]));
        }
        self.retrying(stream, llsn, || self.get_from_file(stream, llsn))
    }

    fn get_from_file(&self, stream: &StreamView, llsn: u64) -> Result<OwnedRecord> {
        let place = self.locate(stream, llsn)?;
        let file = self.reader(&place.segment)?;
        // Where a lookup begins stands a large batch, or a small one before those that are not indexed.
        if let Some(kept) = self.cache.head(place.segment.seed, place.offset)
            && self.holds(stream, &place, &kept.frame, llsn)?
        {
            let lookup = Lookup {
                place: &place,
                frame: &kept.frame,
                head: kept.head.as_head(),
                llsn,
            };
            return self.get_record(&lookup, |offset, len, buf| {
                read_exactly(&*file, offset, len, buf)
            });
        }
        self.get_by_scan(stream, &place, &*file, llsn)
    }

    /// Look for the batch from the place on.
    fn get_by_scan(
        &self,
        stream: &StreamView,
        place: &Place,
        file: &dyn VfsFile,
        llsn: u64,
    ) -> Result<OwnedRecord> {
        let corrupt = |offset: u32, error: &Error| {
            Error::corrupt(place.segment.path(), offset.into(), error.to_string())
        };
        let mut probe = Probe {
            buf: self.pool.take(PROBE_BYTES),
            at: 0,
        };
        let limit = place
            .segment
            .sealed()
            .map_or(place.segment.bytes, |sealed| sealed.end);
        let mut offset = place.offset;
        while offset < limit {
            let frame = match probe.frame(file, place, offset, limit) {
                Err(error @ Error::Malformed { .. }) => {
                    let aligned = offset.next_multiple_of(BLOCK_BYTES as u32);
                    if aligned == offset || aligned >= limit {
                        return Err(corrupt(offset, &error));
                    }
                    let gap = probe.bytes(file, offset, (aligned - offset) as usize, limit)?;
                    if gap.iter().any(|byte| *byte != 0) {
                        return Err(corrupt(offset, &error));
                    }
                    offset = aligned;
                    continue;
                }
                other => other?,
            };
            if !self.holds(stream, place, &frame, llsn)? {
                offset = frame.end();
                continue;
            }
            let bytes = probe.bytes(
                file,
                offset + FRAME_HEADER as u32,
                frame.head as usize,
                limit,
            )?;
            let head: OwnedHead = parse_head(bytes)
                .map_err(|error| corrupt(offset, &error))?
                .into();
            let kept = Arc::new(KeptHead { frame, head });
            if offset == place.offset && frame.length as usize > PROBE_BYTES {
                self.cache.put_head(place.segment.seed, &kept);
            }
            let lookup = Lookup {
                place,
                frame: &kept.frame,
                head: kept.head.as_head(),
                llsn,
            };
            return self.get_record(&lookup, |offset, len, buf| {
                probe.copy(file, offset, len, limit, buf)
            });
        }
        let reason = format!(
            "LLSN {llsn} of stream {} is not where its index says",
            stream.number
        );
        Err(Error::corrupt(
            place.segment.path(),
            place.offset.into(),
            reason,
        ))
    }

    /// Take the record out of its batch: kept pages, and others as `fetch` reads them.
    fn get_record(
        &self,
        lookup: &Lookup<'_>,
        mut fetch: impl FnMut(u32, usize, PooledBuf) -> Result<PooledBuf>,
    ) -> Result<OwnedRecord> {
        let (frame, seed) = (lookup.frame, lookup.place.segment.seed);
        let body = frame.offset + FRAME_HEADER as u32 + frame.head;
        let mut read = || {
            lookup.head.check_there(frame.header.llsn)?;
            let index = (lookup.llsn - frame.header.llsn) as u32;
            let mut plan = PointPlan::new(&lookup.head, index)?;
            let mut absent = Vec::new();
            for page in plan.offset_pages() {
                let offset = body + (page * PAGE_BYTES) as u32;
                if plan.offsets_in(page).is_some() {
                    continue;
                }
                match self.cache.page(seed, offset) {
                    Some(kept) => plan.supply_offsets(page, Bytes::Kept(kept)),
                    None => absent.push((page, offset)),
                }
            }
            while let Some(range) = plan.need()? {
                let bytes = fetch(
                    body + range.start as u32,
                    range.len(),
                    self.pool.take(range.len()),
                )?;
                plan.supply(range.start, Bytes::Read(bytes))?;
            }
            for (page, offset) in absent {
                if let Some(bytes) = plan.offsets_in(page) {
                    self.cache.put_page(seed, offset, bytes);
                }
            }
            match plan.record()? {
                Some(record) => Ok(record.into()),
                None => Err(Error::malformed(
                    "record batch",
                    lookup.head.head_len() as u64,
                    "record is not where it should be",
                )),
            }
        };
        read().map_err(|error| match error {
            Error::Malformed { .. } => Error::corrupt(
                lookup.place.segment.path(),
                frame.offset.into(),
                error.to_string(),
            ),
            other => other,
        })
    }

    /// Whether the frame holds that record, and no cut took it.
    fn holds(&self, stream: &StreamView, place: &Place, frame: &Frame, llsn: u64) -> Result<bool> {
        let header = &frame.header;
        let moved = header.kind == Kind::Moved;
        let mine = header.kind.is_data()
            && header.stream == stream.number
            && moved == (place.lane > NATIVE);
        // Of other kinds the numbers may be anything, so no sum.
        let into = llsn.checked_sub(header.llsn);
        let inside = into.is_some_and(|into| into < u64::from(header.count));
        Ok(mine && inside && self.counts(place, frame, llsn)?)
    }

    fn counts(&self, place: &Place, frame: &Frame, llsn: u64) -> Result<bool> {
        let header = &frame.header;
        let count = place.segment.with_index(&*self.vfs, &self.dir, |index| {
            index.clip(
                header.stream,
                place.lane,
                header.llsn,
                header.count,
                frame.offset,
            )
        })?;
        Ok(llsn - header.llsn < u64::from(count))
    }

    /// The first position whose timestamp is at least `timestamp`; `None` if there is none.
    ///
    /// Timestamps need not rise with positions. Segments and batches that hold nothing so late are
    /// skipped by their summaries.
    pub fn find(&self, stream: &StreamView, timestamp: i64) -> Result<Option<u64>> {
        let range = stream.range();
        let mut from = range.first;
        let mut position = Position::default();
        while from < range.end {
            let earlier = || self.earlier_until(stream, from, timestamp);
            if let Some(end) = self.retrying(stream, from, earlier)? {
                from = end;
                continue;
            }
            let batches = self.read(stream, from, range.end, 1 << 20, &mut position)?;
            for batch in &batches {
                let head = parse_head(batch.bytes())?;
                if head.max_timestamp() >= timestamp && !head.is_hole() {
                    let view = BatchView::parse_verified(batch.bytes())?;
                    if let Some(found) = first_wanted(&view, timestamp, batch.begin, batch.end) {
                        return Ok(Some(batch.llsn + u64::from(found)));
                    }
                }
                from = batch.next();
            }
            if batches.is_empty() {
                break;
            }
        }
        Ok(None)
    }

    /// If everything from `from` to the end of its sealed segment is earlier, where that ends.
    fn earlier_until(&self, stream: &StreamView, from: u64, timestamp: i64) -> Result<Option<u64>> {
        let Some(extent) = self.owner(stream, from)? else {
            return Ok(None);
        };
        let summary = extent.segment.summary(&*self.vfs, &self.dir)?;
        let mine = summary
            .iter()
            .find(|entry| entry.stream == stream.number && entry.lane == extent.lane);
        let latest = mine
            .and_then(|entry| entry.timestamps)
            .map(|(_, latest)| latest);
        Ok(latest
            .filter(|latest| *latest < timestamp)
            .map(|_| extent.end))
    }
}

fn first_wanted(view: &BatchView<'_>, timestamp: i64, begin: u32, end: u32) -> Option<u32> {
    match first_at_or_after(view, timestamp) {
        Some(found) if found >= begin => (found < end).then_some(found),
        Some(_) => (begin..end).find(|i| {
            view.record(*i)
                .is_some_and(|record| record.timestamp >= timestamp)
        }),
        None => None,
    }
}

fn past_the_end(offset: u32) -> Error {
    Error::malformed("frame", offset.into(), "runs past the end of the segment")
}

/// A record to take out of a batch.
struct Lookup<'a> {
    place: &'a Place,
    frame: &'a Frame,
    head: BatchHead<'a>,
    llsn: u64,
}

/// Pages of a batch.
enum Bytes {
    Read(PooledBuf),
    Kept(Arc<[u8]>),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Kept(bytes) => bytes,
        }
    }
}

fn read_exactly(
    file: &dyn VfsFile,
    offset: u32,
    len: usize,
    mut buf: PooledBuf,
) -> Result<PooledBuf> {
    buf.resize_stale(len);
    read_written(file, buf.as_mut_slice(), offset.into())?;
    Ok(buf)
}

/// A small window on a file.
struct Probe {
    buf: PooledBuf,
    at: u32,
}

impl Probe {
    fn bytes(&mut self, file: &dyn VfsFile, offset: u32, len: usize, limit: u32) -> Result<&[u8]> {
        let start = offset.wrapping_sub(self.at) as usize;
        if offset < self.at || start + len > self.buf.len() {
            let size = len
                .max(PROBE_BYTES)
                .min((limit.saturating_sub(offset)) as usize);
            if size < len {
                return Err(past_the_end(offset));
            }
            self.buf.resize_stale(size);
            read_written(file, self.buf.as_mut_slice(), offset.into())?;
            self.at = offset;
            return Ok(&self.buf[..len]);
        }
        Ok(&self.buf[start..start + len])
    }

    /// Bytes in a buffer of their own: out of the window, or exactly these from the file.
    fn copy(
        &self,
        file: &dyn VfsFile,
        offset: u32,
        len: usize,
        limit: u32,
        mut buf: PooledBuf,
    ) -> Result<PooledBuf> {
        let start = offset.wrapping_sub(self.at) as usize;
        if offset >= self.at && start + len <= self.buf.len() {
            buf.extend_from_slice(&self.buf[start..start + len]);
            return Ok(buf);
        }
        if len > limit.saturating_sub(offset) as usize {
            return Err(past_the_end(offset));
        }
        read_exactly(file, offset, len, buf)
    }

    fn frame(
        &mut self,
        file: &dyn VfsFile,
        place: &Place,
        offset: u32,
        limit: u32,
    ) -> Result<Frame> {
        let need = bytes_to_check(self.bytes(file, offset, FRAME_HEADER, limit)?);
        let bytes = self.bytes(file, offset, need, limit)?;
        let frame = parse(bytes, place.segment.seed, offset)?;
        if frame.end() > limit {
            return Err(past_the_end(offset));
        }
        Ok(frame)
    }
}
