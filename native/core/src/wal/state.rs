//! What a node knows of its logs: catalog, stream ranges, producer windows, cursors.
//!
//! # Theory of operation
//!
//! The state is a fold of [`Change`]s in log order. Every segment opens with the state as it was at
//! that point (the preamble), so recovery folds one segment only and old segments can be dropped
//! unread. The writer checks a change against the state before a byte is written; recovery and
//! followers run the same check (but for cursor positions) on what they read, so a frame that does not
//! apply is noticed.
//!
//! # Invariants
//!
//! - `low <= committed <= next` for each stream; `next` is the next LLSN, from 1.
//! - LLSNs are dense, epochs never fall, stream numbers are never reused.
//! - Producer windows hold only LLSNs below `next`.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::wal::change::{Change, CommitContext, Cursor, NewLog, Restart};
use crate::wal::frame::FrameHeader;
use crate::wal::producer::Producers;

/// Longest log or cursor name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Most cursors of one stream.
pub const CURSORS_MAX: usize = 1024;

/// Numbers of records stay below this, so that sums of two never overflow.
pub(super) const NUMBER_MAX: u64 = 1 << 62;
/// One log of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// As created, with current options.
    pub log: NewLog,
    /// Its stream.
    pub stream: u32,
}

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
    pub(super) fn settled(&self) -> u64 {
        if self.explicit_commit {
            self.committed
        } else {
            u64::MAX
        }
    }

    pub(super) fn check_epoch(&self, epoch: u64) -> Result<()> {
        if epoch < self.epoch {
            return Err(Error::StaleEpoch {
                given: epoch,
                current: self.epoch,
            });
        }
        Ok(())
    }

    fn enter(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.epochs.push((epoch, self.next));
            self.forget_epochs();
        }
    }

    /// Forget epochs without records that can be read: what is kept is bounded by them.
    fn forget_epochs(&mut self) {
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

    fn check_commit(&self, context: &CommitContext) -> Result<()> {
        let dense = |what, given, expected| Error::NotDense {
            what,
            given,
            expected,
        };
        // A run may come in pieces of one version.
        let piece = context.version == self.context.version && context.length > 0;
        if context.version <= self.context.version && !piece {
            return Err(dense(
                "commit version",
                context.version,
                self.context.version.saturating_add(1),
            ));
        }
        if context.llsn_begin != self.committed {
            return Err(dense("commit LLSN", context.llsn_begin, self.committed));
        }
        let end = context.llsn_begin.checked_add(context.length);
        if end.is_none_or(|end| end > self.next) {
            return Err(Error::BeyondEnd {
                position: end.unwrap_or(u64::MAX),
                next: self.next,
            });
        }
        if !fits(context.glsn_begin, context.length) {
            return Err(Error::InvalidArgument("commit GLSN out of range".into()));
        }
        let free = self.context.glsn_begin + self.context.length;
        // Of an empty commit too: it is what the next one is compared with.
        if context.glsn_begin < free || (context.length > 0 && context.glsn_begin == 0) {
            return Err(dense("commit GLSN", context.glsn_begin, free.max(1)));
        }
        Ok(())
    }
}

/// Everything a preamble holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Next stream number.
    pub next_stream: u32,
    /// Logs by id.
    pub logs: BTreeMap<u128, Log>,
    /// Streams by number.
    pub streams: BTreeMap<u32, Stream>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            next_stream: 1,
            logs: BTreeMap::new(),
            streams: BTreeMap::new(),
        }
    }
}

impl State {
    /// The stream, or [`Error::NotFound`].
    pub fn stream(&self, stream: u32) -> Result<&Stream> {
        self.streams.get(&stream).ok_or_else(|| Error::NotFound {
            what: format!("stream {stream}"),
        })
    }

    /// The log of that name.
    pub fn log_named(&self, name: &str) -> Option<&Log> {
        self.logs.values().find(|log| log.log.name == name)
    }

