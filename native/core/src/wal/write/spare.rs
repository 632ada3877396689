//! Spare slots: when the next one is made, and that two threads do not make it twice.
//!
//! # Theory of operation
//!
//! Writing the zeros of a slot takes the disk about as long as the records that will fill it, so it should
//! go on while they come in: housekeeping begins when the active segment is half full. Large groups fill the other
//! half faster than a slot is made, and then every append waits for the rest of it. Under them it
//! begins as soon as the segment is begun, and a log that stays small still has no second slot.
//!
//! The first segment of a log begins with a short file, so that a small log is a small directory. The file is made four
//! times as long when it is half full, until it is whole; only then a second slot is made.
//!
//! # Invariants
//!
//! - A slot is made under the lock of the files, and only if it is wanted once that lock is held: who waited for
//!   it while another thread made the slot makes none.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::wal::placing::bound::Sizes;
use crate::wal::write::demand::Room;
use crate::wal::write::store::{Inner, Store};

/// How many times as long a short file becomes at a time: few times, and never much longer than the log needs.
const GROWTH: u32 = 4;

impl Store {
    /// Wait until [`Store::prepare_slot`] has something to do, at most `timeout`; `None` once closed or failed.
    pub fn wait_housekeeping(&self, timeout: Duration) -> Option<bool> {
        let mut inner = self.inner.lock();
        if inner.check().is_ok() && !inner.reclaim_due {
            self.slot_wanted.wait_for(&mut inner, timeout);
        }
        let wanted = inner.reclaim_due || inner.wants_slot();
        inner.check().ok().map(|()| wanted)
    }

    /// Have a free slot ready before the active segment is full, or more of a file that is short, so that no append
    /// waits for zero-filling; before that, free what a kill before the open left. Returns whether something was made.
    pub fn prepare_slot(&self) -> Result<bool> {
        self.reclaim_leftovers()?;
        self.add_slot_if(Inner::wants_slot)
    }

    /// Make `bytes` of free slots ready now, and the active segment's file whole (benchmarks, latency-sensitive
    /// starts). Returns the slots made.
    pub fn provision(&self, bytes: u64) -> Result<u64> {
        let want = {
            let inner = self.guard()?;
            let Sizes {
                segment_bytes,
                segments_max,
                ..
            } = inner.appender.sizes;
            let left = segments_max.saturating_sub(inner.appender.segments_used);
            bytes.div_ceil(segment_bytes.into()).min(left)
        };
        // The first file in steps, until it is whole: before that no slot is made.
        while self.add_slot_if(|inner| inner.appender.active.segment.is_short())? {}
        let mut made = 0;
        while self.add_slot_if(|inner| inner.appender.slots_ready < want)? {
            made += 1;
        }
        Ok(made)
    }

    /// Do what has to be done before `bytes` of records may be appended.
    pub(crate) fn make(&self, room: Room, bytes: usize) -> Result<()> {
        match room {
            Room::Ready => Ok(()),
            Room::WantsSlot => {
                // Another thread may have made one while this one waited for its turn.
                let wanted = |inner: &Inner| matches!(inner.room(bytes), Ok(Room::WantsSlot));
                self.add_slot_if(wanted).map(|_| ())
            }
            Room::WantsReclaim => self.reclaim_leftovers().map(|_| ()),
        }
    }

    /// Have a free slot if the bound allows one; false if none was missing.
    pub(crate) fn ensure_slot(&self) -> Result<bool> {
        let lacked = self.guard()?.appender.lacks_slot();
        if lacked {
            self.add_slot_if(|inner| inner.appender.lacks_slot())?;
        }
        Ok(lacked)
    }

    /// Make more of the active segment's file, or one more free slot if that is whole. Only if it is `wanted`, still so
    /// once nobody else makes one. A full disk fails this call and changes nothing.
    pub(crate) fn add_slot_if(&self, wanted: impl Fn(&Inner) -> bool) -> Result<bool> {
        // Asked first without the lock of the files, which a roll of the log needs.
        if !wanted(&*self.guard()?) {
            return Ok(false);
        }
        let mut files = self.files.lock();
        let active = {
            let inner = self.guard()?;
            if !wanted(&inner) {
                return Ok(false);
            }
            Arc::clone(&inner.appender.active.segment)
        };
        // Without the lock of the state, so that appends go on meanwhile. None of them leaves the segment while its
        // file is short.
        if active.is_short() {
            let longer = active.filled().saturating_mul(GROWTH).min(active.bytes);
            files.fill_slot(&active, longer)?;
        } else {
            files.make_slot(active.bytes.into(), active.bytes.into())?;
            self.inner.lock().appender.slots_ready += 1;
        }
        drop(files);
        // Appends wait here for room, as for a sync.
        self.flushed.notify_all();
        Ok(true)
    }
}
