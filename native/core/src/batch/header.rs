//! The 80-byte header of a batch: its fields, and what they must satisfy by themselves.
//!
//! The byte diagram is in the [module documentation](super).

use super::compress::Compression;
use super::layout::{
    Counts, FLAG_HEADERS, FLAG_HOLE, FLAG_KEYS, FLAG_NULL_HEADER_VALUES, FLAG_NULL_KEYS,
    FLAG_NULL_VALUES, FLAG_ONE_TIMESTAMP, Layout, head_len,
};
use super::malformed;
use crate::error::{Error, Result};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};

const MAGIC_OFFSET: usize = 0;
const VERSION_OFFSET: usize = MAGIC_OFFSET + 4;
const COMPRESSION_OFFSET: usize = VERSION_OFFSET + 1;
const FLAGS_OFFSET: usize = COMPRESSION_OFFSET + 1;
const RECORDS_OFFSET: usize = FLAGS_OFFSET + 2;
const STORED_OFFSET: usize = RECORDS_OFFSET + 4;
const RAW_OFFSET: usize = STORED_OFFSET + 4;
const KEY_BYTES_OFFSET: usize = RAW_OFFSET + 4;
const VALUE_BYTES_OFFSET: usize = KEY_BYTES_OFFSET + 4;
const HEADER_ENTRIES_OFFSET: usize = VALUE_BYTES_OFFSET + 4;
const HEADER_NAME_BYTES_OFFSET: usize = HEADER_ENTRIES_OFFSET + 4;
const HEADER_VALUE_BYTES_OFFSET: usize = HEADER_NAME_BYTES_OFFSET + 4;
const MIN_TIMESTAMP_OFFSET: usize = HEADER_VALUE_BYTES_OFFSET + 4;
const MAX_TIMESTAMP_OFFSET: usize = MIN_TIMESTAMP_OFFSET + 8;
const PRODUCER_ID_OFFSET: usize = MAX_TIMESTAMP_OFFSET + 8;
const BASE_SEQUENCE_OFFSET: usize = PRODUCER_ID_OFFSET + 8;
const PRODUCER_EPOCH_OFFSET: usize = BASE_SEQUENCE_OFFSET + 8;
pub(super) const CHECKSUM_OFFSET: usize = PRODUCER_EPOCH_OFFSET + 4;

/// Bytes of the header; the page table follows.
pub const HEADER_BYTES: usize = CHECKSUM_OFFSET + 4;

const MAGIC: [u8; 4] = *b"BRB1";
const VERSION: u8 = 1;

/// Of a batch with a flag that the first version does not have: builds that do not know the flag must refuse
/// the batch, and do so, because they expect this version with none but the flags that they know.
const VERSION_FLAGS: u8 = 2;
const FLAGS_2: u16 = FLAG_HOLE | FLAG_NULL_VALUES | FLAG_NULL_HEADER_VALUES;
const FLAGS_KNOWN: u16 = FLAG_KEYS | FLAG_NULL_KEYS | FLAG_HEADERS | FLAG_ONE_TIMESTAMP | FLAGS_2;

/// The version of a batch with these flags.
fn version_of(flags: u16) -> u8 {
    if flags & FLAGS_2 == 0 {
        VERSION
    } else {
        VERSION_FLAGS
    }
}

/// Who wrote a batch, for idempotence. All zero: nobody in particular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Producer {
    /// Producer id, 0 = none.
    pub id: u64,
    /// Epoch of the producer.
    pub epoch: u32,
    /// Sequence of the first record, 0 = none.
    pub base_sequence: u64,
}

impl Producer {
    /// The producer of what follows `records` records of this one. Without sequences, the same.
    #[must_use]
    pub fn after(self, records: u64) -> Self {
        let base_sequence = match self.base_sequence {
            0 => 0,
            first => first.saturating_add(records),
        };
        Self {
            base_sequence,
            ..self
        }
    }
}

