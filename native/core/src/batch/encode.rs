//! The encoder: checked columns in, one batch appended to a sink.

use std::borrow::Cow;
use std::ops::Range;

use super::columns::{BytesRef, ColumnsRef, HeadersRef, NullableRef, Offsets, Timestamps};
use super::compress::{self, Compression};
use super::head;
use super::header::{self, Header, Producer};
use super::layout::{
    Counts, FLAG_HEADERS, FLAG_KEYS, FLAG_NULL_HEADER_VALUES, FLAG_NULL_KEYS, FLAG_NULL_VALUES,
    FLAG_ONE_TIMESTAMP, Layout, head_len,
};
use super::sink::Sink;
use crate::error::{Error, Result};
use crate::limits::{BATCH_BYTES_MAX, RECORD_HEADERS_MAX};

/// Append records `range` of `columns` to `out` as one batch.
///
/// Values are copied once, from where they lie into `out`; when a body is compressed it passes
/// through `out` first. On error `out` is as it was: [`Error::InvalidArgument`] for columns that
/// contradict themselves or an empty range, [`Error::TooLarge`] for what exceeds a limit.
pub fn encode_columns(
    columns: &ColumnsRef<'_>,
    range: Range<usize>,
    producer: Producer,
    compression: Compression,
    out: &mut impl Sink,
) -> Result<()> {
    if range.is_empty() || range.end > columns.len {
        let (begin, end) = (range.start, range.end);
        return Err(invalid(format!(
            "records {begin}..{end} of {} columns",
            columns.len
        )));
    }
    let values = checked_nullable("value", &columns.values, &range)?;
    let keys = columns.keys.as_ref();
    let keys = keys.map_or(Ok(None), |keys| checked_keys(keys, &range))?;
    let headers = columns.headers.as_ref();
    let headers = headers.map_or(Ok(None), |headers| checked_headers(headers, &range))?;
    let (timestamps, min_timestamp, max_timestamp) = bounds(&columns.timestamps, &range)?;

    let mut counts = Counts {
        records: range.len() as u64,
        value_bytes: values.data.len() as u64,
        ..Counts::default()
    };
    if timestamps.is_none() {
        counts.flags |= FLAG_ONE_TIMESTAMP;
    }
    if values.validity.is_some() {
        counts.flags |= FLAG_NULL_VALUES;
    }
    if let Some(keys) = &keys {
        counts.flags |= FLAG_KEYS;
        if keys.validity.is_some() {
            counts.flags |= FLAG_NULL_KEYS;
        }
        counts.key_bytes = keys.data.len() as u64;
    }
    if let Some(headers) = &headers {
        counts.flags |= FLAG_HEADERS;
        counts.header_entries = headers.names.offsets.len() as u64 - 1;
        counts.header_name_bytes = headers.names.data.len() as u64;
        counts.header_value_bytes = headers.values.data.len() as u64;
        if headers.values.validity.is_some() {
            counts.flags |= FLAG_NULL_HEADER_VALUES;
        }
    }
    header::check_limits(&counts)?;

    let layout = Layout::new(&counts);
    let begin = out.len();
    let mut body = Body {
        body: begin + head_len(layout.total) as usize,
        out,
    };
    body.out.resize_zeroed(body.body);
    if let Some(timestamps) = timestamps {
        body.align().timestamps(timestamps);
    }
    body.offsets(&values);
    if let Some(keys) = &keys {
        body.offsets(keys);
    }
    if let Some(headers) = &headers {
        headers.offsets.write(body.align().out);
        headers.names.offsets.write(body.align().out);
        body.offsets(&headers.values);
        body.data(headers.names.data);
        body.data(&headers.values.data);
    }
    if let Some(keys) = &keys {
        body.data(&keys.data);
    }
    body.data(&values.data);
    debug_assert_eq!(
        body.out.len() as u64,
        body.body as u64 + layout.total,
        "layout is exact"
    );

    let header = Header {
        compression,
        counts,
        stored: layout.total as u32,
        raw: layout.total as u32,
        min_timestamp,
        max_timestamp,
        producer,
    };
    finish(header, begin, out);
    Ok(())
}

/// Refuse, with the error of [`encode_columns`], records that it would refuse for what they are; their
/// size is another matter. For a caller that must know before it encodes the first of several ranges.
pub fn check_columns(columns: &ColumnsRef<'_>, range: &Range<usize>) -> Result<()> {
    checked_nullable("value", &columns.values, range)?;
    if let Some(keys) = &columns.keys {
        checked_keys(keys, range)?;
    }
    if let Some(headers) = &columns.headers {
        checked_headers(headers, range)?;
    }
    bounds(&columns.timestamps, range).map(|_| ())
}

