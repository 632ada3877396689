//! The sources by position: copies are compared, holes are found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::damage::named;
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
    /// Streams of which the end is damaged in all directories that have them: they may go on behind it.
    pub unproven: Vec<u64>,
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
    end: Option<u64>,
    on_hole: OnHole,
    primed: bool,
    done: bool,
    figures: Figures,
}

impl Merge {
    /// Merge streams of directories, each stream with the caller's number of it, from position `begin` on;
    /// without one, from the first position that was not trimmed. `end` is the position behind the last one
    /// that was committed, where that is known from elsewhere: without it nothing may tell that the end is missing.
    pub fn new(
        sources: &[(Arc<Directory>, BTreeMap<u32, u64>)],
        begin: Option<u64>,
        end: Option<u64>,
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
            end,
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
                None if self.primed && self.sources[at].is_over() => return Ok(()),
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
            self.check_damages(end)?;
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
        match self.end {
            Some(end) if self.next < end => {
                self.pass_hole(end)?;
            }
            None if self.on_hole != OnHole::Skip => self.check_ends()?,
            _ => {}
        }
        Ok(None)
    }

    /// Refuse if what is missing up to `end` may be what damaged directories lack.
    fn check_damages(&self, end: u64) -> Result<()> {
        let next = self.next;
        let may = self.sources.iter().filter(|source| source.may_lack(next));
        let damages: Vec<_> = may.flat_map(Source::damages).collect();
        let Some(first) = damages.first() else {
            return Ok(());
        };
        let what = match end - next {
            1 => format!("position {next} is"),
            _ => format!("positions {next} to {} are", end - 1),
        };
        let reason = format!(
            "{}; {what} in no other directory; damaged: {}",
            first.reason,
            named(&damages)
        );
        Err(Error::corrupt(&first.path, first.begin, reason))
    }

    /// Refuse if nothing tells where a stream ends.
    fn check_ends(&self) -> Result<()> {
        let unproven = self.unproven();
        let damages: Vec<_> = self.sources.iter().flat_map(Source::damages).collect();
        let (Some(first), false) = (damages.first(), unproven.is_empty()) else {
            return Ok(());
        };
        let reason = format!(
            "{}; no other directory tells where stream {} ends, so there may be records behind position {}; damaged: {}",
            first.reason,
            unproven
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            self.next - 1,
            named(&damages)
        );
        Err(Error::corrupt(&first.path, first.begin, reason))
    }

    /// The streams of which the end is damaged wherever they are.
    fn unproven(&self) -> Vec<u64> {
        let whole = |key: &u64| {
            let mut having = self.sources.iter().filter(|s| s.has(*key));
            having.any(|source| !source.doubtful.contains(key))
        };
        let doubtful = self.sources.iter().flat_map(|source| &source.doubtful);
        let unproven: BTreeSet<u64> = doubtful.copied().filter(|key| !whole(key)).collect();
        unproven.into_iter().collect()
    }

    /// What was done so far.
    pub fn figures(&self) -> Figures {
        Figures {
            next: self.next,
            unproven: self.unproven(),
            sources: self.sources.iter().map(Source::figures).collect(),
            ..self.figures.clone()
        }
    }
}
