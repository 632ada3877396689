//! Places frames: the critical section of every append, memory only.
//!
//! # Theory of operation
//!
//! A pushed record goes into its stream's *open batch* and gets its LLSN at once. The sync that comes
//! next closes the open batches into frames, so that everything that arrived while a sync was in
//! flight shares one frame and one write. Frames go into *parts*, block-aligned runs of one
//! segment; the parts that one sync writes are a [`Group`]. While nothing is in flight, a part goes on
//! in the last, partly filled block (and writes its bytes again, unchanged); otherwise it begins on
//! a fresh block, because two writes in flight must not share one.
//!
//! # Invariants
//!
//! - A frame's position, ordinal, checksum and index sample are decided together, under one lock.
//! - What a ticket's group number promises is in that group or an earlier one.
//! - Space is reserved before a record gets its LLSN, so a numbered record always fits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::{BatchBuilder, ColumnsRef, Compression, Producer, encode_columns, parse_head};
use crate::error::{Error, Result};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, BLOCK_BYTES};
use crate::vfs::{BufPool, PooledBuf};
use crate::wal::change::Change;
use crate::wal::frame::{FLAG_MORE, FRAME_HEADER, Frame, FrameHeader, Kind, frame_len, seal};
use crate::wal::parts::{Effect, Group, Part};
use crate::wal::producer::{Admission, ProducerId};
use crate::wal::segment::{FIRST_FRAME, SegmentHeader};
use crate::wal::segments::Segment;
use crate::wal::state::State;
use crate::wal::view;

/// Segments that records may not use, so that trim, cleaning and recovery always find room.
pub const RESERVE_SEGMENTS: u64 = 2;

/// Preamble bytes per frame.
const PREAMBLE_CHUNK: usize = 1 << 20;

/// An open batch is closed when it reaches this size; larger ones only make point reads slower.
const BATCH_TARGET: usize = 256 << 10;

/// Where an append went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// LLSN of the first record.
    pub llsn: u64,
    /// Number of records.
    pub count: u64,
    /// The group that makes them durable; 0 if they already are.
    pub group: u64,
}

/// A record to push.
#[derive(Clone, Copy)]
pub struct NewRecord<'a> {
    /// Value.
    pub value: &'a [u8],
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Microseconds since the Unix epoch.
    pub timestamp: i64,
    /// Header names and values.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// A producer and the sequence of the first record.
pub type Sequenced = (ProducerId, u64);

struct OpenBatch {
    builder: BatchBuilder,
    llsn: u64,
    producer: Option<Sequenced>,
}

/// The end of the log.
pub struct Active {
    /// Segment being written.
    pub segment: Arc<Segment>,
    /// Offset behind the last placed frame.
    pub offset: u32,
    /// Ordinal of the next frame.
    pub ordinal: u32,
    /// Offset below which everything is durable.
    pub durable: u32,
    /// Bytes of the last, partly filled block.
    pub tail: Vec<u8>,
}

/// Sizes the appender works with.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Segment file length.
    pub segment_bytes: u32,
    /// Most segments that may exist.
    pub segments_max: u64,
}

/// What frames to come are made of.
pub struct Appender {
    /// State as of the last placed frame (producer windows: as of the last push).
    pub state: State,
    /// End of the log.
    pub active: Active,
    /// Groups in flight.
    pub in_flight: usize,
    /// Segments that exist or are placed.
    pub segments_used: u64,
    /// Sizes.
    pub sizes: Sizes,
    /// Number of the group being gathered.
    pub group: u64,
    /// Rollbacks placed since the log was opened.
    pub rollbacks: u64,
    node: u128,
    entropy: u64,
    pool: BufPool,
    open: BTreeMap<u32, OpenBatch>,
    idle: Vec<BatchBuilder>,
    parts: Vec<Part>,
    touched: BTreeSet<u32>,
    compression: HashMap<u32, Compression>,
}

impl Appender {
    /// Go on behind `active`.
    pub fn new(
        state: State,
        active: Active,
        sizes: Sizes,
        segments_used: u64,
        node: u128,
        entropy: u64,
        pool: BufPool,
    ) -> Self {
        Self {
            state,
            active,
            in_flight: 0,
            segments_used,
            sizes,
            group: 1,
            rollbacks: 0,
            node,
            entropy,
            pool,
            open: BTreeMap::new(),
            idle: Vec::new(),
            parts: Vec::new(),
            touched: BTreeSet::new(),
            compression: HashMap::new(),
        }
    }

