//! Columns as a writer hands them over: borrowed, with any base and either offset width.

use std::ops::Range;

use super::layout::{
    Counts, FLAG_HEADERS, FLAG_KEYS, FLAG_NULL_HEADER_VALUES, FLAG_NULL_KEYS, FLAG_NULL_VALUES,
    FLAG_ONE_TIMESTAMP,
};
use super::sink::Sink;

/// Offsets of a variable-length column: one more than its elements, the first one anything.
#[derive(Clone, Copy, Debug)]
pub enum Offsets<'a> {
    /// Arrow's `binary` and `string`.
    I32(&'a [i32]),
    /// Arrow's `large_binary` and `large_string`.
    I64(&'a [i64]),
    /// A batch's own.
    U32(&'a [u32]),
}

impl Offsets<'_> {
    /// Offsets held.
    pub fn len(&self) -> usize {
        match self {
            Self::I32(offsets) => offsets.len(),
            Self::I64(offsets) => offsets.len(),
            Self::U32(offsets) => offsets.len(),
        }
    }

    /// Whether no offsets are held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offset `index`, unless there is none or it is negative.
    pub fn get(&self, index: usize) -> Option<usize> {
        match self {
            Self::I32(offsets) => offsets.get(index).and_then(|&at| usize::try_from(at).ok()),
            Self::I64(offsets) => offsets.get(index).and_then(|&at| usize::try_from(at).ok()),
            Self::U32(offsets) => offsets.get(index).map(|&at| at as usize),
        }
    }

    /// The offsets of elements `range`, one more than elements.
    pub(super) fn of(&self, range: &Range<usize>) -> Option<Self> {
        let offsets = range.start..range.end.checked_add(1)?;
        Some(match self {
            Self::I32(all) => Self::I32(all.get(offsets)?),
            Self::I64(all) => Self::I64(all.get(offsets)?),
            Self::U32(all) => Self::U32(all.get(offsets)?),
        })
    }

    /// Whether no offset is smaller than the one before it.
    pub(super) fn is_monotone(&self) -> bool {
        fn check<T: Copy + PartialOrd>(offsets: &[T]) -> bool {
            // Without an early exit, so that it vectorises.
            let pairs = offsets.iter().zip(offsets.iter().skip(1));
            pairs.filter(|(before, after)| before > after).count() == 0
        }
        match self {
            Self::I32(offsets) => check(offsets),
            Self::I64(offsets) => check(offsets),
            Self::U32(offsets) => check(offsets),
        }
    }

    /// Largest difference between neighbours. The offsets are monotone.
    pub(super) fn longest(&self) -> usize {
        (1..self.len())
            .filter_map(|index| Some(self.get(index)?.saturating_sub(self.get(index - 1)?)))
            .max()
            .unwrap_or(0)
    }

    /// Append the offsets, moved to begin at 0. They are monotone and span at most `u32::MAX`.
    pub(super) fn write(&self, out: &mut impl Sink) {
        fn fill<T: Copy>(out: &mut [u8], offsets: &[T], move_to_zero: impl Fn(T) -> u32) {
            for (element, &offset) in out.as_chunks_mut().0.iter_mut().zip(offsets) {
                *element = move_to_zero(offset).to_le_bytes();
            }
        }
        let begin = out.len();
        out.resize_zeroed(begin + 4 * self.len());
        let out = &mut out.as_mut_slice()[begin..];
        match self {
            Self::I32([]) | Self::I64([]) | Self::U32([]) => {}
            Self::I32(all @ [base, ..]) => {
                fill(out, all, |at| at.wrapping_sub(*base).cast_unsigned());
            }
            Self::I64(all @ [base, ..]) => {
                fill(out, all, |at| at.wrapping_sub(*base).cast_unsigned() as u32);
            }
            Self::U32(all @ [base, ..]) => fill(out, all, |at| at.wrapping_sub(*base)),
        }
    }
}

/// A column of byte strings.
#[derive(Clone, Copy, Debug)]
pub struct BytesRef<'a> {
    /// One more than elements.
    pub offsets: Offsets<'a>,
    /// What the offsets point into; may hold more than they span.
    pub data: &'a [u8],
}

impl<'a> BytesRef<'a> {
    /// Bytes of elements `range`; an upper bound on nonsense offsets.
    pub(super) fn span(&self, range: &Range<usize>) -> u64 {
        match (self.offsets.get(range.start), self.offsets.get(range.end)) {
            (Some(begin), Some(end)) => end.saturating_sub(begin) as u64,
            _ => 0,
        }
    }

    /// Element `index`.
    pub(super) fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.data
            .get(self.offsets.get(index)?..self.offsets.get(index + 1)?)
    }
}

/// Bits, least significant first, that begin `offset` bits into `bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap<'a> {
    /// The bits.
    pub bytes: &'a [u8],
    /// Bits to skip.
    pub offset: usize,
}

impl Bitmap<'_> {
    /// Bit `index`; absent ones are unset.
    pub fn get(&self, index: usize) -> bool {
        let bit = self.offset + index;
        self.bytes
            .get(bit / 8)
            .is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }
}

