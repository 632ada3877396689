//! The state of a directory at one place of its log.

use std::collections::BTreeMap;

use crate::wal::format::change::{Cursor, NewLog};
use crate::wal::format::producer::Producers;
use crate::wal::format::state::State;
use crate::wal::recover::follow::Follower;

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCut {
    /// As created, with the options of then.
    pub log: NewLog,
    /// Its stream in the directory.
    pub stream: u32,
    /// First position that may be read.
    pub first: u64,
    /// One past the last.
    pub end: u64,
    /// What producers have stored.
    pub producers: Producers,
    /// Cursors by name.
    pub cursors: BTreeMap<String, Cursor>,
}

/// Everything that a directory knows beside its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Random id of the write-ahead log.
    pub wal: u128,
    /// Length of its segments.
    pub segment_bytes: u32,
    /// Most bytes of all segments, where the directory says.
    pub bound: Option<u64>,
    /// Newest segment, 0 if there is none, and the offset in it.
    pub place: (u64, u32),
    /// The logs, by id.
    pub logs: Vec<LogCut>,
}

impl Follower {
    /// The state as of the last refresh.
    pub fn cut(&self) -> Cut {
        let (identity, bound, place) = self.described();
        Cut {
            wal: identity.wal,
            segment_bytes: identity.segment_bytes,
            bound,
            place,
            logs: self.with_state(logs_of),
        }
    }
}

fn logs_of(state: &State) -> Vec<LogCut> {
    let cut = |log: &crate::wal::format::state::Log| {
        let stream = state.streams.get(&log.stream)?;
        Some(LogCut {
            log: log.log.clone(),
            stream: log.stream,
            first: stream.low,
            end: stream.next,
            producers: stream.producers.clone(),
            // The pin of a table would hold the restored log for ever, because the table is not there.
            cursors: stream
                .cursors
                .iter()
                .filter(|(name, _)| state.tables.pinned_by(name).is_none())
                .map(|(name, cursor)| (name.clone(), cursor.clone()))
                .collect(),
        })
    };
    state.logs.values().filter_map(cut).collect()
}
