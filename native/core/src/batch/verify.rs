//! Verification of a raw body: after it, every access by offset is inside its section.

use std::ops::Range;

use super::header::Header;
use super::layout::{
    FLAG_HEADERS, FLAG_KEYS, FLAG_NULL_HEADER_VALUES, FLAG_NULL_KEYS, FLAG_NULL_VALUES,
    FLAG_ONE_TIMESTAMP, Layout, Section,
};
use super::record::U32s;
use crate::error::{Error, Result};
use crate::limits::RECORD_HEADERS_MAX;

/// How a refusal names a place in a raw body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The input that offsets count from.
    pub what: &'static str,
    /// Offset of the raw body in it.
    pub base: usize,
}

impl Place {
    /// A refusal of the byte `at` of the raw body.
    pub fn refuse(self, at: usize, reason: impl Into<String>) -> Error {
        Error::malformed(self.what, (self.base + at) as u64, reason)
    }
}

/// Verify the sections of `body`, which has the length of `layout`.
pub(super) fn check_body(
    header: &Header,
    layout: &Layout,
    body: &[u8],
    place: Place,
) -> Result<()> {
    let counts = &header.counts;
    let body = Body { bytes: body, place };
    body.gaps(layout)?;
    if !counts.has(FLAG_ONE_TIMESTAMP) {
        body.timestamps(
            layout.timestamps,
            header.min_timestamp,
            header.max_timestamp,
        )?;
    }
    body.offsets("value", layout.value_offsets, counts.value_bytes)?;
    let records = counts.records as usize;
    if counts.has(FLAG_NULL_VALUES) {
        body.nulls(
            "value",
            layout.value_validity,
            layout.value_offsets,
            records,
        )?;
    }
    if counts.has(FLAG_KEYS) {
        body.offsets("key", layout.key_offsets, counts.key_bytes)?;
    }
    if counts.has(FLAG_NULL_KEYS) {
        body.nulls("key", layout.key_validity, layout.key_offsets, records)?;
    }
    if counts.has(FLAG_HEADERS) {
        body.offsets("header", layout.header_offsets, counts.header_entries)?;
        body.offsets("header name", layout.name_offsets, counts.header_name_bytes)?;
        body.offsets(
            "header value",
            layout.header_value_offsets,
            counts.header_value_bytes,
        )?;
        if counts.has(FLAG_NULL_HEADER_VALUES) {
            let (validity, offsets) = (layout.header_value_validity, layout.header_value_offsets);
            let entries = counts.header_entries as usize;
            body.nulls("header value", validity, offsets, entries)?;
        }
        body.header_counts(layout.header_offsets)?;
        body.names(layout)?;
    }
    Ok(())
}

struct Body<'a> {
    bytes: &'a [u8],
    place: Place,
}