    /// The first segment of a new log: an appender whose first part opens segment 1.
    pub fn create(sizes: Sizes, node: u128, entropy: u64, pool: BufPool) -> Result<Self> {
        let nothing = Arc::new(Segment::active(0, 0, 0));
        let active = Active {
            segment: nothing,
            offset: 0,
            ordinal: 0,
            durable: 0,
            tail: Vec::new(),
        };
        let mut appender = Self::new(State::default(), active, sizes, 0, node, entropy, pool);
        appender.roll(true)?;
        Ok(appender)
    }

    /// Choose the compression of a stream's batches from now on.
    pub fn set_compression(&mut self, stream: u32, compression: Compression) {
        self.compression.insert(stream, compression);
    }

    fn compression(&self, stream: u32) -> Compression {
        self.compression
            .get(&stream)
            .copied()
            .unwrap_or(Compression::None)
    }

    /// Whether something waits to be sealed.
    pub fn has_unsealed(&self) -> bool {
        !self.open.is_empty() || !self.parts.is_empty()
    }

    /// Bytes that wait to be sealed, roughly.
    pub fn unsealed_bytes(&self) -> usize {
        let open: usize = self
            .open
            .values()
            .map(|open| open.builder.encoded_len_max())
            .sum();
        open + self.parts.iter().map(|part| part.buf.len()).sum::<usize>()
    }

    /// The group that makes everything pushed so far durable.
    pub fn latest(&self) -> u64 {
        if self.has_unsealed() {
            self.group
        } else {
            self.group - 1
        }
    }

    /// Next LLSN a push to `stream` would get.
    pub fn next_llsn(&self, stream: u32) -> Result<u64> {
        let placed = self.state.stream(stream)?.next;
        Ok(self
            .open
            .get(&stream)
            .map_or(placed, |open| open.llsn + open.builder.len() as u64))
    }

    /// Push one record.
    ///
    /// Fails, with nothing changed, if it is too large, the log is full, or the producer's sequence is
    /// not the next one (a repeat is not an error: the ticket tells the original place).
    pub fn push(
        &mut self,
        stream: u32,
        record: NewRecord<'_>,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        let llsn = self.next_llsn(stream)?;
        if let Some(ticket) = self.admit(stream, producer, 1)? {
            return Ok(ticket);
        }
        let continues = self
            .open
            .get(&stream)
            .is_some_and(|open| open.continues(producer));
        let NewRecord {
            value,
            key,
            timestamp,
            headers,
        } = record;
        // A record that no batch takes is refused here, before anything changes.
        let joins = match self.open.get(&stream).filter(|_| continues) {
            Some(open) => {
                open.builder.fits(value, key, timestamp, headers)?
                    && open.builder.encoded_len_max() < BATCH_TARGET.min(self.batch_bytes_max() / 2)
            }
            None => BatchBuilder::new()
                .fits(value, key, timestamp, headers)
                .map(|_| false)?,
        };
        let bytes = record_bytes(&record);
        if bytes > self.batch_bytes_max() / 2 {
            Self::check_batch_len(bytes, self.batch_bytes_max())?;
        }
        self.reserve(bytes)?;
        if !joins {
            self.close_batch(stream)?;
            self.open_batch(stream, producer)?;
        }
        let Some(open) = self.open.get_mut(&stream) else {
            return Err(Error::Closed);
        };
        open.builder.push(value, key, timestamp, headers)?;
        self.note_producer(stream, producer, llsn, 1);
        Ok(Ticket {
            llsn,
            count: 1,
            group: self.group,
        })
    }

