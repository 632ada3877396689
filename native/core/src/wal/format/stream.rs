//! One stream of the state: its range, epochs, producers and cursors.
//!
//! # Invariants
//!
//! - `low <= committed <= next`; `next` is the next LLSN, from 1.
//! - LLSNs are dense, epochs never fall.
//! - Producer windows hold only LLSNs below `next`.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::wal::format::change::{Change, CommitContext, Cursor};
use crate::wal::format::frame::FrameHeader;
use crate::wal::format::number::fits;
use crate::wal::format::producer::Producers;

/// Longest log or cursor name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Most cursors of one stream.
pub const CURSORS_MAX: usize = 1024;

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// First LLSN that may be read.
    pub low: u64,
    /// First LLSN not committed; equals `next` where durable means committed.
    pub committed: u64,
    /// Next LLSN.
    pub next: u64,
    /// Current epoch.
    pub epoch: u64,
    /// Where each epoch with readable records began: (epoch, first LLSN), rising; lets replicas find
    /// divergence at once.
    pub epochs: Vec<(u64, u64)>,
    /// Latest commit.
    pub context: CommitContext,
    /// Whether commits are frames of their own.
    pub explicit_commit: bool,
    /// Producer windows.
    pub producers: Producers,
    /// Cursors by name.
    pub cursors: BTreeMap<String, Cursor>,
}

impl Stream {
    /// A stream without records.
    pub fn new(explicit_commit: bool) -> Self {
        Self {
            low: 1,
            committed: 1,
            next: 1,
            epoch: 0,
            epochs: Vec::new(),
            context: CommitContext::default(),
            explicit_commit,
            producers: Producers::default(),
            cursors: BTreeMap::new(),
        }
    }

    /// Below this no rollback takes anything back.
    pub(crate) fn settled(&self) -> u64 {
        if self.explicit_commit {
            self.committed
        } else {
            u64::MAX
        }
    }

    /// Whether everything below `first` may go: it must be there first.
    pub(crate) fn check_trim(&self, first: u64) -> Result<()> {
        if first > self.committed {
            return Err(Error::BeyondEnd {
                position: first,
                next: self.committed,
            });
        }
        Ok(())
    }

    /// Lowest position that a pin holds at `now` (microseconds since the epoch).
    pub(crate) fn lowest_pin(&self, now: i64) -> Option<u64> {
        let pins = self.cursors.values().filter(|cursor| {
            let until = i128::from(cursor.touched) + i128::from(cursor.lease);
            cursor.pin && (cursor.lease == 0 || i128::from(now) < until)
        });
        pins.map(|cursor| cursor.position).min()
    }

    pub(crate) fn check_epoch(&self, epoch: u64) -> Result<()> {
        if epoch < self.epoch {
            return Err(Error::StaleEpoch {
                given: epoch,
                current: self.epoch,
            });
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            // From here on records are of this epoch.
            self.epochs.push((epoch, self.next));
            self.forget_epochs();
        }
    }

    /// Forget epochs without records that can be read: what is kept is bounded by them.
    pub(super) fn forget_epochs(&mut self) {
        let low = self.low;
        let begins: Vec<u64> = self.epochs.iter().map(|(_, first)| *first).collect();
        let mut index = 0;
        self.epochs.retain(|(_, first)| {
            index += 1;
            begins
                .get(index)
                .is_none_or(|next| first < next && low < *next)
        });
    }

    /// Take over a commit of the stream's epoch that no frame tells of.
    ///
    /// Fails with [`Error::StaleEpoch`] for another epoch, [`Error::NotDense`] or [`Error::BeyondEnd`] if it
    /// does not go on where the stream is committed.
    pub fn commit(&mut self, epoch: u64, context: &CommitContext) -> Result<()> {
        // Without a frame of its own the commit enters no epoch, so it must be of the one at hand.
        if epoch != self.epoch {
            let current = self.epoch;
            return Err(Error::StaleEpoch {
                given: epoch,
                current,
            });
        }
        self.check_commit(context)?;
        self.committed = context.llsn_begin + context.length;
        self.context = *context;
        Ok(())
    }

