//! Producer windows: what makes a retry of an append harmless.
//!
//! A producer numbers its records per stream densely from 1. The window remembers where the most
//! recent sequences were stored, so that a repeat returns the original position. Ideas: the idempotent
//! producer of Kafka (KIP-98), with the window kept in the log and in every preamble so that it
//! survives restart.
//!
//! # Records that may be taken back
//!
//! In a stream with explicit commits a rollback takes records back, and the windows must then be what
//! they were before these. So the window of a producer goes back into the epochs before the latest one as
//! long as nothing of the latest is committed, and of the runs that are dropped for room the next one is
//! always committed. A rollback cuts both.
//!
//! # Producers that are forgotten
//!
//! Of all producers that are forgotten one number is kept: where the last record of any of them ended. If there
//! is none, a producer that is not known has stored nothing.
//!
//! # Invariants
//!
//! - Epochs of the runs of a window never fall; those of one epoch are ascending and dense in sequence.
//!   LLSNs rise.
//! - A window has a run: the last one says which epoch the producer is in.
//! - A window holds only positions below the stream's next LLSN: an append is noted when its frame is
//!   placed, and until then it is [`Pending`].

use std::collections::BTreeMap;

use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::wal::format::number::fits;

mod window;

use window::{Run, Window, encode_runs};

/// Runs kept per producer. A run is a stretch contiguous in sequence and LLSN, so a lone producer
/// needs one; interleaved ones get their last few appends remembered.
pub const RUNS_MAX: usize = 8;

/// Encoded bytes of all windows of a stream: what 256 full ones take. When there is no more room the
/// oldest runs go first, of producers that have several: what they stored is still known to be stored, only
/// not where. Then the least recently active producer is forgotten.
pub const PRODUCERS_BYTES_MAX: usize = 52 << 10;

/// Bytes that are freed at a time: to find the oldest runs all windows are looked at.
const FREED_BYTES: usize = PRODUCERS_BYTES_MAX / 32;

/// Encoded bytes of one epoch of a window without its runs.
const WINDOW_BYTES: usize = 8 + 4 + 4;

/// Encoded bytes of a run.
const RUN_BYTES: usize = 3 * 8;

/// Producers that were forgotten have stored something from here on.
const FORGOTTEN_LLSN: u64 = 1;

/// Who appends, and which record is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerId {
    /// Chosen by the producer, never 0.
    pub id: u64,
    /// Raised by a restarted producer to fence its former self.
    pub epoch: u32,
}

/// What to do with an append that names its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Next in sequence: store it.
    New,
    /// Stored before, beginning at this LLSN.
    Repeat(u64),
}

/// What a producer has in the open batch of a stream: it has a number and no frame yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Who appended it.
    pub producer: ProducerId,
    /// Sequence of the first record.
    pub sequence: u64,
    /// LLSN of the first record.
    pub llsn: u64,
    /// Number of records.
    pub count: u64,
}

impl Pending {
    /// Sequence of the record that would come next.
    pub fn next(&self) -> u64 {
        self.sequence + self.count
    }

    /// As [`Producers::admit`] of `placed`, as if this had been placed too.
    pub fn admit(
        &self,
        placed: &Producers,
        producer: ProducerId,
        sequence: u64,
        count: u64,
    ) -> Result<Admission> {
        if producer.id != self.producer.id {
            // The open batch has records of one producer. For all others the windows are up to date.
            return placed.admit(producer, sequence, count);
        }
        check_sequence(producer, sequence, count)?;
        if producer.epoch != self.producer.epoch {
            return enter(self.producer.epoch, producer, sequence);
        }
        if sequence == self.next() {
            // It goes on where the open batch ends.
            return Ok(Admission::New);
        }
        if sequence + count > self.next() {
            // Records between are missing, or it repeats some and adds others.
            return Err(gap(sequence, self.next()));
        }
        if sequence >= self.sequence {
            // All of it is in the open batch.
            return Ok(Admission::Repeat(self.llsn + (sequence - self.sequence)));
        }
        if sequence + count <= self.sequence {
            // All of it comes before the open batch.
            return placed.admit(producer, sequence, count);
        }
        // It begins before the open batch and ends in it. There is one position to answer with only if the two
        // lie side by side.
        let before = self.sequence - sequence;
        match placed.admit(producer, sequence, before)? {
            Admission::Repeat(llsn) if llsn + before == self.llsn => Ok(Admission::Repeat(llsn)),
            _ => Err(several(sequence, count)),
        }
    }
}

