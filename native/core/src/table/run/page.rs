//! Page: some entries of a run in columns.
//!
//! ```text
//!  8 * n   u64  positions
//!  4 * n   u32  ends of keys: where in the keys each ends; it begins where the one before ends
//!  4 * n   u32  ends of payloads, likewise
//!  n / 8   tombstones, rounded up: entry i is bit i % 8 of byte i / 8; spare bits are zero
//!  ..      keys
//!  ..      payloads; those of tombstones are empty
//! ```
//!
//! That is the page before compression. It is stored compressed if that is smaller. The number of entries, both lengths,
//! the compression and the checksum of the stored bytes are in the page index.

use std::cmp::{Ordering, Reverse};
use std::ops::Range;

use super::index::PagePlace;
use crate::batch::Compression;
use crate::batch::compress::{compress_block, decompress_block};
use crate::limits::{RUN_PAGE_BYTES_MAX, TABLE_KEY_BYTES_MAX, TABLE_PAYLOAD_BYTES_MAX};
use crate::table::entry::Entry;

/// Bytes of an entry beside key and payload, its bit apart.
const ENTRY_BYTES: usize = 16;

/// Longest page before compression: one that is nearly full takes another entry.
pub(super) const RAW_BYTES_MAX: usize =
    RUN_PAGE_BYTES_MAX + TABLE_KEY_BYTES_MAX + TABLE_PAYLOAD_BYTES_MAX + 2 * ENTRY_BYTES;

/// Collects the entries of one page. The caller brings them in order and keeps to the limits.
#[derive(Default)]
pub struct PageBuilder {
    positions: Vec<u8>,
    key_ends: Vec<u8>,
    payload_ends: Vec<u8>,
    tombstones: Vec<u8>,
    keys: Vec<u8>,
    payloads: Vec<u8>,
    entries: usize,
}

impl PageBuilder {
    /// Add an entry.
    pub fn push(&mut self, entry: Entry<'_>) {
        let bit = self.entries % 8;
        if bit == 0 {
            self.tombstones.push(0);
        }
        match (entry.payload, self.tombstones.last_mut()) {
            (Some(payload), _) => self.payloads.extend_from_slice(payload),
            (None, Some(byte)) => *byte |= 1 << bit,
            (None, None) => {}
        }
        self.keys.extend_from_slice(entry.key);
        self.positions
            .extend_from_slice(&entry.position.to_le_bytes());
        // Page and entry are far below 4 GiB: see `RAW_BYTES_MAX`.
        self.key_ends
            .extend_from_slice(&(self.keys.len() as u32).to_le_bytes());
        let end = self.payloads.len() as u32;
        self.payload_ends.extend_from_slice(&end.to_le_bytes());
        self.entries += 1;
    }

    /// Entries so far.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Bytes of the page before compression.
    pub fn raw_bytes(&self) -> usize {
        ENTRY_BYTES * self.entries + self.tombstones.len() + self.keys.len() + self.payloads.len()
    }

    /// Bytes that `entry` adds, its bit apart.
    pub(super) fn cost(entry: &Entry<'_>) -> usize {
        ENTRY_BYTES + entry.key.len() + entry.payload.map_or(0, <[u8]>::len)
    }

    /// Append the page to `out` before compression, and begin the next one.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        for column in [
            &mut self.positions,
            &mut self.key_ends,
            &mut self.payload_ends,
            &mut self.tombstones,
            &mut self.keys,
            &mut self.payloads,
        ] {
            out.append(column);
        }
        self.entries = 0;
    }
}

/// Append a page as it is stored to `out`; returns what it was compressed with, if it became smaller.
pub(super) fn store(compression: Compression, raw: &[u8], out: &mut Vec<u8>) -> Compression {
    if compress_block(compression, raw, out) {
        return compression;
    }
    out.extend_from_slice(raw);
    Compression::None
}

/// A page in memory, checked: every entry can be read, and they are in order.
pub struct Page {
    bytes: Vec<u8>,
    entries: usize,
    keys_at: usize,
    payloads_at: usize,
    /// Whether each key has one version and none is a tombstone.
    is_plain: bool,
    position_max: u64,
}

impl Page {
    /// Decode a stored page whose checksum matches; the caller bounds its size, and gives memory that may be used for it.
    pub(super) fn load(
        stored: &[u8],
        place: &PagePlace,
        mut memory: Vec<u8>,
    ) -> Result<Self, String> {
        let raw_bytes = place.raw_bytes as usize;
        let raw = if place.compression != Compression::None {
            decompress_block(place.compression, stored, raw_bytes, memory)?
        } else if stored.len() == raw_bytes {
            memory.clear();
            memory.extend_from_slice(stored);
            memory
        } else {
            return Err(format!("{} bytes instead of {raw_bytes}", stored.len()));
        };
        Self::decode(raw, place.entries as usize)
    }

    /// Its memory, for the next page.
    pub(super) fn into_memory(self) -> Vec<u8> {
        self.bytes
    }