/// Compress the body that ends `out` if that shrinks it, and put the head in front.
fn finish(mut header: Header, begin: usize, out: &mut impl Sink) {
    let raw_begin = head_len(u64::from(header.raw)) as usize;
    let mut stored_len = None;
    // The head in front of a shorter body is no longer than the one there was room for.
    let batch = &mut out.as_mut_slice()[begin..];
    compress::compress(header.compression, batch, raw_begin, |batch, stored| {
        let at = head_len(stored.len() as u64) as usize;
        batch[at..at + stored.len()].copy_from_slice(stored);
        stored_len = Some(stored.len());
    });
    match stored_len {
        Some(len) => {
            header.stored = len as u32;
            out.resize_zeroed(begin + head_len(len as u64) as usize + len);
        }
        None => header.compression = Compression::None,
    }
    head::seal(&mut out.as_mut_slice()[begin..], &header);
}

/// The body under construction.
struct Body<'o, S> {
    body: usize,
    out: &'o mut S,
}

impl<S: Sink> Body<'_, S> {
    /// Begin a section.
    fn align(&mut self) -> &mut Self {
        let len = (self.out.len() - self.body).next_multiple_of(8);
        self.out.resize_zeroed(self.body + len);
        self
    }

    /// A whole section of bytes; an empty one takes no place.
    fn data(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.align().out.extend_from_slice(bytes);
        }
    }

    /// Validity, if some element is null, and offsets.
    fn offsets(&mut self, column: &Nullable<'_>) {
        if let Some(validity) = &column.validity {
            self.align().out.extend_from_slice(validity);
        }
        column.offsets().write(self.align().out);
    }

    fn timestamps(&mut self, timestamps: &[i64]) {
        let begin = self.out.len();
        self.out.resize_zeroed(begin + 8 * timestamps.len());
        let out = &mut self.out.as_mut_slice()[begin..];
        for (element, timestamp) in out.as_chunks_mut().0.iter_mut().zip(timestamps) {
            *element = timestamp.to_le_bytes();
        }
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidArgument(reason)
}

/// The elements `range` alone, with offsets that are known to be good.
fn checked<'a>(
    column: &'static str,
    bytes: &BytesRef<'a>,
    range: &Range<usize>,
) -> Result<BytesRef<'a>> {
    let offsets = checked_offsets(column, &bytes.offsets, range)?;
    let begin = offsets.get(0).unwrap_or(0);
    let end = offsets.get(range.len()).unwrap_or(begin);
    let Some(data) = bytes.data.get(begin..end) else {
        return Err(invalid(format!(
            "{column} offsets point outside their data"
        )));
    };
    Ok(BytesRef { offsets, data })
}

fn checked_offsets<'a>(
    column: &'static str,
    offsets: &Offsets<'a>,
    range: &Range<usize>,
) -> Result<Offsets<'a>> {
    let Some(offsets) = offsets.of(range) else {
        return Err(invalid(format!(
            "{column} column is shorter than the others"
        )));
    };
    // Monotone from a first one that is not negative: none is.
    if offsets.get(0).is_none() || !offsets.is_monotone() {
        return Err(invalid(format!(
            "{column} offsets decrease or are negative"
        )));
    }
    Ok(offsets)
}

/// Elements ready to be written.
struct Nullable<'a> {
    /// Offsets as given, unless some null element spanned bytes.
    given: Offsets<'a>,
    compacted: Option<Vec<u32>>,
    data: Cow<'a, [u8]>,
    /// Present only if some element is null.
    validity: Option<Vec<u8>>,
}

impl Nullable<'_> {
    fn offsets(&self) -> Offsets<'_> {
        self.compacted.as_deref().map_or(self.given, Offsets::U32)
    }

    /// Whether every element is null.
    fn is_all_null(&self) -> bool {
        let validity = self.validity.as_ref();
        validity.is_some_and(|bits| bits.iter().all(|&byte| byte == 0))
    }
}

/// Keys of `range`, none if all are null.
fn checked_keys<'a>(keys: &NullableRef<'a>, range: &Range<usize>) -> Result<Option<Nullable<'a>>> {
    checked_nullable("key", keys, range).map(|keys| Some(keys).filter(|keys| !keys.is_all_null()))
}

