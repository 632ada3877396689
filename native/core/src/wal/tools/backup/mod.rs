//! Backups: what a directory holds at one place of its log, and a new directory made of that.
//!
//! # Theory of operation
//!
//! A [`Cut`] is the state that a follower has folded up to one place of the log: logs, options, ranges, cursors,
//! producers. All of it is durable, and nothing is locked or held meanwhile. The records below the ends of a cut are
//! copied afterwards, batch by batch, as [parts](part): what is committed never changes. Only a trim takes
//! records from under a copy, which then fails with `Trimmed`; the caller takes another cut, and needs only what it
//! does not have yet.
//!
//! A [`Restore`] makes a new directory as a salvage does: a preamble in which each log is empty at its first
//! position, then the batches at their own positions, byte for byte. Producers learn again what they have stored.
//! The identity comes last.
//!
//! # Invariants
//!
//! - A cut describes one place of the log.
//! - A part holds a dense range of a stream, in order, and only verified batches get into one.
//! - A directory can be opened only when all of its logs reach their ends.

mod copy;
mod cut;
pub mod part;
mod restore;

pub use cut::{Cut, LogCut};
pub use restore::{NewDirectory, Restore, TABLES, TableCut};
