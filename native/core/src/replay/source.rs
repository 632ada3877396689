//! A directory as one run of records: what is in order and what is not, by position.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::damage::{Damage, note};
use super::directory::Directory;
use super::late::Late;
use super::pass::Pass;
use super::piece::Piece;
use crate::error::{Error, Result};

/// What was read of one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The directory.
    pub path: PathBuf,
    /// Bytes of segment files read in passing.
    pub bytes: u64,
    /// Bytes of batches read through the index, because they are not in order in the file.
    pub late_bytes: u64,
    /// Most bytes that were held because their place was not known.
    pub pending_bytes_peak: u64,
    /// What could not be read, and was passed over.
    pub damages: Vec<Damage>,
}

/// The records of a directory.
pub(super) struct Source {
    directory: Arc<Directory>,
    pass: Pass,
    passing: Option<Piece>,
    lates: Vec<(Option<Piece>, Late)>,
    primed: bool,
    /// The streams, by the caller's number.
    keys: BTreeSet<u64>,
    /// Last position that the directory says it has.
    last: u64,
    /// Those of them of which it is not known where they end here.
    pub(super) doubtful: BTreeSet<u64>,
    /// What ended it early.
    failure: Option<Damage>,
}

impl Source {
    pub(super) fn new(directory: &Arc<Directory>, streams: &BTreeMap<u32, u64>) -> Result<Self> {
        let pass = Pass::new(directory, streams)?;
        let (mut lates, mut last) = (Vec::new(), 0);
        for number in streams.keys() {
            let stream = directory.state.stream(*number)?;
            let end = if stream.explicit_commit {
                stream.context.glsn_begin + stream.context.length
            } else {
                stream.committed
            };
            last = last.max(end.saturating_sub(1));
        }
        for (number, from) in pass.froms() {
            let key = streams.get(&number).copied().unwrap_or_default();
            if let Some(late) = Late::new(directory, number, key, from)? {
                lates.push((None, late));
            }
        }
        let doubtful = directory.doubtful.iter().filter_map(|n| streams.get(n));
        let doubtful = doubtful.copied().collect();
        Ok(Self {
            directory: Arc::clone(directory),
            pass,
            passing: None,
            lates,
            primed: false,
            keys: streams.values().copied().collect(),
            last,
            doubtful,
            failure: None,
        })
    }

    /// The next records. Damage that cannot be passed over ends the source, and is kept: another one may have
    /// the same records.
    pub(super) fn next(&mut self) -> Result<Option<Piece>> {
        if self.failure.is_some() {
            return Ok(None);
        }
        match self.try_next() {
            Err(error @ (Error::Corruption { .. } | Error::Missing { .. })) => {
                self.failure = Some(Damage::of(&error, &self.directory.path));
                Ok(None)
            }
            other => other,
        }
    }

    /// Whether it has a stream.
    pub(super) fn has(&self, key: u64) -> bool {
        self.keys.contains(&key)
    }

    /// Whether it was ended early.
    pub(super) fn is_over(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether it may have lost a record at a position from `next` on.
    pub(super) fn may_lack(&self, next: u64) -> bool {
        !self.doubtful.is_empty() || self.last >= next
    }

    /// What could not be read so far.
    pub(super) fn damages(&self) -> Vec<Damage> {
        let mut found = self.directory.damages.clone();
        let lates = self.lates.iter().flat_map(|(_, late)| &late.damages);
        for damage in self.pass.damages.iter().chain(lates).chain(&self.failure) {
            note(&mut found, damage.clone());
        }
        found
    }

    fn try_next(&mut self) -> Result<Option<Piece>> {
        if !self.primed {
            for (head, late) in &mut self.lates {
                *head = late.next()?;
            }
            self.passing = self.pass.next()?;
            self.primed = true;
        }
        let heads = self.lates.iter().enumerate();
        let heads = heads.filter_map(|(at, (head, _))| head.as_ref().map(|head| (head.glsn, at)));
        let late = heads.min();
        let passing = self.passing.as_ref().map(|piece| piece.glsn);
        match late.filter(|(glsn, _)| passing.is_none_or(|passing| *glsn < passing)) {
            Some((_, at)) => {
                let (head, late) = &mut self.lates[at];
                let next = late.next()?;
                Ok(std::mem::replace(head, next))
            }
            None if passing.is_some() => {
                let next = self.pass.next()?;
                Ok(std::mem::replace(&mut self.passing, next))
            }
            None => Ok(None),
        }
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            path: self.directory.path.clone(),
            bytes: self.directory.bytes.load(Ordering::Relaxed),
            late_bytes: self.lates.iter().map(|(_, late)| late.bytes).sum(),
            pending_bytes_peak: self.pass.peak,
            damages: self.damages(),
        }
    }
}