    /// Append the given rows of columns at once, as batches of about `target` bytes.
    pub fn append_columns(
        &mut self,
        stream: u32,
        columns: &ColumnsRef<'_>,
        rows: Range<usize>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        let count = rows.len() as u64;
        let llsn = self.next_llsn(stream)?;
        if count == 0 {
            return Ok(Ticket {
                llsn,
                count: 0,
                group: 0,
            });
        }
        if let Some(ticket) = self.admit(stream, producer, count)? {
            return Ok(ticket);
        }
        let target = target.min(self.batch_bytes_max());
        let ranges: Vec<_> = columns
            .split(rows.clone(), target, BATCH_RECORDS_MAX)
            .collect();
        let sizes: Vec<usize> = ranges
            .iter()
            .map(|range| columns.encoded_len_max(range))
            .collect();
        Self::check_batch_len(
            sizes.iter().copied().max().unwrap_or(0),
            self.batch_bytes_max(),
        )?;
        self.reserve(sizes.iter().map(|size| frame_len(*size)).sum())?;
        self.close_batch(stream)?;
        for (range, size) in ranges.into_iter().zip(sizes) {
            let records = range.len() as u32;
            let from = producer.map_or(Producer::default(), |(id, first)| Producer {
                id: id.id,
                epoch: id.epoch,
                base_sequence: first + (range.start - rows.start) as u64,
            });
            let compression = self.compression(stream);
            self.place_batch(stream, records, size, |out| {
                encode_columns(columns, range, from, compression, out)
            })?;
        }
        self.note_producer(stream, producer, llsn, count);
        Ok(Ticket {
            llsn,
            count,
            group: self.group,
        })
    }

    /// Append an encoded, verified batch as it is (replication, salvage). `llsn` must be the next one.
    pub fn append_encoded(
        &mut self,
        stream: u32,
        epoch: u64,
        llsn: u64,
        batch: &[u8],
    ) -> Result<Ticket> {
        let head = parse_head(batch)?;
        self.reserve(frame_len(batch.len()))?;
        self.close_batch(stream)?;
        let producer = head.producer();
        let id = (producer.id != 0).then_some((
            ProducerId {
                id: producer.id,
                epoch: producer.epoch,
            },
            producer.base_sequence,
        ));
        let header = Self::header(Kind::Batch, stream, head.count(), epoch, llsn);
        let change = Change::Batch {
            count: head.count(),
            producer: id,
        };
        self.state.check(&header, &change)?;
        let timestamps = (head.min_timestamp(), head.max_timestamp());
        let head_len = head.head_len();
        let frame = self.place(header, batch.len(), false, |out| {
            out.extend_from_slice(batch);
            Ok(head_len)
        })?;
        self.note(&frame, &change, timestamps)?;
        self.state.apply(&header, &change)?;
        Ok(Ticket {
            llsn,
            count: head.count().into(),
            group: self.group,
        })
    }

    /// Copy a batch forward for the cleaner, with `count` records that count.
    pub fn append_moved(
        &mut self,
        stream: u32,
        epoch: u64,
        llsn: u64,
        count: u32,
        batch: &[u8],
    ) -> Result<u64> {
        let head = parse_head(batch)?;
        let header = Self::header(Kind::Moved, stream, count, epoch, llsn);
        let (head_len, timestamps) = (
            head.head_len(),
            (head.min_timestamp(), head.max_timestamp()),
        );
        let frame = self.place(header, batch.len(), true, |out| {
            out.extend_from_slice(batch);
            Ok(head_len)
        })?;
        self.note(&frame, &Change::Nothing, timestamps)?;
        Ok(self.group)
    }

    /// Copy commit runs forward for the cleaner.
    pub fn append_moved_runs(&mut self, stream: u32, payload: &[u8]) -> Result<u64> {
        let header = Self::header(Kind::MovedRuns, stream, 0, 0, 0);
        let frame = self.place(header, payload.len(), true, |out| {
            out.extend_from_slice(payload);
            Ok(payload.len())
        })?;
        self.note(&frame, &Change::Nothing, (0, 0))?;
        Ok(self.group)
    }

    /// Place a change that is not a batch. `llsn` and `epoch` as the kind needs them.
    pub fn change(&mut self, stream: u32, epoch: u64, llsn: u64, change: &Change) -> Result<u64> {
        if stream != 0 && self.open.contains_key(&stream) {
            self.close_batch(stream)?;
        }
        let header = Self::header(change.kind(), stream, 0, epoch, llsn);
        self.state.check(&header, change)?;
        let payload = change.payload();
        let frame = self.place(header, payload.len(), true, |out| {
            out.extend_from_slice(&payload);
            Ok(payload.len())
        })?;
        self.note(&frame, change, (0, 0))?;
        self.state.apply(&header, change)?;
        self.rollbacks += u64::from(matches!(change, Change::Rollback));
        Ok(self.group)
    }

