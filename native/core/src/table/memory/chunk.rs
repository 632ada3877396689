//! Sorted, immutable entries.

use std::cmp::Ordering;
use std::sync::Arc;

use super::iterate::ChunkEntries;
use super::piece::{Reference, prefix, shared_bytes};
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
    /// Bytes that all keys begin with.
    shared: usize,
    first: u64,
    last: u64,
    bytes: usize,
}

impl Chunk {
    pub(super) fn new(
        arenas: Vec<Arc<Vec<u8>>>,
        references: Vec<Reference>,
        shared: usize,
        (first, last): (u64, u64),
    ) -> Self {
        let data: usize = arenas.iter().map(|arena| arena.len()).sum();
        let bytes = data + size_of_val(references.as_slice());
        Self {
            arenas,
            references,
            shared,
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

    /// The prefix of a key among those of this chunk; or where all of them are, seen from one that
    /// does not begin as they do.
    fn prefix_of(&self, key: &[u8]) -> Result<u64, Ordering> {
        let Some(reference) = self.references.first() else {
            return Ok(0);
        };
        let shared = &self.key(reference)[..self.shared];
        match key.get(..self.shared) {
            Some(begin) if begin == shared => Ok(prefix(&key[self.shared..])),
            Some(begin) => Err(shared.cmp(begin)),
            None => Err(shared.cmp(key)),
        }
    }

    /// Index of the first entry whose key is not below `key`.
    pub(super) fn seek(&self, key: &[u8]) -> usize {
        let with = match self.prefix_of(key) {
            Ok(with) => with,
            Err(order) if order.is_lt() => return self.len(),
            Err(_) => return 0,
        };
        self.references.partition_point(|reference| {
            reference
                .compare_prefix(with)
                .then_with(|| self.key(reference).cmp(key))
                .is_lt()
        })
    }

    /// The newest version of a key at or below a position.
    pub fn get(&self, key: &[u8], at: u64) -> Option<Entry<'_>> {
        self.find(key, at).map(|index| self.entry(index))
    }

    /// Index of what [`Chunk::get`] gives.
    pub(super) fn find(&self, key: &[u8], at: u64) -> Option<usize> {
        if at < self.first {
            return None;
        }
        let with = self.prefix_of(key).ok()?;
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
        found.then_some(index)
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

    /// One chunk of the entries of two, of which `new` has the higher positions. Neither is empty.
    pub(super) fn merge(old: &Self, new: &Self) -> Self {
        let mut references = Vec::with_capacity(old.len() + new.len());
        let shared = old.shared_with(new);
        // Prefixes that were taken from behind more bytes do not compare.
        let taken = |from: &Self, index: usize, shift: u32| {
            let mut reference = *from.references.get(index)?;
            if from.shared != shared {
                reference.set_prefix(from.arena(&reference), shared);
            }
            reference.place.arena += shift;
            Some(reference)
        };
        // Arenas of the newer chunk stand behind those of the older one.
        let shift = old.arenas.len() as u32;
        let (mut from_old, mut from_new) = (0, 0);
        let (mut a, mut b) = (taken(old, 0, 0), taken(new, 0, shift));
        while let (Some(left), Some(right)) = (&a, &b) {
            let keys = || {
                let keys = (&old.references[from_old], &new.references[from_new]);
                (old.key(keys.0), new.key(keys.1))
            };
            // Of one key the newer chunk has the higher positions, which come first.
            if left.compare_keys(right, shared, keys).is_lt() {
                references.push(*left);
                from_old += 1;
                a = taken(old, from_old, 0);
            } else {
                references.push(*right);
                from_new += 1;
                b = taken(new, from_new, shift);
            }
        }
        references.extend((from_old..old.len()).filter_map(|index| taken(old, index, 0)));
        references.extend((from_new..new.len()).filter_map(|index| taken(new, index, shift)));
        let arenas: Vec<_> = old.arenas.iter().chain(&new.arenas).cloned().collect();
        let positions = (old.first.min(new.first), old.last.max(new.last));
        let merged = Self::new(arenas, references, shared, positions);
        if merged.arenas.len() > 1 && merged.bytes < COPIED_BYTES {
            merged.copied()
        } else {
            merged
        }
    }

    /// How many bytes the keys of both begin with alike.
    fn shared_with(&self, other: &Self) -> usize {
        let first = |chunk: &Self| chunk.references[0];
        let (mine, of_other) = (self.key(&first(self)), other.key(&first(other)));
        shared_bytes(&mine[..self.shared], &of_other[..other.shared])
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
