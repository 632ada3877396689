//! Where the parts of one record lie: pure steps from offsets to data.
//!
//! A reader of whole batches takes the steps over the whole body, a point reader over the pages it
//! holds. A step that lacks bytes says so, and the ranges it needs are known beforehand.

use std::ops::Range;

use super::columns::Bitmap;
use super::head::BatchHead;
use super::layout::{
    FLAG_HEADERS, FLAG_KEYS, FLAG_NULL_HEADER_VALUES, FLAG_NULL_KEYS, FLAG_NULL_VALUES,
    FLAG_ONE_TIMESTAMP, Layout, Section,
};
use super::record::{Headers, RecordRef, U32s};
use super::verify::Place;
use crate::error::Result;

/// Bytes of a raw body that a reader has; `None` for a range that it lacks.
pub(super) trait Source {
    fn get(&self, range: Range<usize>) -> Option<&[u8]>;
}

impl Source for [u8] {
    fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        <[u8]>::get(self, range)
    }
}

/// A record of a batch, to be found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub head: &'a BatchHead<'a>,
    pub layout: &'a Layout,
    /// Less than the count of records.
    pub index: usize,
    pub place: Place,
}

/// Ranges of the raw body that hold one record.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    timestamp: i64,
    value: Option<Range<usize>>,
    key: Option<Range<usize>>,
    /// Header entries.
    entries: Range<usize>,
}

const NOTHING: Range<usize> = 0..0;

