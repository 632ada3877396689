//! What a leader knows about its followers, and how much it may send them.
//!
//! A follower is probed with one message at a time until an answer shows where its log meets the leader's; then
//! appends are sent without waiting, within a window of messages and bytes; if the entries it needs are gone it
//! gets the base and nothing else until it answers (etcd raft, `tracker`).

use std::collections::VecDeque;

use super::{Result, check};

/// How a follower is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With one append at a time.
    Probe,
    /// With appends within the window.
    Replicate,
    /// With nothing, until it has the base that it was sent.
    Base,
}

/// How much may be on its way to a follower, and in one message.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Weight of the entries in one message.
    pub message_bytes_max: u64,
    /// Appends with entries.
    pub messages: usize,
    /// Weight of all their entries; the last message may exceed it.
    pub bytes: u64,
}

/// What a follower is to be sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// Nothing for now.
    Nothing,
    /// The base: the entries that it needs are folded away.
    Base,
    /// Entries from `begin` on, before `end`, of about `bytes_max`; none if `end` is `begin`.
    Append {
        /// Index of the first.
        begin: u64,
        /// Index behind the last that there may be.
        end: u64,
        /// Their weight, but for the first.
        bytes_max: u64,
    },
}

/// Progress of one follower.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Index of the entry that it is sent next.
    pub next: u64,
    /// Up to here its log is durably the leader's.
    pub matched: u64,
    /// How it is fed.
    pub mode: Mode,
    /// Heard of since the last check of the quorum; a newcomer counts as heard of.
    pub active: bool,
    /// A probe is on its way.
    pub probed: bool,
    /// An empty append may be sent although the window is full.
    pub nudge: bool,
    /// The commit index that it was told, as far as it has the entries.
    pub commit_sent: u64,
    /// Index of the base that was sent.
    pub base: u64,
    /// Ticks since then.
    pub base_ticks: u64,
    /// Last index and weight of the appends on their way.
    window: VecDeque<(u64, u64)>,
    window_bytes: u64,
}

impl Progress {
    /// Of a follower that has everything before `next`, perhaps.
    pub fn new(next: u64) -> Self {
        Self {
            next,
            matched: 0,
            mode: Mode::Probe,
            active: true,
            probed: false,
            nudge: false,
            commit_sent: 0,
            base: 0,
            base_ticks: 0,
            window: VecDeque::new(),
            window_bytes: 0,
        }
    }

    /// Whether there is nothing to send, but what is committed perhaps.
    pub fn rests(&self, last: u64) -> bool {
        self.mode == Mode::Replicate && self.next > last && !(self.nudge && self.matched < last)
    }

    fn room(&self, window: &Window) -> bool {
        match self.mode {
            Mode::Probe => !self.probed,
            Mode::Base => false,
            Mode::Replicate => {
                self.window.len() < window.messages && self.window_bytes < window.bytes
            }
        }
    }

    /// What to send next; a base is noted as sent at once, an append by [`Progress::sent`].
    pub(super) fn feed(
        &mut self,
        base: u64,
        last: u64,
        commit: u64,
        window: &Window,
        tell: bool,
    ) -> Feed {
        if self.rests(last) && !tell {
            return Feed::Nothing;
        }
        let begin = self.next;
        if begin <= base {
            // One base at a time, and none to a node that is silent: it is the whole state.
            if self.mode == Mode::Base || !self.active {
                return Feed::Nothing;
            }
            self.enter(Mode::Base);
            (self.base, self.base_ticks) = (base, 0);
            return Feed::Base;
        }
        if (begin <= last || self.mode == Mode::Probe) && self.room(window) {
            return Feed::Append {
                begin,
                end: last + 1,
                bytes_max: window.message_bytes_max,
            };
        }
        // An empty append finds out whether a full window was lost.
        let behind = self.nudge && self.matched < begin - 1;
        let news = self.commit_sent < commit.min(begin - 1);
        if self.mode == Mode::Replicate && (behind || (tell && news)) {
            return Feed::Append {
                begin,
                end: begin,
                bytes_max: 0,
            };
        }
        Feed::Nothing
    }

