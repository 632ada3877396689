//! Producer windows: what makes a retry of an append harmless.
//!
//! A producer numbers its records per stream densely from 1. The window remembers where the most
//! recent sequences were stored, so that a repeat returns the original position. Ideas: the idempotent
//! producer of Kafka (KIP-98), with the window kept in the log and in every preamble so that it
//! survives restart.
//!
//! # Invariants
//!
//! - Runs of a window are ascending and dense in sequence; LLSNs rise.
//! - A window holds only positions below the stream's next LLSN: an append is noted when its frame is
//!   placed, and until then it is [`Pending`].

use std::collections::BTreeMap;

use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::wal::state::fits;

/// Runs kept per producer. A run is a stretch contiguous in sequence and LLSN, so a lone producer
/// needs one; interleaved ones get their last few appends remembered.
pub const RUNS_MAX: usize = 8;

/// Encoded bytes of all windows of a stream: what 256 full ones take. When there is no more room the
/// oldest runs go first, of whoever has several: what they stored is still known to be stored, only
/// not where. Then the least recently active producer is forgotten.
pub const PRODUCERS_BYTES_MAX: usize = 52 << 10;

/// Bytes that are freed at a time: to find the oldest runs all windows are looked at.
const FREED_BYTES: usize = PRODUCERS_BYTES_MAX / 32;

/// Encoded bytes of a window without its runs.
const WINDOW_BYTES: usize = 8 + 4 + 4;

/// Encoded bytes of a run.
const RUN_BYTES: usize = 3 * 8;

/// Who appends, and which record is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerId {
    /// Chosen by the producer, never 0.
    pub id: u64,
    /// Raised by a restarted producer to fence its former self.
    pub epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    sequence: u64,
    llsn: u64,
    count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Window {
    epoch: u32,
    runs: Vec<Run>,
}

impl Window {
    fn next(&self) -> u64 {
        self.runs.last().map_or(1, |run| run.sequence + run.count)
    }

    fn last_llsn(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.llsn + run.count)
    }

    /// Forget LLSNs from `from` on; false if nothing is left.
    fn cut(&mut self, from: u64) -> bool {
        self.runs.retain(|run| run.llsn < from);
        if let Some(run) = self.runs.last_mut() {
            run.count = run.count.min(from - run.llsn);
        }
        !self.runs.is_empty()
    }
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
            return placed.admit(producer, sequence, count);
        }
        check_sequence(producer, sequence, count)?;
        if producer.epoch != self.producer.epoch {
            return enter(self.producer.epoch, producer, sequence);
        }
        if sequence == self.next() {
            return Ok(Admission::New);
        }
        if sequence + count > self.next() {
            return Err(gap(sequence, self.next()));
        }
        if sequence >= self.sequence {
            return Ok(Admission::Repeat(self.llsn + (sequence - self.sequence)));
        }
        if sequence + count <= self.sequence {
            return placed.admit(producer, sequence, count);
        }
        // Stored with one another only if what comes before it ends where it begins.
        let before = self.sequence - sequence;
        match placed.admit(producer, sequence, before)? {
            Admission::Repeat(llsn) if llsn + before == self.llsn => Ok(Admission::Repeat(llsn)),
            _ => Err(several(sequence, count)),
        }
    }
}

fn check_sequence(producer: ProducerId, sequence: u64, count: u64) -> Result<()> {
    if producer.id == 0 || sequence == 0 {
        let reason = "producer id and sequence begin at 1";
        return Err(Error::InvalidArgument(reason.into()));
    }
    if !fits(sequence, count) {
        let reason = "producer sequence out of range";
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
        "sequences {sequence}..{} were stored by several appends; repeat each as it was",
        sequence + count
    ))
}

/// All windows of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    windows: BTreeMap<u64, Window>,
    /// Runs of all windows: each append asks for the bytes of them.
    runs: usize,
}

