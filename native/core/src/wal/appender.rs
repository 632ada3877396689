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
//! - Space, in slots that exist, is reserved before a record gets its LLSN: a numbered record always
//!   fits, and a full disk refuses appends instead of failing a write.
//! - The tail of a segment is kept from records, so that a trim finds room when nothing else does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::batch::{
    BatchBuilder, ColumnsRef, Compression, Producer, check_columns, encode_columns,
};
use crate::error::{Error, Result};
use crate::limits::BATCH_RECORDS_MAX;
use crate::vfs::BufPool;
use crate::wal::change::Change;
use crate::wal::frame::{Frame, FrameHeader, Kind, frame_len};
use crate::wal::order::{ORDER_BYTES_DEFAULT, Orders};
use crate::wal::parts::Part;
use crate::wal::producer::{Admission, Pending, ProducerId};
use crate::wal::room::{RESERVE_SEGMENTS, record_bytes};
use crate::wal::segments::Segment;
use crate::wal::state::State;
use crate::wal::view;

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

pub(super) struct OpenBatch {
    pub(super) builder: BatchBuilder,
    pub(super) llsn: u64,
    pub(super) producer: Option<Sequenced>,
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
    /// Offset of the last placed frame.
    pub last: u32,
    /// Offset at which the state was written last: of the preamble, or of a checkpoint.
    pub checkpoint: u32,
}

/// Sizes the appender works with.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Segment file length.
    pub segment_bytes: u32,
    /// Length of the first segment's file to begin with.
    pub begin_bytes: u32,
    /// Most segments that may exist.
    pub segments_max: u64,
    /// The same for what is no record: more, if the bound was lowered or what has to find room needs it.
    pub segments_limit: u64,
}

