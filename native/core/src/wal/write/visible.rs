//! What readers may see of what was placed: never more than what is durable.
//!
//! # Invariants
//!
//! - The end that readers see is never above what is durable, whatever rollback is on its way to the disk.

use parking_lot::MutexGuard;

use crate::error::Result;
use crate::wal::format::stream::Stream;
use crate::wal::read::stream::Range;
use crate::wal::write::store::{Inner, Store};

impl Store {
    /// Let readers see what is committed and durable of a stream with explicit commits.
    pub(super) fn show_committed(&self, inner: &Inner, stream: u32) {
        let state = inner.appender.state.streams.get(&stream);
        let Some(state) = state.filter(|state| state.explicit_commit) else {
            return;
        };
        // A stream whose creation is not durable yet is shown when that is.
        if let Ok(view) = self.view.stream(stream) {
            let range = view.range();
            // At most what is durable: a majority elsewhere has the rest, but this directory could lose it.
            // Never less than was shown.
            let end = state
                .committed
                .min(inner.durable_end(stream, state, range))
                .max(range.end);
            view.publish(Range { end, ..range });
        }
    }

    pub(super) fn publish_watermark(&self, inner: &MutexGuard<'_, Inner>) -> Result<()> {
        let active = &inner.appender.active;
        // A segment that is placed but not yet durable has no watermark of its own.
        if active.durable == 0 {
            return Ok(());
        }
        let segment = &active.segment;
        self.progress
            .publish(segment.seed, active.durable, segment.bytes)
    }
}

impl Inner {
    /// Remember a rollback until it is durable: what was durable above it is not any more.
    pub(super) fn note_rollback(&mut self, stream: u32, from: u64, group: u64) {
        let floor = self.rolled_back.entry(stream).or_insert((from, group));
        *floor = (floor.0.min(from), group);
    }
    pub(crate) fn durable_end(&self, stream: u32, state: &Stream, shown: Range) -> u64 {
        let floor = self.rolled_back.get(&stream);
        let cut = floor.map_or(u64::MAX, |(from, _)| *from);
        shown.durable.min(cut).min(state.next)
    }
}