/// The elements `range` alone, of which null ones take no bytes.
fn checked_nullable<'a>(
    column: &'static str,
    elements: &NullableRef<'a>,
    range: &Range<usize>,
) -> Result<Nullable<'a>> {
    let bytes = checked(column, &elements.bytes, range)?;
    let all = Nullable {
        given: bytes.offsets,
        compacted: None,
        data: Cow::Borrowed(bytes.data),
        validity: None,
    };
    if elements.validity.is_none() {
        return Ok(all);
    }
    let mut validity = vec![0u8; range.len().div_ceil(8)];
    let (mut nulls, mut null_bytes) = (0, 0);
    for (index, record) in range.clone().enumerate() {
        if elements.is_null(record) {
            nulls += 1;
            null_bytes += elements.bytes.span(&(record..record + 1));
        } else {
            validity[index / 8] |= 1 << (index % 8);
        }
    }
    let validity = (nulls != 0).then_some(validity);
    if null_bytes == 0 {
        return Ok(Nullable { validity, ..all });
    }
    let (offsets, data) = compact(column, elements, range)?;
    Ok(Nullable {
        given: Offsets::U32(&[]),
        compacted: Some(offsets),
        data: Cow::Owned(data),
        validity,
    })
}

/// Arrow lets a null element span bytes; the format does not. Rare, so copied element by element.
fn compact(
    column: &'static str,
    elements: &NullableRef<'_>,
    range: &Range<usize>,
) -> Result<(Vec<u32>, Vec<u8>)> {
    let mut offsets = vec![0u32];
    let mut data = Vec::new();
    for record in range.clone() {
        if !elements.is_null(record) {
            data.extend_from_slice(elements.bytes.get(record).unwrap_or_default());
        }
        if data.len() > BATCH_BYTES_MAX {
            let (size, max) = (data.len() as u64, BATCH_BYTES_MAX as u64);
            let what = match column {
                "key" => "key data of a batch",
                "value" => "value data of a batch",
                _ => "header value data of a batch",
            };
            return Err(Error::TooLarge { what, size, max });
        }
        offsets.push(data.len() as u32);
    }
    Ok((offsets, data))
}

/// Headers ready to be written.
struct Headers<'a> {
    offsets: Offsets<'a>,
    names: BytesRef<'a>,
    values: Nullable<'a>,
}

/// Headers of `range`, none if no record has any.
fn checked_headers<'a>(
    headers: &HeadersRef<'a>,
    range: &Range<usize>,
) -> Result<Option<Headers<'a>>> {
    let offsets = checked_offsets("header", &headers.offsets, range)?;
    let begin = offsets.get(0).unwrap_or(0);
    let end = offsets.get(range.len()).unwrap_or(begin);
    if begin == end {
        return Ok(None);
    }
    let longest = offsets.longest();
    if longest > RECORD_HEADERS_MAX {
        let (size, max) = (longest as u64, RECORD_HEADERS_MAX as u64);
        return Err(Error::TooLarge {
            what: "header count of a record",
            size,
            max,
        });
    }
    let names = checked("header name", &headers.names, &(begin..end))?;
    let values = checked_nullable("header value", &headers.values, &(begin..end))?;
    let text = std::str::from_utf8(names.data).ok();
    let base = names.offsets.get(0).unwrap_or(0);
    let is_boundary = |entry| {
        let at = names.offsets.get(entry).unwrap_or(base) - base;
        text.is_some_and(|text| text.is_char_boundary(at))
    };
    if !(0..=end - begin).all(is_boundary) {
        return Err(invalid("header names are not UTF-8".into()));
    }
    Ok(Some(Headers {
        offsets,
        names,
        values,
    }))
}

/// Timestamps of `range` unless they are all the same, the smallest and the largest.
fn bounds<'a>(
    timestamps: &Timestamps<'a>,
    range: &Range<usize>,
) -> Result<(Option<&'a [i64]>, i64, i64)> {
    match *timestamps {
        Timestamps::All(timestamp) => Ok((None, timestamp, timestamp)),
        Timestamps::Each(all) => {
            let Some(each) = all.get(range.clone()) else {
                return Err(invalid(
                    "timestamp column is shorter than the others".into(),
                ));
            };
            let (min, max) = each.iter().fold((i64::MAX, i64::MIN), |(min, max), &at| {
                (min.min(at), max.max(at))
            });
            Ok(((min != max).then_some(each), min, max))
        }
    }
}
