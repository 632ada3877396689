//! Builder of one batch, record by record.

use std::ops::Range;

use super::columns::{Bitmap, BytesRef, ColumnsRef, HeadersRef, NullableRef, Offsets, Timestamps};
use super::compress::Compression;
use super::encode::encode_columns;
use super::header::{self, Producer};
use super::layout::{
    Counts, FLAG_HEADERS, FLAG_KEYS, FLAG_NULL_HEADER_VALUES, FLAG_NULL_KEYS, FLAG_NULL_VALUES,
    FLAG_ONE_TIMESTAMP,
};
use super::sink::Sink;
use crate::error::{Error, Result};
use crate::limits::RECORD_HEADERS_MAX;

/// Collects records in columns and encodes them as one batch.
///
/// Reusable: [`clear`](Self::clear) keeps the memory. Every record it holds fits in the batch:
/// [`push`](Self::push) refuses what would not, and leaves the builder as it was.
#[derive(Debug)]
pub struct BatchBuilder {
    timestamps: Vec<i64>,
    // Empty until the first value that is null.
    value_validity: Vec<u8>,
    value_offsets: Vec<u32>,
    values: Vec<u8>,
    // Empty until the first key that is not null: batches without keys pay nothing for them.
    key_offsets: Vec<u32>,
    key_validity: Vec<u8>,
    keys: Vec<u8>,
    // Empty until the first header.
    header_offsets: Vec<u32>,
    name_offsets: Vec<u32>,
    // Empty until the first header with a null value.
    header_value_validity: Vec<u8>,
    header_value_offsets: Vec<u32>,
    names: Vec<u8>,
    header_values: Vec<u8>,
    summary: Summary,
    // Of the summary: asked for several times a record.
    encoded_len: usize,
    producer: Producer,
}

/// What decides the encoded size, kept with every record.
#[derive(Clone, Copy, Debug)]
struct Summary {
    counts: Counts,
    null_keys: u64,
    min_timestamp: i64,
    max_timestamp: i64,
}

impl Summary {
    const EMPTY: Self = Self {
        counts: Counts {
            flags: FLAG_ONE_TIMESTAMP,
            records: 0,
            key_bytes: 0,
            value_bytes: 0,
            header_entries: 0,
            header_name_bytes: 0,
            header_value_bytes: 0,
        },
        null_keys: 0,
        min_timestamp: i64::MAX,
        max_timestamp: i64::MIN,
    };