    /// Note an append that ends at `last`.
    pub fn sent(&mut self, last: u64, weight: u64, commit: u64) {
        self.commit_sent = self.commit_sent.max(commit.min(last));
        self.nudge = false;
        if self.mode == Mode::Probe {
            self.probed = true;
        } else if last >= self.next {
            self.window.push_back((last, weight));
            self.window_bytes += weight;
            self.next = last + 1;
        }
    }

    /// Note that the follower has the log up to `index`; `log_begin` is where the leader's begins.
    ///
    /// A follower that got a base goes on as soon as its log meets the leader's, whichever base or append brought
    /// it there. If the log went on meanwhile, the base that was sent is of no use any more, and the next one
    /// follows at once.
    pub fn accepted(&mut self, index: u64, log_begin: u64) {
        self.matched = self.matched.max(index);
        while let Some((_, weight)) = self.window.front().filter(|each| each.0 <= index) {
            self.window_bytes -= weight;
            self.window.pop_front();
        }
        let based = self.matched + 1 >= log_begin || self.matched >= self.base;
        if self.mode == Mode::Probe || (self.mode == Mode::Base && based) {
            self.enter(Mode::Replicate);
            self.next = self.matched + 1;
        }
        self.next = self.next.max(self.matched + 1);
    }

    /// Note that the follower lacks `index`, and may agree up to `resume`; a rejection that was overtaken
    /// by an acceptance changes nothing.
    pub fn rejected(&mut self, index: u64, resume: u64) {
        let about_the_past = match self.mode {
            Mode::Replicate => index <= self.matched,
            Mode::Base => true,
            // Not the answer to the probe that is on its way.
            Mode::Probe => index != self.next - 1,
        };
        if about_the_past {
            return;
        }
        self.enter(Mode::Probe);
        // Back to where the logs may meet, but never below what is known to agree.
        self.next = index.min(resume + 1).max(self.matched + 1);
    }

    /// Start over with a probe behind what is known to be there.
    pub fn lost(&mut self) {
        self.enter(Mode::Probe);
        self.next = self.matched + 1;
    }

    /// Note a sign of life: a probe or a whole window may have been lost.
    pub fn answered(&mut self) {
        self.active = true;
        self.probed = false;
        self.nudge = true;
    }

    fn enter(&mut self, mode: Mode) {
        self.mode = mode;
        self.probed = false;
        self.commit_sent = self.commit_sent.min(self.matched);
        self.window.clear();
        self.window_bytes = 0;
    }
}

/// The followers, in the order in which they came: a handful.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers(Vec<(u64, Progress)>);

impl Peers {
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Progress)> {
        self.0.iter().map(|(node, peer)| (*node, peer))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Progress)> {
        self.0.iter_mut().map(|(node, peer)| (*node, peer))
    }

    pub(super) fn get(&self, node: u64) -> Option<&Progress> {
        self.iter().find(|each| each.0 == node).map(|each| each.1)
    }

    pub(super) fn get_mut(&mut self, node: u64) -> Option<&mut Progress> {
        let found = self.0.iter_mut().find(|each| each.0 == node);
        found.map(|each| &mut each.1)
    }

    pub(super) fn track(&mut self, nodes: &[u64], next: u64) {
        for node in nodes {
            if self.get(*node).is_none() {
                self.0.push((*node, Progress::new(next)));
            }
        }
        self.0.retain(|(node, _)| nodes.contains(node));
    }

    pub(super) fn forget(&mut self, node: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|each| each.0 != node);
        self.0.len() < before
    }

    pub(super) fn check(&self, last: u64) -> Result<()> {
        for (_, peer) in &self.0 {
            let (matched, next) = (peer.matched, peer.next);
            check(matched < next && next <= last + 1, || {
                format!("progress: match {matched}, next {next}, last {last}")
            })?;
        }
        Ok(())
    }
}
