//! The Raft log of one node in the steady state: entries, terms, peers, writes on their way.
//!
//! # Theory of operation
//!
//! Raft is named by its paper (Ongaro and Ousterhout, "In Search of an Understandable Consensus
//! Algorithm": Raft) and the thesis (Ongaro, "Consensus: Bridging Theory and Practice": Ongaro). What every append
//! of a group does is here: a leader adds entries, sends them to its followers within their windows and learns
//! from their answers where each log meets its own; a follower adds what continues its log, and what it has
//! written becomes durable. Elections, memberships, bases, conflicts and commits are decided by the owner, who
//! calls methods of the same object: there is one log and one place for what is known of a peer.
//!
//! A [`Tail`] does not know what an entry means. Of its data it knows the length, of its kind whether it is
//! [`PLAIN`]: any other kind may change the group, so a frame with one is cold. `D` is how the owner keeps
//! the data, `M` a message that waits for the disk.
//!
//! A frame is *hot* if a short predicate says that it can do nothing but continue the log, or move the end of
//! one that is known to agree:
//!
//! | frame | is hot if |
//! |---|---|
//! | append | it is of the leader that is followed, in its term; it continues behind the last entry; its entries are plain and of that term; the latest membership is committed |
//! | answer to it | it is of a peer in the own term, accepts, and names nothing beyond the end; the latest membership is committed |
//!
//! Every other frame changes nothing here, and the owner looks at it: the rules that a frame can break are all its own.
//!
//! # Invariants
//!
//! `base <= applied <= handed <= min(commit, durable)`, except that a base just installed is ahead of `applied`
//! until the owner has applied it; `commit <= last`; nothing at or below `commit` is ever cut; terms never
//! fall along the log. Of a peer `matched < next <= last + 1`; up to `matched` its log is durably this one. Numbers of
//! writes never repeat, and `durable` counts only entries that are still those in memory. What is not committed or not
//! durable is in memory.

mod frames;
mod log;
mod peers;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::VecDeque;
use std::fmt;

pub use frames::{Answer, Heading, encode_answer, encode_append};
pub use log::{Entry, Found};
pub use peers::{Feed, Mode, Progress, Window};
pub use writes::Taken;

use log::Log;
use peers::Peers;
use writes::Writes;

/// Bytes that an entry counts for in windows and messages beside its data, so that empty ones are bounded too.
pub const ENTRY_OVERHEAD: u64 = 32;

/// The kind of an entry that is about nothing but its data.
pub const PLAIN: u8 = 1;

/// A rule that must hold does not; the node stops.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

/// A result of what may break a rule.
pub type Result<T> = std::result::Result<T, Broken>;

/// Refuse unless `holds`.
fn check(holds: bool, reason: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Broken(reason())) }
}

/// What a frame has to agree with to be hot; the owner says it with each frame.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    /// This node.
    pub id: u64,
    /// The leader that it follows in this term; not asked for by answers.
    pub leader: u64,
    /// The term.
    pub term: u64,
    /// The epoch of the latest membership in the log, which is its index.
    pub epoch: u64,
}

/// The log of a node and what is on its way; see the module.
pub struct Tail<D, M> {
    log: Log<D>,
    peers: Peers,
    writes: Writes<M>,
}

impl<D, M> Tail<D, M> {
    /// A log with nothing behind its base. With `cache_bytes_max` entries that are committed and durable
    /// leave the memory beyond it, because the owner can read them back.
    pub fn new(base: u64, base_term: u64, cache_bytes_max: Option<u64>) -> Self {
        Self {
            log: Log::new(base, base_term, cache_bytes_max),
            peers: Peers::default(),
            writes: Writes::new(base),
        }
    }

    /// A copy whose data `data` and messages `message` copy.
    #[must_use]
    pub fn copied(&self, data: impl Fn(&D) -> D, message: impl Fn(&M) -> M) -> Self {
        Self {
            log: self.log.copied(data),
            peers: self.peers.clone(),
            writes: self.writes.copied(message),
        }
    }

    // --- looking

