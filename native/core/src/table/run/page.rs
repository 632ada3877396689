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
}

impl Page {
    /// Decode a stored page whose checksum matches; the caller bounds `raw_bytes`.
    pub(super) fn load(
        stored: &[u8],
        compression: Compression,
        raw_bytes: usize,
        entries: usize,
    ) -> Result<Self, String> {
        let raw = if compression != Compression::None {
            decompress_block(compression, stored, raw_bytes)?
        } else if stored.len() == raw_bytes {
            stored.to_vec()
        } else {
            return Err(format!("{} bytes instead of {raw_bytes}", stored.len()));
        };
        Self::decode(raw, entries)
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
        };
        page.check_ends(8 * entries)?;
        page.check_ends(12 * entries)?;
        let keys = page.u32_at(12 * entries - 4) as usize;
        let payloads = page.u32_at(16 * entries - 4) as usize;
        page.payloads_at = keys_at + keys;
        if page.payloads_at + payloads != page.bytes.len() {
            return Err("keys and payloads do not fill the page".into());
        }
        page.check_tombstones()?;
        page.check_order()?;
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

    fn check_tombstones(&self) -> Result<(), String> {
        let bits = &self.bytes[16 * self.entries..self.keys_at];
        let used = self.entries % 8;
        if used > 0 && bits.last().is_some_and(|byte| byte >> used != 0) {
            return Err("tombstones of entries that are not there".into());
        }
        for (at, byte) in bits.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            for bit in (0..8).filter(|bit| byte >> bit & 1 != 0) {
                if !self.payload_range(8 * at + bit).is_empty() {
                    return Err("a tombstone with a payload".into());
                }
            }
        }
        Ok(())
    }

    fn check_order(&self) -> Result<(), String> {
        for at in 0..self.entries {
            let key = self.key(at);
            if key.len() > TABLE_KEY_BYTES_MAX {
                return Err(format!("a key of {} bytes", key.len()));
            }
            if at > 0 && self.compare(at - 1, key, self.position(at)) != Ordering::Less {
                return Err(format!("entry {at} is out of order"));
            }
        }
        Ok(())
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

    fn payload_range(&self, at: usize) -> std::ops::Range<usize> {
        let ends = 12 * self.entries + 4 * at;
        let begin = if at == 0 { 0 } else { self.u32_at(ends - 4) };
        self.payloads_at + begin as usize..self.payloads_at + self.u32_at(ends) as usize
    }

    /// The first entry that is not before (`key`, `position`); [`Page::len`] if all are.
    pub fn seek(&self, key: &[u8], position: u64) -> usize {
        let (mut low, mut high) = (0, self.entries);
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
        let order = self.key(at).cmp(key);
        order.then_with(|| Reverse(self.position(at)).cmp(&Reverse(position)))
    }

    fn u32_at(&self, at: usize) -> u32 {
        let mut raw = [0; 4];
        raw.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_le_bytes(raw)
    }
}
