//! A table that a node of a cluster keeps.
//!
//! # Theory of operation
//!
//! It is a [`Table`](super::Table) that is given its log, in the log's order, instead of reading it from a store
//! ([`HostedTable::apply`]). An index that is made later has to be built without a log too: what came behind its base is read
//! from the primary tree, which keeps it ([`HostedTable::build`]). Each host begins an index at another position, so the bases are
//! in a file beside the trees (`BASES`), which is written before an index is built and after its base is in files.
//!
//! A host that joins copies the files of another one. [`HostedTable::pin`] lists them: runs as they are, and manifests that
//! have just these runs. Therefore the trees of all hosts have the same identities; in place of a node they name the table.
//!
//! # Invariants
//!
//! 1. The base of an index that `BASES` lists is flushed in the primary tree.
//! 2. Nothing of the log is left out: what is given begins no later than at [`HostedTable::wanted`].
//! 3. After an open that is the position at which the table counted last, if the log still has it: another record there is refused.

mod bases;
mod pin;
mod rows;
mod spans;
mod table;

pub use bases::{Bases, bases_of, decode as decode_bases, encode as encode_bases, put_bases};
pub use pin::{PinnedContent, PinnedFile, PinnedTable};
pub use rows::{Bounds, Divided, FoundRows};
pub use spans::LogSpan;
pub use table::{HostedTable, TableLease};
