//! A table: a primary tree, and a tree for each index, that follow one log together.
//!
//! # Theory of operation
//!
//! The primary tree has the records by key. Its payload is what of a record is neither key nor position, see `payload.rs`. An
//! index tree has the fields of a record and its key as key, and no payload. Applying a record never reads: an index
//! entry stays when its record is replaced, and readers leave it out because the primary tree has another position for
//! the key. Merges of the index drop it.
//!
//! [`Table::follow`] applies a piece of the log to all trees. Each tree is flushed by itself, so after an open each has another
//! position; what one has already is not applied to it again. The position of the table is the lowest that all
//! have reached, and only that is read.
//!
//! # Building an index
//!
//! An index that is made later has a *base*: the position of the table when its building began. What the table had there is read
//! from the primary tree at the base, in the order of keys, and applied in chunks whose position is their number (there are fewer chunks
//! than positions below the base). Such an entry has the position of its record as payload. Each chunk has an entry with an
//! empty key, which says up to where it goes; a flush makes both durable together, so a building that was interrupted
//! goes on behind the last flushed chunk. The index then has the position of the base, and follows the log from there, like the others.
//! Until then it holds the floor of the primary tree at its base, and the log from there on. Of an index whose files are
//! lost, the table says so when it is opened, and whoever keeps the catalog builds another one.
//!
//! # Readers in other processes
//!
//! A [`TableFollower`] reads a table that another process may be writing: followers of the trees, and memory levels of its own with what the
//! log has behind their files. It takes no lock, and the writer does not know of it: files are removed while it reads them. See
//! `follower.rs`.
//!
//! # Invariants
//!
//! 1. No tree's floor is above the position of the table less its history.
//! 2. What was counted, and each tree, is a function of the log up to a position of its own; the log is kept from the lowest of
//!    these positions on ([`Table::retained`]).
//! 3. The log has everything that the table has, as far as it reaches back (`origin.rs`).
//! 4. An index answers at positions from its base on.

mod backup;
mod build;
mod counters;
mod follow;
mod follower;
mod hosted;
mod open;
mod origin;
mod orphans;
mod payload;
mod read;
mod small_file;
#[allow(clippy::module_inception, reason = "the type that the folder is about")]
mod table;
#[cfg(test)]
mod tests;
mod upkeep;
mod verify;

pub use backup::{TableRestore, counters_of};
pub use build::Mark as BuildMark;
pub use counters::{
    Counters, IndexCounters, Refusals, Saved as SavedCounters, decode as decode_counters,
    encode as encode_counters,
};
pub use follow::Followed;
pub use follower::{FollowedLog, TableFollower};
pub use hosted::{
    Bases, Bounds, Divided, FoundRows, HostedTable, LogSpan, PinnedContent, PinnedFile,
    PinnedTable, TableLease, bases_of, decode_bases, encode_bases,
};
pub use open::{IndexDefinition, TableDefinition};
pub use orphans::collect_orphans;
pub use payload::{Headers, Payload, encode as encode_payload};
pub use read::{IndexRows, Row, Rows, TableSnapshot};
pub use table::{Deletes, Index, LostIndex, OnRefusal, Table, TableOptions, TableStats};
pub use verify::Verified;
