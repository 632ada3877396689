//! The write-ahead log of a node: one physical log that all of its streams share.
//!
//! | file | what lives there |
//! |---|---|
//! | `frame` | the frame header and its salted checksum |
//! | `segment` | the header block of a segment |
//! | `change`, `state`, `preamble`, `producer` | what frames mean, and what they add up to |
//! | `appender`, `whole`, `room`, `place`, `parts` | open batches, whole frames, reservations, placing, groups |
//! | `store`, `sync`, `admin`, `cursors`, `files` | appending, group commit, administration, slots and the manifest |
//! | `replica`, `encoded`, `committed` | whole batches in and out, commits and their numbers |
//! | `order` | which streams a reader can put into one order in passing, within a budget |
//! | `segments`, `growing`, `view`, `read`, `lookup`, `cache` | what readers see and how they read it |
//! | `walk`, `directory`, `recover`, `follow` | going through a segment; open; other processes |
//! | `watermark`, `checkpoint`, `marks` | how far the log is: for opens and for other processes |
//! | `bound`, `clean` | the bound on the size; reclaiming segments |
//! | `scrub` | reading old segments before somebody needs them |
//! | `inspect`, `verify`, `salvage` | looking at files, judging them, saving what can be saved |

mod admin;
mod appender;
mod backward;
mod bound;
mod cache;
mod change;
mod checkpoint;
mod clean;
mod committed;
mod cursors;
mod directory;
mod encoded;
mod files;
mod follow;
mod frame;
mod growing;
mod identity;
pub mod inspect;
mod lookup;
mod marks;
mod order;
mod parts;
mod place;
mod preamble;
mod producer;
mod read;
mod recover;
mod replica;
mod room;
pub mod salvage;
mod scrub;
mod segment;
mod segments;
mod spare;
mod state;
mod store;
mod sync;
mod tail;
#[cfg(test)]
mod tests;
mod turn;
pub mod verify;
mod view;
mod walk;
mod watermark;
mod whole;

pub use admin::Stats;
pub use appender::{NewRecord, Sequenced, Ticket, range_of};
pub use change::{Change, CommitContext, Cursor, NewLog, Restart};
pub use checkpoint::{CHECKPOINT, Checkpoint, Mark};
pub use clean::Reclaimed;
pub use encoded::EncodedBatch;
pub use follow::Follower;
pub use frame::{
    FLAG_MORE, FRAME_HEADER, Frame, FrameHeader, Kind, Seed, frame_len, parse as parse_frame,
    seal as seal_frame,
};
pub use identity::{IDENTITY, NodeIdentity};
pub use lookup::FoundRecord;
pub use order::{ORDER_BYTES_DEFAULT, Order, Orders};
pub use producer::{PRODUCERS_BYTES_MAX, ProducerId, Producers};
pub use read::{BatchRef, Position};
pub use recover::{
    Folded, LOCK, OpenReport, TornTail, check_durable, check_newest, durable_end, fold, open,
    open_tables,
};
pub use recover::{reach, read_preamble, tables};
pub use replica::{Arrival, Verified};
pub use room::RESERVE_SEGMENTS;
pub use scrub::{Damage, ScrubPlace, Scrubbed};
pub use segment::{FIRST_FRAME, SegmentHeader};
pub use segments::{Sealed, Segment, open_slot, side_path, slot_path};
pub use state::{Log, State, Stream};
pub use store::{Options, Store, new_pool};
pub use turn::Baton;
pub use view::{Cancel, Extent, Range, StreamView, View, Waited};
pub use walk::Walk;
pub use watermark::Watermark;

use crate::batch::parse_head;
use crate::codec::Take;
use crate::error::Result;
use crate::index::{CommitRun, FrameEntry, NATIVE, SegmentIndex};

/// The change a frame carries, and for batches the smallest and largest timestamp.
pub fn frame_change(frame: &Frame, payload: &[u8]) -> Result<(Change, (i64, i64))> {
    let change = Change::decode(&frame.header, payload)?;
    if !segments::is_data(frame.header.kind) {
        return Ok((change, (0, 0)));
    }
    let head = parse_head(payload)?;
    let timestamps = (head.min_timestamp(), head.max_timestamp());
    let Change::Batch { count, .. } = change else {
        return Ok((change, timestamps));
    };
    let producer = head.producer();
    let id = ProducerId {
        id: producer.id,
        epoch: producer.epoch,
    };
    let producer = (producer.id != 0).then_some((id, producer.base_sequence));
    Ok((Change::Batch { count, producer }, timestamps))
}

/// Enter a frame into a segment's index.
fn index_frame(
    index: &mut SegmentIndex,
    frame: &Frame,
    change: &Change,
    timestamps: (i64, i64),
    payload: &[u8],
) -> Result<()> {
    let header = &frame.header;
    match change {
        Change::Commit(context) if context.length > 0 => index.commit(
            header.stream,
            NATIVE,
            CommitRun {
                glsn_begin: context.glsn_begin,
                llsn_begin: context.llsn_begin,
                length: context.length,
            },
        ),
        Change::Rollback => index.cut(header.stream, header.llsn, frame.offset),
        _ if segments::is_data(header.kind) => {
            let entry = FrameEntry {
                llsn: header.llsn,
                count: header.count,
                offset: frame.offset,
                bytes: frame.length,
                timestamp_min: timestamps.0,
                timestamp_max: timestamps.1,
            };
            if header.kind == Kind::Moved {
                index.note_moved(header.stream, entry)
            } else {
                index.note(header.stream, NATIVE, entry)
            }
        }
        _ if header.kind == Kind::MovedRuns => {
            let mut take = Take::new("moved runs", payload);
            for _ in 0..take.count(24)? {
                let run = CommitRun {
                    glsn_begin: take.u64()?,
                    llsn_begin: take.u64()?,
                    length: take.u64()?,
                };
                index.commit_moved(header.stream, run)?;
            }
            take.finish()
        }
        _ => Ok(()),
    }
}