    /// Index of the base: the log begins behind it.
    pub fn base(&self) -> u64 {
        self.log.base()
    }

    /// Index of the last entry, or of the base.
    pub fn last(&self) -> u64 {
        self.log.last
    }

    /// Term of the last entry, or of the base.
    pub fn last_term(&self) -> u64 {
        self.log.last_term()
    }

    /// Up to where the log is committed.
    pub fn commit(&self) -> u64 {
        self.log.commit
    }

    /// Up to where it is durable here.
    pub fn durable(&self) -> u64 {
        self.log.durable
    }

    /// Up to where the state machine has applied it.
    pub fn applied(&self) -> u64 {
        self.log.applied
    }

    /// Up to where it was handed out to be applied.
    pub fn handed(&self) -> u64 {
        self.log.handed
    }

    /// How many entries are in memory.
    pub fn cached(&self) -> usize {
        self.log.cached_count()
    }

    /// The term of an entry or the base; `None` outside of the log.
    pub fn term(&self, index: u64) -> Option<u64> {
        self.log.term(index)
    }

    /// Whether a log with that end is at least as new (Raft, 5.4.1).
    pub fn up_to_date(&self, last: u64, last_term: u64) -> bool {
        (last_term, last) >= (self.last_term(), self.log.last)
    }

    /// The last index up to `index` whose term is at most `term`, not below the base: both sides of a
    /// conflict skip whole terms with it, so that a probe is needed for each term at most (Raft, 5.3).
    pub fn last_not_after(&self, index: u64, term: u64) -> u64 {
        self.log.last_not_after(index, term)
    }

    /// Where the entries `begin..end` are: at least one, about `bytes_max`.
    pub fn find(&self, begin: u64, end: u64, bytes_max: u64) -> Result<Found> {
        self.log.find(begin, end, bytes_max)
    }

    /// An entry in memory, by its place there.
    pub fn entry(&self, at: usize) -> &Entry<D> {
        self.log.entry(at)
    }

    /// Bytes of data of `begin..end`, as far as they are in memory: what is not committed is.
    pub fn data_bytes(&self, begin: u64, end: u64) -> u64 {
        self.log.data_bytes(begin, end)
    }

    /// Refuse what cannot be; asked after every input, so kept cheap.
    pub fn check(&self) -> Result<()> {
        self.log.check()?;
        self.peers.check(self.log.last)
    }

    /// First index and term of each run of entries of one term; the first is the base.
    pub fn runs(&self) -> &[(u64, u64)] {
        self.log.runs()
    }

    // --- changing

    /// Go on behind `last`, of a log that is stored and applied up to there: `runs` are the terms behind the base.
    pub fn skip_to(&mut self, last: u64, runs: &[(u64, u64)]) -> Result<()> {
        self.log.skip_to(last, runs)?;
        self.writes.loaded(last);
        Ok(())
    }

    /// Add an entry at the end.
    pub fn append(&mut self, index: u64, entry: Entry<D>) -> Result<()> {
        self.log.append(index, entry)
    }

    /// Cut the log from `begin` on, which a leader replaces (Raft, 5.3). What of it was to be written has to
    /// be clipped, too: see [`Tail::clip`].
    pub fn cut(&mut self, begin: u64) -> Result<()> {
        self.log.cut(begin)
    }

    /// Note that the entries from `begin` on were replaced in memory: a late report of a write of them
    /// says nothing about their successors.
    pub fn clip(&mut self, begin: u64) {
        self.writes.clip(begin);
    }

    /// Commit up to `index`; a smaller one changes nothing.
    pub fn commit_to(&mut self, index: u64) -> Result<()> {
        self.log.commit_to(index)
    }

    /// Let the log begin behind `index`, which is applied.
    pub fn fold(&mut self, index: u64) -> Result<()> {
        self.log.fold(index)
    }

    /// Replace everything by a base of a leader; it is neither durable nor applied yet.
    pub fn restart_at(&mut self, base: u64, term: u64) -> Result<()> {
        self.log.restart_at(base, term)
    }