    fn log(&self, id: u128) -> Result<&Log> {
        self.logs.get(&id).ok_or_else(|| Error::NotFound {
            what: format!("log {id:032x}"),
        })
    }

    /// Whether the change may be made; nothing is changed.
    pub fn check(&self, header: &FrameHeader, change: &Change) -> Result<()> {
        self.check_applies(header, change)?;
        match change {
            Change::SetCursor(_, cursor) => {
                check_position(cursor.position, self.stream(header.stream)?.next)
            }
            _ => Ok(()),
        }
    }

    /// Whether a change that was made applies. Cursors used to be set to any position, and logs that hold such
    /// ones are good logs.
    fn check_applies(&self, header: &FrameHeader, change: &Change) -> Result<()> {
        match change {
            Change::Close | Change::Nothing => Ok(()),
            Change::CreateLog(log) => self.check_create(header.stream, log),
            Change::DeleteLog(id) | Change::AlterLog(id, _) => self.log(*id).map(|_| ()),
            Change::Restart(id, restart) => self.check_restart(header, *id, restart),
            _ => self.check_stream(header, change),
        }
    }

    fn check_create(&self, stream: u32, log: &NewLog) -> Result<()> {
        if log.name.is_empty() {
            return Err(Error::InvalidArgument(
                "a log name must not be empty".into(),
            ));
        }
        if log.name.len() > NAME_BYTES_MAX {
            let size = log.name.len() as u64;
            return Err(Error::TooLarge {
                what: "log name",
                size,
                max: NAME_BYTES_MAX as u64,
            });
        }
        if self.logs.contains_key(&log.id) || self.log_named(&log.name).is_some() {
            return Err(Error::AlreadyExists {
                what: format!("log {:?}", log.name),
            });
        }
        self.check_number(stream)
    }

    /// Stream numbers are given once.
    fn check_number(&self, stream: u32) -> Result<()> {
        if stream == u32::MAX {
            return Err(Error::InvalidArgument("stream numbers are used up".into()));
        }
        if stream != self.next_stream {
            let (given, expected) = (u64::from(stream), u64::from(self.next_stream));
            return Err(Error::NotDense {
                what: "stream number",
                given,
                expected,
            });
        }
        Ok(())
    }

    fn check_restart(&self, header: &FrameHeader, id: u128, restart: &Restart) -> Result<()> {
        let first = restart.first;
        let old = self.stream(self.log(id)?.stream)?;
        old.check_epoch(header.epoch)?;
        if !old.explicit_commit {
            let reason = "only a log with explicit commits can begin anew";
            return Err(Error::InvalidArgument(reason.into()));
        }
        if first == 0 || !fits(first, 1) {
            return Err(Error::InvalidArgument(format!("first LLSN {first}")));
        }
        if !restart.producers.is_within(first) || !restart.producers.is_bounded() {
            let reason = format!("producer windows are not of records below {first}");
            return Err(Error::InvalidArgument(reason));
        }
        self.check_number(header.stream)
    }

