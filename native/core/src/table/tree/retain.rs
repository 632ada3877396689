//! Which versions of a key matter.

use crate::error::Result;
use crate::table::entry::{Direction, Entries, Entry, Stretches};
use crate::table::run::Stretch;

/// Decides in a merge whether an entry is kept, given the floor. What it drops, nobody at or above
/// the floor may miss, and older versions of the key must not either.
pub type Filter<'a> = dyn FnMut(&Entry<'_>, u64) -> Result<bool> + 'a;

/// Leaves out what no position at or above the floor sees. Goes forward.
pub struct Retain<E> {
    entries: E,
    floor: u64,
    /// Whether nothing older than these entries exists: then a tombstone hides nothing.
    is_oldest: bool,
    key: Option<Vec<u8>>,
    /// Whether the version of the key that the floor sees was met.
    is_met: bool,
}

impl<E: Entries> Retain<E> {
    /// Retain of `entries` what positions from `floor` on see.
    pub fn new(entries: E, floor: u64, is_oldest: bool) -> Self {
        Self {
            entries,
            floor,
            is_oldest,
            key: None,
            is_met: false,
        }
    }

    /// Step to the next entry that matters; whether its key is another one than the last.
    pub fn advance(&mut self, filter: &mut Filter<'_>) -> Result<Option<bool>> {
        let mut is_new = false;
        while self.entries.advance()? {
            let entry = self.entries.entry();
            if self.key.as_deref() != Some(entry.key) {
                let key = self.key.get_or_insert_default();
                key.clear();
                key.extend_from_slice(entry.key);
                (self.is_met, is_new) = (false, true);
            }
            if self.is_met {
                continue;
            }
            if entry.position <= self.floor {
                self.is_met = true;
                if self.is_oldest && entry.payload.is_none() {
                    continue;
                }
            }
            if filter(&entry, self.floor)? {
                return Ok(Some(is_new));
            }
        }
        Ok(None)
    }

    /// The entry it stands on.
    pub fn entry(&self) -> Entry<'_> {
        self.entries.entry()
    }
}

/// Whether deleted keys are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    /// A deleted key has an entry without a payload.
    Shown,
    /// A deleted key has no entry.
    Hidden,
}

/// The version of each key that is visible at a position.
pub struct Visible<E> {
    entries: E,
    direction: Direction,
    at: u64,
    tombstones: Tombstones,
    /// Forward: the key of which the visible version was met. Reverse: the version found so far.
    key: Vec<u8>,
    is_met: bool,
    /// Of the version found, in reverse.
    position: u64,
    payload: Option<Vec<u8>>,
    /// In reverse: the entries stand on one that was not looked at; what was found was given.
    is_ahead: bool,
    is_given: bool,
    /// Entries of the stretch that ends where it stands.
    stretch: usize,
}

impl<E: Entries> Visible<E> {
    /// Of `entries`, which go in `direction`, what is visible at a position.
    pub fn new(entries: E, direction: Direction, at: u64, tombstones: Tombstones) -> Self {
        Self {
            entries,
            direction,
            at,
            tombstones,
            key: Vec::new(),
            is_met: false,
            position: 0,
            payload: None,
            is_ahead: false,
            is_given: false,
            stretch: 0,
        }
    }

    fn shows(&self, is_tombstone: bool) -> bool {
        !is_tombstone || self.tombstones == Tombstones::Shown
    }

    fn advance_forward(&mut self) -> Result<bool> {
        while self.entries.advance()? {
            let entry = self.entries.entry();
            if entry.position > self.at || (self.is_met && entry.key == self.key) {
                continue;
            }
            self.is_met = true;
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            let is_tombstone = entry.payload.is_none();
            if self.shows(is_tombstone) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The newest version of a key comes last, so it is known only when another key follows.
    fn advance_reverse(&mut self) -> Result<bool> {
        if self.is_given {
            (self.is_given, self.is_met) = (false, false);
        }
        loop {
            if !self.is_ahead && !self.entries.advance()? {
                let found = self.is_met && self.shows(self.payload.is_none());
                self.is_given = true;
                return Ok(found);
            }
            self.is_ahead = true;
            let entry = self.entries.entry();
            if self.is_met && entry.key != self.key {
                if self.shows(self.payload.is_none()) {
                    self.is_given = true;
                    return Ok(true);
                }
                self.is_met = false;
            }
            if entry.position <= self.at {
                self.is_met = true;
                self.key.clear();
                self.key.extend_from_slice(entry.key);
                self.position = entry.position;
                self.payload = entry.payload.map(<[u8]>::to_vec);
            }
            self.is_ahead = false;
        }
    }
}

impl<E: Stretches> Visible<E> {
    /// Step to the next entry, and over those that follow it in its page and are seen too, `max` in all. It stands on the last of
    /// them. False as [`Entries::advance`].
    ///
    /// # Errors
    /// Those of a step; nothing is passed then.
    pub fn advance_stretch(&mut self, max: usize) -> Result<bool> {
        self.stretch = 0;
        if !self.advance()? {
            return Ok(false);
        }
        if self.direction == Direction::Reverse || self.tombstones == Tombstones::Shown {
            return Ok(true);
        }
        let Some(ahead) = self.entries.ahead() else {
            return Ok(true);
        };
        self.stretch = ahead.seen(self.at).min(max).max(1);
        if self.stretch > 1 {
            self.entries.pass(self.stretch - 1);
            self.key.clear();
            self.key.extend_from_slice(self.entries.rank().0);
        }
        Ok(true)
    }

    /// The entries of the last [`Visible::advance_stretch`], if they lie in a page.
    pub fn stretch(&self) -> Option<Stretch<'_>> {
        let passed = self.stretch.checked_sub(1)?;
        let ahead = self.entries.ahead()?;
        let last = ahead.place().start;
        Some(ahead.moved(last - passed..last + 1))
    }
}

impl<E: Entries> Entries for Visible<E> {
    fn advance(&mut self) -> Result<bool> {
        match self.direction {
            Direction::Forward => self.advance_forward(),
            Direction::Reverse => self.advance_reverse(),
        }
    }

    fn entry(&self) -> Entry<'_> {
        match self.direction {
            Direction::Forward => self.entries.entry(),
            Direction::Reverse => Entry {
                key: &self.key,
                position: self.position,
                payload: self.payload.as_deref(),
            },
        }
    }
}
