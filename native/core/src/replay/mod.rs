//! Bulk replay: the raw directories of several nodes to the records of one log, in the order of the log.
//!
//! # Theory of operation
//!
//! ```text
//! Directory   one node's files: manifest, newest segment (held in memory), final state
//!   Pass      its segments front to back, each byte once: what is in order (`wal::order`)
//!   Late      what is not in order in the file: one cursor for each stream, through the number index
//!   Source    both, by position
//! Merge       the sources, by position: copies compared, holes found
//! ```
//!
//! Damaged bytes are passed over (`damage`): a directory gives out what can be read before and behind them,
//! and what they held is a hole of that directory, which another one fills or which is named.
//!
//! The writer keeps the bytes of which a reader of a prefix cannot know the place within a budget. So the pass
//! holds at most the budget, whatever the length of the log. What the cleaner copied forward, and what a
//! replica stored while it was behind, is not where its order says: the final state tells which LLSNs these
//! are, and they are read through the index, a chunk of each stream at a time.
//!
//! # Invariants
//!
//! - What comes out rises in position without a gap, and every byte of it was checked.
//! - A reader changes nothing, and refuses a directory that a writer holds.

mod damage;
mod directory;
mod ending;
mod forward;
mod late;
mod merge;
mod pass;
mod piece;
mod source;
mod start;
#[cfg(test)]
mod tests;

pub use damage::Damage;
pub use directory::{Directory, Options};
pub use merge::{Figures, Merge, OnHole};
pub use piece::{Piece, Place};
pub use source::Figures as SourceFigures;
