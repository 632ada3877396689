//! What is not where its order says: copies of the cleaner, and what a replica stored while it was behind.
//! Read through the number index, a chunk of a stream at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::damage::{Damage, is_damage, note};
use super::directory::Directory;
use super::piece::Piece;
use crate::error::{Error, Result};
use crate::index::CommitRun;
use crate::wal::{BatchRef, Position, StreamView};

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
    pub(super) damages: Vec<Damage>,
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
            damages: Vec::new(),
        }))
    }

    /// The next records, `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece>> {
        while self.pieces.is_empty() && self.next < self.end {
            match self.read(self.next, self.end) {
                Ok((pieces, next)) => (self.pieces, self.next) = (pieces, next),
                Err(error) if is_damage(&error) => self.read_around(&error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(self.pieces.pop_front())
    }

    /// Read what there is before some damage, or else begin behind it.
    fn read_around(&mut self, error: &Error) -> Result<()> {
        let first = self.next;
        let mut records = self.end - first;
        while records > 1 {
            records /= 2;
            if let Some(found) = self.attempt(first, first + records)? {
                (self.pieces, self.next) = found;
                return Ok(());
            }
        }
        note(&mut self.damages, Damage::of(error, &self.directory.path));
        self.next = self.first_readable(first)?;
        Ok(())
    }

    /// A number behind `damaged` that can be read while the one before it cannot, or the end.
    fn first_readable(&mut self, damaged: u64) -> Result<u64> {
        let (mut low, mut step) = (damaged, 1);
        let mut high = loop {
            let probe = low.saturating_add(step);
            if probe >= self.end {
                break self.end;
            }
            if self.attempt(probe, probe + 1)?.is_some() {
                break probe;
            }
            (low, step) = (probe, step * 2);
        };
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.attempt(middle, middle + 1)? {
                Some(_) => high = middle,
                None => low = middle,
            }
        }
        Ok(high)
    }

    /// The records `from..to`, or the first ones of them; `None` if something there is damaged.
    fn attempt(&mut self, from: u64, to: u64) -> Result<Option<(VecDeque<Piece>, u64)>> {
        self.position = Position::default();
        match self.read(from, to) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_damage(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, from: u64, to: u64) -> Result<(VecDeque<Piece>, u64)> {
        let view = &self.directory.view;
        let found = view.read(&self.stream, from, to, CHUNK_BYTES, &mut self.position)?;
        let Some(next) = found.last().map(BatchRef::next) else {
            let reason = format!("record {from} of stream {} is missing", self.stream.number);
            return Err(Error::corrupt(&self.directory.path, 0, reason));
        };
        let runs = if self.explicit {
            commit_runs(&self.directory, self.stream.number, from, next)?
        } else {
            let (glsn_begin, llsn_begin, length) = (from, from, next - from);
            vec![CommitRun {
                glsn_begin,
                llsn_begin,
                length,
            }]
        };
        let mut runs = runs.into_iter().peekable();
        let (mut pieces, mut bytes) = (VecDeque::new(), 0);
        for batch in found {
            bytes += batch.bytes().len() as u64;
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
                pieces.push_back(piece.split(count as u32));
            }
        }
        self.bytes += bytes;
        self.directory.view.bound_index_memory();
        Ok((pieces, next))
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