    fn check_stream(&self, header: &FrameHeader, change: &Change) -> Result<()> {
        let stream = self.stream(header.stream)?;
        match change {
            Change::Batch { count, producer } => {
                stream.check_epoch(header.epoch)?;
                if header.llsn != stream.next {
                    let (given, expected) = (header.llsn, stream.next);
                    return Err(Error::NotDense {
                        what: "LLSN",
                        given,
                        expected,
                    });
                }
                let count = u64::from(*count);
                if count == 0 || !fits(header.llsn, count) {
                    return Err(Error::InvalidArgument("record count out of range".into()));
                }
                if producer.is_some_and(|(_, sequence)| !fits(sequence, count)) {
                    let reason = "producer sequence out of range";
                    return Err(Error::InvalidArgument(reason.into()));
                }
                Ok(())
            }
            Change::Commit(context) => stream
                .check_epoch(header.epoch)
                .and(stream.check_commit(context)),
            Change::Rollback => {
                stream.check_epoch(header.epoch)?;
                if header.llsn < stream.committed || !stream.explicit_commit {
                    let (given, committed) = (header.llsn, stream.committed);
                    return Err(Error::Committed { given, committed });
                }
                if header.llsn > stream.next {
                    return Err(Error::BeyondEnd {
                        position: header.llsn,
                        next: stream.next,
                    });
                }
                Ok(())
            }
            Change::Trim => stream.check_trim(header.llsn),
            Change::Epoch => stream.check_epoch(header.epoch),
            Change::SetCursor(name, _) => check_cursor(stream, name),
            Change::DeleteCursor(name) if !stream.cursors.contains_key(name) => {
                Err(Error::NotFound {
                    what: format!("cursor {name:?}"),
                })
            }
            _ => Ok(()),
        }
    }

    /// Check and fold one change.
    pub fn apply(&mut self, header: &FrameHeader, change: &Change) -> Result<()> {
        self.check_applies(header, change)?;
        match change {
            Change::CreateLog(log) => {
                let stream = header.stream;
                self.next_stream = stream + 1;
                self.streams
                    .insert(stream, Stream::new(log.explicit_commit));
                self.logs.insert(
                    log.id,
                    Log {
                        log: log.clone(),
                        stream,
                    },
                );
            }
            Change::DeleteLog(id) => {
                if let Some(log) = self.logs.remove(id) {
                    self.streams.remove(&log.stream);
                }
            }
            Change::Restart(id, restart) => self.restart(header, *id, restart),
            Change::AlterLog(id, options) => {
                if let Some(log) = self.logs.get_mut(id) {
                    log.log.options.clone_from(options);
                }
            }
            _ => {
                if let Some(stream) = self.streams.get_mut(&header.stream) {
                    fold(stream, header, change);
                }
            }
        }
        Ok(())
    }
}

impl State {
    fn restart(&mut self, header: &FrameHeader, id: u128, restart: &Restart) {
        let Some(log) = self.logs.get_mut(&id) else {
            return;
        };
        let old = self.streams.remove(&log.stream);
        log.stream = header.stream;
        log.log.options.clone_from(&restart.options);
        let (mut stream, first) = (Stream::new(true), restart.first);
        stream.producers = restart.producers.clone();
        (stream.low, stream.committed, stream.next) = (first, first, first);
        stream.context.llsn_begin = first;
        stream.cursors = old.map(|old| old.cursors).unwrap_or_default();
        stream.enter(header.epoch);
        self.next_stream = header.stream + 1;
        self.streams.insert(header.stream, stream);
    }
}

/// Whether `count` numbers from `first` on are all in range.
pub(super) fn fits(first: u64, count: u64) -> bool {
    let end = first.checked_add(count);
    end.is_some_and(|end| end < NUMBER_MAX)
}

/// A cursor may stand where records were trimmed, and up to the next record.
fn check_position(position: u64, next: u64) -> Result<()> {
    if position == 0 {
        let reason = "cursor positions begin at 1";
        return Err(Error::InvalidArgument(reason.into()));
    }
    if position > next {
        return Err(Error::BeyondEnd { position, next });
    }
    Ok(())
}

fn check_cursor(stream: &Stream, name: &str) -> Result<()> {
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

fn fold(stream: &mut Stream, header: &FrameHeader, change: &Change) {
    match change {
        Change::Batch { count, producer } => {
            stream.enter(header.epoch);
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
            stream.next = header.llsn;
            stream.producers.cut(header.llsn);
            // Epochs that began beyond the cut begin at it now; the newest keeps fencing.
            for entry in &mut stream.epochs {
                entry.1 = entry.1.min(header.llsn);
            }
            stream.forget_epochs();
        }
        Change::Trim => {
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
