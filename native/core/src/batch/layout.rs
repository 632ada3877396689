//! Where each section of a raw body lies: arithmetic on the header's counts, nothing else.

use std::ops::Range;

use super::header::HEADER_BYTES;
use crate::limits::PAGE_BYTES;

/// Keys are present: the key offsets and key data sections exist.
pub const FLAG_KEYS: u16 = 1;
/// Some key is null: the validity bitmap exists.
pub const FLAG_NULL_KEYS: u16 = 2;
/// Some record has headers: the five header sections exist.
pub const FLAG_HEADERS: u16 = 4;
/// All records have one timestamp, stored only in the header.
pub const FLAG_ONE_TIMESTAMP: u16 = 8;
/// The records are lost: they have positions and nothing else.
pub const FLAG_HOLE: u16 = 16;
/// Some value is null: the validity bitmap of the values exists.
pub const FLAG_NULL_VALUES: u16 = 32;
/// Some value of a header is null: the validity bitmap of the headers' values exists.
pub const FLAG_NULL_HEADER_VALUES: u16 = 64;

/// What decides the size of a raw body. 64-bit, so that sums over untrusted counts cannot wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flags as stored in the header.
    pub flags: u16,
    /// Records.
    pub records: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Headers of all records.
    pub header_entries: u64,
    /// Bytes of all header names.
    pub header_name_bytes: u64,
    /// Bytes of all header values.
    pub header_value_bytes: u64,
}

impl Counts {
    /// Whether a flag is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether some value is null, of a record or of a header: earlier builds do not know that.
    pub fn has_null_values(&self) -> bool {
        self.has(FLAG_NULL_VALUES | FLAG_NULL_HEADER_VALUES)
    }

    /// Bytes of the whole uncompressed batch.
    pub fn encoded_len(&self) -> u64 {
        let body = Layout::new(self).total;
        head_len(body) + body
    }
}

/// Bytes of header and page table in front of a stored body.
pub fn head_len(stored: u64) -> u64 {
    HEADER_BYTES as u64 + round_up(4 * pages_of(stored))
}

/// Pages of a stored body.
pub fn pages_of(stored: u64) -> u64 {
    stored.div_ceil(PAGE_BYTES as u64)
}

fn round_up(len: u64) -> u64 {
    len.next_multiple_of(8)
}

/// One section of a raw body, half-open. An absent one is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// First byte.
    pub begin: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Section {
    /// As an index of the raw body.
    pub fn range(self) -> Range<usize> {
        self.begin as usize..self.end as usize
    }

    /// Bytes.
    pub fn len(self) -> usize {
        (self.end - self.begin) as usize
    }

    /// Whether the section takes no bytes.
    pub fn is_empty(self) -> bool {
        self.begin == self.end
    }

    /// The part of this section that holds `count` elements of `width` bytes from `first`.
    pub(super) fn elements(self, first: u64, count: u64, width: u64) -> Range<usize> {
        let begin = self.begin + first * width;
        debug_assert!(
            begin + count * width <= self.end,
            "elements lie inside their section"
        );
        begin as usize..(begin + count * width) as usize
    }
}

/// The sections of a raw body in the order they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `i64` each; empty when all records have one timestamp.
    pub timestamps: Section,
    /// One bit a record, 1 = present; empty when no value is null.
    pub value_validity: Section,
    /// `u32` each, one more than records.
    pub value_offsets: Section,
    /// One bit a record, 1 = present; empty when no key is null.
    pub key_validity: Section,
    /// `u32` each, one more than records.
    pub key_offsets: Section,
    /// `u32` each, one more than records: entries.
    pub header_offsets: Section,
    /// `u32` each, one more than entries.
    pub name_offsets: Section,
    /// One bit an entry, 1 = present; empty when no header's value is null.
    pub header_value_validity: Section,
    /// `u32` each, one more than entries.
    pub header_value_offsets: Section,
    /// UTF-8.
    pub names: Section,
    /// Data of header values.
    pub header_values: Section,
    /// Data of keys.
    pub keys: Section,
    /// Data of values.
    pub values: Section,
    /// Bytes of the raw body.
    pub total: u64,
}

impl Layout {
    /// Place the sections.
    pub fn new(counts: &Counts) -> Self {
        let mut end = 0;
        let mut place = |present: bool, len: u64| {
            if !present || len == 0 {
                return Section { begin: end, end };
            }
            let begin = round_up(end);
            end = begin + len;
            Section { begin, end }
        };
        let records = counts.records;
        let keys = counts.has(FLAG_KEYS);
        let headers = counts.has(FLAG_HEADERS);
        let entries = 4 * (counts.header_entries + 1);
        let mut layout = Self {
            timestamps: place(!counts.has(FLAG_ONE_TIMESTAMP), 8 * records),
            value_validity: place(counts.has(FLAG_NULL_VALUES), records.div_ceil(8)),
            value_offsets: place(true, 4 * (records + 1)),
            key_validity: place(counts.has(FLAG_NULL_KEYS), records.div_ceil(8)),
            key_offsets: place(keys, 4 * (records + 1)),
            header_offsets: place(headers, 4 * (records + 1)),
            name_offsets: place(headers, entries),
            header_value_validity: place(
                counts.has(FLAG_NULL_HEADER_VALUES),
                counts.header_entries.div_ceil(8),
            ),
            header_value_offsets: place(headers, entries),
            names: place(headers, counts.header_name_bytes),
            header_values: place(headers, counts.header_value_bytes),
            keys: place(keys, counts.key_bytes),
            values: place(true, counts.value_bytes),
            total: 0,
        };
        layout.total = end;
        layout
    }

    /// All sections in stored order.
    pub fn sections(&self) -> [Section; 13] {
        [
            self.timestamps,
            self.value_validity,
            self.value_offsets,
            self.key_validity,
            self.key_offsets,
            self.header_offsets,
            self.name_offsets,
            self.header_value_validity,
            self.header_value_offsets,
            self.names,
            self.header_values,
            self.keys,
            self.values,
        ]
    }
}