fn check_sequence(producer: ProducerId, sequence: u64, count: u64) -> Result<()> {
    if producer.id == 0 || sequence == 0 {
        let reason = "producer ids and sequences begin at 1";
        return Err(Error::InvalidArgument(reason.into()));
    }
    if !fits(sequence, count) {
        let reason = "the producer sequence would pass 2**62";
        return Err(Error::InvalidArgument(reason.into()));
    }
    Ok(())
}

/// Decide on an append of another epoch than the producer's `current` one.
fn enter(current: u32, producer: ProducerId, sequence: u64) -> Result<Admission> {
    if producer.epoch < current {
        let (given, current) = (producer.epoch.into(), current.into());
        return Err(Error::StaleEpoch { given, current });
    }
    begin(sequence)
}

/// Decide on the first append of a producer, or of its epoch.
fn begin(sequence: u64) -> Result<Admission> {
    if sequence == 1 {
        Ok(Admission::New)
    } else {
        Err(gap(sequence, 1))
    }
}

fn gap(given: u64, expected: u64) -> Error {
    Error::NotDense {
        what: "producer sequence",
        given,
        expected,
    }
}

fn several(sequence: u64, count: u64) -> Error {
    Error::InvalidArgument(format!(
        "sequences {sequence}..{} were stored by several appends; retry each with the records that it had",
        sequence + count
    ))
}

/// All windows of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    windows: BTreeMap<u64, Window>,
    /// Runs of all windows, and epochs: each append asks for the bytes of them.
    runs: usize,
    epochs: usize,
    /// Where the last record ended of those that were forgotten; 0 if none was.
    forgotten: u64,
}

impl Producers {
    /// Decide on `count` records from `sequence` on.
    ///
    /// Fails with [`Error::StaleEpoch`] for a fenced producer, [`Error::NotDense`] for a gap or a
    /// partial repeat, [`Error::SequenceExpired`] for a repeat older than the window.
    pub fn admit(&self, producer: ProducerId, sequence: u64, count: u64) -> Result<Admission> {
        check_sequence(producer, sequence, count)?;
        let Some(window) = self.windows.get(&producer.id) else {
            // Nothing is known of it. Its first record must be 1, or earlier ones would be missing.
            return begin(sequence);
        };
        if producer.epoch != window.epoch() {
            // Another incarnation: an older one is fenced, a newer one begins at 1.
            return enter(window.epoch(), producer, sequence);
        }
        let (next, runs) = (window.next(), window.latest());
        if sequence == next {
            // The usual case.
            return Ok(Admission::New);
        }
        if sequence + count > next {
            // Records between are missing, or it repeats some and adds others: neither can be stored as it is.
            return Err(gap(sequence, next));
        }
        let first = runs.first().map_or(next, |run| run.sequence);
        if sequence < first {
            // It was stored, but its position is forgotten. Storing it again would duplicate it.
            return Err(Error::SequenceExpired { sequence, first });
        }
        let holds =
            |run: &&Run| run.sequence <= sequence && sequence + count <= run.sequence + run.count;
        match runs.iter().find(holds) {
            Some(run) => Ok(Admission::Repeat(run.llsn + (sequence - run.sequence))),
            // Its records were stored by appends that lie apart, so no one position is the answer.
            None => Err(several(sequence, count)),
        }
    }

