//! Tables: the latest value of each key of a log, with indexes.
//!
//! # Theory of operation
//!
//! A table is a primary tree and one tree for each index. A tree is a memory level and immutable
//! sorted files, *runs*, which its manifest lists. Applying the log from the flushed position on to
//! the runs gives the table, so a table needs no log of its own. `docs/design/0014-tables.md` has
//! the decisions.
//!
//! Everything here is pure but for files, which are behind [`crate::vfs::Vfs`]: callers bring
//! threads, and say when to flush and to merge.

pub mod entry;
pub mod memory;
pub mod order;
pub mod run;
#[allow(clippy::module_inception, reason = "the type that the folder is about")]
pub mod table;
pub mod tree;
