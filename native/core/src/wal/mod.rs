//! The write-ahead log of a node: one physical log that all of its streams share.
//!
//! The folders are a stack: each uses those below it and none above it, and a test of the repository holds them to it.
//!
//! | folder | what lives there |
//! |---|---|
//! | `tools` | looking at files, judging them, scrubbing, saving what can be saved |
//! | `replica` | whole batches in and out, commits and their numbers |
//! | `recover` | opening a directory, the end of a log, followers |
//! | `write` | a store: group commit, files and the manifest, spare slots, reclaiming |
//! | `placing` | in memory under one lock: admission, positions, frames, groups |
//! | `read` | what readers see and how they read it |
//! | `segments` | one segment file: handles, index, going through its frames |
//! | `format` | what stands in the files, and the state that it adds up to |
//!
//! Modules within the log name one another by their full path. The names below are for the rest of the crate and for
//! the bindings.

mod format;
mod placing;
mod read;
mod recover;
mod replica;
mod segments;
#[cfg(test)]
mod tests;
mod tools;
mod write;

pub use format::change::{Change, CommitContext, Cursor, NewLog, Order, Restart};
pub use format::frame::{
    FLAG_MORE, FRAME_HEADER, Frame, FrameHeader, Kind, Seed, frame_len, parse as parse_frame,
    seal as seal_frame,
};
pub use format::header::{FIRST_FRAME, SegmentHeader};
pub use format::identity::{IDENTITY, NodeIdentity};
pub use format::order::{ORDER_BYTES_DEFAULT, Orders};
pub use format::producer::{Admission, PRODUCERS_BYTES_MAX, ProducerId, Producers};
pub use format::state::{Log, State};
pub use format::stream::Stream;
pub use format::table_change::{NewIndex, NewTable, Replacement, TableChange, pin_name, pin_of};
pub use format::tables::{Index, IndexState, Table, Tables};
pub use format::watermark::Watermark;
pub use placing::appender::{NewRecord, Sequenced, Ticket};
pub use placing::bound::RESERVE_SEGMENTS;
pub use read::batches::{BatchRef, Position};
pub use read::lookup::FoundRecord;
pub use read::stream::{Cancel, Extent, Range, StreamView, Waited, range_of};
pub use read::view::{View, new_pool};
pub use recover::directory::LOCK;
pub use recover::evidence::{check_durable, check_newest, durable_end, reach};
pub use recover::fold::{Folded, fold};
pub use recover::follow::Follower;
pub use recover::open::{OpenReport, TornTail, open};
pub use recover::tables::{open_tables, tables};
pub use replica::batch_read::EncodedBatch;
pub use replica::batches::{Arrival, Verified};
pub use segments::checkpoint::{CHECKPOINT, Checkpoint, Mark};
pub use segments::frames::frame_change;
pub use segments::head::read_preamble;
pub use segments::segment::{Sealed, Segment, open_slot, side_path, slot_path};
pub use segments::walk::Walk;
pub use tools::scrub::{Damage, ScrubPlace, Scrubbed};
pub use tools::{backup, inspect, salvage, verify};
pub use write::baton::Baton;
pub use write::options::Options;
pub use write::reclaim::Reclaimed;
pub use write::stats::Stats;
pub use write::store::Store;
