//! Going through a chunk.

use std::ops::Range;
use std::sync::Arc;

use super::Chunk;
use crate::error::Result;
use crate::table::entry::{Direction, Entries, Entry};

/// Entries of one chunk; holds the chunk.
pub struct ChunkEntries {
    chunk: Arc<Chunk>,
    /// Those not stepped on yet.
    left: Range<usize>,
    direction: Direction,
    current: usize,
}

impl ChunkEntries {
    pub(super) fn new(chunk: Arc<Chunk>, left: Range<usize>, direction: Direction) -> Self {
        // Behind the last entry, so that nothing is read before the first step.
        let current = chunk.len();
        Self {
            chunk,
            left,
            direction,
            current,
        }
    }
}

impl Entries for ChunkEntries {
    fn advance(&mut self) -> Result<bool> {
        let next = match self.direction {
            Direction::Forward => self.left.next(),
            Direction::Reverse => self.left.next_back(),
        };
        self.current = next.unwrap_or(self.chunk.len());
        Ok(next.is_some())
    }

    fn entry(&self) -> Entry<'_> {
        self.chunk.entry(self.current)
    }
}