    /// Check a page of so many entries before compression. Refuses whatever [`PageBuilder`] cannot
    /// have written.
    pub fn decode(bytes: Vec<u8>, entries: usize) -> Result<Self, String> {
        let keys_at = entries
            .checked_mul(ENTRY_BYTES)
            .and_then(|fixed| fixed.checked_add(entries.div_ceil(8)))
            .filter(|&keys_at| entries > 0 && keys_at <= bytes.len())
            .ok_or_else(|| format!("{} bytes cannot hold {entries} entries", bytes.len()))?;
        let mut page = Self {
            bytes,
            entries,
            keys_at,
            payloads_at: keys_at,
            is_plain: false,
            position_max: 0,
        };
        page.check_ends(8 * entries)?;
        page.check_ends(12 * entries)?;
        let keys = page.u32_at(12 * entries - 4) as usize;
        let payloads = page.u32_at(16 * entries - 4) as usize;
        page.payloads_at = keys_at + keys;
        if page.payloads_at + payloads != page.bytes.len() {
            return Err("keys and payloads do not fill the page".into());
        }
        let has_tombstones = page.check_tombstones()?;
        let has_versions = page.check_order()?;
        page.is_plain = !has_tombstones && !has_versions;
        let positions = page.bytes[..8 * entries].as_chunks().0.iter();
        page.position_max = positions.fold(0, |max, raw| max.max(u64::from_le_bytes(*raw)));
        Ok(page)
    }

    /// Ends of a column never fall.
    fn check_ends(&self, begin: usize) -> Result<(), String> {
        let ends = &self.bytes[begin..begin + 4 * self.entries];
        let mut last = 0;
        let mut sorted = true;
        for end in ends.as_chunks::<4>().0 {
            let end = u32::from_le_bytes(*end);
            sorted &= last <= end;
            last = end;
        }
        if sorted {
            Ok(())
        } else {
            Err("an entry ends before it begins".into())
        }
    }

    /// Whether there are some.
    fn check_tombstones(&self) -> Result<bool, String> {
        let bits = &self.bytes[16 * self.entries..self.keys_at];
        let used = self.entries % 8;
        if used > 0 && bits.last().is_some_and(|byte| byte >> used != 0) {
            return Err("tombstones of entries that are not there".into());
        }
        let mut has_some = false;
        for (at, byte) in bits.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            has_some = true;
            for bit in (0..8).filter(|bit| byte >> bit & 1 != 0) {
                if !self.payload_range(8 * at + bit).is_empty() {
                    return Err("a tombstone with a payload".into());
                }
            }
        }
        Ok(has_some)
    }

    /// Whether a key has more than one version.
    fn check_order(&self) -> Result<bool, String> {
        let keys = &self.bytes[self.keys_at..self.payloads_at];
        let ends = self.bytes[8 * self.entries..12 * self.entries].as_chunks::<4>();
        let (mut begin, mut before) = (0, &keys[..0]);
        let mut has_versions = false;
        for (at, end) in ends.0.iter().enumerate() {
            let end = u32::from_le_bytes(*end) as usize;
            let key = &keys[begin..end];
            if key.len() > TABLE_KEY_BYTES_MAX {
                return Err(format!("a key of {} bytes", key.len()));
            }
            let order = compare_keys(before, key);
            let is_version = at > 0 && order.is_eq();
            if at > 0 && order.is_gt() || is_version && self.position(at - 1) <= self.position(at) {
                return Err(format!("entry {at} is out of order"));
            }
            has_versions |= is_version;
            (begin, before) = (end, key);
        }
        Ok(has_versions)
    }

    /// Number of entries; never 0.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    /// An entry.
    ///
    /// # Panics
    /// Panics if there are not so many.
    pub fn entry(&self, at: usize) -> Entry<'_> {
        Entry {
            key: self.key(at),
            position: self.position(at),
            payload: self.payload(at),
        }
    }

    /// The key of an entry.
    pub fn key(&self, at: usize) -> &[u8] {
        let ends = 8 * self.entries + 4 * at;
        let begin = if at == 0 { 0 } else { self.u32_at(ends - 4) };
        let end = self.u32_at(ends);
        &self.bytes[self.keys_at + begin as usize..self.keys_at + end as usize]
    }

    /// The position of an entry.
    pub fn position(&self, at: usize) -> u64 {
        assert!(at < self.entries, "entry {at} of {}", self.entries);
        let mut raw = [0; 8];
        raw.copy_from_slice(&self.bytes[8 * at..8 * at + 8]);
        u64::from_le_bytes(raw)
    }

    /// The payload of an entry; none of a tombstone.
    pub fn payload(&self, at: usize) -> Option<&[u8]> {
        let byte = self.bytes[16 * self.entries + at / 8];
        (byte >> (at % 8) & 1 == 0).then(|| &self.bytes[self.payload_range(at)])
    }

    /// Some of its entries.
    ///
    /// # Panics
    /// Reading them panics if there are not so many.
    pub fn stretch(&self, entries: Range<usize>) -> Stretch<'_> {
        Stretch {
            page: self,
            entries,
        }
    }

    fn payload_range(&self, at: usize) -> Range<usize> {
        let ends = 12 * self.entries + 4 * at;
        let begin = if at == 0 { 0 } else { self.u32_at(ends - 4) };
        self.payloads_at + begin as usize..self.payloads_at + self.u32_at(ends) as usize
    }

    /// The first entry that is not before (`key`, `position`); [`Page::len`] if all are.
    pub fn seek(&self, key: &[u8], position: u64) -> usize {
        self.seek_within(0..self.entries, key, position)
    }

    /// The same among some entries; where they end if all of these are.
    fn seek_within(&self, entries: Range<usize>, key: &[u8], position: u64) -> usize {
        let (mut low, mut high) = (entries.start, entries.end);
        while low < high {
            let middle = low.midpoint(high);
            if self.compare(middle, key, position) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn compare(&self, at: usize, key: &[u8], position: u64) -> Ordering {
        let order = compare_keys(self.key(at), key);
        order.then_with(|| Reverse(self.position(at)).cmp(&Reverse(position)))
    }

    fn u32_at(&self, at: usize) -> u32 {
        let mut raw = [0; 4];
        raw.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_le_bytes(raw)
    }
}

/// The order of two keys. Eight bytes at once decide mostly, and cost less than to compare all.
#[inline]
fn compare_keys(key: &[u8], other: &[u8]) -> Ordering {
    if let (Some(head), Some(of_other)) = (key.first_chunk(), other.first_chunk()) {
        let order = u64::from_be_bytes(*head).cmp(&u64::from_be_bytes(*of_other));
        if order.is_ne() {
            return order;
        }
    }
    key.cmp(other)
}

/// Entries of a page that stand one behind the other.
#[derive(Clone)]
pub struct Stretch<'a> {
    page: &'a Page,
    entries: Range<usize>,
}