    /// Close the open batches and take everything gathered as one group.
    pub fn seal(&mut self) -> Result<Group> {
        let streams: Vec<u32> = self.open.keys().copied().collect();
        for stream in streams {
            self.close_batch(stream)?;
        }
        let mut parts = mem::take(&mut self.parts);
        if let Some(last) = parts.last_mut() {
            last.end = self.active.offset;
            let block =
                (self.active.offset as usize) / BLOCK_BYTES * BLOCK_BYTES - last.start as usize;
            self.active.tail = last.buf[block..].to_vec();
        }
        for part in &mut parts {
            part.pad();
        }
        let bytes = parts.iter().map(|part| part.buf.len()).sum();
        let effects = mem::take(&mut self.touched)
            .into_iter()
            .map(|stream| self.effect(stream))
            .collect();
        let number = self.group;
        self.group += 1;
        Ok(Group {
            number,
            parts: parts.into_iter().map(Arc::new).collect(),
            effects,
            bytes,
        })
    }

    fn effect(&self, number: u32) -> Effect {
        match self.state.streams.get(&number) {
            None => Effect::Gone(number),
            Some(stream) => Effect::Range(number, range_of(stream)),
        }
    }

    fn admit(
        &self,
        stream: u32,
        producer: Option<Sequenced>,
        count: u64,
    ) -> Result<Option<Ticket>> {
        let Some((id, sequence)) = producer else {
            return Ok(None);
        };
        match self
            .state
            .stream(stream)?
            .producers
            .admit(id, sequence, count)?
        {
            Admission::New => Ok(None),
            Admission::Repeat(llsn) => Ok(Some(Ticket {
                llsn,
                count,
                group: self.latest(),
            })),
        }
    }

    fn note_producer(&mut self, stream: u32, producer: Option<Sequenced>, llsn: u64, count: u64) {
        if let (Some((id, sequence)), Some(stream)) =
            (producer, self.state.streams.get_mut(&stream))
        {
            stream.producers.note(id, sequence, llsn, count);
        }
    }

    fn open_batch(&mut self, stream: u32, producer: Option<Sequenced>) -> Result<()> {
        let llsn = self.state.stream(stream)?.next;
        let mut builder = self.idle.pop().unwrap_or_default();
        builder.clear();
        if let Some((id, sequence)) = producer {
            builder.set_producer(id.id, id.epoch, sequence);
        }
        self.open.insert(
            stream,
            OpenBatch {
                builder,
                llsn,
                producer,
            },
        );
        Ok(())
    }

    fn close_batch(&mut self, stream: u32) -> Result<()> {
        let Some(open) = self.open.remove(&stream) else {
            return Ok(());
        };
        let compression = self.compression(stream);
        let (records, size) = (open.builder.len() as u32, open.builder.encoded_len_max());
        self.place_batch(stream, records, size, |out| {
            open.builder.encode_into(compression, out)
        })?;
        if self.idle.len() < 16 && size <= BATCH_TARGET * 2 {
            self.idle.push(open.builder);
        }
        Ok(())
    }

    /// Place the stream's next batch, encoded straight into the part.
    fn place_batch(
        &mut self,
        stream: u32,
        count: u32,
        payload_max: usize,
        encode: impl FnOnce(&mut PooledBuf) -> Result<()>,
    ) -> Result<()> {
        let (epoch, llsn) = {
            let stream = self.state.stream(stream)?;
            (stream.epoch, stream.next)
        };
        let header = Self::header(Kind::Batch, stream, count, epoch, llsn);
        let change = Change::Batch {
            count,
            producer: None,
        };
        self.state.check(&header, &change)?;
        let mut timestamps = (0, 0);
        let frame = self.place(header, payload_max, false, |out| {
            let at = out.len();
            encode(out)?;
            let head = parse_head(&out[at..])?;
            timestamps = (head.min_timestamp(), head.max_timestamp());
            Ok(head.head_len())
        })?;
        self.note(&frame, &change, timestamps)?;
        self.state.apply(&header, &change)
    }