    /// With one more record.
    fn with(
        mut self,
        value: Option<&[u8]>,
        key: Option<&[u8]>,
        timestamp: i64,
        headers: &[(&str, Option<&[u8]>)],
    ) -> Self {
        let counts = &mut self.counts;
        counts.records += 1;
        match value {
            Some(value) => counts.value_bytes += value.len() as u64,
            None => counts.flags |= FLAG_NULL_VALUES,
        }
        counts.header_entries += headers.len() as u64;
        for (name, value) in headers {
            counts.header_name_bytes += name.len() as u64;
            match value {
                Some(value) => counts.header_value_bytes += value.len() as u64,
                None => counts.flags |= FLAG_NULL_HEADER_VALUES,
            }
        }
        match key {
            Some(key) => {
                counts.key_bytes += key.len() as u64;
                counts.flags |= FLAG_KEYS;
            }
            None => self.null_keys += 1,
        }
        self.min_timestamp = self.min_timestamp.min(timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        if self.min_timestamp != self.max_timestamp {
            counts.flags &= !FLAG_ONE_TIMESTAMP;
        }
        if counts.flags & FLAG_KEYS != 0 && self.null_keys != 0 {
            counts.flags |= FLAG_NULL_KEYS;
        }
        if counts.header_entries != 0 {
            counts.flags |= FLAG_HEADERS;
        }
        self
    }
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty builder without a producer.
    pub fn new() -> Self {
        Self {
            timestamps: Vec::new(),
            value_validity: Vec::new(),
            value_offsets: vec![0],
            values: Vec::new(),
            key_offsets: Vec::new(),
            key_validity: Vec::new(),
            keys: Vec::new(),
            header_offsets: Vec::new(),
            name_offsets: Vec::new(),
            header_value_validity: Vec::new(),
            header_value_offsets: Vec::new(),
            names: Vec::new(),
            header_values: Vec::new(),
            summary: Summary::EMPTY,
            encoded_len: Summary::EMPTY.counts.encoded_len() as usize,
            producer: Producer::default(),
        }
    }

    /// Drop records and producer; keep the memory.
    pub fn clear(&mut self) {
        self.timestamps.clear();
        self.value_validity.clear();
        self.value_offsets.truncate(1);
        self.values.clear();
        self.key_offsets.clear();
        self.key_validity.clear();
        self.keys.clear();
        self.header_offsets.clear();
        self.name_offsets.clear();
        self.header_value_validity.clear();
        self.header_value_offsets.clear();
        self.names.clear();
        self.header_values.clear();
        self.summary = Summary::EMPTY;
        self.encoded_len = self.summary.counts.encoded_len() as usize;
        self.producer = Producer::default();
    }

    /// Records held.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Whether no records are held.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// Name who writes the batch; `base_sequence` is of its first record, 0 = none.
    pub fn set_producer(&mut self, id: u64, epoch: u32, base_sequence: u64) {
        self.producer = Producer {
            id,
            epoch,
            base_sequence,
        };
    }

    /// Bytes that the records take encoded: exact without compression, and never exceeded with it.
    /// Constant time.
    pub fn encoded_len_max(&self) -> usize {
        self.encoded_len
    }

    /// Whether the record still fits, so that `push` would take it. One that would not fit into an
    /// empty batch either is [`Error::TooLarge`].
    pub fn fits(
        &self,
        value: Option<&[u8]>,
        key: Option<&[u8]>,
        timestamp: i64,
        headers: &[(&str, Option<&[u8]>)],
    ) -> Result<bool> {
        check_headers(headers)?;
        header::check_limits(&Summary::EMPTY.with(value, key, timestamp, headers).counts)?;
        let counts = self.summary.with(value, key, timestamp, headers).counts;
        Ok(header::check_limits(&counts).is_ok())
    }

    /// Add a record. [`Error::TooLarge`] if the batch would exceed a limit; it is then unchanged.
    pub fn push(
        &mut self,
        value: Option<&[u8]>,
        key: Option<&[u8]>,
        timestamp: i64,
        headers: &[(&str, Option<&[u8]>)],
    ) -> Result<()> {
        check_headers(headers)?;
        let summary = self.summary.with(value, key, timestamp, headers);
        header::check_limits(&summary.counts)?;
        self.push_key(key);
        self.push_headers(headers);
        let index = self.timestamps.len();
        note_presence(&mut self.value_validity, index, value.is_some());
        self.timestamps.push(timestamp);
        self.values.extend_from_slice(value.unwrap_or_default());
        self.value_offsets.push(self.values.len() as u32);
        self.summary = summary;
        self.encoded_len = summary.counts.encoded_len() as usize;
        Ok(())
    }

    fn push_key(&mut self, key: Option<&[u8]>) {
        let index = self.len();
        if self.key_offsets.is_empty() {
            if key.is_none() {
                return;
            }
            self.key_offsets.resize(index + 1, 0);
        }
        self.key_validity.resize(index / 8 + 1, 0);
        if let Some(key) = key {
            self.keys.extend_from_slice(key);
            self.key_validity[index / 8] |= 1 << (index % 8);
        }
        self.key_offsets.push(self.keys.len() as u32);
    }

    fn push_headers(&mut self, headers: &[(&str, Option<&[u8]>)]) {
        if self.header_offsets.is_empty() {
            if headers.is_empty() {
                return;
            }
            self.header_offsets.resize(self.len() + 1, 0);
            self.name_offsets.push(0);
            self.header_value_offsets.push(0);
        }
        for (name, value) in headers {
            let entry = self.name_offsets.len() - 1;
            note_presence(&mut self.header_value_validity, entry, value.is_some());
            self.names.extend_from_slice(name.as_bytes());
            self.name_offsets.push(self.names.len() as u32);
            self.header_values
                .extend_from_slice(value.unwrap_or_default());
            self.header_value_offsets
                .push(self.header_values.len() as u32);
        }
        self.header_offsets.push(self.name_offsets.len() as u32 - 1);
    }

    /// The records as columns.
    pub fn columns(&self) -> ColumnsRef<'_> {
        let has = |flag| self.summary.counts.has(flag);
        ColumnsRef {
            len: self.len(),
            values: NullableRef {
                bytes: bytes(&self.value_offsets, &self.values),
                validity: has(FLAG_NULL_VALUES).then_some(bits(&self.value_validity)),
            },
            keys: has(FLAG_KEYS).then(|| NullableRef {
                bytes: bytes(&self.key_offsets, &self.keys),
                validity: has(FLAG_NULL_KEYS).then_some(bits(&self.key_validity)),
            }),
            timestamps: if has(FLAG_ONE_TIMESTAMP) {
                Timestamps::All(self.summary.min_timestamp)
            } else {
                Timestamps::Each(&self.timestamps)
            },
            headers: has(FLAG_HEADERS).then(|| HeadersRef {
                offsets: Offsets::U32(&self.header_offsets),
                names: bytes(&self.name_offsets, &self.names),
                values: NullableRef {
                    bytes: bytes(&self.header_value_offsets, &self.header_values),
                    validity: has(FLAG_NULL_HEADER_VALUES)
                        .then_some(bits(&self.header_value_validity)),
                },
            }),
        }
    }

    /// Append the records to `out` as one batch; the builder keeps them. An empty builder is
    /// [`Error::InvalidArgument`].
    pub fn encode_into(&self, compression: Compression, out: &mut impl Sink) -> Result<()> {
        let all: Range<usize> = 0..self.len();
        encode_columns(&self.columns(), all, self.producer, compression, out)
    }
}

fn bytes<'a>(offsets: &'a [u32], data: &'a [u8]) -> BytesRef<'a> {
    BytesRef {
        offsets: Offsets::U32(offsets),
        data,
    }
}

fn bits(bytes: &[u8]) -> Bitmap<'_> {
    Bitmap { bytes, offset: 0 }
}

/// Note whether element `index` is present, in bits that begin with the first one that is not.
fn note_presence(bits: &mut Vec<u8>, index: usize, present: bool) {
    if bits.is_empty() {
        if present {
            return;
        }
        // All before it are present; the bits behind it in its byte are set when their elements come.
        bits.resize(index / 8, u8::MAX);
        bits.push((1 << (index % 8)) - 1);
        return;
    }
    bits.resize(index / 8 + 1, 0);
    if present {
        bits[index / 8] |= 1 << (index % 8);
    }
}

fn check_headers(headers: &[(&str, Option<&[u8]>)]) -> Result<()> {
    if headers.len() > RECORD_HEADERS_MAX {
        let (size, max) = (headers.len() as u64, RECORD_HEADERS_MAX as u64);
        return Err(Error::TooLarge {
            what: "header count of a record",
            size,
            max,
        });
    }
    Ok(())
}