impl<'a> Stretch<'a> {
    /// How many entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key of the last entry.
    ///
    /// # Panics
    /// Panics if there is none.
    pub fn last_key(&self) -> &'a [u8] {
        self.page.key(self.entries.end - 1)
    }

    /// Where they stand in their page.
    pub(in crate::table) fn place(&self) -> Range<usize> {
        self.entries.clone()
    }

    /// Others of the same page.
    pub(in crate::table) fn moved(&self, entries: Range<usize>) -> Self {
        self.page.stretch(entries)
    }

    /// Those of the first ones whose keys are below `key`; the first one at least.
    pub(in crate::table) fn below(self, key: &[u8]) -> Self {
        let Range { start, end } = self.entries;
        if start == end || compare_keys(self.page.key(end - 1), key).is_lt() {
            return self;
        }
        let end = self.page.seek_within(start..end, key, u64::MAX);
        self.page.stretch(start..end.max(start + 1))
    }

    /// How many of the first ones are seen at a position, if the first one is: none is newer, a tombstone, or an older version of
    /// the key before it.
    pub(in crate::table) fn seen(&self, at: u64) -> usize {
        let page = self.page;
        if page.is_plain && page.position_max <= at {
            return self.len();
        }
        let mut rest = self.entries.clone().skip(1);
        let hidden = rest.find(|&entry| {
            page.position(entry) > at
                || page.payload(entry).is_none()
                || page.key(entry) == page.key(entry - 1)
        });
        hidden.unwrap_or(self.entries.end) - self.entries.start
    }

    /// The positions.
    pub fn positions(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let bytes = &self.page.bytes[8 * self.entries.start..8 * self.entries.end];
        bytes
            .as_chunks()
            .0
            .iter()
            .map(|raw| u64::from_le_bytes(*raw))
    }

    /// The keys, one behind the other, and where in them each ends.
    pub fn keys(&self) -> (&'a [u8], impl ExactSizeIterator<Item = u32> + use<'a>) {
        self.column(8 * self.page.entries, self.page.keys_at)
    }

    /// The payloads likewise; those of tombstones are empty.
    pub fn payloads(&self) -> (&'a [u8], impl ExactSizeIterator<Item = u32> + use<'a>) {
        self.column(12 * self.page.entries, self.page.payloads_at)
    }

    /// Bytes of a column whose ends begin at `ends`, and where each ends.
    fn column(
        &self,
        ends: usize,
        bytes: usize,
    ) -> (&'a [u8], impl ExactSizeIterator<Item = u32> + use<'a>) {
        let Range { start, end } = self.entries;
        let first = if start == 0 {
            0
        } else {
            self.page.u32_at(ends + 4 * start - 4)
        };
        let all = self.page.bytes[ends + 4 * start..ends + 4 * end]
            .as_chunks()
            .0;
        let last = all.last().map_or(first, |raw| u32::from_le_bytes(*raw));
        let data = &self.page.bytes[bytes + first as usize..bytes + last as usize];
        (
            data,
            all.iter().map(move |raw| u32::from_le_bytes(*raw) - first),
        )
    }
}
