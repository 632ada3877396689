//! Many sorted sources as one.
//!
//! A binary heap of the sources that stand on an entry, the one whose entry comes first on top. Where
//! one source gives many entries in a row, a step costs two comparisons.

use std::cmp::{Ordering, Reverse};

use crate::error::Result;
use crate::table::entry::{Direction, Entries, Entry, Stretches};
use crate::table::memory::ChunkEntries;
use crate::table::run::{RunEntries, Stretch};

/// What a tree merges.
pub enum Source {
    /// A chunk of the memory level.
    Memory(ChunkEntries),
    /// A part of a run.
    Run(Box<RunEntries>),
}

impl Entries for Source {
    fn advance(&mut self) -> Result<bool> {
        match self {
            Self::Memory(entries) => entries.advance(),
            Self::Run(entries) => entries.advance(),
        }
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        match self {
            Self::Memory(entries) => entries.entry(),
            Self::Run(entries) => entries.entry(),
        }
    }

    #[inline]
    fn rank(&self) -> (&[u8], Reverse<u64>) {
        match self {
            Self::Memory(entries) => entries.rank(),
            Self::Run(entries) => entries.rank(),
        }
    }
}

impl Stretches for Source {
    fn ahead(&self) -> Option<Stretch<'_>> {
        match self {
            // It has no pages: its entries are given one by one.
            Self::Memory(_) => None,
            Self::Run(entries) => entries.ahead(),
        }
    }

    fn pass(&mut self, count: usize) {
        match self {
            // Nothing of it was ahead, so there is nothing to pass.
            Self::Memory(_) => debug_assert_eq!(count, 0),
            Self::Run(entries) => entries.pass(count),
        }
    }
}

/// Goes through all entries of its sources in order. After an error the step may be repeated.
pub struct Merge<E> {
    sources: Vec<E>,
    direction: Direction,
    /// Indices of sources that stand on an entry.
    heap: Vec<usize>,
    /// Those that have to step before the next entry is known.
    waiting: Vec<usize>,
}

impl<E: Entries> Merge<E> {
    /// Merge sources that all go in `direction`. Of equal entries the first source's comes first.
    pub fn new(sources: Vec<E>, direction: Direction) -> Self {
        Self {
            heap: Vec::with_capacity(sources.len()),
            waiting: (0..sources.len()).collect(),
            sources,
            direction,
        }
    }

    fn comes_before(&self, a: usize, b: usize) -> bool {
        let order = self.sources[a].rank().cmp(&self.sources[b].rank());
        let order = match self.direction {
            Direction::Forward => order,
            Direction::Reverse => order.reverse(),
        };
        match order {
            Ordering::Less => true,
            Ordering::Equal => a < b,
            Ordering::Greater => false,
        }
    }

    fn sift_down(&mut self) {
        let mut at = 0;
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.comes_before(self.heap[child], self.heap[first])
                {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    fn sift_up(&mut self) {
        let mut at = self.heap.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.comes_before(self.heap[at], self.heap[parent]) {
                return;
            }
            self.heap.swap(at, parent);
            at = parent;
        }
    }

    /// Take the top off the heap.
    fn pop(&mut self) {
        self.heap.swap_remove(0);
        self.sift_down();
    }
}

impl<E: Entries> Entries for Merge<E> {
    fn advance(&mut self) -> Result<bool> {
        if self.waiting.is_empty()
            && let Some(&top) = self.heap.first()
        {
            match self.sources[top].advance() {
                Ok(true) => self.sift_down(),
                Ok(false) => self.pop(),
                Err(error) => {
                    self.pop();
                    self.waiting.push(top);
                    return Err(error);
                }
            }
        }
        while let Some(&source) = self.waiting.last() {
            let stands = self.sources[source].advance()?;
            self.waiting.pop();
            if stands {
                self.heap.push(source);
                self.sift_up();
            }
        }
        Ok(!self.heap.is_empty())
    }

    fn entry(&self) -> Entry<'_> {
        self.sources[self.heap[0]].entry()
    }
}

impl<E: Stretches> Stretches for Merge<E> {
    /// What comes before the keys of all other sources.
    fn ahead(&self) -> Option<Stretch<'_>> {
        let ahead = self.sources[self.heap[0]].ahead()?;
        // One of the children of the top comes second.
        let second = match self.heap.get(1..3) {
            Some(&[a, b]) if self.comes_before(b, a) => b,
            _ => match self.heap.get(1) {
                Some(&second) => second,
                None => return Some(ahead),
            },
        };
        let (key, _) = self.sources[second].rank();
        Some(ahead.below(key))
    }

    fn pass(&mut self, count: usize) {
        // Still before all others, so the heap is one.
        let top = self.heap[0];
        self.sources[top].pass(count);
    }
}
