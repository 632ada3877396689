//! What is not where its order says: copies of the cleaner, and what a replica stored while it was behind.
//! Read through the number index, a chunk of a stream at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::directory::Directory;
use super::piece::Piece;
use crate::error::{Error, Result};
use crate::index::CommitRun;
use crate::wal::{Position, StreamView};

/// Bytes read of a stream at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The records of one stream below a number.
pub(super) struct Late {
    directory: Arc<Directory>,
    stream: Arc<StreamView>,
    key: u64,
    explicit: bool,
    next: u64,
    end: u64,
    position: Position,
    pieces: VecDeque<Piece>,
    pub(super) bytes: u64,
}

impl Late {
    /// Read what is kept and committed of `number` below `end`; `None` if there is nothing.
    pub(super) fn new(
        directory: &Arc<Directory>,
        number: u32,
        key: u64,
        end: u64,
    ) -> Result<Option<Self>> {
        let stream = directory.state.stream(number)?;
        let (next, end) = (stream.low, end.min(stream.committed));
        if next >= end {
            return Ok(None);
        }
        Ok(Some(Self {
            directory: Arc::clone(directory),
            stream: directory.view.stream(number)?,
            key,
            explicit: stream.explicit_commit,
            next,
            end,
            position: Position::default(),
            pieces: VecDeque::new(),
            bytes: 0,
        }))
    }

    /// The next records, `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece>> {
        if self.pieces.is_empty() && self.next < self.end {
            self.read()?;
        }
        Ok(self.pieces.pop_front())
    }

    fn read(&mut self) -> Result<()> {
        let view = &self.directory.view;
        let (from, to) = (self.next, self.end);
        let found = view.read(&self.stream, from, to, CHUNK_BYTES, &mut self.position)?;
        let Some(last) = found.last() else {
            let reason = format!("record {from} of stream {} is missing", self.stream.number);
            return Err(Error::corrupt(&self.directory.path, 0, reason));
        };
        self.next = last.next();
        let runs = if self.explicit {
            commit_runs(&self.directory, self.stream.number, from, self.next)?
        } else {
            let (glsn_begin, llsn_begin, length) = (from, from, self.next - from);
            vec![CommitRun {
                glsn_begin,
                llsn_begin,
                length,
            }]
        };
        let mut runs = runs.into_iter().peekable();
        for batch in found {
            self.bytes += batch.bytes().len() as u64;
            let mut piece = Piece::found(self.key, batch);
            while piece.count > 0 {
                while runs.next_if(|run| run.llsn_end() <= piece.llsn).is_some() {}
                let Some(run) = runs.peek().filter(|run| run.llsn_begin <= piece.llsn) else {
                    let reason = format!(
                        "the commit of record {} of stream {} is missing",
                        piece.llsn, self.stream.number
                    );
                    let place = piece.place();
                    return Err(Error::corrupt(&place.path, place.offset, reason));
                };
                let count = (run.llsn_end() - piece.llsn).min(piece.count.into());
                piece.glsn = run.glsn_begin + (piece.llsn - run.llsn_begin);
                self.pieces.push_back(piece.split(count as u32));
            }
        }
        self.directory.view.bound_index_memory();
        Ok(())
    }
}

/// The commit runs of a stream's LLSNs `begin..end`, rising; those of copies are the same again.
pub(super) fn commit_runs(
    directory: &Directory,
    number: u32,
    begin: u64,
    end: u64,
) -> Result<Vec<CommitRun>> {
    let mut found = directory.view.commit_runs(number, begin, end)?;
    let known = directory.known_runs(number);
    found.extend(known.filter(|run| begin < run.llsn_end() && run.llsn_begin < end));
    found.sort_by_key(|run: &CommitRun| run.llsn_begin);
    Ok(found)
}
