//! Places frames: their position, ordinal, checksum and index sample; rolls to the next segment.

use std::sync::Arc;

use crate::batch::parse_head;
use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;
use crate::vfs::{BufPool, PooledBuf};
use crate::wal::format::change::{Change, Order};
use crate::wal::format::frame::{
    FLAG_MORE, FRAME_HEADER, Frame, FrameHeader, Kind, frame_len, seal,
};
use crate::wal::format::header::{FIRST_FRAME, SegmentHeader};
use crate::wal::format::order::ORDER_FRAME;
use crate::wal::format::salt::mix;
use crate::wal::format::state::State;
use crate::wal::placing::admission::kept;
use crate::wal::placing::appender::{Active, Appender, BATCH_TARGET, OpenBatch, Sequenced};
use crate::wal::placing::bound::{RESERVE_SEGMENTS, Sizes};
use crate::wal::segments::part::Part;
use crate::wal::segments::segment::Segment;

/// Number of a log's first segment.
const FIRST_SEGMENT: u64 = 1;

/// Preamble bytes per frame.
const PREAMBLE_CHUNK: usize = 1 << 20;

impl Appender {
    /// The first segment of a new log: an appender whose first part opens segment 1.
    pub fn create(sizes: Sizes, node: u128, entropy: u64, pool: BufPool) -> Result<Self> {
        Self::create_from(State::default(), sizes, node, entropy, pool)
    }

    /// As [`Appender::create`], with logs that exist already: their state is the first preamble (salvage).
    pub fn create_from(
        state: State,
        sizes: Sizes,
        node: u128,
        entropy: u64,
        pool: BufPool,
    ) -> Result<Self> {
        // Segment 0 does not exist. The roll replaces it and seals nothing.
        let nothing = Arc::new(Segment::active(0, 0, 0));
        let active = Active {
            segment: nothing,
            offset: 0,
            ordinal: 0,
            durable: 0,
            tail: Vec::new(),
            last: 0,
            checkpoint: 0,
        };
        let mut appender = Self::new(state, active, sizes, 0, node, entropy, pool);
        // The slot is made when the first part is written; nothing else can take it.
        appender.slots_ready = 1;
        appender.roll()?;
        Ok(appender)
    }

