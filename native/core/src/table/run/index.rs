//! Page index of a run: where each page is, and which keys can be in it.
//!
//! ```text
//!  u32  bytes of the smallest key     u32  bytes of the largest key
//!  pages, 32 bytes each:
//!     0  u32  bytes stored            4  u32  bytes before compression
//!     8  u32  entries                12  u32  CRC32C of the stored bytes
//!    16  u64  position of the first entry
//!    24  u32  bytes of the separator
//!    28  u8   compression: 0 none, 1 zstd, 2 lz4 block;  29  3 bytes of zero
//!  smallest key, largest key, separators one behind the other
//! ```
//!
//! The *separator* of a page is above every key before the page, and not above its first key: the
//! shortest beginning of that key which will do. Where a key has versions on both sides it is the whole key. That of the first
//! page is empty.

use std::cmp::Reverse;

use crate::batch::Compression;
use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::limits::{RUN_INDEX_BYTES_MAX, TABLE_KEY_BYTES_MAX};

use super::page::RAW_BYTES_MAX;

const ENTRY_BYTES: usize = 32;
const WHAT: &str = "run index";

/// What the index says of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagePlace {
    /// Follows from the lengths of the pages before it.
    pub(super) offset: u64,
    pub(super) first_position: u64,
    pub(super) stored_bytes: u32,
    pub(super) raw_bytes: u32,
    pub(super) entries: u32,
    pub(super) crc: u32,
    /// Where its separator ends among all of them; the index says it.
    pub(super) separator_end: u32,
    pub(super) compression: Compression,
}

/// The index in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageIndex {
    places: Vec<PagePlace>,
    separators: Vec<u8>,
    pub(super) first_key: Vec<u8>,
    pub(super) last_key: Vec<u8>,
    /// What all keys begin with; its bytes need no comparison.
    common: usize,
    /// Eight bytes of each separator behind that, as numbers that sort as they do. A search goes through these alone,
    /// which lie close together, and compares whole separators only where they are equal.
    heads: Vec<u64>,
}

impl PageIndex {
    /// Add a page whose first entry is (`key`, `position`); `last` is the key before it.
    pub(super) fn push(&mut self, place: PagePlace, last: Option<&[u8]>, key: &[u8]) -> Result<()> {
        if let Some(last) = last {
            let shared = shared_bytes(last, key);
            self.separators
                .extend_from_slice(&key[..key.len().min(shared + 1)]);
        }
        if self.separators.len() + (self.places.len() + 1) * ENTRY_BYTES > RUN_INDEX_BYTES_MAX / 2 {
            return Err(Error::TooLarge {
                what: "index of a run",
                size: self.separators.len() as u64,
                max: RUN_INDEX_BYTES_MAX as u64 / 2,
            });
        }
        let separator_end = self.separators.len() as u32;
        self.places.push(PagePlace {
            separator_end,
            ..place
        });
        Ok(())
    }