    fn header(kind: Kind, stream: u32, count: u32, epoch: u64, llsn: u64) -> FrameHeader {
        FrameHeader {
            kind,
            flags: 0,
            stream,
            count,
            epoch,
            llsn,
            durable: 0,
            ordinal: 0,
        }
    }

    /// Place one frame of at most `payload_max` payload bytes, which `write` appends; it returns how
    /// many of them the frame's checksum covers.
    fn place(
        &mut self,
        mut header: FrameHeader,
        payload_max: usize,
        reserved: bool,
        write: impl FnOnce(&mut PooledBuf) -> Result<usize>,
    ) -> Result<Frame> {
        let gap = self.gap();
        let room =
            (self.active.segment.bytes as usize).saturating_sub(self.active.offset as usize + gap);
        if frame_len(payload_max) > room {
            self.roll(reserved)?;
        }
        self.open_part();
        header.durable = self.active.durable;
        header.ordinal = self.active.ordinal;
        let (offset, seed) = (self.active.offset, self.active.segment.seed);
        let Some(part) = self.parts.last_mut() else {
            return Err(Error::Closed);
        };
        let at = part.buf.len();
        part.buf.resize(at + FRAME_HEADER);
        let head = match write(&mut part.buf) {
            Ok(head) => head,
            Err(error) => {
                part.buf.truncate(at);
                return Err(error);
            }
        };
        let payload = part.buf.len() - at - FRAME_HEADER;
        debug_assert!(
            payload <= payload_max,
            "a frame took more than was reserved"
        );
        part.buf.resize(at + frame_len(payload));
        let length = part.buf.len() - at;
        seal(
            &mut part.buf.as_mut_slice()[at..],
            &header,
            seed,
            offset,
            payload,
            head,
        );
        if header.kind == Kind::Batch {
            part.note(header.stream, header.llsn, header.count, at, payload);
        }
        self.active.offset += length as u32;
        self.active.ordinal += 1;
        if header.stream != 0 {
            self.touched.insert(header.stream);
        }
        Ok(Frame {
            header,
            offset,
            length: length as u32,
            payload: payload as u32,
            head: head as u32,
        })
    }

    fn note(&mut self, frame: &Frame, change: &Change, timestamps: (i64, i64)) -> Result<()> {
        let payload = match self.parts.last() {
            Some(part) => {
                let at = (frame.offset - part.start) as usize + FRAME_HEADER;
                &part.buf[at..at + frame.payload as usize]
            }
            None => &[],
        };
        self.active.segment.note(frame, change, timestamps, payload)
    }

    /// Bytes skipped if a new part has to begin on a fresh block.
    fn gap(&self) -> usize {
        let offset = self.active.offset as usize;
        if self.parts.is_empty() && self.in_flight > 0 {
            offset.next_multiple_of(BLOCK_BYTES) - offset
        } else {
            0
        }
    }

    /// Make sure that the last part continues at the active offset.
    fn open_part(&mut self) {
        if !self.parts.is_empty() {
            return;
        }
        let mut buf = self.pool.take(64 << 10);
        if self.in_flight > 0 {
            self.active.offset = self.active.offset.next_multiple_of(BLOCK_BYTES as u32);
        } else {
            buf.extend_from_slice(&self.active.tail);
        }
        let start = self.active.offset - buf.len() as u32;
        let segment = Arc::clone(&self.active.segment);
        self.parts.push(Part {
            segment,
            start,
            buf,
            end: 0,
            batches: Vec::new(),
            seals: None,
            opens: false,
        });
    }

