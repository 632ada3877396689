//! How a store behaves.

use crate::error::{Error, Result};
use crate::limits::{
    LOOKUP_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
};
use crate::vfs::SyncMethod;
use crate::wal::format::order::ORDER_BYTES_DEFAULT;

/// Length of a first segment's file to begin with: what a log of a few thousand records takes.
const BEGIN_BYTES_DEFAULT: u64 = 1 << 20;

/// The header, the state of an empty log, and a block for the first frames.
const BEGIN_BYTES_MIN: u64 = 3 * 4096;

/// How a store behaves. All bounds are bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a segment file; only for a new directory, an existing one keeps its own.
    pub segment_bytes: u64,
    /// Length of the file of a log's first segment to begin with, a multiple of 4096. It grows as the log does, so
    /// that a small log is a small directory.
    pub begin_bytes: u64,
    /// Bound on all segments together; `None` keeps the one that the directory has.
    pub wal_bytes_max: Option<u64>,
    /// How a sync is done.
    pub sync_method: SyncMethod,
    /// Most syncs in flight.
    pub sync_depth: usize,
    /// Gathered bytes from which a second sync starts while one is in flight.
    pub gather_bytes: usize,
    /// Bytes appended and not yet durable, beyond which appends wait.
    pub unsynced_bytes_max: usize,
    /// Recent groups kept in memory for readers that have caught up.
    pub recent_bytes_max: usize,
    /// Memory for number indexes of sealed segments.
    pub index_bytes_max: usize,
    /// Heads and pages of large batches that lookups come back to.
    pub lookup_bytes_max: usize,
    /// Bytes of a log's records of which a reader of the files may not know the place yet.
    pub order_bytes_max: u64,
    /// Random number: node identity and checksum salts come from it.
    pub entropy: u64,
    /// What the lock file says about the holder.
    pub holder: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            begin_bytes: BEGIN_BYTES_DEFAULT,
            wal_bytes_max: None,
            sync_method: SyncMethod::Direct,
            sync_depth: 2,
            gather_bytes: 512 << 10,
            unsynced_bytes_max: 32 << 20,
            recent_bytes_max: 16 << 20,
            index_bytes_max: 64 << 20,
            lookup_bytes_max: LOOKUP_BYTES_DEFAULT,
            order_bytes_max: ORDER_BYTES_DEFAULT,
            entropy: 0,
            holder: String::new(),
        }
    }
}

impl Options {
    /// Refuse sizes that cannot work.
    pub fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::InvalidArgument(text));
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes)
            || !self.segment_bytes.is_multiple_of(4096)
        {
            return wrong(format!(
                "segment_bytes must be a multiple of 4096 from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            ));
        }
        if self.begin_bytes < BEGIN_BYTES_MIN || !self.begin_bytes.is_multiple_of(4096) {
            return wrong(format!(
                "begin_bytes must be a multiple of 4096, at least {BEGIN_BYTES_MIN}"
            ));
        }
        if self.sync_depth == 0 || self.sync_depth > 16 {
            return wrong("sync_depth must be from 1 to 16".into());
        }
        Ok(())
    }
}
