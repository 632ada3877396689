//! Sorted, immutable entries.

use std::cmp::Ordering;
use std::sync::Arc;

use super::iterate::ChunkEntries;
use super::piece::{Reference, prefix};
use crate::table::entry::{Direction, Entry};

/// Merging copies the bytes of chunks that have fewer than this together, and shares those of
/// larger ones: copying small ones is cheap and saves an allocation for each applied record.
const COPIED_BYTES: usize = 256 << 10;

/// Where in which arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub arena: u32,
    pub at: u32,
}

/// Sorted entries that never change.
#[derive(Debug)]
pub struct Chunk {
    arenas: Vec<Arc<Vec<u8>>>,
    references: Vec<Reference>,
    first: u64,
    last: u64,
    bytes: usize,
}

impl Chunk {
    pub(super) fn new(
        arenas: Vec<Arc<Vec<u8>>>,
        references: Vec<Reference>,
        first: u64,
        last: u64,
    ) -> Self {
        let data: usize = arenas.iter().map(|arena| arena.len()).sum();
        let bytes = data + size_of_val(references.as_slice());
        Self {
            arenas,
            references,
            first,
            last,
            bytes,
        }
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
        self.bytes
    }

    /// Lowest and highest position.
    pub fn positions(&self) -> (u64, u64) {
        (self.first, self.last)
    }

    /// Entry of an index in order.
    pub(super) fn entry(&self, index: usize) -> Entry<'_> {
        let reference = &self.references[index];
        reference.entry(self.arena(reference))
    }

    fn arena(&self, reference: &Reference) -> &[u8] {
        &self.arenas[reference.place.arena as usize]
    }

    fn key(&self, reference: &Reference) -> &[u8] {
        reference.key(self.arena(reference))
    }

    /// Index of the first entry whose key is not below `key`.
    pub(super) fn seek(&self, key: &[u8]) -> usize {
        let with = prefix(key);
        self.references.partition_point(|reference| {
            reference
                .compare_prefix(with)
                .then_with(|| self.key(reference).cmp(key))
                .is_lt()
        })
    }

    /// The newest version of a key at or below a position.
    pub fn get(&self, key: &[u8], at: u64) -> Option<Entry<'_>> {
        if at < self.first {
            return None;
        }
        let with = prefix(key);
        let index = self.references.partition_point(|reference| {
            match reference
                .compare_prefix(with)
                .then_with(|| self.key(reference).cmp(key))
            {
                Ordering::Equal => reference.position > at,
                order => order.is_lt(),
            }
        });
        let reference = self.references.get(index)?;
        let found = reference.compare_prefix(with).is_eq() && self.key(reference) == key;
        found.then(|| self.entry(index))
    }

    /// The entries with keys in `begin..end`; no end is behind every key.
    pub fn entries(
        self: &Arc<Self>,
        begin: &[u8],
        end: Option<&[u8]>,
        direction: Direction,
    ) -> ChunkEntries {
        let first = self.seek(begin);
        let last = end.map_or(self.len(), |end| self.seek(end));
        ChunkEntries::new(Arc::clone(self), first..last.max(first), direction)
    }

    /// One chunk of the entries of two, of which `newer` has the higher positions.
    pub(super) fn merge(older: &Self, newer: &Self) -> Self {
        let mut references = Vec::with_capacity(older.len() + newer.len());
        let (mut from_older, mut from_newer) = (older.references.iter(), newer.references.iter());
        let (mut a, mut b) = (from_older.next(), from_newer.next());
        // Arenas of the newer chunk stand behind those of the older one.
        let shift = older.arenas.len() as u32;
        let shifted = |reference: &Reference| {
            let mut moved = *reference;
            moved.place.arena += shift;
            moved
        };
        while let (Some(left), Some(right)) = (a, b) {
            let order = left.compare_keys(right, || (older.key(left), newer.key(right)));
            // Of one key the newer chunk has the higher positions, which come first.
            if order.is_lt() {
                references.push(*left);
                a = from_older.next();
            } else {
                references.push(shifted(right));
                b = from_newer.next();
            }
        }
        references.extend(a.into_iter().chain(from_older));
        references.extend(b.into_iter().chain(from_newer).map(shifted));
        let arenas: Vec<_> = older.arenas.iter().chain(&newer.arenas).cloned().collect();
        let first = older.first.min(newer.first);
        let last = older.last.max(newer.last);
        let merged = Self::new(arenas, references, first, last);
        if merged.arenas.len() > 1 && merged.bytes < COPIED_BYTES {
            merged.copied()
        } else {
            merged
        }
    }

    /// The same entries with their bytes in one arena, in order.
    fn copied(mut self) -> Self {
        let size = self.references.iter().map(Reference::len).sum();
        let mut arena = Vec::with_capacity(size);
        for reference in &mut self.references {
            let from = reference.place;
            let bytes = &self.arenas[from.arena as usize];
            let begin = from.at as usize;
            reference.place = Place {
                arena: 0,
                at: arena.len() as u32,
            };
            arena.extend_from_slice(&bytes[begin..begin + reference.len()]);
        }
        self.arenas = vec![Arc::new(arena)];
        self
    }
}
