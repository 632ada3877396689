//! The memory level: what was applied and is in no run yet.
//!
//! # Theory of operation
//!
//! A small log-structured tree of its own. What is applied in one go, a [`Piece`], is sorted once
//! into an immutable [`Chunk`]; chunks of like size are merged, as the digits of a binary counter
//! carry, so that a level of `n` entries has at most about `log2 n` of them. A [`Level`] is a list
//! of chunks and is immutable too: to push a chunk makes a new list. So a reader holds a list and
//! needs no lock, and a snapshot costs one reference count.
//!
//! Merging moves references of 32 bytes; it copies keys and payloads only where both chunks
//! are small, which keeps the number of allocations low.
//!
//! # Invariants
//!
//! 1. Every position of a chunk is above every position of the chunks before it in the list. So
//!    the newest chunk that has a version at or below a position has the one that is visible there.
//! 2. A chunk has no two entries of the same key and position.

mod chunk;
mod iterate;
mod level;
mod piece;

#[cfg(test)]
mod tests;

pub use chunk::Chunk;
pub use iterate::ChunkEntries;
pub use level::{Level, MemoryHit};
pub use piece::Piece;
