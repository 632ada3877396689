//! Reading a tree.

use std::ops::Range;
use std::sync::Arc;

use super::merge::{Merge, Source};
use super::retain::{Tombstones, Visible};
use super::version::{TreeVersion, has_keys};
use super::view::State;
use crate::error::{Error, Result};
use crate::table::entry::{Direction, Entries, Entry, Stretches};
use crate::table::memory::MemoryHit;
use crate::table::run::{Found, KeyHash, Run, Stretch};

/// A tree as of one moment. What it needs stays there while it lives: it keeps memory, and
/// the files of runs that were merged since.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) state: Arc<State>,
}

/// A version that was found, without a copy.
pub enum Hit {
    /// In memory.
    Memory(MemoryHit),
    /// In a run.
    Run(Found),
}

impl Hit {
    /// The entry.
    pub fn entry(&self) -> Entry<'_> {
        match self {
            Self::Memory(hit) => hit.entry(),
            Self::Run(found) => found.entry(),
        }
    }

    /// Position of the record that made it.
    pub fn position(&self) -> u64 {
        match self {
            Self::Memory(hit) => hit.entry().position,
            Self::Run(found) => found.position(),
        }
    }

    /// What the key has; `None` is a tombstone.
    pub fn payload(&self) -> Option<&[u8]> {
        match self {
            Self::Memory(hit) => hit.entry().payload,
            Self::Run(found) => found.payload(),
        }
    }
}

impl Snapshot {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    /// Everything up to this position is in it.
    pub fn position(&self) -> u64 {
        self.state.applied
    }

    /// Lowest position that it can be read at.
    pub fn floor(&self) -> u64 {
        self.state.view.version.floor()
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.state.view.runs.values()
    }

    fn check(&self, at: u64) -> Result<()> {
        let (first, position) = (self.floor(), at);
        if at < first {
            return Err(Error::Trimmed { position, first });
        }
        if at > self.position() {
            let next = self.position() + 1;
            return Err(Error::BeyondEnd { position, next });
        }
        Ok(())
    }

    /// The version of a key that is visible at a position; a deleted key may have a tombstone, or none.
    ///
    /// # Errors
    /// [`Error::Trimmed`] below the floor, [`Error::BeyondEnd`] above the snapshot's position;
    /// [`Error::Corruption`] for a damaged page.
    pub fn get(&self, key: &[u8], at: u64) -> Result<Option<Hit>> {
        self.check(at)?;
        let state = &self.state;
        let sealed = state.sealed.as_ref().map(|sealed| &sealed.level);
        let found = state.active.find(key, at);
        let found = found.or_else(|| sealed.and_then(|level| level.find(key, at)));
        if let Some(hit) = found {
            return Ok(Some(Hit::Memory(hit)));
        }
        let mut hash = None;
        for slice in state.slices_of(key) {
            let hash = *hash.get_or_insert_with(|| KeyHash::of(key));
            if let Some(found) = slice.run.get_hashed(key, hash, at)? {
                return Ok(Some(Hit::Run(found)));
            }
        }
        Ok(None)
    }

    /// The visible version of each key in `begin..end` at a position; `None` is no bound.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn entries(
        &self,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        direction: Direction,
        at: u64,
        tombstones: Tombstones,
    ) -> Result<Visible<Versions>> {
        self.check(at)?;
        let versions = self.versions(begin, end, direction);
        Ok(Visible::new(versions, direction, at, tombstones))
    }

    /// Every version of each key in `begin..end` that is still there. Below the floor, and above the
    /// snapshot's position, that says nothing.
    pub fn versions(
        &self,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        direction: Direction,
    ) -> Versions {
        let view = &self.state.view;
        let begin = begin.unwrap_or_default();
        let ranges = if has_keys(begin, end) {
            let behind = |end: &[u8]| view.ranges.partition_point(|range| *range.begin < *end);
            view.range_of(begin)..end.map_or(view.ranges.len(), behind)
        } else {
            0..0
        };
        Versions {
            state: Arc::clone(&self.state),
            begin: begin.to_vec(),
            end: end.map(<[u8]>::to_vec),
            direction,
            ranges,
            from: 0,
            current: None,
        }
    }

    /// About how many bytes of files have keys of `begin..end`; `None` is no bound.
    pub fn bytes_between(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> u64 {
        let begin = begin.unwrap_or_default();
        let slices = self
            .state
            .view
            .ranges
            .iter()
            .flat_map(|range| &range.slices);
        slices.map(|slice| slice.bytes_between(begin, end)).sum()
    }

    /// Every version of each key that is still there, without runs that have none from position `from` on. Others may be
    /// among them.
    pub(in crate::table) fn versions_from(&self, from: u64) -> Versions {
        let versions = self.versions(None, None, Direction::Forward);
        Versions { from, ..versions }
    }

    /// The version that lists its runs.
    pub(in crate::table) fn version(&self) -> &TreeVersion {
        &self.state.view.version
    }
}

/// Goes through all versions, range by range.
pub struct Versions {
    state: Arc<State>,
    begin: Vec<u8>,
    end: Option<Vec<u8>>,
    direction: Direction,
    /// Those to come.
    ranges: Range<usize>,
    /// Runs without positions from here on are left out.
    from: u64,
    current: Option<Merge<Source>>,
}

impl Entries for Versions {
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(current) = &mut self.current
                && current.advance()?
            {
                return Ok(true);
            }
            let next = match self.direction {
                Direction::Forward => self.ranges.next(),
                Direction::Reverse => self.ranges.next_back(),
            };
            let Some(range) = next else {
                return Ok(false);
            };
            let (begin, end) = (&self.begin, self.end.as_deref());
            let merge = &self.state;
            self.current = Some(merge.merge(range, begin, end, self.direction, self.from));
        }
    }

    fn entry(&self) -> Entry<'_> {
        let current = self.current.as_ref().expect("stands on an entry");
        current.entry()
    }
}

impl Stretches for Versions {
    fn ahead(&self) -> Option<Stretch<'_>> {
        self.current.as_ref()?.ahead()
    }

    fn pass(&mut self, count: usize) {
        if let Some(current) = &mut self.current {
            current.pass(count);
        }
    }
}
