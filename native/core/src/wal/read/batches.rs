//! Reading: from memory where a reader has caught up, else from segment files, verified.
//!
//! A read takes no lock that a writer holds across I/O. A segment may be recycled while it is read: the
//! salted checksums then fail, and the read says [`Error::Trimmed`] instead of serving other bytes.

use std::path::Path;
use std::sync::Arc;

use crate::batch::parse_head;
use crate::error::{Error, Result};
use crate::index::NATIVE;
use crate::limits::BLOCK_BYTES;
use crate::vfs::PooledBuf;
use crate::wal::format::frame::{FRAME_HEADER, Frame, bytes_to_check, parse};
use crate::wal::read::locate::Place;
use crate::wal::read::stream::StreamView;
use crate::wal::read::view::View;
use crate::wal::segments::part::{Part, Placed};
use crate::wal::segments::segment::{Segment, read_written};

/// Bytes read from a file at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes read to find one record: a sample's distance and some frames of other streams.
const PROBE_BYTES: usize = 8 << 10;

/// Changes of the segment table that may overtake one read; each takes the writer several syncs.
const ATTEMPTS: usize = 64;

/// Bytes of a segment file, and where they stand in it.
pub struct Chunk {
    buf: PooledBuf,
    segment: Arc<Segment>,
    offset: u32,
}

/// Who keeps a batch's bytes alive.
#[derive(Clone)]
pub enum Owner {
    /// A chunk read from a file.
    Chunk(Arc<Chunk>),
    /// A part still in memory.
    Recent(Arc<Part>),
}

/// A verified batch and the records of it that were asked for.
#[derive(Clone)]
pub struct BatchRef {
    owner: Owner,
    at: usize,
    len: usize,
    /// LLSN of the batch's first record.
    pub llsn: u64,
    /// First record wanted.
    pub begin: u32,
    /// One past the last record wanted.
    pub end: u32,
}

impl BatchRef {
    /// The encoded batch.
    pub fn bytes(&self) -> &[u8] {
        match &self.owner {
            Owner::Chunk(chunk) => &chunk.buf[self.at..self.at + self.len],
            Owner::Recent(part) => &part.buf[self.at..self.at + self.len],
        }
    }

    /// The segment file and the offset of its frame there; `None` if it was still in memory.
    pub fn place(&self) -> Option<(&Path, u32)> {
        match &self.owner {
            Owner::Chunk(chunk) => {
                let offset = chunk.offset + (self.at - FRAME_HEADER) as u32;
                Some((chunk.segment.path(), offset))
            }
            Owner::Recent(_) => None,
        }
    }

    /// LLSN of the first record wanted.
    pub fn first(&self) -> u64 {
        self.llsn + u64::from(self.begin)
    }

    /// One past the LLSN of the last record wanted.
    pub fn next(&self) -> u64 {
        self.llsn + u64::from(self.end)
    }

    /// All records of a batch that is in memory.
    pub(super) fn of_recent((placed, part): (Placed, Arc<Part>)) -> Self {
        Self {
            owner: Owner::Recent(part),
            at: placed.at as usize,
            len: placed.len as usize,
            llsn: placed.llsn,
            begin: 0,
            end: placed.count,
        }
    }

    pub(crate) fn clip(mut self, from: u64, to: u64) -> Option<Self> {
        let begin = from.saturating_sub(self.llsn).max(self.begin.into());
        let end = to.saturating_sub(self.llsn).min(self.end.into());
        self.begin = begin as u32;
        self.end = end as u32;
        (begin < end).then_some(self)
    }
}

/// Where a sequential reader stands, so that it need not look its position up again.
#[derive(Default)]
pub struct Position {
    /// Segment, lane, next LLSN, offset.
    hint: Option<(u64, u32, u64, u32)>,
}

impl View {
    /// Read verified batches of `stream` from LLSN `from` up to `to`, about `bytes_max` bytes, at least
    /// one batch. Returns nothing only if `from` is the end.
    ///
    /// Fails with [`Error::Trimmed`] below the first position, [`Error::BeyondEnd`] above the end,
    /// [`Error::Corruption`] where bytes are not what was written.
    pub fn read(
        &self,
        stream: &StreamView,
        from: u64,
        to: u64,
        bytes_max: usize,
        position: &mut Position,
    ) -> Result<Vec<BatchRef>> {
        let range = stream.range();
        if from < range.first {
            return Err(Error::Trimmed {
                position: from,
                first: range.first,
            });
        }
        if from > range.end {
            return Err(Error::BeyondEnd {
                position: from,
                next: range.end,
            });
        }
        self.read_below(stream, from, to.min(range.end), bytes_max, position)
    }

