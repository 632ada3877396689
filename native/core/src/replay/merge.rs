//! The sources by position: copies are compared, holes are found.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::directory::Directory;
use super::piece::Piece;
use super::source::{Figures as SourceFigures, Source};
use super::start::first_kept;
use crate::error::{Error, Result};

/// What to do where no directory has a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHole {
    /// End: everything before is complete.
    Stop,
    /// Fail with [`Error::Hole`].
    Fail,
    /// Go on behind it: give out whatever any directory has.
    Skip,
}

/// What a merge did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Next position.
    pub next: u64,
    /// Records given out.
    pub records: u64,
    /// Bytes of the encoded batches they were in.
    pub bytes: u64,
    /// Copies of records that were compared and dropped.
    pub duplicates: u64,
    /// Positions that no directory has, as half-open ranges; of a merge that stopped, the one it stopped at.
    pub holes: Vec<(u64, u64)>,
    /// Each directory.
    pub sources: Vec<SourceFigures>,
}

/// Most holes that are remembered one by one.
const HOLES_MAX: usize = 1024;

/// The records of a log.
pub struct Merge {
    sources: Vec<Source>,
    heads: Vec<Option<Piece>>,
    next: u64,
    on_hole: OnHole,
    primed: bool,
    done: bool,
    figures: Figures,
}

impl Merge {
    /// Merge streams of directories, each stream with the caller's number of it, from position `begin` on;
    /// without one, from the first position that was not trimmed.
    pub fn new(
        sources: &[(Arc<Directory>, BTreeMap<u32, u64>)],
        begin: Option<u64>,
        on_hole: OnHole,
    ) -> Result<Self> {
        let next = match begin {
            Some(begin) => begin.max(1),
            None => first_kept(sources)?,
        };
        let opened: Result<Vec<_>> = sources
            .iter()
            .map(|(directory, streams)| Source::new(directory, streams))
            .collect();
        let sources = opened?;
        Ok(Self {
            heads: sources.iter().map(|_| None).collect(),
            sources,
            next,
            on_hole,
            primed: false,
            done: false,
            figures: Figures::default(),
        })
    }

    /// The next records, contiguous with the last ones; `None` at the end.
    ///
    /// Fails with [`Error::Differs`] if two copies of a record are not the same, [`Error::OverBudget`] if a
    /// writer did not keep what is pending within its budget, [`Error::Hole`] or the damage that made it.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<Piece>> {
        if self.done {
            return Ok(None);
        }
        let found = self.try_next();
        self.done = !matches!(found, Ok(Some(_)));
        found
    }

    fn try_next(&mut self) -> Result<Option<Piece>> {
        for at in 0..self.sources.len() {
            self.advance(at)?;
        }
        self.primed = true;
        let Some(first) = self.heads.iter().flatten().map(|head| head.glsn).min() else {
            return self.end();
        };
        if first > self.next && !self.pass_hole(first)? {
            return Ok(None);
        }
        self.next = first;
        Ok(Some(self.take(first)?))
    }

    /// Have a head that is not behind.
    fn advance(&mut self, at: usize) -> Result<()> {
        loop {
            match &mut self.heads[at] {
                None if self.primed && self.sources[at].failure.is_some() => return Ok(()),
                None => match self.sources[at].next()? {
                    None => return Ok(()),
                    found => self.heads[at] = found,
                },
                Some(head) if head.glsn_end() <= self.next => self.heads[at] = None,
                Some(head) => {
                    let behind = self.next.saturating_sub(head.glsn);
                    head.skip(behind as u32);
                    return Ok(());
                }
            }
        }
    }

    /// As many records from `first` on as all copies have in one batch.
    fn take(&mut self, first: u64) -> Result<Piece> {
        let ends = self.heads.iter().flatten().map(|head| {
            if head.glsn == first {
                head.glsn_end()
            } else {
                head.glsn
            }
        });
        let count = (ends.min().unwrap_or(first) - first) as u32;
        let mut taken: Option<Piece> = None;
        for slot in &mut self.heads {
            let Some(head) = slot.as_mut().filter(|head| head.glsn == first) else {
                continue;
            };
            let piece = head.split(count);
            if head.count == 0 {
                *slot = None;
            }
            match &taken {
                None => taken = Some(piece),
                Some(kept) => {
                    kept.check_same(&piece)?;
                    self.figures.duplicates += u64::from(count);
                }
            }
        }
        let taken = taken.ok_or(Error::Closed)?;
        self.next = taken.glsn_end();
        self.figures.records += u64::from(count);
        if taken.first == 0 {
            self.figures.bytes += taken.bytes().len() as u64;
        }
        Ok(taken)
    }

    /// Whether to go on behind positions that nobody has.
    fn pass_hole(&mut self, end: u64) -> Result<bool> {
        let begin = self.next;
        if self.on_hole != OnHole::Skip {
            self.check_failures()?;
        }
        if self.figures.holes.len() < HOLES_MAX {
            self.figures.holes.push((begin, end));
        }
        match self.on_hole {
            OnHole::Skip => Ok(true),
            OnHole::Stop => Ok(false),
            OnHole::Fail => Err(Error::Hole { begin, end }),
        }
    }

    fn end(&mut self) -> Result<Option<Piece>> {
        if self.on_hole != OnHole::Skip {
            self.check_failures()?;
        }
        Ok(None)
    }

    /// What a damaged directory lacks may be what is missing, if it had anything from here on.
    fn check_failures(&mut self) -> Result<()> {
        let next = self.next;
        let mut had = self.sources.iter_mut().filter(|s| s.last >= next);
        let failed = had.find_map(|source| source.failure.take());
        failed.map_or(Ok(()), Err)
    }

    /// What was done so far.
    pub fn figures(&self) -> Figures {
        Figures {
            next: self.next,
            sources: self.sources.iter().map(Source::figures).collect(),
            ..self.figures.clone()
        }
    }
}