    /// Set the commit index without asking; [`Tail::check`] finds what cannot be.
    pub fn set_commit(&mut self, index: u64) {
        self.log.commit = index;
    }

    /// Set what is durable without asking; [`Tail::check`] finds what cannot be.
    pub fn set_durable(&mut self, index: u64) {
        self.log.durable = index;
    }

    /// Note that the disk has the whole log, of which up to `commit` is committed.
    pub fn loaded(&mut self, commit: u64) {
        self.log.loaded(commit);
        self.writes.loaded(self.log.last);
    }

    /// Go on where the state machine stands.
    pub fn resume(&mut self, applied: u64) {
        self.log.applied = applied;
        self.log.handed = applied;
    }

    // --- handing out

    /// Whether a base waits to be stored or applied.
    pub fn install_pending(&self) -> bool {
        self.log.applied < self.log.base()
    }

    /// Hand out the base, if it is durable and was not handed out.
    pub fn take_base(&mut self) -> bool {
        self.log.take_base()
    }

    /// What may be applied next: an end of the range that begins behind what was handed out, and how much of it.
    pub fn committed(&self, bytes_max: u64) -> Option<(u64, u64)> {
        self.log.committed(bytes_max)
    }

    /// Note that entries up to `last` were handed out, which weigh so much.
    pub fn handed_out(&mut self, last: u64, weight: u64) {
        self.log.handed_out(last, weight);
    }

    /// Whether [`Tail::take_base`] or [`Tail::committed`] may have something.
    pub fn has_committed(&self) -> bool {
        self.log.has_committed()
    }

    /// Note what the state machine has applied.
    pub fn applied_to(&mut self, index: u64) -> Result<()> {
        self.log.applied_to(index)
    }

    // --- writes

    /// Hold a message until all that was decided so far is durable.
    pub fn promise(&mut self, message: M) {
        self.writes.promise(message);
    }

    /// Note that the base has to be stored; with `reset` it replaces the log.
    pub fn base_changed(&mut self, reset: bool) {
        self.writes.base_changed(reset, self.log.base());
    }

    /// The first index that was not given to be written.
    pub fn unwritten(&self) -> u64 {
        self.writes.unwritten()
    }

    /// Take what has to be stored now, if anything has: entries, the base, or, with `vital`, a hard state.
    pub fn take_write(&mut self, vital: bool) -> Option<Taken> {
        self.writes.take(vital, self.log.last)
    }

    /// Note that all writes up to `number` are stored.
    pub fn stored(&mut self, number: u64) -> Result<()> {
        let durable = self.writes.stored(number)?;
        self.log.durable = self.log.durable.max(durable);
        Ok(())
    }

    /// The messages that wait for the disk.
    pub fn promises(&self) -> impl Iterator<Item = &M> {
        self.writes.promises()
    }

    /// Take the messages whose promise is kept now.
    pub fn release(&mut self) -> VecDeque<M> {
        self.writes.release()
    }

    // --- peers

    /// What is known of the peers, in the order in which they came.
    pub fn peers(&self) -> impl Iterator<Item = (u64, &Progress)> {
        self.peers.iter()
    }

    /// What is known of a peer.
    pub fn peer(&self, node: u64) -> Option<&Progress> {
        self.peers.get(node)
    }

    /// What is known of a peer, to note more.
    pub fn peer_mut(&mut self, node: u64) -> Option<&mut Progress> {
        self.peers.get_mut(node)
    }

    /// What is known of all peers, to note more.
    pub fn peers_mut(&mut self) -> impl Iterator<Item = (u64, &mut Progress)> {
        self.peers.iter_mut()
    }

    /// Have these peers and nobody else. Most newcomers after an election have nearly everything.
    pub fn track(&mut self, nodes: &[u64]) {
        self.peers.track(nodes, self.log.last);
    }

    /// Forget a peer; whether there was one.
    pub fn forget(&mut self, node: u64) -> bool {
        self.peers.forget(node)
    }

