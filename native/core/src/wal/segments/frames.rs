//! What a frame says: the change that it makes, and its entry in the number index of its segment.

use crate::batch::parse_head;
use crate::codec::Take;
use crate::error::Result;
use crate::index::{CommitRun, FrameEntry, NATIVE, SegmentIndex};
use crate::wal::format::change::Change;
use crate::wal::format::frame::{Frame, Kind};
use crate::wal::format::producer::ProducerId;

/// The change a frame carries, and for batches the smallest and largest timestamp.
pub fn frame_change(frame: &Frame, payload: &[u8]) -> Result<(Change, (i64, i64))> {
    let change = Change::decode(&frame.header, payload)?;
    if !frame.header.kind.is_data() {
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
pub fn index_frame(
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
        _ if header.kind.is_data() => {
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
