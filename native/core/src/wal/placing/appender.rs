//! The appender: what frames to come are made of.
//!
//! # Theory of operation
//!
//! A pushed record goes into its stream's *open batch* and gets its LLSN at once. The sync that comes
//! next closes the open batches into frames, so that everything that arrived while a sync was in
//! flight shares one frame and one write. Frames go into *parts*, block-aligned runs of one
//! segment; the parts that one sync writes are a *group*. While nothing is in flight, a part goes on
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
use std::sync::Arc;

use crate::batch::{BatchBuilder, Compression};
use crate::error::Result;
use crate::vfs::BufPool;
use crate::wal::format::order::{ORDER_BYTES_DEFAULT, Orders};
use crate::wal::format::producer::{Pending, ProducerId};
use crate::wal::format::state::State;
use crate::wal::placing::bound::Sizes;
use crate::wal::segments::part::Part;
use crate::wal::segments::segment::Segment;

/// An open batch is closed when it reaches this size; larger ones only make point reads slower.
pub(super) const BATCH_TARGET: usize = 256 << 10;

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
    /// Value, unless it is null.
    pub value: Option<&'a [u8]>,
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Microseconds since the Unix epoch.
    pub timestamp: i64,
    /// Header names and values, which may be null.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

impl NewRecord<'_> {
    /// Whether its value is null, or that of one of its headers.
    pub fn has_null_values(&self) -> bool {
        self.value.is_none() || self.headers.iter().any(|(_, value)| value.is_none())
    }
}

/// A producer and the sequence of the first record.
pub type Sequenced = (ProducerId, u64);

pub(super) struct OpenBatch {
    pub(crate) builder: BatchBuilder,
    pub(crate) llsn: u64,
    pub(crate) producer: Option<Sequenced>,
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
    pub(crate) state_bytes: usize,
    pub(crate) node: u128,
    pub(crate) entropy: u64,
    pub(crate) pool: BufPool,
    pub(super) open: BTreeMap<u32, OpenBatch>,
    pub(crate) idle: Vec<BatchBuilder>,
    pub(crate) parts: Vec<Part>,
    pub(crate) touched: BTreeSet<u32>,
    pub(crate) compression: HashMap<u32, Compression>,
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

    /// Choose the compression of a stream's batches from now on.
    pub fn set_compression(&mut self, stream: u32, compression: Compression) {
        self.compression.insert(stream, compression);
    }

    pub(crate) fn compression(&self, stream: u32) -> Compression {
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

    /// What must not fail where something has a number already.
    pub(crate) fn must<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.broken.get_or_insert_with(|| error.to_string());
        }
        result
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
}

impl OpenBatch {
    /// Whether a record of this producer and sequence goes on where the batch ends.
    pub(crate) fn continues(&self, producer: Option<Sequenced>) -> bool {
        match (self.producer, producer) {
            (None, None) => true,
            (Some((mine, first)), Some((id, sequence))) => {
                mine == id && first + self.builder.len() as u64 == sequence
            }
            _ => false,
        }
    }

    /// What its producer has in it.
    pub(crate) fn pending(&self) -> Option<Pending> {
        self.producer.map(|(producer, sequence)| Pending {
            producer,
            sequence,
            llsn: self.llsn,
            count: self.builder.len() as u64,
        })
    }
}