    /// Begin the next segment: header block and preamble.
    fn roll(&mut self, reserved: bool) -> Result<()> {
        let max = self.sizes.segments_max - if reserved { 0 } else { RESERVE_SEGMENTS };
        if self.segments_used >= max {
            return Err(self.full());
        }
        let state = self.state.encode();
        if state.len() > self.preamble_bytes_max() {
            let (size, max) = (state.len() as u64, self.preamble_bytes_max() as u64);
            return Err(Error::TooLarge {
                what: "state at the head of a segment",
                size,
                max,
            });
        }
        if let Some(part) = self.parts.last_mut() {
            part.end = self.active.offset;
        }
        let number = self.active.segment.number + 1;
        let salt = mix(self.entropy ^ number);
        let segment = Arc::new(Segment::active(number, salt, self.sizes.segment_bytes));
        let old = Arc::clone(&self.active.segment);
        let seals = (old.number > 0).then_some((old, self.active.offset));
        let mut buf = self.pool.take(64 << 10);
        let bytes = u64::from(self.sizes.segment_bytes);
        buf.extend_from_slice(
            &SegmentHeader {
                node: self.node,
                number,
                salt,
                bytes,
            }
            .encode(),
        );
        let (batches, end) = (Vec::new(), FIRST_FRAME);
        self.parts.push(Part {
            segment: Arc::clone(&segment),
            start: 0,
            buf,
            end,
            batches,
            seals,
            opens: true,
        });
        self.active = Active {
            segment,
            offset: FIRST_FRAME,
            ordinal: 0,
            durable: 0,
            tail: Vec::new(),
        };
        self.segments_used += 1;
        self.place_preamble(&state)
    }

    fn place_preamble(&mut self, state: &[u8]) -> Result<()> {
        let mut chunks = state.chunks(PREAMBLE_CHUNK).peekable();
        while let Some(chunk) = chunks.next() {
            let mut header = Self::header(Kind::Preamble, 0, 0, 0, 0);
            header.flags = if chunks.peek().is_some() {
                FLAG_MORE
            } else {
                0
            };
            self.place(header, chunk.len(), true, |out| {
                out.extend_from_slice(chunk);
                Ok(chunk.len())
            })?;
        }
        Ok(())
    }

    /// Largest preamble: a quarter of a segment.
    pub fn preamble_bytes_max(&self) -> usize {
        self.sizes.segment_bytes as usize / 4
    }

    /// Largest batch: within its own limit and a quarter of a segment, so that little is lost where
    /// one does not fit behind another.
    pub fn batch_bytes_max(&self) -> usize {
        BATCH_BYTES_MAX.min(self.sizes.segment_bytes as usize / 4)
    }

    /// Refuse a batch that is larger than `max`.
    pub fn check_batch_len(size: usize, max: usize) -> Result<()> {
        if size > max {
            return Err(Error::TooLarge {
                what: "record batch",
                size: size as u64,
                max: max as u64,
            });
        }
        Ok(())
    }

    /// Refuse, before anything has a number, what could not be written.
    fn reserve(&self, bytes: usize) -> Result<()> {
        let open: usize = self
            .open
            .values()
            .map(|open| frame_len(open.builder.encoded_len_max()))
            .sum();
        let need = (open + bytes + BLOCK_BYTES) as u64;
        let left = u64::from(self.active.segment.bytes.saturating_sub(self.active.offset));
        if need <= left {
            return Ok(());
        }
        let free = (self.sizes.segments_max - RESERVE_SEGMENTS).saturating_sub(self.segments_used);
        // Where a frame does not fit behind another, up to a quarter of a segment stays empty, and
        // another quarter may hold the preamble.
        let usable = free * u64::from(self.sizes.segment_bytes) / 2;
        if need <= usable {
            Ok(())
        } else {
            Err(self.full())
        }
    }

    fn full(&self) -> Error {
        let bytes = u64::from(self.sizes.segment_bytes);
        Error::LogFull {
            used: self.segments_used * bytes,
            max: self.sizes.segments_max * bytes,
        }
    }
}

impl OpenBatch {
    /// Whether a record of this producer and sequence goes on where the batch ends.
    fn continues(&self, producer: Option<Sequenced>) -> bool {
        match (self.producer, producer) {
            (None, None) => true,
            (Some((mine, first)), Some((id, sequence))) => {
                mine == id && first + self.builder.len() as u64 == sequence
            }
            _ => false,
        }
    }
}

/// What a reader may see of a stream whose frames are all durable.
pub fn range_of(stream: &crate::wal::state::Stream) -> view::Range {
    view::Range {
        first: stream.low,
        end: stream.committed,
        durable: stream.next,
        epoch: stream.epoch,
    }
}

/// Bytes a lone record takes at most, with its frame.
fn record_bytes(record: &NewRecord<'_>) -> usize {
    let headers: usize = record
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len() + 16)
        .sum();
    512 + record.value.len() + record.key.map_or(0, <[u8]>::len) + headers
}

/// One step of splitmix64: salts from one random number.
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