    /// Whether the producer is not known and may have stored records all the same. An append of unknown outcome
    /// must not be repeated then.
    pub fn may_have_forgotten(&self, id: u64) -> bool {
        self.forgotten > 0 && !self.windows.contains_key(&id)
    }

    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        4 + self.bytes()
    }

    /// Bytes of the windows in it.
    fn bytes(&self) -> usize {
        let forgotten = usize::from(self.forgotten > 0);
        WINDOW_BYTES * (self.epochs + forgotten) + RUN_BYTES * (self.runs + forgotten)
    }

    /// Bytes by which [`Producers::note`] of an append makes the encoding longer, at most.
    pub fn growth(&self, producer: ProducerId, sequence: u64, llsn: u64) -> usize {
        let room = PRODUCERS_BYTES_MAX.saturating_sub(self.bytes());
        let Some(window) = self.windows.get(&producer.id) else {
            return room.min(WINDOW_BYTES + RUN_BYTES);
        };
        let goes_on =
            |run: &Run| run.sequence + run.count == sequence && run.llsn + run.count == llsn;
        if window.epoch() != producer.epoch {
            room.min(WINDOW_BYTES + RUN_BYTES)
        } else if window.runs.len() >= RUNS_MAX || window.runs.last().is_some_and(goes_on) {
            0
        } else {
            room.min(RUN_BYTES)
        }
    }

    /// Remember an append to a stream that is `committed` up to there. One that does not continue the
    /// producer's sequence (batches that came from elsewhere, where some between were lost) begins its
    /// window anew.
    pub fn note(
        &mut self,
        producer: ProducerId,
        sequence: u64,
        llsn: u64,
        count: u64,
        committed: u64,
    ) {
        let ProducerId { id, epoch } = producer;
        let run = Run {
            epoch,
            sequence,
            llsn,
            count,
        };
        self.windows.entry(id).or_default();
        self.change(id, |window| window.push(run, committed));
        // The windows stand in every preamble, so their size is bounded.
        while self.bytes() > PRODUCERS_BYTES_MAX {
            // First old runs go, then producers: without its run a repeat is still known to be one. The producer
            // that has just stored may be the only one with several runs.
            let others = self.runs - self.windows.len();
            let window = self.windows.get(&id);
            if others == 1 && window.is_some_and(|window| window.can_shorten(committed)) {
                self.shorten(id);
            } else if !self.forget_oldest_runs(committed) {
                self.forget_oldest();
            }
        }
    }

    /// Change a window and what is counted of it.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut Window)) {
        if let Some(window) = self.windows.get_mut(&id) {
            self.runs -= window.runs.len();
            self.epochs -= window.epochs().count();
            change(window);
            self.runs += window.runs.len();
            self.epochs += window.epochs().count();
        }
    }

    fn shorten(&mut self, id: u64) {
        self.change(id, |window| {
            window.runs.remove(0);
        });
    }

    /// Forget where the oldest records lie of those whose producer has stored others since, which are
    /// committed; false if there are none.
    fn forget_oldest_runs(&mut self, committed: u64) -> bool {
        let several = self.windows.iter();
        let several = several.filter(|(_, window)| window.can_shorten(committed));
        let mut oldest: Vec<(u64, u64)> = several.map(|(id, w)| (w.runs[0].llsn, *id)).collect();
        oldest.sort_unstable();
        for (_, id) in &oldest {
            if self.bytes() + FREED_BYTES <= PRODUCERS_BYTES_MAX {
                break;
            }
            self.shorten(*id);
        }
        !oldest.is_empty()
    }

    fn forget_oldest(&mut self) {
        let ends = self.windows.iter();
        let oldest = ends.map(|(id, window)| (window.last_llsn(), *id)).min();
        if let Some((end, id)) = oldest {
            self.forget(id);
            self.forgotten = self.forgotten.max(end);
        }
    }

    /// Forget everything stored at `from` and above (rollback).
    pub fn cut(&mut self, from: u64) {
        self.windows.retain(|_, window| window.cut(from));
        self.recount();
        // Which producers were forgotten is not known. One of them may have stored up to the cut.
        self.forgotten = self.forgotten.min(from);
        if self.forgotten == FORGOTTEN_LLSN {
            self.forgotten = 0;
        }
    }

    fn recount(&mut self) {
        let windows = || self.windows.values();
        self.runs = windows().map(|window| window.runs.len()).sum();
        self.epochs = windows().map(|window| window.epochs().count()).sum();
    }

    /// Forget epochs that no rollback brings back, where all that is stored is committed.
    pub fn settle(&mut self) {
        self.windows.values_mut().for_each(Window::settle);
        self.recount();
    }

    /// Whether every window holds something, all of it below `next`.
    pub(crate) fn is_within(&self, next: u64) -> bool {
        let mut windows = self.windows.values();
        windows.all(|window| !window.runs.is_empty() && window.last_llsn() <= next)
            && self.forgotten <= next
    }

    /// Whether there are no more windows, and runs in each, than are ever kept.
    pub(crate) fn is_bounded(&self) -> bool {
        let mut windows = self.windows.values();
        self.bytes() <= PRODUCERS_BYTES_MAX && windows.all(|window| window.runs.len() <= RUNS_MAX)
    }

    /// Forget one producer: its next sequence may be any (salvage).
    pub fn forget(&mut self, id: u64) {
        self.change(id, |window| window.runs.clear());
        self.windows.remove(&id);
    }

    /// Each producer as (id, epoch, first sequence whose place is known, next sequence).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32, u64, u64)> {
        self.windows.iter().map(|(id, window)| {
            let first = window.latest().first().map_or(1, |run| run.sequence);
            (*id, window.epoch(), first, window.next())
        })
    }

    /// Number of producers remembered.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether no producer is remembered.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Next expected sequence of a producer, 1 if unknown.
    pub fn next_sequence(&self, id: u64) -> u64 {
        self.windows.get(&id).map_or(1, Window::next)
    }

    /// Epoch of a producer, if known.
    pub fn epoch(&self, id: u64) -> Option<u32> {
        self.windows.get(&id).map(Window::epoch)
    }

    /// Append the encoding: count, then per producer and epoch id, epoch, run count, runs. Producer 0
    /// stands for all that were forgotten.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let forgotten = (self.forgotten > 0).then(|| Run {
            epoch: 0,
            sequence: 1,
            llsn: FORGOTTEN_LLSN,
            count: self.forgotten - FORGOTTEN_LLSN,
        });
        out.put_u32((self.epochs + usize::from(forgotten.is_some())) as u32);
        if let Some(run) = &forgotten {
            encode_runs(0, std::slice::from_ref(run), out);
        }
        for (id, window) in &self.windows {
            for runs in window.epochs() {
                encode_runs(*id, runs, out);
            }
        }
    }

    /// The windows that were encoded as exactly these bytes; none of no bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut take = Take::new("producer windows", bytes);
        let found = Self::decode(&mut take)?;
        let mut again = Vec::with_capacity(bytes.len());
        found.encode(&mut again);
        // Each value has one encoding: ascending, no producer twice. So equal windows are equal bytes on all replicas.
        if again == bytes {
            Ok(found)
        } else {
            Err(take.error("producers are not in order"))
        }
    }

    /// Take the encoding from `take`.
    pub fn decode(take: &mut Take<'_>) -> Result<Self> {
        let mut found = Self::default();
        for _ in 0..take.count(16)? {
            let id = take.u64()?;
            let epoch = take.u32()?;
            let window = found.windows.entry(id).or_default();
            for _ in 0..take.count(24)? {
                let run = Run {
                    epoch,
                    sequence: take.u64()?,
                    llsn: take.u64()?,
                    count: take.u64()?,
                };
                let ends = run
                    .sequence
                    .checked_add(run.count)
                    .zip(run.llsn.checked_add(run.count));
                // The invariants of a window. A repeat is answered from these numbers, so they are not taken on
                // trust.
                let dense = window.runs.last().is_none_or(|last| {
                    let goes_on = last.sequence + last.count == run.sequence;
                    (last.epoch < epoch || last.epoch == epoch && goes_on)
                        && last.llsn + last.count <= run.llsn
                });
                if ends.is_none() || run.count == 0 || !dense {
                    return Err(take.error("producer runs are not dense"));
                }
                window.runs.push(run);
            }
        }
        // Producer 0 stands for all that were forgotten.
        if let Some(window) = found.windows.remove(&0) {
            found.forgotten = window.last_llsn();
        }
        found.recount();
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