    /// Note that a peer has the log durably up to `index`.
    pub fn accepted(&mut self, node: u64, index: u64) {
        let begin = self.log.base() + 1;
        if let Some(peer) = self.peers.get_mut(node) {
            peer.accepted(index, begin);
        }
    }

    /// Whether no peer is to be sent anything but what is committed.
    pub fn rests(&self) -> bool {
        let last = self.log.last;
        self.peers.iter().all(|(_, peer)| peer.rests(last))
    }

    /// What a peer is to be sent next, within its window; with `tell` also what is committed.
    pub fn feed(&mut self, node: u64, window: &Window, tell: bool) -> Result<Feed> {
        let log = &self.log;
        let Some(peer) = self.peers.get_mut(node) else {
            return Err(Broken(format!("{node} is no peer")));
        };
        Ok(peer.feed(log.base(), log.last, log.commit, window, tell))
    }

    /// Note that a peer was sent entries up to `last`, which weigh so much.
    pub fn sent(&mut self, node: u64, last: u64, weight: u64) {
        let commit = self.log.commit;
        if let Some(peer) = self.peers.get_mut(node) {
            peer.sent(last, weight, commit);
        }
    }

    // --- frames

    /// Take an append if it is hot, and return the answer: it promises that the entries are durable.
    /// `make` keeps the data of an entry, of an index and a term; if it cannot, nothing is changed.
    pub fn take_append<E>(
        &mut self,
        frame: &[u8],
        steady: &Steady,
        mut make: impl FnMut(u64, u64, &[u8]) -> std::result::Result<D, E>,
    ) -> std::result::Result<Option<Answer>, E> {
        let (last, term) = (self.log.last, steady.term);
        // A membership that is not committed may become it by this frame, which is for the owner to act on.
        if steady.epoch > self.log.commit || self.last_term() > term {
            return Ok(None);
        }
        let behind = (last, self.last_term());
        let Some(append) = frames::hot_append(frame, steady, behind) else {
            return Ok(None);
        };
        let mut entries = Vec::with_capacity(append.entries.len());
        for (index, data) in (last + 1..).zip(&append.entries) {
            let size = data.len() as u64;
            let data = make(index, term, data)?;
            entries.push(Entry {
                term,
                kind: PLAIN,
                size,
                data,
            });
        }
        self.log.extend(term, entries);
        // Entries behind the last may be of another leader, whatever this one has committed: here are none.
        self.log.commit = self.log.commit.max(append.commit.min(self.log.last));
        Ok(Some(Answer {
            sender: steady.id,
            receiver: steady.leader,
            term,
            epoch: steady.epoch,
            index: self.log.last,
        }))
    }

    /// Take an answer to an append if it is hot, and return whose it is.
    pub fn take_answer(&mut self, frame: &[u8], steady: &Steady) -> Option<u64> {
        if steady.epoch > self.log.commit {
            return None;
        }
        let answer = frames::hot_answer(frame, steady, self.log.last)?;
        let begin = self.log.base() + 1;
        let peer = self.peers.get_mut(answer.sender)?;
        peer.active = true;
        peer.accepted(answer.index, begin);
        Some(answer.sender)
    }

    /// Up to where a leader of this term may commit. Each half of `voters` has to have what is committed, by a
    /// majority; a half without members decides nothing.
    pub fn committable(&self, id: u64, term: u64, voters: &[Vec<u64>; 2]) -> u64 {
        let reached = |node: &u64| {
            if *node == id {
                return self.log.durable;
            }
            self.peers.get(*node).map_or(0, |peer| peer.matched)
        };
        let agreed = voters.iter().filter(|half| !half.is_empty()).map(|half| {
            let mut numbers: Vec<u64> = half.iter().map(reached).collect();
            numbers.sort_unstable();
            numbers[(half.len() - 1) / 2]
        });
        let agreed = agreed.min().unwrap_or_default();
        // An entry of an earlier term can still be replaced, even if a quorum has it (Raft, figure 8).
        if agreed > self.log.commit && self.log.term(agreed) == Some(term) {
            agreed
        } else {
            self.log.commit
        }
    }
}
