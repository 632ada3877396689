//! The two files that say how far the log is: `WATERMARK` and `CHECKPOINT`.
//!
//! # Invariants
//!
//! - A version of the watermark that names a segment bounds with its *reach* all that was ever written to
//!   this lap of it. Before a write that ends beyond the reach, one with a greater reach is durable. The first
//!   version that names a segment needs no sync: any other that a crash may leave names another segment, or is
//!   of an earlier writer and reaches at least as far.
//! - Within a lap the reach never falls, but for an open, which knows that nothing stands behind the end.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;
use crate::vfs::{Access, Vfs, VfsFile};
use crate::wal::format::frame::Seed;
use crate::wal::format::watermark::{WATERMARK, Watermark};
use crate::wal::segments::checkpoint::CHECKPOINT;
use crate::wal::segments::part::Part;

/// Steps of the reach in a segment: a search after a kill covers one of them, and a sync more for each is
/// lost among the writes that fill it.
const REACH_STEPS: u32 = 8;

struct Open {
    watermark: Arc<dyn VfsFile>,
    checkpoint: Arc<dyn VfsFile>,
    /// As written last.
    mark: Watermark,
    /// The reach up to which writes may go: an older version may be all that a crash leaves.
    allowed: u32,
}

/// The writer's hold on both files.
pub(crate) struct ProgressFiles {
    /// Until closed.
    open: Mutex<Option<Open>>,
}

fn open_or_create(vfs: &dyn Vfs, path: &Path) -> Result<Arc<dyn VfsFile>> {
    let access = if vfs.exists(path)? {
        Access::Write
    } else {
        Access::CreateNew
    };
    vfs.open(path, access)
}

/// How far writes may go once one ends at `end`.
fn reach(end: u32, segment_bytes: u32) -> u32 {
    let block = BLOCK_BYTES as u32;
    let step = (segment_bytes / REACH_STEPS).next_multiple_of(block);
    // A segment that ends exactly at a step has nothing behind it.
    let reach = u64::from(end).next_multiple_of(step.into());
    u32::try_from(reach).map_or(segment_bytes, |reach| reach.min(segment_bytes))
}

impl ProgressFiles {
    /// Open the files, creating them at need.
    pub(crate) fn open(vfs: &dyn Vfs, dir: &Path) -> Result<Self> {
        let open = Open {
            watermark: open_or_create(vfs, &dir.join(WATERMARK))?,
            checkpoint: open_or_create(vfs, &dir.join(CHECKPOINT))?,
            mark: Watermark::default(),
            allowed: 0,
        };
        Ok(Self {
            open: Mutex::new(Some(open)),
        })
    }

    /// Say how far the segment is durable.
    pub(crate) fn publish(&self, seed: Seed, durable: u32, segment_bytes: u32) -> Result<()> {
        let mut open = self.open.lock();
        let Some(open) = open.as_mut() else {
            return Ok(());
        };
        let same = open.mark.seed() == seed;
        let first = reach(durable, segment_bytes);
        let reach = if same { open.mark.reach } else { first };
        if !same {
            // The first mark of this segment. It needs no sync: any older one names another segment.
            open.allowed = first;
        }
        open.mark = Watermark {
            segment: seed.segment,
            salt: seed.salt,
            durable,
            reach,
        };
        // Not synced: followers read it from memory, and to recovery an older one only means a longer search.
        open.watermark.write_all_at(&open.mark.encode(), 0)
    }

    /// Before a part is written: make durable that writes reach so far.
    pub(crate) fn extend(&self, part: &Part) -> Result<()> {
        let end = part.start + part.buf.len() as u32;
        let (file, reach) = {
            let mut open = self.open.lock();
            let Some(open) = open.as_mut() else {
                return Ok(());
            };
            // Of a segment that it does not name yet the watermark bounds nothing.
            if open.mark.seed() != part.segment.seed || end <= open.allowed {
                return Ok(());
            }
            let mark = &mut open.mark;
            mark.reach = mark.reach.max(reach(end, part.segment.bytes));
            // Synced below; `allowed` follows only then.
            open.watermark.write_all_at(&mark.encode(), 0)?;
            (Arc::clone(&open.watermark), mark.reach)
        };
        // Without the lock: other writes may go on as far as they are allowed to.
        file.sync()?;
        let mut open = self.open.lock();
        if let Some(open) = open.as_mut()
            && open.mark.seed() == part.segment.seed
        {
            open.allowed = open.allowed.max(reach);
        }
        Ok(())
    }

    /// Write a checkpoint. On a full disk there is none, and the next open reads more.
    pub(crate) fn checkpoint(&self, bytes: &[u8]) -> Result<()> {
        let open = self.open.lock();
        let Some(open) = open.as_ref() else {
            return Ok(());
        };
        match open.checkpoint.write_all_at(bytes, 0) {
            Err(error @ Error::Io { .. }) if error.is_disk_full() => Ok(()),
            other => other,
        }
    }

    /// Let go of the files.
    pub(crate) fn close(&self) {
        *self.open.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reach_is_a_step_of_whole_blocks_within_the_segment() {
        assert_eq!(reach(4096, 65536), 8192);
        assert_eq!(reach(8192, 65536), 8192);
        assert_eq!(reach(8193, 65536), 16384);
        assert_eq!(reach(65530, 65536), 65536);
        // An eighth of 17 blocks is not a number of blocks.
        assert_eq!(reach(4096, 17 * 4096), 3 * 4096);
        assert_eq!(reach(16 * 4096, 17 * 4096), 17 * 4096);
        assert_eq!(reach(u32::MAX - 5, u32::MAX - 4095), u32::MAX - 4095);
    }
}
