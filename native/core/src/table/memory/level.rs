//! A list of chunks.

use std::sync::Arc;

use super::{Chunk, ChunkEntries, Piece};
use crate::error::Result;
use crate::table::entry::{Direction, Entry};

/// An entry that was found, without a copy: it keeps its chunk.
#[derive(Clone, Debug)]
pub struct MemoryHit {
    chunk: Arc<Chunk>,
    index: usize,
}

impl MemoryHit {
    /// The entry.
    pub fn entry(&self) -> Entry<'_> {
        self.chunk.entry(self.index)
    }
}

/// The chunks of one generation of the memory level, oldest first. Never changes; a clone costs a
/// reference count for each chunk.
#[derive(Clone, Debug, Default)]
pub struct Level {
    chunks: Vec<Arc<Chunk>>,
}

impl Level {
    /// The level with one more chunk, whose positions are all above those of the level. Merges as
    /// long as the last chunk is not at least twice as long as what comes behind it.
    #[must_use]
    pub fn push(&self, chunk: Chunk) -> Self {
        if chunk.is_empty() {
            return self.clone();
        }
        debug_assert!(
            self.positions()
                .is_none_or(|(_, last)| last < chunk.positions().0),
            "pieces are applied in the order of the log"
        );
        let mut chunks = self.chunks.clone();
        let mut newest = chunk;
        while let Some(last) = chunks.pop_if(|last| last.len() < 2 * newest.len()) {
            newest = Chunk::merge(&last, &newest);
        }
        chunks.push(Arc::new(newest));
        Self { chunks }
    }

    /// What of it is above a position.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::error::Error::TooLarge) for a chunk that it divides and whose rest fits no [`Piece`].
    pub fn above(&self, position: u64) -> Result<Self> {
        let mut chunks = Vec::new();
        for chunk in &self.chunks {
            let (first, last) = chunk.positions();
            if first > position {
                chunks.push(Arc::clone(chunk));
            } else if last > position {
                let mut piece = Piece::new();
                let entries = (0..chunk.len()).map(|index| chunk.entry(index));
                for entry in entries.filter(|entry| entry.position > position) {
                    piece.push(&entry)?;
                }
                chunks.push(Arc::new(piece.sort()?));
            }
        }
        Ok(Self { chunks })
    }

    /// The newest version of a key at or below a position.
    pub fn get(&self, key: &[u8], at: u64) -> Option<Entry<'_>> {
        self.chunks
            .iter()
            .rev()
            .find_map(|chunk| chunk.get(key, at))
    }

    /// As [`Level::get`], for one who keeps what was found.
    pub fn find(&self, key: &[u8], at: u64) -> Option<MemoryHit> {
        self.chunks.iter().rev().find_map(|chunk| {
            chunk.find(key, at).map(|index| MemoryHit {
                chunk: Arc::clone(chunk),
                index,
            })
        })
    }

    /// The entries of each chunk with keys in `begin..end`, for a merge.
    pub fn sources(
        &self,
        begin: &[u8],
        end: Option<&[u8]>,
        direction: Direction,
    ) -> impl Iterator<Item = ChunkEntries> {
        self.chunks
            .iter()
            .map(move |chunk| chunk.entries(begin, end, direction))
    }

    /// How many chunks it has.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes()).sum()
    }

    /// Lowest and highest position; `None` where it is empty.
    pub fn positions(&self) -> Option<(u64, u64)> {
        let (oldest, newest) = (self.chunks.first()?, self.chunks.last()?);
        Some((oldest.positions().0, newest.positions().1))
    }
}
