//! A whole batch, verified and read in place.

use std::ops::Deref;

use super::compress::{self, Compression};
use super::head::{BatchHead, parse_head};
use super::layout::{FLAG_ONE_TIMESTAMP, Layout};
use super::locate::Target;
use super::record::{RecordRef, U32s};
use super::verify::{Place, check_body};
use super::{BATCH, RAW_BODY, malformed};
use crate::error::{Error, Result};

/// The raw body of a batch: in place, or decompressed.
#[derive(Debug)]
pub enum BatchBody<'a> {
    /// Part of the batch's own bytes.
    Borrowed(&'a [u8]),
    /// Decompressed.
    Owned(Vec<u8>),
}

impl Deref for BatchBody<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(body) => body,
            Self::Owned(body) => body,
        }
    }
}

/// A verified batch. Uncompressed ones are viewed in place.
#[derive(Debug)]
pub struct BatchView<'a> {
    head: BatchHead<'a>,
    layout: Layout,
    body: BatchBody<'a>,
}

impl<'a> BatchView<'a> {
    /// Verify `bytes` as exactly one batch: head, page checksums, and every offset, bit and name.
    /// A reader of several batches in a row cuts them by [`BatchHead::total_len`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        Self::parse_with(bytes, true)
    }

    /// As [`parse`](Self::parse), but without the page checksums: for bytes that this process has
    /// verified before. What memory safety rests on is verified all the same.
    pub fn parse_verified(bytes: &'a [u8]) -> Result<Self> {
        Self::parse_with(bytes, false)
    }

    fn parse_with(bytes: &'a [u8], pages: bool) -> Result<Self> {
        let head = parse_head(bytes)?;
        let total = head.total_len();
        if bytes.len() != total {
            let reason = format!("{} bytes instead of {total}", bytes.len());
            return Err(malformed(bytes.len().min(total) as u64, reason));
        }
        let stored = &bytes[head.head_len()..];
        if pages {
            head.verify_pages(0, stored)?;
        }
        let body = match head.compression() {
            Compression::None => BatchBody::Borrowed(stored),
            Compression::Zstd | Compression::Lz4 => BatchBody::Owned(decompress(&head, stored)?),
        };
        let layout = head.layout();
        check_body(&head.header, &layout, &body, place(&head))?;
        Ok(Self { head, layout, body })
    }

    /// The head.
    pub fn head(&self) -> &BatchHead<'a> {
        &self.head
    }

    /// Where the sections of [`body`](Self::body) lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The raw body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The raw body, to keep.
    pub fn into_body(self) -> BatchBody<'a> {
        self.body
    }

    /// Records, at least one.
    pub fn count(&self) -> u32 {
        self.head.count()
    }

    /// Offsets of the values, one more than records.
    pub fn value_offsets(&self) -> U32s<'_> {
        U32s::new(&self.body[self.layout.value_offsets.range()])
    }

    /// Offsets of the keys, one more than records; none without keys.
    pub fn key_offsets(&self) -> U32s<'_> {
        U32s::new(&self.body[self.layout.key_offsets.range()])
    }

    /// Record `index`.
    pub fn record(&self, index: u32) -> Option<RecordRef<'_>> {
        if index >= self.count() {
            return None;
        }
        let index = index as usize;
        let place = place(&self.head);
        let target = Target {
            head: &self.head,
            layout: &self.layout,
            index,
            place,
        };
        // The whole body is here and was verified, so no step fails or lacks anything.
        let body: &[u8] = &self.body;
        let spans = target.spans(body).ok()??;
        target.record(&spans, body).ok()?
    }

    /// All records in order.
    pub fn iter(&self) -> impl Iterator<Item = RecordRef<'_>> {
        (0..self.count()).filter_map(|index| self.record(index))
    }

    /// Whether record `index` has a key.
    fn has_key(&self, index: usize) -> bool {
        let validity = &self.body[self.layout.key_validity.range()];
        validity.is_empty() || validity[index / 8] >> (index % 8) & 1 == 1
    }
}

/// Decompress a verified stored body.
pub(super) fn decompress(head: &BatchHead<'_>, stored: &[u8]) -> Result<Vec<u8>> {
    compress::decompress(head.compression(), stored, head.raw_len())
        .map_err(|reason| malformed(head.head_len() as u64, reason))
}

/// How refusals name a place in the raw body of a batch.
pub(super) fn place(head: &BatchHead<'_>) -> Place {
    match head.compression() {
        Compression::None => Place {
            what: BATCH,
            base: head.head_len(),
        },
        Compression::Zstd | Compression::Lz4 => Place {
            what: RAW_BODY,
            base: 0,
        },
    }
}

/// Indexes of the records whose key is `key`, in order.
pub fn filter_key(view: &BatchView<'_>, key: &[u8]) -> Vec<u32> {
    let keys = &view.body[view.layout.keys.range()];
    let offsets = view.key_offsets();
    let pairs = offsets.iter().zip(offsets.iter().skip(1)).enumerate();
    pairs
        .filter(|&(_, (begin, end))| (end - begin) as usize == key.len())
        .filter(|&(_, (begin, end))| &keys[begin as usize..end as usize] == key)
        // Only an empty key may be mistaken for a null one.
        .filter(|&(index, _)| !key.is_empty() || view.has_key(index))
        .map(|(index, _)| index as u32)
        .collect()
}

/// Index of the first record, in stored order, whose timestamp is `timestamp` or later.
pub fn first_at_or_after(view: &BatchView<'_>, timestamp: i64) -> Option<u32> {
    let head = &view.head;
    if timestamp > head.max_timestamp() {
        return None;
    }
    if timestamp <= head.min_timestamp() || head.counts().has(FLAG_ONE_TIMESTAMP) {
        return Some(0);
    }
    let timestamps = view.body[view.layout.timestamps.range()].as_chunks().0;
    let index = timestamps
        .iter()
        .position(|bytes| i64::from_le_bytes(*bytes) >= timestamp)?;
    Some(index as u32)
}

/// A refusal of an index that the batch does not have.
pub(super) fn no_such_record(index: u32, count: u32) -> Error {
    Error::InvalidArgument(format!("record {index} of a batch of {count}"))
}
