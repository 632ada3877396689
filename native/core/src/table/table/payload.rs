//! What the primary tree has of a record beside key and position.
//!
//! ```text
//!  0  i64  timestamp
//!  8  u16  number of headers; bit 15: the value is null
//! 10  u32  bytes of the name, u32 bytes of the value (0xffffffff: null), for each header
//! ..  name and value of each header, one behind the other
//! ..  the record's value, to the end
//! ```

use crate::error::{Error, Result};
use crate::limits::RECORD_HEADERS_MAX;

const WHAT: &str = "record of a table";
const NULL: u32 = u32::MAX;
const NULL_VALUE: u16 = 1 << 15;
const FIXED_BYTES: usize = 10;

/// A record without key and position, borrowed.
#[derive(Clone, Debug)]
pub struct Payload<'a> {
    /// Microseconds since the Unix epoch.
    pub timestamp: i64,
    /// The value, unless it is null.
    pub value: Option<&'a [u8]>,
    /// Headers in the order they were given.
    pub headers: Headers<'a>,
}

/// Headers of a record: an iterator of name and value, which may be null.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    lengths: &'a [u8],
    data: &'a [u8],
}

/// Append the payload of a record.
pub fn encode<'a>(
    timestamp: i64,
    value: Option<&[u8]>,
    headers: impl ExactSizeIterator<Item = (&'a str, Option<&'a [u8]>)> + Clone,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&timestamp.to_le_bytes());
    // A record has at most RECORD_HEADERS_MAX headers.
    let null = if value.is_none() { NULL_VALUE } else { 0 };
    out.extend_from_slice(&(headers.len() as u16 | null).to_le_bytes());
    for (name, value) in headers.clone() {
        out.extend_from_slice(&(name.len() as u32).to_le_bytes());
        let len = value.map_or(NULL, |value| value.len() as u32);
        out.extend_from_slice(&len.to_le_bytes());
    }
    for (name, value) in headers {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(value.unwrap_or_default());
    }
    out.extend_from_slice(value.unwrap_or_default());
}

impl<'a> Payload<'a> {
    /// Timestamp and value of a record without headers, as most are. None for others, and for what is no record.
    #[inline]
    pub fn plain(bytes: &'a [u8]) -> Option<(i64, Option<&'a [u8]>)> {
        let (fixed, value) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let [t @ .., low, high] = *fixed;
        let timestamp = i64::from_le_bytes(t);
        match u16::from_le_bytes([low, high]) {
            0 => Some((timestamp, Some(value))),
            NULL_VALUE if value.is_empty() => Some((timestamp, None)),
            _ => None,
        }
    }

    /// Decode a payload. [`Error::Malformed`] for what [`encode`] cannot have written.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        if let Some((timestamp, value)) = Self::plain(bytes) {
            let (lengths, data) = (&[][..], &[][..]);
            return Ok(Self {
                timestamp,
                value,
                headers: Headers { lengths, data },
            });
        }
        let malformed = |at: usize, reason: &str| Error::malformed(WHAT, at as u64, reason);
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
            return Err(malformed(0, "shorter than its fixed part"));
        };
        let [t @ .., low, high] = *fixed;
        let flags = u16::from_le_bytes([low, high]);
        let count = usize::from(flags & !NULL_VALUE);
        if count > RECORD_HEADERS_MAX || 8 * count > rest.len() {
            return Err(malformed(8, "more headers than fit"));
        }
        let (lengths, data) = rest.split_at(8 * count);
        let mut headers = Headers { lengths, data };
        while headers.lengths.len() >= 8 {
            if headers.next().is_none() {
                return Err(malformed(10, "headers longer than the record, or no UTF-8"));
            }
        }
        let value = headers.data;
        let is_null = flags & NULL_VALUE != 0;
        if is_null && !value.is_empty() {
            return Err(malformed(bytes.len(), "null with bytes"));
        }
        Ok(Self {
            timestamp: i64::from_le_bytes(t),
            value: (!is_null).then_some(value),
            headers: Headers { lengths, data },
        })
    }
}

impl<'a> Headers<'a> {
    fn step(&mut self) -> Option<(&'a str, Option<&'a [u8]>)> {
        let (name, rest) = self.lengths.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_first_chunk::<4>()?;
        let name = u32::from_le_bytes(*name) as usize;
        let value = u32::from_le_bytes(*value);
        let len = if value == NULL { 0 } else { value as usize };
        let (name, data) = self.data.split_at_checked(name)?;
        let (bytes, data) = data.split_at_checked(len)?;
        let name = std::str::from_utf8(name).ok()?;
        (self.lengths, self.data) = (rest, data);
        Some((name, (value != NULL).then_some(bytes)))
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.step()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.lengths.len() / 8;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Headers<'_> {}