impl Producers {
    /// Decide on `count` records from `sequence` on.
    ///
    /// Fails with [`Error::StaleEpoch`] for a fenced producer, [`Error::NotDense`] for a gap or a
    /// partial repeat, [`Error::SequenceExpired`] for a repeat older than the window.
    pub fn admit(&self, producer: ProducerId, sequence: u64, count: u64) -> Result<Admission> {
        check_sequence(producer, sequence, count)?;
        let Some(window) = self.windows.get(&producer.id) else {
            return begin(sequence);
        };
        if producer.epoch != window.epoch {
            return enter(window.epoch, producer, sequence);
        }
        let next = window.next();
        if sequence == next {
            return Ok(Admission::New);
        }
        if sequence + count > next {
            return Err(gap(sequence, next));
        }
        let first = window.runs.first().map_or(next, |run| run.sequence);
        if sequence < first {
            return Err(Error::SequenceExpired { sequence, first });
        }
        let holds =
            |run: &&Run| run.sequence <= sequence && sequence + count <= run.sequence + run.count;
        match window.runs.iter().find(holds) {
            Some(run) => Ok(Admission::Repeat(run.llsn + (sequence - run.sequence))),
            None => Err(several(sequence, count)),
        }
    }

    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        4 + self.bytes()
    }

    /// Bytes of the windows in it.
    fn bytes(&self) -> usize {
        WINDOW_BYTES * self.windows.len() + RUN_BYTES * self.runs
    }

    /// Bytes by which [`Producers::note`] of an append makes the encoding longer, at most.
    pub fn growth(&self, producer: ProducerId, sequence: u64, llsn: u64) -> usize {
        let room = PRODUCERS_BYTES_MAX.saturating_sub(self.bytes());
        let Some(window) = self.windows.get(&producer.id) else {
            return room.min(WINDOW_BYTES + RUN_BYTES);
        };
        let goes_on =
            |run: &Run| run.sequence + run.count == sequence && run.llsn + run.count == llsn;
        if window.epoch != producer.epoch
            || window.runs.len() >= RUNS_MAX
            || window.runs.last().is_some_and(goes_on)
        {
            0
        } else {
            room.min(RUN_BYTES)
        }
    }

    /// Remember an append. One that does not continue the producer's sequence (batches that came
    /// from elsewhere, where some between were lost) begins its window anew.
    pub fn note(&mut self, producer: ProducerId, sequence: u64, llsn: u64, count: u64) {
        let window = self.windows.entry(producer.id).or_default();
        self.runs -= window.runs.len();
        if producer.epoch != window.epoch || sequence != window.next() {
            *window = Window {
                epoch: producer.epoch,
                runs: Vec::new(),
            };
        }
        match window.runs.last_mut() {
            Some(run) if run.sequence + run.count == sequence && run.llsn + run.count == llsn => {
                run.count += count;
            }
            _ => window.runs.push(Run {
                sequence,
                llsn,
                count,
            }),
        }
        if window.runs.len() > RUNS_MAX {
            window.runs.remove(0);
        }
        self.runs += window.runs.len();
        while self.bytes() > PRODUCERS_BYTES_MAX {
            // Who has just stored may be the only one with several.
            let others = self.runs - self.windows.len();
            match self.windows.get_mut(&producer.id) {
                Some(window) if others == 1 && window.runs.len() > 1 => {
                    window.runs.remove(0);
                    self.runs -= 1;
                }
                _ if others > 0 => self.forget_oldest_runs(),
                _ => self.forget_oldest(),
            }
        }
    }

    /// Forget where the oldest records lie of those whose producer has stored others since.
    fn forget_oldest_runs(&mut self) {
        let several = self.windows.iter().filter(|(_, w)| w.runs.len() > 1);
        let mut oldest: Vec<(u64, u64)> = several.map(|(id, w)| (w.runs[0].llsn, *id)).collect();
        oldest.sort_unstable();
        for (_, id) in oldest {
            if self.bytes() + FREED_BYTES <= PRODUCERS_BYTES_MAX {
                break;
            }
            if let Some(window) = self.windows.get_mut(&id) {
                window.runs.remove(0);
                self.runs -= 1;
            }
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .windows
            .iter()
            .min_by_key(|(_, w)| w.last_llsn())
            .map(|(id, _)| *id);
        if let Some(id) = oldest {
            self.forget(id);
        }
    }

    /// Forget everything stored at `from` and above (rollback).
    pub fn cut(&mut self, from: u64) {
        self.windows.retain(|_, window| window.cut(from));
        self.runs = self.windows.values().map(|window| window.runs.len()).sum();
    }

    /// Whether every window holds something, all of it below `next`.
    pub(super) fn is_within(&self, next: u64) -> bool {
        let mut windows = self.windows.values();
        windows.all(|window| !window.runs.is_empty() && window.last_llsn() <= next)
    }

    /// Whether there are no more windows, and runs in each, than are ever kept.
    pub(super) fn is_bounded(&self) -> bool {
        let mut windows = self.windows.values();
        self.bytes() <= PRODUCERS_BYTES_MAX && windows.all(|window| window.runs.len() <= RUNS_MAX)
    }

    /// Forget one producer: its next sequence may be any (salvage).
    pub fn forget(&mut self, id: u64) {
        if let Some(window) = self.windows.remove(&id) {
            self.runs -= window.runs.len();
        }
    }

    /// Each producer as (id, epoch, first sequence whose place is known, next sequence).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32, u64, u64)> {
        self.windows.iter().map(|(id, window)| {
            let first = window.runs.first().map_or(1, |run| run.sequence);
            (*id, window.epoch, first, window.next())
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
        self.windows.get(&id).map(|window| window.epoch)
    }

    /// Append the encoding: count, then per producer id, epoch, run count, runs.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.windows.len() as u32);
        for (id, window) in &self.windows {
            out.put_u64(*id);
            out.put_u32(window.epoch);
            out.put_u32(window.runs.len() as u32);
            for run in &window.runs {
                out.put_u64(run.sequence);
                out.put_u64(run.llsn);
                out.put_u64(run.count);
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
        // There is one encoding of each value: ascending, nobody twice.
        if again == bytes {
            Ok(found)
        } else {
            Err(take.error("producers are not in order"))
        }
    }

    /// Take the encoding from `take`.
    pub fn decode(take: &mut Take<'_>) -> Result<Self> {
        let mut windows = BTreeMap::new();
        for _ in 0..take.count(16)? {
            let id = take.u64()?;
            let epoch = take.u32()?;
            let mut runs = Vec::new();
            for _ in 0..take.count(24)? {
                let run = Run {
                    sequence: take.u64()?,
                    llsn: take.u64()?,
                    count: take.u64()?,
                };
                let ends = run
                    .sequence
                    .checked_add(run.count)
                    .zip(run.llsn.checked_add(run.count));
                let dense = runs.last().is_none_or(|last: &Run| {
                    last.sequence + last.count == run.sequence && last.llsn + last.count <= run.llsn
                });
                if ends.is_none() || run.count == 0 || !dense {
                    return Err(take.error("producer runs are not dense"));
                }
                runs.push(run);
            }
            windows.insert(id, Window { epoch, runs });
        }
        let runs = windows
            .values()
            .map(|window: &Window| window.runs.len())
            .sum();
        Ok(Self { windows, runs })
    }
}

#[cfg(test)]
mod tests;
