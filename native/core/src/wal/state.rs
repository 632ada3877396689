//! What a node knows of its logs: catalog, stream ranges, producer windows, cursors.
//!
//! # Theory of operation
//!
//! The state is a fold of [`Change`]s in log order. Every segment opens with the state as it was at
//! that point (the preamble), so recovery folds one segment only and old segments can be dropped
//! unread. The writer checks a change against the state before a byte is written; recovery and
//! followers run the same check on what they read, so a frame that does not apply is noticed.
//!
//! # Invariants
//!
//! - `low <= committed <= next` for each stream; `next` is the next LLSN, from 1.
//! - LLSNs are dense, epochs never fall, stream numbers are never reused.
//! - Producer windows hold only LLSNs below `next`, except between a push and its frame (the
//!   preamble is encoded with windows cut to `next`).

use std::collections::BTreeMap;

use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::wal::change::{
    Change, CommitContext, Cursor, NewLog, decode_context, decode_cursor, encode_context,
    encode_cursor,
};
use crate::wal::frame::FrameHeader;
use crate::wal::producer::Producers;

/// Longest log or cursor name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Most cursors of one stream.
pub const CURSORS_MAX: usize = 1024;

/// Encoded bytes of a stream without epochs, producers and cursors.
const STREAM_BYTES: usize = 4 + 1 + 4 * 8 + 5 * 8 + 2 * 4;

/// Encoded bytes of an epoch.
const EPOCH_BYTES: usize = 16;

/// Encoded bytes of a cursor without its name.
const CURSOR_BYTES: usize = 4 + 8 + 1 + 8 + 8;

