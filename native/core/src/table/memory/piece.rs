//! Entries in the order in which they were applied.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use super::chunk::{Chunk, Place};
use crate::error::{Error, Result};
use crate::limits::TABLE_KEY_BYTES_MAX;
use crate::table::entry::Entry;

/// Length of a payload that is none: a tombstone.
const TOMBSTONE: u32 = u32::MAX;

/// Where an entry's bytes are. Some bytes of the key stand beside it, so that most comparisons need
/// not go there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    /// The [`prefix`] of the key behind the bytes that all keys of the chunk begin with.
    prefix: u64,
    pub position: u64,
    pub place: Place,
    payload_bytes: u32,
    key_bytes: u16,
}

impl Reference {
    pub fn new(entry: &Entry<'_>, at: u32) -> Self {
        Self {
            prefix: 0,
            position: entry.position,
            place: Place { arena: 0, at },
            payload_bytes: entry
                .payload
                .map_or(TOMBSTONE, |payload| payload.len() as u32),
            key_bytes: entry.key.len() as u16,
        }
    }

    /// Take the prefix from behind the first `shared` bytes of the key.
    pub fn set_prefix(&mut self, arena: &[u8], shared: usize) {
        self.prefix = prefix(&self.key(arena)[shared..]);
    }

    /// Bytes of key and payload.
    pub fn len(&self) -> usize {
        usize::from(self.key_bytes) + self.payload_len()
    }

    fn payload_len(&self) -> usize {
        if self.payload_bytes == TOMBSTONE {
            0
        } else {
            self.payload_bytes as usize
        }
    }

    /// The key in its arena.
    pub fn key<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        let at = self.place.at as usize;
        &arena[at..at + usize::from(self.key_bytes)]
    }

    /// The entry in its arena.
    pub fn entry<'a>(&self, arena: &'a [u8]) -> Entry<'a> {
        let begin = self.place.at as usize + usize::from(self.key_bytes);
        let payload = &arena[begin..begin + self.payload_len()];
        Entry {
            key: self.key(arena),
            position: self.position,
            payload: (self.payload_bytes != TOMBSTONE).then_some(payload),
        }
    }

    /// The order of keys that share so many bytes; `keys` gives both where the prefixes do not
    /// decide.
    #[inline]
    pub fn compare_keys<'a>(
        &self,
        other: &Self,
        shared: usize,
        keys: impl FnOnce() -> (&'a [u8], &'a [u8]),
    ) -> Ordering {
        let order = self.prefix.cmp(&other.prefix);
        if order.is_ne() {
            return order;
        }
        if usize::from(self.key_bytes.max(other.key_bytes)) <= shared + 8 {
            // Same bytes but for zeros at the end: the shorter one is a prefix.
            return self.key_bytes.cmp(&other.key_bytes);
        }
        let (key, of_other) = keys();
        key.cmp(of_other)
    }

    /// The order of the prefix and of that of another key, which decides unless it is equal.
    #[inline]
    pub fn compare_prefix(&self, other: u64) -> Ordering {
        self.prefix.cmp(&other)
    }
}

/// How many bytes two keys begin with alike.
pub(super) fn shared_bytes(key: &[u8], other: &[u8]) -> usize {
    let alike = key.iter().zip(other).take_while(|(a, b)| a == b);
    alike.count()
}

/// The first 8 bytes as a number that sorts as they do; zeros stand behind fewer.
#[inline]
pub(super) fn prefix(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// Entries that are applied in one go, in any order.
#[derive(Debug, Default)]
pub struct Piece {
    arena: Vec<u8>,
    references: Vec<Reference>,
    first: u64,
    last: u64,
    /// Bytes that all keys begin with.
    shared: usize,
}

impl Piece {
    /// An empty piece.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty piece with room for so many entries and bytes of keys and payloads.
    pub fn with_capacity(entries: usize, bytes: usize) -> Self {
        Self {
            arena: Vec::with_capacity(bytes),
            references: Vec::with_capacity(entries),
            ..Self::default()
        }
    }

    /// Add an entry. Refuses, and adds nothing, where the key is too long or 4 GiB are full.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<()> {
        let too_large = |what, size: usize, max: usize| {
            let (size, max) = (size as u64, max as u64);
            Err(Error::TooLarge { what, size, max })
        };
        if entry.key.len() > TABLE_KEY_BYTES_MAX {
            return too_large("key of a table", entry.key.len(), TABLE_KEY_BYTES_MAX);
        }
        let payload = entry.payload.unwrap_or_default();
        let end = self.arena.len() + entry.key.len() + payload.len();
        // Less than what marks a tombstone, so that no payload looks like one.
        if end >= TOMBSTONE as usize {
            return too_large("piece of a memory level", end, TOMBSTONE as usize - 1);
        }
        let at = self.arena.len() as u32;
        if self.references.is_empty() {
            (self.first, self.last) = (entry.position, entry.position);
            self.shared = entry.key.len();
        } else if self.shared > 0 {
            let one = self.references[0].key(&self.arena);
            self.shared = shared_bytes(&one[..self.shared], entry.key);
        }
        self.first = self.first.min(entry.position);
        self.last = self.last.max(entry.position);
        self.references.push(Reference::new(entry, at));
        self.arena.extend_from_slice(entry.key);
        self.arena.extend_from_slice(payload);
        Ok(())
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.references.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.references.is_empty()
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.arena.len() + size_of_val(self.references.as_slice())
    }

    /// Lowest and highest position; `None` where it is empty.
    pub fn positions(&self) -> Option<(u64, u64)> {
        (!self.is_empty()).then_some((self.first, self.last))
    }

    /// Sort it. Refuses two entries of one key and position: which of them counts is not known.
    pub fn sort(self) -> Result<Chunk> {
        let (arena, mut references, shared) = (self.arena, self.references, self.shared);
        for reference in &mut references {
            reference.set_prefix(&arena, shared);
        }
        let keys = |a: &Reference, b: &Reference| {
            a.compare_keys(b, shared, || (a.key(&arena), b.key(&arena)))
        };
        references.sort_unstable_by(|a, b| {
            keys(a, b).then_with(|| Reverse(a.position).cmp(&Reverse(b.position)))
        });
        let twice = references
            .windows(2)
            .find(|pair| pair[0].position == pair[1].position && keys(&pair[0], &pair[1]).is_eq());
        if let Some(pair) = twice {
            return Err(Error::InvalidArgument(format!(
                "position {} changes one key twice",
                pair[0].position
            )));
        }
        let positions = (self.first, self.last);
        Ok(Chunk::new(
            vec![Arc::new(arena)],
            references,
            shared,
            positions,
        ))
    }
}
