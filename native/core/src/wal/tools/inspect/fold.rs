//! Adds up the frames of a damaged log as far as that can be done.
//!
//! Recovery refuses a frame that does not apply. Here something may be missing before it, so the state is
//! bent until the frame applies, and what was guessed is written down. The next whole preamble says
//! how it really was.

use std::collections::BTreeSet;

use crate::wal::format::change::{Change, NewLog};
use crate::wal::format::frame::{FLAG_MORE, Frame, FrameHeader, Kind};
use crate::wal::format::state::{Log, State};
use crate::wal::format::stream::Stream;
use crate::wal::segments::frames::frame_change;

/// A state that grows frame by frame and cannot fail.
#[derive(Default)]
pub struct Fold {
    /// The state so far.
    pub state: State,
    /// What had to be guessed, for people.
    pub guesses: BTreeSet<String>,
    node: u128,
    preamble: Option<Vec<u8>>,
}

impl Fold {
    /// Nothing yet, for the logs of this node.
    pub fn new(node: u128) -> Self {
        Self {
            node,
            ..Self::default()
        }
    }

    /// A segment begins.
    pub fn begin(&mut self) {
        self.preamble = Some(Vec::new());
    }

    /// Damage: a preamble that is being gathered is not whole.
    pub fn damage(&mut self) {
        self.preamble = None;
    }

    /// Whether the segment's own preamble was whole.
    fn gather(&mut self, frame: &Frame, payload: &[u8]) {
        let Some(bytes) = self.preamble.as_mut() else {
            return;
        };
        bytes.extend_from_slice(payload);
        if frame.header.flags & FLAG_MORE == 0 {
            if let Ok(state) = State::decode(bytes) {
                self.state = state;
                self.guesses.clear();
            }
            self.preamble = None;
        }
    }

    /// A batch whose header is whole and whose records are lost.
    pub fn lost(&mut self, frame: &Frame) {
        self.damage();
        if frame.header.kind == Kind::Batch {
            let (count, producer) = (frame.header.count, None);
            self.fold(&frame.header, &Change::Batch { count, producer });
        }
    }

    /// Fold one valid frame.
    pub fn frame(&mut self, frame: &Frame, payload: &[u8]) {
        if frame.header.kind == Kind::Preamble {
            return self.gather(frame, payload);
        }
        let Ok((change, _)) = frame_change(frame, payload) else {
            let kind = frame.header.kind.name();
            self.guesses
                .insert(format!("a {kind} frame was left out: it does not decode"));
            return;
        };
        let header = &frame.header;
        if let Change::Batch {
            producer: Some((producer, sequence)),
            ..
        } = &change
            && let Some(stream) = self.state.streams.get_mut(&header.stream)
            && stream.producers.epoch(producer.id) == Some(producer.epoch)
            && stream.producers.next_sequence(producer.id) != *sequence
        {
            stream.producers.forget(producer.id);
        }
        self.fold(header, &change);
    }

    fn fold(&mut self, header: &FrameHeader, change: &Change) {
        if self.state.apply(header, change).is_err() {
            self.bend(header, change);
            if self.state.apply(header, change).is_err() {
                let kind = header.kind.name();
                self.guesses
                    .insert(format!("a {kind} frame was left out: it does not apply"));
            }
        }
    }

    /// Make the state one to which the change may apply.
    fn bend(&mut self, header: &FrameHeader, change: &Change) {
        match change {
            Change::CreateLog(_) => self.state.next_stream = header.stream,
            Change::Batch { .. } | Change::Commit(_) | Change::Rollback | Change::Trim => {
                self.know(header.stream);
                if let Some(stream) = self.state.streams.get_mut(&header.stream) {
                    bend_stream(stream, header, change);
                }
            }
            _ => {}
        }
    }

    /// A stream whose creation was lost gets a name made up.
    fn know(&mut self, number: u32) {
        if number == 0 || self.state.streams.contains_key(&number) {
            return;
        }
        let name = format!("recovered-{number}");
        self.guesses.insert(format!(
            "the name and options of stream {number} are lost: it is called {name}"
        ));
        let log = NewLog {
            id: self.node ^ u128::from(number),
            explicit_commit: false,
            created: 0,
            name,
            options: Vec::new(),
        };
        self.state.streams.insert(number, Stream::new(false));
        let stream = number;
        self.state.logs.insert(log.id, Log { log, stream });
        self.state.next_stream = self.state.next_stream.max(number + 1);
    }
}

fn bend_stream(stream: &mut Stream, header: &FrameHeader, change: &Change) {
    match change {
        Change::Batch { .. } => {
            stream.next = header.llsn;
            if !stream.explicit_commit {
                stream.committed = stream.next;
            }
            stream.epoch = stream.epoch.min(header.epoch);
        }
        Change::Commit(context) => {
            stream.next = stream.next.max(context.llsn_begin + context.length);
            stream.committed = context.llsn_begin;
        }
        Change::Rollback => stream.next = stream.next.max(header.llsn),
        Change::Trim => {
            stream.committed = stream.committed.max(header.llsn);
            stream.next = stream.next.max(stream.committed);
        }
        _ => {}
    }
}
