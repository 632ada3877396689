//! What has to be there before records may be placed: a slot, or segments that nobody needs any more.

use crate::error::{Error, Result};
use crate::wal::write::store::Inner;

/// From such groups on appends may fill half a segment before a slot is made: 512 writes of 64 KiB take
/// 46 ms where 64 MiB of zeros take 36 to 50. Both grow with the length of a segment.
const LARGE_GROUP_BYTES: usize = 64 << 10;

/// Parts of a segment of which one is full before the next slot is made.
const HALF: u32 = 2;

/// The same under large groups.
const BEGUN: u32 = 16;

/// Whether records may be appended now, or what has to be done first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Ready,
    WantsSlot,
    WantsReclaim,
}

impl Inner {
    pub(crate) fn room(&self, bytes: usize) -> Result<Room> {
        match self.appender.has_room(bytes) {
            Ok(true) => Ok(Room::Ready),
            // A trim before a kill may have left segments that can go. That may be all the room that is wanted.
            Ok(false) | Err(Error::LogFull { .. }) if self.reclaim_due => Ok(Room::WantsReclaim),
            // Within the bound, so a slot or a longer file helps.
            Ok(false) => Ok(Room::WantsSlot),
            // Only a trim or a greater bound helps, and neither comes from waiting.
            Err(full) => Err(full),
        }
    }

    /// Whether the active segment's file is so full that more should be made ready: more of the file, or the slot
    /// of the next segment.
    pub(super) fn wants_slot(&self) -> bool {
        let appender = &self.appender;
        let segment = &appender.active.segment;
        let large = self.last_bytes >= LARGE_GROUP_BYTES;
        // A short file is not filled ahead of time: a few large groups would make it whole, however small the
        // log stays.
        let parts = if large && !segment.is_short() {
            BEGUN
        } else {
            HALF
        };
        // No slot is made for a segment that the bound forbids.
        let bounded = appender.segments_used < appender.sizes.segments_max;
        appender.active.offset > segment.filled() / parts
            && (segment.is_short() || bounded && appender.slots_ready == 0)
    }
}