    /// As [`View::read`] of records that the caller knows to be durable, committed or not.
    pub(crate) fn read_below(
        &self,
        stream: &StreamView,
        from: u64,
        to: u64,
        bytes_max: usize,
        position: &mut Position,
    ) -> Result<Vec<BatchRef>> {
        if from >= to {
            return Ok(Vec::new());
        }
        if let Some(found) = recent(stream, from, to, bytes_max) {
            return Ok(found);
        }
        self.retrying(stream, from, || {
            self.read_files(stream, from, to, bytes_max, position)
        })
    }

    /// Read the batch of a durable record from its file, also where memory has it.
    pub(crate) fn read_stored(&self, stream: &StreamView, llsn: u64) -> Result<Vec<BatchRef>> {
        self.retrying(stream, llsn, || {
            self.read_files(stream, llsn, llsn + 1, 1, &mut Position::default())
        })
    }

    /// Do `read`, again if it failed while segments were dropped, moved or sealed.
    pub(crate) fn retrying<T>(
        &self,
        stream: &StreamView,
        from: u64,
        mut read: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        for _ in 0..ATTEMPTS {
            let version = self.version();
            match read() {
                Err(_) if self.version() != version => {}
                other => return other.map_err(|error| trimmed_meanwhile(stream, from, error)),
            }
        }
        read().map_err(|error| trimmed_meanwhile(stream, from, error))
    }

    pub(super) fn read_files(
        &self,
        stream: &StreamView,
        from: u64,
        to: u64,
        bytes_max: usize,
        position: &mut Position,
    ) -> Result<Vec<BatchRef>> {
        let mut place = self.locate(stream, from)?;
        // A lane of copies and what was written here first lie in any order.
        if let Some((segment, lane, llsn, offset)) = position.hint
            && (segment, lane, llsn) == (place.segment.number, place.lane, from)
            && offset > place.offset
        {
            place.offset = offset;
        }
        let file = self.reader(&place.segment)?;
        let limit = place
            .segment
            .sealed()
            .map_or(place.segment.bytes, |sealed| sealed.end);
        let mut found = Vec::new();
        let (mut next, mut read) = (from, 0);
        // Where the next read begins: at the last frame again if it holds more than was wanted now.
        let mut resume = None;
        while found.is_empty() {
            let size = bytes_max
                .clamp(PROBE_BYTES, CHUNK_BYTES)
                .min((limit - place.offset) as usize);
            let chunk = Chunk {
                buf: self.chunk(&*file, place.offset, size, limit)?,
                segment: Arc::clone(&place.segment),
                offset: place.offset,
            };
            let chunk = Arc::new(chunk);
            let mut at = 0;
            loop {
                let offset = place.offset + at as u32;
                let enough = !found.is_empty() && read >= bytes_max;
                if offset >= limit || next >= to.min(place.end) || enough {
                    break;
                }
                let step = match step(&place, stream.number, &chunk.buf, at, limit) {
                    // The next read says so, if it has to come here: copies that follow in the lane may
                    // not be written yet.
                    Err(_) if !found.is_empty() => break,
                    other => other?,
                };
                match step {
                    Step::Frame(frame) => {
                        at = (frame.end() - place.offset) as usize;
                        if let Some(batch) =
                            self.take(&place, stream.number, &chunk, &frame, next, to)?
                        {
                            next = batch.next();
                            read += frame.length as usize;
                            resume = (batch.end < frame.header.count).then_some(frame.offset);
                            found.push(batch);
                        }
                    }
                    Step::Gap(end) => at = (end - place.offset) as usize,
                    // The first frame was read whole, unless its length is no length.
                    Step::More if at == 0 => {
                        let reason = "a frame runs past the end of the segment";
                        return Err(Error::corrupt(place.segment.path(), offset.into(), reason));
                    }
                    Step::More => break,
                }
            }
            place.offset += at as u32;
            // A chunk holds a whole frame, so one without any ends the search as the end does.
            if found.is_empty() && (place.offset >= limit || at == 0) {
                let reason = format!(
                    "LLSN {from} of stream {} is not where its index says",
                    stream.number
                );
                return Err(Error::corrupt(
                    place.segment.path(),
                    place.offset.into(),
                    reason,
                ));
            }
        }
        let offset = resume.unwrap_or(place.offset);
        position.hint = Some((place.segment.number, place.lane, next, offset));
        Ok(found)
    }