/// What frames to come are made of.
pub struct Appender {
    /// State as of the last placed frame.
    pub state: State,
    /// End of the log.
    pub active: Active,
    /// Groups in flight.
    pub in_flight: usize,
    /// Segments that exist or are placed.
    pub segments_used: u64,
    /// Free slots that exist and no placed segment will take.
    pub slots_ready: u64,
    /// Sizes.
    pub sizes: Sizes,
    /// Number of the group being gathered.
    pub group: u64,
    /// Rollbacks placed since the log was opened.
    pub rollbacks: u64,
    /// Which streams share an order, and what is pending of them.
    pub orders: Orders,
    /// Something with a number could not be placed: nothing may be acknowledged any more.
    pub broken: Option<String>,
    /// Bound on the length of a preamble now.
    pub(super) state_bytes: usize,
    pub(super) node: u128,
    pub(super) entropy: u64,
    pub(super) pool: BufPool,
    pub(super) open: BTreeMap<u32, OpenBatch>,
    idle: Vec<BatchBuilder>,
    pub(super) parts: Vec<Part>,
    pub(super) touched: BTreeSet<u32>,
    pub(super) compression: HashMap<u32, Compression>,
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
            state_bytes: state.encoded_len(),
            state,
            active,
            in_flight: 0,
            segments_used,
            slots_ready: 0,
            sizes,
            group: 1,
            rollbacks: 0,
            orders: Orders::new(ORDER_BYTES_DEFAULT),
            broken: None,
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
        appender.slots_ready = 1;
        appender.roll()?;
        Ok(appender)
    }

    /// Choose the compression of a stream's batches from now on.
    pub fn set_compression(&mut self, stream: u32, compression: Compression) {
        self.compression.insert(stream, compression);
    }

    pub(super) fn compression(&self, stream: u32) -> Compression {
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
        let bytes = record_bytes(&record);
        // A record that no batch takes is refused here, before anything changes.
        let joins = match self.open.get(&stream).filter(|_| continues) {
            Some(open) => {
                let len = open.builder.encoded_len_max();
                open.builder.fits(value, key, timestamp, headers)?
                    && len < BATCH_TARGET.min(self.batch_bytes_max() / 2)
                    && len + bytes <= self.batch_bytes_max()
            }
            None => BatchBuilder::new()
                .fits(value, key, timestamp, headers)
                .map(|_| false)?,
        };
        if bytes > self.batch_bytes_max() / 2 {
            Self::check_batch_len(bytes, self.batch_bytes_max())?;
        }
        self.reserve(Kind::Batch, bytes, RESERVE_SEGMENTS)?;
        self.reserve_state(self.producer_growth(stream, producer, llsn))?;
        if !joins {
            self.close_batch(stream)?;
            self.open_batch(stream, producer)?;
        }
        let Some(open) = self.open.get_mut(&stream) else {
            return Err(Error::Closed);
        };
        if let Err(error) = open.builder.push(value, key, timestamp, headers) {
            return self.must(Err(error));
        }
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
        // Before the first of them has a number.
        for range in &ranges {
            check_columns(columns, range)?;
        }
        let bytes = sizes.iter().map(|size| frame_len(*size)).sum();
        self.reserve(Kind::Batch, bytes, RESERVE_SEGMENTS)?;
        self.reserve_state(self.producer_growth(stream, producer, llsn))?;
        self.close_batch(stream)?;
        for (range, size) in ranges.into_iter().zip(sizes) {
            let records = range.len() as u32;
            let done = (range.start - rows.start) as u64;
            let sequenced = producer.map(|(id, first)| (id, first + done));
            let from = sequenced.map_or(Producer::default(), |(id, sequence)| Producer {
                id: id.id,
                epoch: id.epoch,
                base_sequence: sequence,
            });
            let compression = self.compression(stream);
            let placed = self.place_batch(stream, records, sequenced, size, |out| {
                encode_columns(columns, range, from, compression, out)
            });
            self.must(placed)?;
        }
        Ok(Ticket {
            llsn,
            count,
            group: self.group,
        })
    }

    /// Index a placed frame and fold its change.
    pub(super) fn fold(
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
        self.must(folded)
    }

    /// What must not fail where something has a number already.
    pub(super) fn must<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.broken.get_or_insert_with(|| error.to_string());
        }
        result
    }

    pub(super) fn admit(
        &self,
        stream: u32,
        producer: Option<Sequenced>,
        count: u64,
    ) -> Result<Option<Ticket>> {
        let Some((id, sequence)) = producer else {
            return Ok(None);
        };
        let placed = &self.state.stream(stream)?.producers;
        let admission = match self.open.get(&stream).and_then(OpenBatch::pending) {
            Some(pending) => pending.admit(placed, id, sequence, count)?,
            None => placed.admit(id, sequence, count)?,
        };
        match admission {
            Admission::New => Ok(None),
            Admission::Repeat(llsn) => Ok(Some(Ticket {
                llsn,
                count,
                group: self.latest(),
            })),
        }
    }

    /// Next sequence and epoch of a producer as of the last push; (1, `None`) if it is unknown.
    pub fn producer(&self, stream: u32, id: u64) -> Result<(u64, Option<u32>)> {
        let placed = &self.state.stream(stream)?.producers;
        let pending = self.open.get(&stream).and_then(OpenBatch::pending);
        Ok(match pending.filter(|pending| pending.producer.id == id) {
            Some(pending) => (pending.next(), Some(pending.producer.epoch)),
            None => (placed.next_sequence(id), placed.epoch(id)),
        })
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

    pub(super) fn close_batch(&mut self, stream: u32) -> Result<()> {
        let Some(open) = self.open.remove(&stream) else {
            return Ok(());
        };
        let compression = self.compression(stream);
        let (records, size) = (open.builder.len() as u32, open.builder.encoded_len_max());
        let placed = self.place_batch(stream, records, open.producer, size, |out| {
            open.builder.encode_into(compression, out)
        });
        self.must(placed)?;
        if self.idle.len() < 16 && size <= BATCH_TARGET * 2 {
            self.idle.push(open.builder);
        }
        Ok(())
    }
}

impl OpenBatch {
    /// Whether a record of this producer and sequence goes on where the batch ends.
    pub(super) fn continues(&self, producer: Option<Sequenced>) -> bool {
        match (self.producer, producer) {
            (None, None) => true,
            (Some((mine, first)), Some((id, sequence))) => {
                mine == id && first + self.builder.len() as u64 == sequence
            }
            _ => false,
        }
    }

    /// What its producer has in it.
    fn pending(&self) -> Option<Pending> {
        self.producer.map(|(producer, sequence)| Pending {
            producer,
            sequence,
            llsn: self.llsn,
            count: self.builder.len() as u64,
        })
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

/// One step of splitmix64: salts from one random number.
pub(super) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