/// The header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub compression: Compression,
    pub counts: Counts,
    pub stored: u32,
    pub raw: u32,
    pub min_timestamp: i64,
    pub max_timestamp: i64,
    pub producer: Producer,
}

impl Header {
    /// Write everything but the checksum into the first [`HEADER_BYTES`] of `out`.
    pub fn write(&self, out: &mut [u8]) {
        let mut put = |offset: usize, bytes: &[u8]| {
            out[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        let counts = &self.counts;
        put(MAGIC_OFFSET, &MAGIC);
        put(VERSION_OFFSET, &[version_of(counts.flags)]);
        put(COMPRESSION_OFFSET, &[self.compression.code()]);
        put(FLAGS_OFFSET, &counts.flags.to_le_bytes());
        put(STORED_OFFSET, &self.stored.to_le_bytes());
        put(RAW_OFFSET, &self.raw.to_le_bytes());
        // The encoder has checked that the whole batch is within BATCH_BYTES_MAX.
        for (offset, count) in [
            (RECORDS_OFFSET, counts.records),
            (KEY_BYTES_OFFSET, counts.key_bytes),
            (VALUE_BYTES_OFFSET, counts.value_bytes),
            (HEADER_ENTRIES_OFFSET, counts.header_entries),
            (HEADER_NAME_BYTES_OFFSET, counts.header_name_bytes),
            (HEADER_VALUE_BYTES_OFFSET, counts.header_value_bytes),
        ] {
            put(offset, &(count as u32).to_le_bytes());
        }
        put(MIN_TIMESTAMP_OFFSET, &self.min_timestamp.to_le_bytes());
        put(MAX_TIMESTAMP_OFFSET, &self.max_timestamp.to_le_bytes());
        put(PRODUCER_ID_OFFSET, &self.producer.id.to_le_bytes());
        put(
            BASE_SEQUENCE_OFFSET,
            &self.producer.base_sequence.to_le_bytes(),
        );
        put(PRODUCER_EPOCH_OFFSET, &self.producer.epoch.to_le_bytes());
    }

    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self> {
        if bytes[..4] != MAGIC {
            return Err(malformed(MAGIC_OFFSET as u64, "no batch magic"));
        }
        let flags = u16::from_le_bytes([bytes[FLAGS_OFFSET], bytes[FLAGS_OFFSET + 1]]);
        if bytes[VERSION_OFFSET] != version_of(flags) {
            let reason = format!("format version {} is unknown", bytes[VERSION_OFFSET]);
            return Err(malformed(VERSION_OFFSET as u64, reason));
        }
        let Some(compression) = Compression::from_code(bytes[COMPRESSION_OFFSET]) else {
            let reason = format!("compression {} is unknown", bytes[COMPRESSION_OFFSET]);
            return Err(malformed(COMPRESSION_OFFSET as u64, reason));
        };
        let count = |offset| u64::from(u32_at(bytes, offset));
        Ok(Self {
            compression,
            counts: Counts {
                flags,
                records: count(RECORDS_OFFSET),
                key_bytes: count(KEY_BYTES_OFFSET),
                value_bytes: count(VALUE_BYTES_OFFSET),
                header_entries: count(HEADER_ENTRIES_OFFSET),
                header_name_bytes: count(HEADER_NAME_BYTES_OFFSET),
                header_value_bytes: count(HEADER_VALUE_BYTES_OFFSET),
            },
            stored: u32_at(bytes, STORED_OFFSET),
            raw: u32_at(bytes, RAW_OFFSET),
            min_timestamp: u64_at(bytes, MIN_TIMESTAMP_OFFSET).cast_signed(),
            max_timestamp: u64_at(bytes, MAX_TIMESTAMP_OFFSET).cast_signed(),
            producer: Producer {
                id: u64_at(bytes, PRODUCER_ID_OFFSET),
                epoch: u32_at(bytes, PRODUCER_EPOCH_OFFSET),
                base_sequence: u64_at(bytes, BASE_SEQUENCE_OFFSET),
            },
        })
    }

    /// Refuse sizes before anything is computed from them or allocated for them.
    pub fn check_sizes(&self) -> Result<()> {
        let total = head_len(u64::from(self.stored)) + u64::from(self.stored);
        if total > BATCH_BYTES_MAX as u64 {
            return Err(malformed(
                STORED_OFFSET as u64,
                format!("batch of {total} bytes"),
            ));
        }
        if u64::from(self.raw) > BATCH_BYTES_MAX as u64 {
            return Err(malformed(
                RAW_OFFSET as u64,
                format!("raw body of {} bytes", self.raw),
            ));
        }
        let stored_fits = match self.compression {
            Compression::None => self.stored == self.raw,
            Compression::Zstd | Compression::Lz4 => self.stored < self.raw,
        };
        if !stored_fits {
            let reason = format!("{} stored bytes for {} raw ones", self.stored, self.raw);
            return Err(malformed(STORED_OFFSET as u64, reason));
        }
        Ok(())
    }

    /// Refuse counts that contradict the flags, the limits or the size of the body.
    pub fn check_counts(&self) -> Result<()> {
        let counts = &self.counts;
        if counts.records == 0 || counts.records > BATCH_RECORDS_MAX as u64 {
            let reason = format!("{} records", counts.records);
            return Err(malformed(RECORDS_OFFSET as u64, reason));
        }
        if counts.flags & !FLAGS_KNOWN != 0 {
            let reason = format!("unknown flags {:#06x}", counts.flags);
            return Err(malformed(FLAGS_OFFSET as u64, reason));
        }
        if counts.has(FLAG_NULL_KEYS) && !counts.has(FLAG_KEYS) {
            return Err(malformed(FLAGS_OFFSET as u64, "null keys without keys"));
        }
        if !counts.has(FLAG_KEYS) && counts.key_bytes != 0 {
            return Err(malformed(KEY_BYTES_OFFSET as u64, "key data without keys"));
        }
        let header_counts =
            counts.header_entries | counts.header_name_bytes | counts.header_value_bytes;
        if !counts.has(FLAG_HEADERS) && header_counts != 0 {
            return Err(malformed(
                HEADER_ENTRIES_OFFSET as u64,
                "header data without headers",
            ));
        }
        if counts.has(FLAG_NULL_HEADER_VALUES) && counts.header_entries == 0 {
            return Err(malformed(
                FLAGS_OFFSET as u64,
                "null header values without headers",
            ));
        }
        if counts.has(FLAG_HOLE)
            && (counts.flags != FLAG_HOLE | FLAG_ONE_TIMESTAMP || counts.value_bytes != 0)
        {
            return Err(malformed(FLAGS_OFFSET as u64, "a hole with records"));
        }
        let timestamps_fit = if counts.has(FLAG_ONE_TIMESTAMP) {
            self.min_timestamp == self.max_timestamp
        } else {
            self.min_timestamp <= self.max_timestamp
        };
        if !timestamps_fit {
            return Err(malformed(
                MIN_TIMESTAMP_OFFSET as u64,
                "timestamp bounds contradict",
            ));
        }
        let total = Layout::new(counts).total;
        if total != u64::from(self.raw) {
            let reason = format!("sections take {total} bytes of a raw body of {}", self.raw);
            return Err(malformed(RAW_OFFSET as u64, reason));
        }
        Ok(())
    }
}

/// An error that says a batch is too large, in the words of the limits.
pub(super) fn check_limits(counts: &Counts) -> Result<()> {
    let limit = |what, size: u64, max: usize| {
        if size > max as u64 {
            Err(Error::TooLarge {
                what,
                size,
                max: max as u64,
            })
        } else {
            Ok(())
        }
    };
    limit("record count of a batch", counts.records, BATCH_RECORDS_MAX)?;
    limit("record batch", counts.encoded_len(), BATCH_BYTES_MAX)
}

pub(super) fn u32_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}