impl Body<'_> {
    fn section(&self, section: Section) -> &[u8] {
        &self.bytes[section.range()]
    }

    /// Bytes between sections are zero.
    fn gaps(&self, layout: &Layout) -> Result<()> {
        let mut end = 0;
        for section in layout.sections() {
            let gap: Range<usize> = end..section.range().start;
            if let Some(at) = self.bytes[gap].iter().position(|&byte| byte != 0) {
                return Err(self.place.refuse(end + at, "padding is not zero"));
            }
            end = section.range().end;
        }
        Ok(())
    }

    /// The smallest and the largest are what the header says.
    fn timestamps(&self, section: Section, min: i64, max: i64) -> Result<()> {
        let timestamps = self.section(section).as_chunks().0.iter();
        let found = timestamps.fold((i64::MAX, i64::MIN), |(min, max), bytes| {
            let timestamp = i64::from_le_bytes(*bytes);
            (min.min(timestamp), max.max(timestamp))
        });
        if found != (min, max) {
            let reason = format!("timestamps {}..={} are not {min}..={max}", found.0, found.1);
            return Err(self.place.refuse(section.range().start, reason));
        }
        Ok(())
    }

    /// Offsets begin at 0, never decrease and end at the length of their data.
    fn offsets(&self, column: &str, section: Section, data_len: u64) -> Result<()> {
        let bytes = self.section(section);
        let offsets = U32s::new(bytes);
        let begin = section.range().start;
        if offsets.get(0) != Some(0) {
            return Err(self
                .place
                .refuse(begin, format!("first {column} offset is not 0")));
        }
        if !is_monotone(bytes) {
            let pairs = offsets.iter().zip(offsets.iter().skip(1));
            let at = pairs.take_while(|(before, after)| before <= after).count();
            let reason = format!("{column} offset {} decreases", at + 1);
            return Err(self.place.refuse(begin + 4 * (at + 1), reason));
        }
        let last = offsets.len() - 1;
        if offsets.get(last).map(u64::from) != Some(data_len) {
            let reason = format!("last {column} offset is not the length {data_len} of the data");
            return Err(self.place.refuse(begin + 4 * last, reason));
        }
        Ok(())
    }

    /// Bits past the last element are zero, and null elements span nothing.
    fn nulls(&self, column: &str, validity: Section, offsets: Section, count: usize) -> Result<()> {
        let begin = validity.range().start;
        let offsets = U32s::new(self.section(offsets));
        for (at, &byte) in self.section(validity).iter().enumerate() {
            let bits = (count - 8 * at).min(8);
            let used = u8::MAX >> (8 - bits);
            if byte & !used != 0 {
                let reason = format!("padding of the {column} validity is not 0");
                return Err(self.place.refuse(begin + at, reason));
            }
            let mut nulls = !byte & used;
            while nulls != 0 {
                let element = 8 * at + nulls.trailing_zeros() as usize;
                if offsets.range(element).is_none_or(|range| !range.is_empty()) {
                    let reason = format!("null {column} {element} has bytes");
                    return Err(self.place.refuse(begin + at, reason));
                }
                nulls &= nulls - 1;
            }
        }
        Ok(())
    }

    fn header_counts(&self, section: Section) -> Result<()> {
        let offsets = U32s::new(self.section(section));
        let counts = offsets
            .iter()
            .zip(offsets.iter().skip(1))
            .map(|(begin, end)| end - begin);
        for (record, count) in counts.enumerate() {
            if count as usize > RECORD_HEADERS_MAX {
                let reason = format!("{count} headers on record {record}");
                return Err(self
                    .place
                    .refuse(section.range().start + 4 * record, reason));
            }
        }
        Ok(())
    }

    /// Each name is UTF-8 by itself.
    fn names(&self, layout: &Layout) -> Result<()> {
        let begin = layout.names.range().start;
        let text = match std::str::from_utf8(self.section(layout.names)) {
            Ok(text) => text,
            Err(reason) => {
                let at = begin + reason.valid_up_to();
                return Err(self.place.refuse(at, "header name is not UTF-8"));
            }
        };
        let offsets = U32s::new(self.section(layout.name_offsets));
        match offsets
            .iter()
            .find(|&at| !text.is_char_boundary(at as usize))
        {
            Some(at) => {
                let reason = "header name ends inside a character";
                Err(self.place.refuse(begin + at as usize, reason))
            }
            None => Ok(()),
        }
    }
}

/// Whether little-endian offsets that begin at 0 never decrease. They are compared as signed, which
/// vector units do: from a first offset of 0 that also keeps every one within `i32`.
fn is_monotone(offsets: &[u8]) -> bool {
    let later = offsets.get(4..).unwrap_or_default().as_chunks().0;
    let pairs = offsets.as_chunks().0.iter().zip(later);
    // Without an early exit, so that it vectorises.
    pairs.fold(true, |monotone, (before, after)| {
        monotone & (i32::from_le_bytes(*before) <= i32::from_le_bytes(*after))
    })
}
