//! Numbered writes, and the messages that wait for them.
//!
//! What has to be stored leaves as a write with the next number. Storage is one ordered queue, so "durable up to
//! number n" says everything. A message that promises something waits for the last write that existed when it
//! was made, so it vouches for the term, the vote and the whole log of that moment. Numbers never repeat while a node
//! runs: a late report of a write whose entries were replaced meanwhile cannot be taken for its successor (the
//! ABA race on record for etcd raft).

use std::collections::VecDeque;

use super::{Result, check};

/// What has to be stored beside entries, which are those from [`super::Tail::unwritten`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Number of the write.
    pub number: u64,
    /// Whether the base is part of it.
    pub base: bool,
    /// Whether the base replaces the log.
    pub reset: bool,
}

/// Writes on their way; see the module above.
pub(super) struct Writes<M> {
    /// The last index that was given to be written.
    written: u64,
    base: bool,
    reset: bool,
    number: u64,
    durable: u64,
    /// Number and last index of each write; an index that was replaced is clipped.
    pending: VecDeque<(u64, u64)>,
    untagged: Vec<M>,
    promises: VecDeque<(u64, M)>,
}

impl<M> Writes<M> {
    pub(super) fn new(written: u64) -> Self {
        Self {
            written,
            base: false,
            reset: false,
            number: 0,
            durable: 0,
            pending: VecDeque::new(),
            untagged: Vec::new(),
            promises: VecDeque::new(),
        }
    }

    pub(super) fn copied(&self, message: impl Fn(&M) -> M) -> Self {
        let tagged = |(number, each): &(u64, M)| (*number, message(each));
        Self {
            pending: self.pending.clone(),
            untagged: self.untagged.iter().map(&message).collect(),
            promises: self.promises.iter().map(tagged).collect(),
            ..*self
        }
    }

    pub(super) fn loaded(&mut self, last: u64) {
        self.written = last;
    }

    pub(super) fn promise(&mut self, message: M) {
        self.untagged.push(message);
    }

    pub(super) fn clip(&mut self, begin: u64) {
        self.written = self.written.min(begin - 1);
        for (_, last) in &mut self.pending {
            *last = (*last).min(begin - 1);
        }
    }

    pub(super) fn base_changed(&mut self, reset: bool, base: u64) {
        self.base = true;
        if reset {
            self.reset = true;
            self.written = base;
            for (_, last) in &mut self.pending {
                *last = 0;
            }
        }
    }

    pub(super) fn unwritten(&self) -> u64 {
        self.written + 1
    }

    pub(super) fn take(&mut self, vital: bool, last: u64) -> Option<Taken> {
        let mut taken = None;
        if vital || self.base || last > self.written {
            self.number += 1;
            taken = Some(Taken {
                number: self.number,
                base: self.base,
                reset: self.reset,
            });
            self.written = last;
            (self.base, self.reset) = (false, false);
            self.pending.push_back((self.number, last));
        }
        let number = self.number;
        let tagged = self.untagged.drain(..).map(|each| (number, each));
        self.promises.extend(tagged);
        taken
    }

    /// Note what is stored; return up to which index the log is.
    pub(super) fn stored(&mut self, number: u64) -> Result<u64> {
        check(number <= self.number, || {
            format!("write {number} was never handed out")
        })?;
        self.durable = self.durable.max(number);
        let mut durable = 0;
        while let Some((_, last)) = self.pending.front().filter(|each| each.0 <= number) {
            durable = durable.max(*last);
            self.pending.pop_front();
        }
        Ok(durable)
    }

    pub(super) fn promises(&self) -> impl Iterator<Item = &M> {
        let tagged = self.promises.iter().map(|each| &each.1);
        tagged.chain(&self.untagged)
    }

    pub(super) fn release(&mut self) -> VecDeque<M> {
        let mut kept = VecDeque::new();
        while self
            .promises
            .front()
            .is_some_and(|each| each.0 <= self.durable)
        {
            kept.extend(self.promises.pop_front().map(|each| each.1));
        }
        kept
    }
}
