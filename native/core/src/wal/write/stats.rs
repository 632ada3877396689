//! Figures of a store.

use crate::wal::write::store::Store;

/// Counters and sizes, for people and metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Syncs done.
    pub syncs: u64,
    /// Bytes written by them.
    pub synced_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Number of the newest of them.
    pub newest_segment: u64,
    /// Most segments that may be in use.
    pub segments_max: u64,
    /// Slots that are free.
    pub free_slots: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Memory of loaded indexes.
    pub index_memory: u64,
    /// Bytes of the side files of sealed segments.
    pub index_bytes: u64,
    /// Samples in the loaded indexes.
    pub samples: u64,
    /// Side files of dropped segments that could not be removed yet.
    pub side_files_left: u64,
    /// Offset behind the last durable frame in the newest segment.
    pub durable_offset: u64,
}

impl Store {
    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        let index_memory = self
            .view
            .segments()
            .iter()
            .map(|s| s.index_memory() as u64)
            .sum();
        let segments = self.view.segments();
        let sealed = segments.iter().filter_map(|segment| segment.sealed());
        let index_bytes = sealed.map(|sealed| u64::from(sealed.side_bytes)).sum();
        let samples = segments.iter().map(|segment| segment.samples()).sum();
        let side_files_left = self.files.lock().sides_left();
        let inner = self.inner.lock();
        Stats {
            syncs: inner.syncs,
            synced_bytes: inner.synced_bytes,
            segments: inner.appender.segments_used,
            newest_segment: segments.last().map_or(0, |newest| newest.number),
            segments_max: inner.appender.sizes.segments_max,
            free_slots: inner.appender.slots_ready,
            segment_bytes: inner.appender.sizes.segment_bytes.into(),
            index_memory,
            index_bytes,
            samples,
            side_files_left,
            durable_offset: inner.appender.active.durable.into(),
        }
    }
}
