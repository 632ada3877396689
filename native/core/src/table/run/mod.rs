//! Run: one immutable file of sorted entries.
//!
//! # Theory of operation
//!
//! A [`RunWriter`] takes entries in [their order](super::entry::Entry::order) and writes them in pages to
//! `<number>.run.tmp`; behind them it puts an index of the pages, a filter over the keys, and a footer. Then it
//! syncs the file, renames it to `<number>.run` and syncs the directory, so that a run is there whole or not at
//! all. What it returns, a [`RunInfo`], is what the manifest lists.
//!
//! A [`Run`] is opened by such an info. Opening reads footer, index and filter alone. Pages are read when they
//! are needed, checked and decompressed once, and kept by a [`RunCache`] that all runs of a directory share.
//!
//! ```text
//! pages            back to back from offset 0
//! page index       see `index.rs`
//! filter           see `filter.rs`
//! footer, 128      see `footer.rs`
//! ```
//!
//! # Invariants
//!
//! 1. Checksums form a chain: the manifest has that of the footer, the footer those of index and filter, and
//!    the index those of all pages. So bytes of another run, or of another page of the same run, are found
//!    out although they are whole in themselves.
//! 2. No offset is stored. Each follows from the lengths before it, and all of them add up to the length in the
//!    manifest.
//! 3. Entries are strictly in order, over pages too: no two have the same key and position.
//! 4. A file is never changed after its rename. A copy that another node gets has a footer of its own ([`adopt`]).

mod adopt;
mod cache;
mod filter;
mod footer;
mod index;
mod info;
mod page;
mod read;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

pub use adopt::adopt;
pub use cache::RunCache;
pub use filter::KeyHash;
pub use info::{RunIdentity, RunInfo, file_name, parse_file_name};
pub use page::{Page, PageBuilder, Stretch};
pub use read::{Found, Run, RunReport};
pub use scan::RunEntries;
pub use writer::{RunOptions, RunWriter};