/// Encoded bytes of a log without its name and options.
const LOG_BYTES: usize = 4 + 4 + 1 + 16 + 1 + 8 + 4 + 4;

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
    fn new(explicit_commit: bool) -> Self {
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

    fn check_epoch(&self, epoch: u64) -> Result<()> {
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

    /// Bytes of the encoding, producer windows uncut.
    fn encoded_len(&self) -> usize {
        let cursors = self.cursors.keys().map(|name| CURSOR_BYTES + name.len());
        STREAM_BYTES
            + EPOCH_BYTES * self.epochs.len()
            + self.producers.encoded_len()
            + cursors.sum::<usize>()
    }

    fn check_commit(&self, context: &CommitContext) -> Result<()> {
        let dense = |what, given, expected| Error::NotDense {
            what,
            given,
            expected,
        };
        if context.version <= self.context.version {
            return Err(dense(
                "commit version",
                context.version,
                self.context.version + 1,
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

    /// Whether the change applies; nothing is changed.
    pub fn check(&self, header: &FrameHeader, change: &Change) -> Result<()> {
        match change {
            Change::Close | Change::Nothing => Ok(()),
            Change::CreateLog(log) => self.check_create(header.stream, log),
            Change::DeleteLog(id) | Change::AlterLog(id, _) => self.log(*id).map(|_| ()),
            _ => self.check_stream(header, change),
        }
    }

    fn check_create(&self, stream: u32, log: &NewLog) -> Result<()> {
        if log.name.is_empty() || log.name.len() > NAME_BYTES_MAX {
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

    fn check_stream(&self, header: &FrameHeader, change: &Change) -> Result<()> {
        let stream = self.stream(header.stream)?;
        match change {
            Change::Batch { count, .. } => {
                stream.check_epoch(header.epoch)?;
                if header.llsn != stream.next {
                    let (given, expected) = (header.llsn, stream.next);
                    return Err(Error::NotDense {
                        what: "LLSN",
                        given,
                        expected,
                    });
                }
                if *count == 0
                    || header
                        .llsn
                        .checked_add(u64::from(*count))
                        .is_none_or(|end| end >= 1 << 62)
                {
                    return Err(Error::InvalidArgument("record count out of range".into()));
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
            Change::Trim if header.llsn > stream.committed => Err(Error::BeyondEnd {
                position: header.llsn,
                next: stream.committed,
            }),
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
        self.check(header, change)?;
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

    /// Bytes of the encoding, or a little more: records that are on their way are counted.
    pub fn encoded_len(&self) -> usize {
        let logs = self
            .logs
            .values()
            .map(|log| LOG_BYTES + log.log.name.len() + log.log.options.len());
        let streams = self.streams.values().map(Stream::encoded_len);
        12 + logs.sum::<usize>() + streams.sum::<usize>()
    }

    /// Bytes by which a change makes the encoding longer, at most.
    pub fn growth(&self, header: &FrameHeader, change: &Change) -> usize {
        let stream = self.streams.get(&header.stream);
        let epoch = stream.map_or(0, |stream| stream.epoch);
        let entered = if header.epoch > epoch { EPOCH_BYTES } else { 0 };
        entered
            + match change {
                Change::CreateLog(log) => {
                    STREAM_BYTES + 4 + LOG_BYTES + log.name.len() + log.options.len()
                }
                Change::AlterLog(id, options) => {
                    let old = self.logs.get(id).map_or(0, |log| log.log.options.len());
                    options.len().saturating_sub(old)
                }
                Change::SetCursor(name, _) => match stream {
                    Some(stream) if stream.cursors.contains_key(name) => 0,
                    _ => CURSOR_BYTES + name.len(),
                },
                Change::Batch {
                    producer: Some((id, sequence)),
                    ..
                } => stream.map_or(0, |stream| {
                    stream.producers.growth(*id, *sequence, header.llsn)
                }),
                _ => 0,
            }
    }

    /// The encoding for a preamble, with producer windows cut to what has a frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.next_stream);
        out.put_u32(self.logs.len() as u32);
        for log in self.logs.values() {
            out.put_u32(log.stream);
            out.put_bytes(&Change::CreateLog(log.log.clone()).payload());
        }
        out.put_u32(self.streams.len() as u32);
        for (number, stream) in &self.streams {
            encode_stream(*number, stream, &mut out);
        }
        out
    }

    /// Decode a preamble.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut take = Take::new("preamble", bytes);
        let mut state = Self {
            next_stream: take.u32()?,
            ..Self::default()
        };
        for _ in 0..take.count(8)? {
            let stream = take.u32()?;
            let mut payload = Take::new("preamble log", take.bytes()?);
            if payload.u8()? != 1 {
                return Err(payload.error("not a log"));
            }
            let log = NewLog {
                id: payload.u128()?,
                explicit_commit: payload.u8()? != 0,
                created: payload.u64()?.cast_signed(),
                name: payload.string()?,
                options: payload.bytes()?.to_vec(),
            };
            payload.finish()?;
            state.logs.insert(log.id, Log { log, stream });
        }
        for _ in 0..take.count(8)? {
            let (number, stream) = decode_stream(&mut take)?;
            state.streams.insert(number, stream);
        }
        let paired = state
            .logs
            .values()
            .all(|log| state.streams.contains_key(&log.stream));
        if !paired || state.logs.len() != state.streams.len() {
            return Err(take.error("logs and streams do not pair up"));
        }
        take.finish()?;
        Ok(state)
    }
}

fn check_cursor(stream: &Stream, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
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
                stream
                    .producers
                    .note(*id, *sequence, header.llsn, u64::from(*count));
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

fn encode_stream(number: u32, stream: &Stream, out: &mut Vec<u8>) {
    out.put_u32(number);
    out.put_u8(u8::from(stream.explicit_commit));
    out.put_u64(stream.low);
    out.put_u64(stream.committed);
    out.put_u64(stream.next);
    out.put_u64(stream.epoch);
    encode_context(&stream.context, out);
    out.put_u32(stream.epochs.len() as u32);
    for (epoch, first) in &stream.epochs {
        out.put_u64(*epoch);
        out.put_u64(*first);
    }
    let mut producers = stream.producers.clone();
    producers.cut(stream.next);
    producers.encode(out);
    out.put_u32(stream.cursors.len() as u32);
    for (name, cursor) in &stream.cursors {
        encode_cursor(name, cursor, out);
    }
}

fn decode_stream(take: &mut Take<'_>) -> Result<(u32, Stream)> {
    let number = take.u32()?;
    let mut stream = Stream::new(take.u8()? != 0);
    stream.low = take.u64()?;
    stream.committed = take.u64()?;
    stream.next = take.u64()?;
    stream.epoch = take.u64()?;
    stream.context = decode_context(take)?;
    for _ in 0..take.count(16)? {
        stream.epochs.push((take.u64()?, take.u64()?));
    }
    stream.producers = Producers::decode(take)?;
    for _ in 0..take.count(29)? {
        let (name, cursor) = decode_cursor(take)?;
        stream.cursors.insert(name, cursor);
    }
    let ordered =
        1 <= stream.low && stream.low <= stream.committed && stream.committed <= stream.next;
    if !ordered || stream.next >= 1 << 62 {
        return Err(take.error("stream range is out of order"));
    }
    Ok((number, stream))
}