impl Target<'_> {
    fn has(&self, flag: u16) -> bool {
        self.head.header.counts.has(flag)
    }

    /// First step: what has to be read before the data can be found.
    pub fn fixed(&self) -> [Range<usize>; 6] {
        let (layout, index) = (self.layout, self.index as u64);
        let one_timestamp = self.has(FLAG_ONE_TIMESTAMP);
        let of = |present: bool, section: Section, first: u64, count: u64, width: u64| {
            if present {
                section.elements(first, count, width)
            } else {
                NOTHING
            }
        };
        [
            of(!one_timestamp, layout.timestamps, index, 1, 8),
            of(
                self.has(FLAG_NULL_VALUES),
                layout.value_validity,
                index / 8,
                1,
                1,
            ),
            of(true, layout.value_offsets, index, 2, 4),
            of(
                self.has(FLAG_NULL_KEYS),
                layout.key_validity,
                index / 8,
                1,
                1,
            ),
            of(self.has(FLAG_KEYS), layout.key_offsets, index, 2, 4),
            of(self.has(FLAG_HEADERS), layout.header_offsets, index, 2, 4),
        ]
    }

    /// Second step: where the data lies. `None` if `source` lacks some of [`fixed`](Self::fixed).
    pub fn spans(&self, source: &(impl Source + ?Sized)) -> Result<Option<Spans>> {
        let [timestamp, value_bits, value, key_bits, key, entries] = self.fixed();
        let parts = (
            source.get(timestamp),
            source.get(value_bits),
            source.get(value.clone()),
            source.get(key_bits),
            source.get(key.clone()),
            source.get(entries.clone()),
        );
        let (
            Some(timestamp),
            Some(value_bits),
            Some(value_pair),
            Some(key_bits),
            Some(key_pair),
            Some(entry_pair),
        ) = parts
        else {
            return Ok(None);
        };
        let timestamp = match timestamp.first_chunk() {
            Some(bytes) => i64::from_le_bytes(*bytes),
            None => self.head.min_timestamp(),
        };
        let layout = self.layout;
        let is_null = |bits: &[u8]| {
            let byte = bits.first();
            byte.is_some_and(|byte| byte >> (self.index % 8) & 1 == 0)
        };
        let value = if is_null(value_bits) {
            None
        } else {
            Some(self.span(value_pair, value.start, layout.values)?)
        };
        let key = if !self.has(FLAG_KEYS) || is_null(key_bits) {
            None
        } else {
            Some(self.span(key_pair, key.start, layout.keys)?)
        };
        let count = self.head.header.counts.header_entries as usize;
        let entries = match U32s::new(entry_pair).range(0) {
            None => NOTHING,
            Some(range) if range.start <= range.end && range.end <= count => range,
            Some(_) => return Err(self.place.refuse(entries.start, "header offsets are wrong")),
        };
        Ok(Some(Spans {
            timestamp,
            value,
            key,
            entries,
        }))
    }

    /// The body range of the data between a pair of offsets.
    fn span(&self, pair: &[u8], at: usize, data: Section) -> Result<Range<usize>> {
        match U32s::new(pair).range(0) {
            Some(range) if range.start <= range.end && range.end <= data.len() => {
                let base = data.range().start;
                Ok(base + range.start..base + range.end)
            }
            _ => Err(self.place.refuse(at, "offsets are wrong")),
        }
    }

    /// What the third step reads: value, key, and the offsets of the headers.
    pub fn data(&self, spans: &Spans) -> [Range<usize>; 5] {
        let entries = &spans.entries;
        let offsets = |section: Section| {
            if entries.is_empty() {
                NOTHING
            } else {
                section.elements(entries.start as u64, entries.len() as u64 + 1, 4)
            }
        };
        let bits = if self.has(FLAG_NULL_HEADER_VALUES) && !entries.is_empty() {
            let (first, end) = (entries.start / 8, entries.end.div_ceil(8));
            let section = self.layout.header_value_validity;
            section.elements(first as u64, (end - first) as u64, 1)
        } else {
            NOTHING
        };
        [
            spans.value.clone().unwrap_or(NOTHING),
            spans.key.clone().unwrap_or(NOTHING),
            offsets(self.layout.name_offsets),
            bits,
            offsets(self.layout.header_value_offsets),
        ]
    }

    /// What the last step reads: names and values of the headers. `None` if `source` lacks offsets.
    pub fn header_data(
        &self,
        spans: &Spans,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<[Range<usize>; 2]>> {
        let [_, _, names, _, values] = self.data(spans);
        let (Some(name_offsets), Some(value_offsets)) =
            (source.get(names.clone()), source.get(values.clone()))
        else {
            return Ok(None);
        };
        if spans.entries.is_empty() {
            return Ok(Some([NOTHING, NOTHING]));
        }
        let layout = self.layout;
        Ok(Some([
            self.extent(name_offsets, names.start, layout.names)?,
            self.extent(value_offsets, values.start, layout.header_values)?,
        ]))
    }

    /// The body range that several entries' offsets span.
    fn extent(&self, offsets: &[u8], at: usize, data: Section) -> Result<Range<usize>> {
        let all = U32s::new(offsets);
        let monotone = all
            .iter()
            .zip(all.iter().skip(1))
            .all(|(before, after)| before <= after);
        match (all.get(0), all.get(all.len() - 1)) {
            (Some(begin), Some(end)) if monotone && end as usize <= data.len() => {
                let base = data.range().start;
                Ok(base + begin as usize..base + end as usize)
            }
            _ => Err(self.place.refuse(at, "header offsets are wrong")),
        }
    }

    /// The record, from data that is all there; `None` if some is not.
    pub fn record<'s>(
        &self,
        spans: &Spans,
        source: &'s (impl Source + ?Sized),
    ) -> Result<Option<RecordRef<'s>>> {
        let [value, key, name_offsets, value_bits, value_offsets] = self.data(spans);
        let Some([names, values]) = self.header_data(spans, source)? else {
            return Ok(None);
        };
        let parts = (
            source.get(value),
            source.get(key),
            source.get(name_offsets),
            source.get(value_bits),
            source.get(value_offsets),
            source.get(names),
            source.get(values),
        );
        let (
            Some(value),
            Some(key),
            Some(name_offsets),
            Some(value_bits),
            Some(value_offsets),
            Some(names),
            Some(values),
        ) = parts
        else {
            return Ok(None);
        };
        let (name_offsets, value_offsets) = (U32s::new(name_offsets), U32s::new(value_offsets));
        let validity = (!value_bits.is_empty()).then_some(Bitmap {
            bytes: value_bits,
            offset: spans.entries.start % 8,
        });
        let headers = Headers::new(name_offsets, value_offsets, validity, names, values);
        let key = spans.key.as_ref().map(|_| key);
        let value = spans.value.as_ref().map(|_| value);
        Ok(Some(RecordRef {
            timestamp: spans.timestamp,
            key,
            value,
            headers,
        }))
    }
}
