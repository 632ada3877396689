//! A store that is open for writing: group commit, files and the manifest, spare slots, reclaiming and cleaning.
//!
//! Here are the threads that wait, and all that writes to a log that is open. How a directory is opened is not here.

pub(crate) mod append;
pub(crate) mod baton;
pub(crate) mod changes;
pub(crate) mod clean;
pub(crate) mod close;
pub(crate) mod cursors;
pub(crate) mod demand;
pub(crate) mod files;
pub(crate) mod group_commit;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod reclaim;
pub(crate) mod spare;
pub(crate) mod stats;
pub(crate) mod store;
mod tables;
pub(crate) mod visible;
