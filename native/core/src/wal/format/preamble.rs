//! The state as bytes: what opens every segment.
//!
//! ```text
//! u32 next stream
//! u32 logs, each: u32 stream, bytes (a `create` payload, see `change`)
//! u32 streams, each: u32 number, u8 explicit commit, u64 low, u64 committed, u64 next, u64 epoch,
//!     commit context (5 x u64), u32 epochs (u64 epoch, u64 first LLSN), producer windows, u32 cursors
//! u32 tables, each: see `table_codec`; nothing if there are none
//! ```

use std::collections::BTreeSet;

use crate::codec::{Put, Take};
use crate::error::Result;
use crate::wal::format::change::{
    Change, NewLog, decode_context, decode_cursor, encode_context, encode_cursor,
};
use crate::wal::format::frame::FrameHeader;
use crate::wal::format::number::{NUMBER_MAX, fits};
use crate::wal::format::producer::Producers;
use crate::wal::format::state::{Log, State};
use crate::wal::format::stream::Stream;
use crate::wal::format::table_change::{PIN_NAME_BYTES, TableChange};
use crate::wal::format::tables::Tables;

/// Encoded bytes of a stream without epochs, producers and cursors.
const STREAM_BYTES: usize = 4 + 1 + 4 * 8 + 5 * 8 + 2 * 4;

/// Encoded bytes of an epoch.
const EPOCH_BYTES: usize = 16;

/// Encoded bytes of a cursor without its name.
const CURSOR_BYTES: usize = 4 + 8 + 1 + 8 + 8;

/// Encoded bytes of a log without its name and options.
const LOG_BYTES: usize = 4 + 4 + 1 + 16 + 1 + 8 + 4 + 4;

impl Stream {
    /// Bytes of the encoding.
    fn encoded_len(&self) -> usize {
        let cursors = self.cursors.keys().map(|name| CURSOR_BYTES + name.len());
        STREAM_BYTES
            + EPOCH_BYTES * self.epochs.len()
            + self.producers.encoded_len()
            + cursors.sum::<usize>()
    }
}

impl State {
    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        let logs = self
            .logs
            .values()
            .map(|log| LOG_BYTES + log.log.name.len() + log.log.options.len());
        let streams = self.streams.values().map(Stream::encoded_len);
        12 + logs.sum::<usize>() + streams.sum::<usize>() + self.tables.encoded_len()
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
                Change::Restart(id, restart) => {
                    let old = self.logs.get(id).map_or(0, |log| log.log.options.len());
                    let options = restart.options.len().saturating_sub(old);
                    options + restart.producers.encoded_len()
                }
                Change::AlterLog(id, options) => {
                    let old = self.logs.get(id).map_or(0, |log| log.log.options.len());
                    options.len().saturating_sub(old)
                }
                Change::Tables(changes) => {
                    let pins = |change: &&TableChange| {
                        matches!(change, TableChange::Create(_) | TableChange::Replace(..))
                    };
                    let pins = changes.iter().filter(pins).count();
                    self.tables.growth(changes) + pins * (CURSOR_BYTES + PIN_NAME_BYTES)
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

    /// The encoding for a preamble.
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
        self.tables.encode(&mut out);
        out
    }

    /// Decode a preamble.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut take = Take::new("preamble", bytes);
        let mut state = Self {
            next_stream: take.u32()?,
            ..Self::default()
        };
        if state.next_stream == 0 {
            return Err(take.error("stream numbers begin at 1"));
        }
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
            if state.logs.insert(log.id, Log { log, stream }).is_some() {
                return Err(take.error("a log is there twice"));
            }
        }
        for _ in 0..take.count(8)? {
            let (number, stream) = decode_stream(&mut take)?;
            if number == 0 || number >= state.next_stream {
                return Err(take.error("stream number was never given"));
            }
            if state.streams.insert(number, stream).is_some() {
                return Err(take.error("a stream is there twice"));
            }
        }
        // A log has one stream, and no stream is without a log.
        let named: BTreeSet<u32> = state.logs.values().map(|log| log.stream).collect();
        if named.len() != state.logs.len() || !named.iter().eq(state.streams.keys()) {
            return Err(take.error("logs and streams do not pair up"));
        }
        state.tables = Tables::decode(&mut take, &state)?;
        // Else a trim could take away what a table has not stored yet.
        if !state.tables.iter().all(|table| state.is_pinned(table)) {
            return Err(take.error("a table does not pin its log"));
        }
        take.finish()?;
        Ok(state)
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
    stream.producers.encode(out);
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
    // The invariants of a stream. All later checks of changes rely on them.
    if !ordered || stream.next >= NUMBER_MAX {
        return Err(take.error("stream range is out of order"));
    }
    // Without commit frames durable means committed.
    if !stream.explicit_commit && stream.committed != stream.next {
        return Err(take.error("records without commits are not committed"));
    }
    let context = &stream.context;
    if !fits(context.glsn_begin, context.length) || !fits(context.llsn_begin, context.length) {
        return Err(take.error("commit is out of range"));
    }
    // Such a window would answer a repeat with a position that no record has yet.
    if !stream.producers.is_within(stream.next) {
        return Err(take.error("producer window goes beyond its stream"));
    }
    Ok((number, stream))
}

#[cfg(test)]
#[path = "../tests/state.rs"]
mod tests;