    /// Read `size` bytes, or the whole first frame if that is longer.
    fn chunk(
        &self,
        file: &dyn crate::vfs::VfsFile,
        offset: u32,
        size: usize,
        limit: u32,
    ) -> Result<PooledBuf> {
        let mut buf = self.pool.take(size);
        buf.resize_stale(size);
        read_written(file, buf.as_mut_slice(), offset.into())?;
        if size >= 4 {
            let length = u32::from_le_bytes([buf[0], buf[1], buf[2], buf[3]]) as usize;
            if length > size
                && length <= (limit - offset) as usize
                && crate::wal::format::frame::plausible(&buf)
            {
                buf.resize_stale(length);
                let rest = &mut buf.as_mut_slice()[size..];
                read_written(file, rest, u64::from(offset) + size as u64)?;
            }
        }
        Ok(buf)
    }
}

/// What stands at `at` in a chunk that begins at the place's offset.
fn step(place: &Place, stream: u32, chunk: &[u8], at: usize, limit: u32) -> Result<Step> {
    let offset = place.offset + at as u32;
    let Some(left) = chunk.get(at..) else {
        return Ok(Step::More);
    };
    let room = (limit - offset) as usize;
    let at_end = left.len() >= room;
    if !at_end && (left.len() < FRAME_HEADER || left.len() < bytes_to_check(left)) {
        return Ok(Step::More);
    }
    match parse(left, place.segment.seed, offset) {
        Ok(frame) if frame.end() > limit => Err(Error::corrupt(
            place.segment.path(),
            offset.into(),
            "frame runs past the end of the segment",
        )),
        Ok(frame) => {
            let mine = frame.header.kind.is_data() && frame.header.stream == stream;
            if mine && left.len() < frame.length as usize {
                Ok(Step::More)
            } else {
                Ok(Step::Frame(frame))
            }
        }
        Err(reason) => {
            let aligned = offset.next_multiple_of(BLOCK_BYTES as u32);
            if aligned != offset
                && aligned < limit
                && zero(&left[..left.len().min((aligned - offset) as usize)])
            {
                return Ok(Step::Gap(aligned));
            }
            Err(Error::corrupt(
                place.segment.path(),
                offset.into(),
                reason.to_string(),
            ))
        }
    }
}

impl View {
    /// The batch of a frame if it is the stream's and holds something wanted.
    fn take(
        &self,
        place: &Place,
        stream: u32,
        chunk: &Arc<Chunk>,
        frame: &Frame,
        next: u64,
        to: u64,
    ) -> Result<Option<BatchRef>> {
        let header = &frame.header;
        let moved = header.kind == crate::wal::format::frame::Kind::Moved;
        if !header.kind.is_data() || header.stream != stream || moved != (place.lane > NATIVE) {
            return Ok(None);
        }
        let at = (frame.offset - place.offset) as usize + FRAME_HEADER;
        let count = place.segment.with_index(&*self.vfs, &self.dir, |index| {
            index.clip(stream, place.lane, header.llsn, header.count, frame.offset)
        })?;
        let batch = BatchRef {
            owner: Owner::Chunk(Arc::clone(chunk)),
            at,
            len: frame.payload as usize,
            llsn: header.llsn,
            begin: 0,
            end: count,
        };
        let Some(batch) = batch.clip(next.max(place.begin), to.min(place.end)) else {
            return Ok(None);
        };
        if batch.first() != next {
            return Ok(None);
        }
        let payload = batch.bytes();
        let corrupt =
            |e: Error| Error::corrupt(place.segment.path(), frame.offset.into(), e.to_string());
        let head = parse_head(payload).map_err(corrupt)?;
        if head.total_len() != payload.len() {
            return Err(Error::corrupt(
                place.segment.path(),
                frame.offset.into(),
                "batch length does not match",
            ));
        }
        head.verify_pages(0, &payload[head.head_len()..])
            .map_err(corrupt)?;
        Ok(Some(batch))
    }
}

enum Step {
    Frame(Frame),
    Gap(u32),
    More,
}

fn zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn recent(stream: &StreamView, from: u64, to: u64, bytes_max: usize) -> Option<Vec<BatchRef>> {
    let mut found: Vec<BatchRef> = Vec::new();
    let (mut next, mut bytes) = (from, 0);
    while next < to && bytes < bytes_max {
        let Some(recent) = stream.recent(next) else {
            break;
        };
        let batch = BatchRef::of_recent(recent).clip(next, to)?;
        next = batch.next();
        bytes += batch.bytes().len();
        found.push(batch);
    }
    (!found.is_empty()).then_some(found)
}

/// A read that failed because its segment was recycled meanwhile was simply trimmed.
fn trimmed_meanwhile(stream: &StreamView, from: u64, error: Error) -> Error {
    let first = stream.range().first;
    if from < first {
        let position = from;
        Error::Trimmed { position, first }
    } else {
        error
    }
}