/// Byte strings, some of which may be null.
#[derive(Clone, Copy, Debug)]
pub struct NullableRef<'a> {
    /// The elements; a null one may span bytes, which are not encoded.
    pub bytes: BytesRef<'a>,
    /// Set bits are present elements; without it all are.
    pub validity: Option<Bitmap<'a>>,
}

impl<'a> From<BytesRef<'a>> for NullableRef<'a> {
    /// All present.
    fn from(bytes: BytesRef<'a>) -> Self {
        Self {
            bytes,
            validity: None,
        }
    }
}

impl NullableRef<'_> {
    /// Whether element `index` is null.
    pub fn is_null(&self, index: usize) -> bool {
        self.validity.is_some_and(|validity| !validity.get(index))
    }

    /// Whether some element of `range` is null.
    fn has_null(&self, mut range: Range<usize>) -> bool {
        self.validity.is_some() && range.any(|index| self.is_null(index))
    }
}

/// Timestamps in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub enum Timestamps<'a> {
    /// One a record.
    Each(&'a [i64]),
    /// The same for all.
    All(i64),
}

/// Headers of all records.
#[derive(Clone, Copy, Debug)]
pub struct HeadersRef<'a> {
    /// Entries of record `i` are `offsets[i]..offsets[i + 1]`.
    pub offsets: Offsets<'a>,
    /// Name of each entry, UTF-8.
    pub names: BytesRef<'a>,
    /// Value of each entry.
    pub values: NullableRef<'a>,
}

/// Records as borrowed columns of one length.
#[derive(Clone, Copy, Debug)]
pub struct ColumnsRef<'a> {
    /// Records.
    pub len: usize,
    /// Values.
    pub values: NullableRef<'a>,
    /// Keys, if there are any.
    pub keys: Option<NullableRef<'a>>,
    /// Timestamps.
    pub timestamps: Timestamps<'a>,
    /// Headers, if there are any.
    pub headers: Option<HeadersRef<'a>>,
}

impl ColumnsRef<'_> {
    /// Whether a value of the records `rows` is null, or a value of one of their headers.
    pub fn has_null_values(&self, rows: &Range<usize>) -> bool {
        let in_headers = |headers: &HeadersRef<'_>| {
            let entries = (
                headers.offsets.get(rows.start),
                headers.offsets.get(rows.end),
            );
            let (Some(begin), Some(end)) = entries else {
                return false;
            };
            headers.values.has_null(begin..end)
        };
        self.values.has_null(rows.clone()) || self.headers.as_ref().is_some_and(in_headers)
    }

    /// Bound the bytes that records `range` take encoded, in constant time and without looking at
    /// the data. Exact but for validity, timestamps that turn out equal, and compression.
    pub fn encoded_len_max(&self, range: &Range<usize>) -> usize {
        let mut counts = Counts {
            records: range.len() as u64,
            value_bytes: self.values.bytes.span(range),
            ..Counts::default()
        };
        if self.values.validity.is_some() {
            counts.flags |= FLAG_NULL_VALUES;
        }
        if let Timestamps::All(_) = self.timestamps {
            counts.flags |= FLAG_ONE_TIMESTAMP;
        }
        if let Some(keys) = &self.keys {
            counts.flags |= FLAG_KEYS;
            if keys.validity.is_some() {
                counts.flags |= FLAG_NULL_KEYS;
            }
            counts.key_bytes = keys.bytes.span(range);
        }
        if let Some(headers) = &self.headers
            && let Some(begin) = headers.offsets.get(range.start)
            && let Some(end) = headers.offsets.get(range.end)
            && begin < end
        {
            counts.flags |= FLAG_HEADERS;
            counts.header_entries = (end - begin) as u64;
            counts.header_name_bytes = headers.names.span(&(begin..end));
            counts.header_value_bytes = headers.values.bytes.span(&(begin..end));
            if headers.values.validity.is_some() {
                counts.flags |= FLAG_NULL_HEADER_VALUES;
            }
        }
        usize::try_from(counts.encoded_len()).unwrap_or(usize::MAX)
    }

    /// Cut the records of `rows` into ranges of which each makes one batch of at most `bytes_max` bytes and
    /// `records_max` records (at least one record each, so a larger record gets a batch of its own,
    /// which the encoder refuses if it is over the format's limit).
    pub fn split(
        &self,
        rows: Range<usize>,
        bytes_max: usize,
        records_max: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<'_> {
        let bytes_max = bytes_max.min(crate::limits::BATCH_BYTES_MAX);
        let records_max = records_max.clamp(1, crate::limits::BATCH_RECORDS_MAX);
        let end_of_rows = rows.end.min(self.len);
        let mut begin = rows.start;
        std::iter::from_fn(move || {
            if begin >= end_of_rows {
                return None;
            }
            // The bound grows with the range, so bisect for the longest that fits.
            let mut fits = begin + 1;
            let mut exceeds = end_of_rows.min(begin.saturating_add(records_max)) + 1;
            while fits + 1 < exceeds {
                let middle = fits.midpoint(exceeds);
                if self.encoded_len_max(&(begin..middle)) <= bytes_max {
                    fits = middle;
                } else {
                    exceeds = middle;
                }
            }
            let range = begin..fits;
            begin = fits;
            Some(range)
        })
    }
}