    pub(super) fn check_commit(&self, context: &CommitContext) -> Result<()> {
        let dense = |what, given, expected| Error::NotDense {
            what,
            given,
            expected,
        };
        // Versions rise, but a run may come in pieces of one version.
        let piece = context.version == self.context.version && context.length > 0;
        if context.version <= self.context.version && !piece {
            return Err(dense(
                "commit version",
                context.version,
                self.context.version.saturating_add(1),
            ));
        }
        // Commits are dense, so that one that was lost is noticed by the next.
        if context.llsn_begin != self.committed {
            return Err(dense("commit LLSN", context.llsn_begin, self.committed));
        }
        // A stream commits only records that it has.
        let end = context.llsn_begin.checked_add(context.length);
        if end.is_none_or(|end| end > self.next) {
            return Err(Error::BeyondEnd {
                position: end.unwrap_or(u64::MAX),
                next: self.next,
            });
        }
        if !fits(context.glsn_begin, context.length) {
            return Err(Error::InvalidArgument(
                "the GLSN of the commit would pass 2**62".into(),
            ));
        }
        let free = self.context.glsn_begin + self.context.length;
        // Numbers of the log never fall. That holds of an empty commit too, for the next one is compared with it.
        if context.glsn_begin < free || (context.length > 0 && context.glsn_begin == 0) {
            return Err(dense("commit GLSN", context.glsn_begin, free.max(1)));
        }
        Ok(())
    }
}

pub(super) fn check_cursor(stream: &Stream, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::InvalidArgument(
            "a cursor name must not be empty".into(),
        ));
    }
    if name.len() > NAME_BYTES_MAX {
        let size = name.len() as u64;
        return Err(Error::TooLarge {
            what: "cursor name",
            size,
            max: NAME_BYTES_MAX as u64,
        });
    }
    if stream.cursors.len() >= CURSORS_MAX && !stream.cursors.contains_key(name) {
        let size = stream.cursors.len() as u64 + 1;
        return Err(Error::TooLarge {
            what: "number of cursors",
            size,
            max: CURSORS_MAX as u64,
        });
    }
    Ok(())
}

pub(super) fn fold(stream: &mut Stream, header: &FrameHeader, change: &Change) {
    match change {
        Change::Batch { count, producer } => {
            stream.enter(header.epoch);
            // Noted when the frame is placed, so that windows never know a record that is in no frame.
            if let Some((id, sequence)) = producer {
                let (count, settled) = (u64::from(*count), stream.settled());
                let producers = &mut stream.producers;
                producers.note(*id, *sequence, header.llsn, count, settled);
            }
            stream.next += u64::from(*count);
            if !stream.explicit_commit {
                stream.committed = stream.next;
            }
        }
        Change::Commit(context) => {
            stream.enter(header.epoch);
            stream.committed = context.llsn_begin + context.length;
            stream.context = *context;
        }
        Change::Rollback => {
            stream.enter(header.epoch);
            // The numbers are given again, to other records.
            stream.next = header.llsn;
            stream.producers.cut(header.llsn);
            // Epochs that began beyond the cut begin at it now; the newest keeps fencing.
            for entry in &mut stream.epochs {
                entry.1 = entry.1.min(header.llsn);
            }
            stream.forget_epochs();
        }
        Change::Trim => {
            // A trim that comes late changes nothing.
            stream.low = stream.low.max(header.llsn);
            stream.forget_epochs();
        }
        Change::Epoch => stream.enter(header.epoch),
        Change::SetCursor(name, cursor) => {
            stream.cursors.insert(name.clone(), cursor.clone());
        }
        Change::DeleteCursor(name) => {
            stream.cursors.remove(name);
        }
        _ => {}
    }
}