    /// Set what is known at the end: the smallest and the largest key.
    pub(super) fn finish(&mut self, first_key: Vec<u8>, last_key: Vec<u8>) {
        self.common = shared_bytes(&first_key, &last_key);
        (self.first_key, self.last_key) = (first_key, last_key);
        let heads = (0..self.places.len()).map(|page| self.head(self.separator(page)));
        self.heads = heads.collect();
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.places.len() * ENTRY_BYTES + self.separators.len());
        out.put_u32(self.first_key.len() as u32);
        out.put_u32(self.last_key.len() as u32);
        let mut begin = 0;
        for place in &self.places {
            out.put_u32(place.stored_bytes);
            out.put_u32(place.raw_bytes);
            out.put_u32(place.entries);
            out.put_u32(place.crc);
            out.put_u64(place.first_position);
            out.put_u32(place.separator_end - begin);
            out.extend_from_slice(&[place.compression.code(), 0, 0, 0]);
            begin = place.separator_end;
        }
        out.extend_from_slice(&self.first_key);
        out.extend_from_slice(&self.last_key);
        out.extend_from_slice(&self.separators);
        out
    }

    /// Decode an index of so many pages. `Malformed` for what [`PageIndex::encode`] cannot have
    /// written.
    pub(super) fn decode(bytes: &[u8], pages: usize) -> Result<Self> {
        let mut take = Take::new(WHAT, bytes);
        let (first, last) = (take.u32()? as usize, take.u32()? as usize);
        if pages.saturating_mul(ENTRY_BYTES) > take.remaining() {
            return Err(take.error(format!("{pages} pages cannot fit")));
        }
        let mut index = Self::default();
        index.places.reserve_exact(pages);
        let (mut offset, mut separators) = (0, 0);
        for _ in 0..pages {
            let place = take_place(&mut take, offset, separators)?;
            offset += u64::from(place.stored_bytes);
            separators = place.separator_end;
            index.places.push(place);
        }
        let (first, last) = (take.slice(first)?.to_vec(), take.slice(last)?.to_vec());
        index.separators = take.slice(separators as usize)?.to_vec();
        take.finish()?;
        if let Some(reason) = index.contradiction(&first, &last) {
            return Err(Error::malformed(WHAT, 0, reason));
        }
        index.finish(first, last);
        Ok(index)
    }

    /// What would let a search miss an entry.
    fn contradiction(&self, first: &[u8], last: &[u8]) -> Option<&'static str> {
        if last.len() > TABLE_KEY_BYTES_MAX || first > last {
            return Some("the smallest key is not one, or above the largest");
        }
        for page in 1..self.places.len() {
            let before = (
                self.separator(page - 1),
                Reverse(self.places[page - 1].first_position),
            );
            let here = (
                self.separator(page),
                Reverse(self.places[page].first_position),
            );
            // The empty separator of the first page is no key, so its position does not count.
            if before >= here && !(page == 1 && before.0 < here.0) {
                return Some("pages are out of order");
            }
            if here.0 < first || here.0 > last {
                return Some("a page outside of the smallest and largest key");
            }
        }
        let empty = self
            .places
            .first()
            .is_none_or(|place| place.separator_end == 0);
        (!empty).then_some("the first page has a separator")
    }

    /// Number of pages; never 0 in a run.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Where a page is.
    pub(super) fn place(&self, page: usize) -> &PagePlace {
        &self.places[page]
    }

    /// Bytes of all pages.
    pub(super) fn pages_bytes(&self) -> u64 {
        let last = self.places.last();
        last.map_or(0, |place| place.offset + u64::from(place.stored_bytes))
    }

    /// Entries of all pages.
    pub(super) fn entries(&self) -> u64 {
        self.places
            .iter()
            .map(|place| u64::from(place.entries))
            .sum()
    }

    /// Bytes that it takes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<PagePlace>()
            + self.heads.capacity() * size_of::<u64>()
            + self.separators.capacity()
    }

    /// The separator of a page.
    pub(super) fn separator(&self, page: usize) -> &[u8] {
        let begin = match page.checked_sub(1) {
            Some(before) => self.places[before].separator_end,
            None => 0,
        };
        &self.separators[begin as usize..self.places[page].separator_end as usize]
    }

    /// The page to begin at with looking for the first entry that is not before (`key`, `position`): it
    /// is there, or the first of the next page.
    pub(super) fn page_of(&self, key: &[u8], position: u64) -> usize {
        let common = &self.first_key[..self.common];
        if !key.starts_with(common) {
            // Outside of all keys.
            return if key < common { 0 } else { self.len() - 1 };
        }
        let head = self.head(key);
        let mut low = self.heads.partition_point(|found| *found < head);
        let mut high = low + self.heads[low..].partition_point(|found| *found == head);
        while low < high {
            let middle = low.midpoint(high);
            let first = Reverse(self.places[middle].first_position);
            if (self.separator(middle), first) <= (key, Reverse(position)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }

    /// Eight bytes behind what is common, as a number; zeros behind the end.
    fn head(&self, key: &[u8]) -> u64 {
        let rest = key.get(self.common..).unwrap_or(&[]);
        if let Some(head) = rest.first_chunk() {
            return u64::from_be_bytes(*head);
        }
        let mut head = [0; 8];
        head[..rest.len()].copy_from_slice(rest);
        u64::from_be_bytes(head)
    }
}

fn take_place(take: &mut Take, offset: u64, separators: u32) -> Result<PagePlace> {
    let (stored_bytes, raw_bytes) = (take.u32()?, take.u32()?);
    let (entries, crc) = (take.u32()?, take.u32()?);
    let first_position = take.u64()?;
    let separator = take.u32()?;
    let code = take.u8()?;
    let Some(compression) = Compression::from_code(code) else {
        return Err(take.error(format!("unknown compression {code}")));
    };
    if take.slice(3)? != [0; 3] {
        return Err(take.error("spare bytes are not zero"));
    }
    let shrunk = match compression {
        Compression::None => stored_bytes == raw_bytes,
        _ => stored_bytes < raw_bytes,
    };
    if !shrunk || raw_bytes as usize > RAW_BYTES_MAX || entries == 0 {
        return Err(take.error("a page of impossible size"));
    }
    let separator_end = separators
        .checked_add(separator)
        .ok_or_else(|| take.error("separators cannot fit"))?;
    Ok(PagePlace {
        offset,
        first_position,
        stored_bytes,
        raw_bytes,
        entries,
        crc,
        separator_end,
        compression,
    })
}

/// How many bytes two keys have in common at their beginning.
fn shared_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}