    pub(super) fn open_batch(&mut self, stream: u32, producer: Option<Sequenced>) -> Result<()> {
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

    pub(crate) fn close_batch(&mut self, stream: u32) -> Result<()> {
        let Some(open) = self.open.remove(&stream) else {
            return Ok(());
        };
        let compression = self.compression(stream);
        let (records, size) = (open.builder.len() as u32, open.builder.encoded_len_max());
        let placed = self.place_batch(stream, records, open.producer, size, |out| {
            open.builder.encode_into(compression, out)
        });
        // The records have numbers. If they cannot be placed now, a later group would leave a gap.
        self.must(placed)?;
        // Builders are used again, but not those that one large batch has made large.
        if self.idle.len() < 16 && size <= BATCH_TARGET * 2 {
            self.idle.push(open.builder);
        }
        Ok(())
    }

    /// Index a placed frame and fold its change.
    pub(crate) fn fold(
        &mut self,
        header: &FrameHeader,
        frame: &Frame,
        change: &Change,
        timestamps: (i64, i64),
    ) -> Result<()> {
        let folded = self
            .note(frame, change, timestamps)
            .and_then(|()| self.state.apply(header, change));
        self.orders.fold(&self.state, header, frame.length, change);
        // The frame stands in a part that will be written. If the state does not take it, recovery will refuse
        // it too.
        self.must(folded)
    }

    /// Place the stream's next batch, encoded straight into the part.
    pub(super) fn place_batch(
        &mut self,
        stream: u32,
        count: u32,
        producer: Option<Sequenced>,
        payload_max: usize,
        encode: impl FnOnce(&mut PooledBuf) -> Result<()>,
    ) -> Result<()> {
        let (epoch, llsn) = {
            let stream = self.state.stream(stream)?;
            (stream.epoch, stream.next)
        };
        let header = Self::header(Kind::Batch, stream, count, epoch, llsn);
        let change = Change::Batch { count, producer };
        // Checked before a byte is placed: a part cannot give back a frame behind which others stand.
        self.state.check(&header, &change)?;
        let mut timestamps = (0, 0);
        let frame = self.place(header, payload_max, |out| {
            let at = out.len();
            encode(out)?;
            let head = parse_head(&out[at..])?;
            timestamps = (head.min_timestamp(), head.max_timestamp());
            Ok(head.head_len())
        })?;
        self.fold(&header, &frame, &change, timestamps)
    }

    pub(crate) fn header(
        kind: Kind,
        stream: u32,
        count: u32,
        epoch: u64,
        llsn: u64,
    ) -> FrameHeader {
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
    pub(crate) fn place(
        &mut self,
        mut header: FrameHeader,
        payload_max: usize,
        write: impl FnOnce(&mut PooledBuf) -> Result<usize>,
    ) -> Result<Frame> {
        let (segment, filled) = (self.active.segment.bytes, self.active.segment.filled());
        let end = self.active.offset as usize + self.gap() + frame_len(payload_max);
        if filled < segment {
            // The file is short. Room was reserved within it, and it becomes whole before the log leaves it.
            if end > filled as usize {
                return Err(self.full());
            }
        } else if end + kept(header.kind, segment) > segment as usize {
            self.roll()?;
        }
        self.open_part();
        // Evidence for recovery: a frame that is whole proves that everything below this offset was durable
        // before.
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
                // Nothing of a frame that could not be encoded stays in the part.
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
        // Readers that have caught up take batches from the part. Not copies: their LLSNs are older, and would
        // push newer batches out of what readers keep.
        if header.kind == Kind::Batch {
            part.note(header.stream, header.llsn, header.count, at, payload);
        }
        self.active.offset += length as u32;
        self.active.ordinal += 1;
        self.active.last = offset;
        // Stream 0 is the directory itself; readers have no range of it.
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

    pub(crate) fn note(
        &mut self,
        frame: &Frame,
        change: &Change,
        timestamps: (i64, i64),
    ) -> Result<()> {
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
    pub(crate) fn gap(&self) -> usize {
        let offset = self.active.offset as usize;
        // Two writes in flight must not share a block: the device may finish them in any order.
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
            // Nothing is in flight, so the last block is durable. It is written again with the same bytes and
            // more behind them.
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
    pub(crate) fn roll(&mut self) -> Result<()> {
        if self.segments_used >= self.sizes.segments_limit || self.slots_ready == 0 {
            // Admission counts with this segment before a record gets its number, so this is a guard.
            return Err(self.full());
        }
        let state = self.state.encode();
        if state.len() > self.preamble_bytes_max() {
            // Changes that would make the state so large are refused. A state that was salvaged may be.
            let (size, max) = (state.len() as u64, self.preamble_bytes_max() as u64);
            return Err(Error::StateFull { size, max });
        }
        if let Some(part) = self.parts.last_mut() {
            part.end = self.active.offset;
        }
        let number = self.active.segment.number + 1;
        // With a salt of its own no byte of an earlier lap passes a checksum of this one.
        let salt = mix(self.entropy ^ number);
        let segment = Arc::new(Segment::active(number, salt, self.sizes.segment_bytes));
        if number == FIRST_SEGMENT && state.len() <= self.sizes.begin_bytes as usize / 4 {
            // Only a log that fills its first segment needs the whole of it.
            segment.set_filled(self.sizes.begin_bytes);
        }
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
            last: 0,
            checkpoint: FIRST_FRAME,
        };
        self.segments_used += 1;
        self.slots_ready -= 1;
        self.place_preamble(&state)?;
        // Whatever format the last segment had, this one has order frames. It repeats them: a reader may begin
        // here.
        self.orders.speak();
        self.repeat_orders()
    }

    /// Place again which streams are in order.
    fn repeat_orders(&mut self) -> Result<()> {
        for (stream, from, order) in self.orders.frames() {
            self.place_order(stream, from, order)?;
        }
        Ok(())
    }

    fn place_order(&mut self, stream: u32, from: u64, order: Order) -> Result<()> {
        let change = Change::Order(order);
        let epoch = self.state.stream(stream)?.epoch;
        let header = Self::header(Kind::Order, stream, 0, epoch, from);
        let payload = change.payload();
        let frame = self.place(header, payload.len(), |out| {
            out.extend_from_slice(&payload);
            Ok(payload.len())
        })?;
        self.fold(&header, &frame, &change, (0, 0))
    }

    /// Before `bytes` of a stream are placed: take out of the order what would make more than the budget
    /// pending. Room was reserved for the frames.
    pub(crate) fn make_order_room(&mut self, stream: u32, bytes: usize) -> Result<()> {
        while let Some((victim, order)) = self.orders.next_to_leave(stream, bytes as u64) {
            let placed = self.place_order(victim, 0, order);
            self.must(placed)?;
        }
        Ok(())
    }

    /// Let a stream join the order of its log if it can, and if there is room to say so.
    pub(crate) fn join_order(&mut self, stream: u32) -> Result<()> {
        let Some(order) = self.orders.joins(stream) else {
            return Ok(());
        };
        // An order only saves readers memory. Without room for the frame the stream joins at a later commit.
        if !matches!(
            self.fits(Kind::Order, ORDER_FRAME, RESERVE_SEGMENTS),
            Ok(true)
        ) {
            return Ok(());
        }
        let next = self.next_llsn(stream)?;
        let placed = self.place_order(stream, next, order);
        self.must(placed)
    }

    fn place_preamble(&mut self, state: &[u8]) -> Result<()> {
        // In pieces: the length of a frame is bounded, whatever the state has.
        let mut chunks = state.chunks(PREAMBLE_CHUNK).peekable();
        while let Some(chunk) = chunks.next() {
            let mut header = Self::header(Kind::Preamble, 0, 0, 0, 0);
            header.flags = if chunks.peek().is_some() {
                FLAG_MORE
            } else {
                0
            };
            self.place(header, chunk.len(), |out| {
                out.extend_from_slice(chunk);
                Ok(chunk.len())
            })?;
        }
        Ok(())
    }
}
