//! Streams that are replicas: whole batches in, commits that readers see at once.
//!
//! # Theory of operation
//!
//! A replica gets batches as a client or another replica encoded them. They are verified before the lock is
//! taken, and all of one call are placed under it, or none: windows, numbers and room are checked for all
//! first. What a commit says was decided by a majority elsewhere. So readers see it as soon as the records are
//! durable here; its own frame need not be.

use crate::batch::BatchView;
use crate::error::{Error, Result};
use crate::wal::format::change::{Change, Restart};
use crate::wal::format::frame::{FrameHeader, Kind, frame_len};
use crate::wal::format::number::fits;
use crate::wal::format::order::ORDER_FRAME;
use crate::wal::format::producer::{Admission, ProducerId, Producers};
use crate::wal::format::stream::Stream;
use crate::wal::placing::appender::{Appender, Sequenced};
use crate::wal::placing::bound::{CATALOG_RESERVE, RESERVE_SEGMENTS};
use crate::wal::write::store::Store;

/// An encoded batch, verified from its head to its last byte.
pub struct Verified<'a> {
    bytes: &'a [u8],
    count: u32,
    producer: Option<Sequenced>,
    timestamps: (i64, i64),
    head: usize,
    nulls: bool,
}

/// Where batches go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Behind what is there.
    Next,
    /// As `Next`, but they may be there already.
    Again,
    /// Exactly there, where the primary put them.
    At(u64),
}

/// Where a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// LLSN of its first record.
    pub llsn: u64,
    /// Its records.
    pub count: u32,
    /// Whether this call put it there; else it is a repeat.
    pub new: bool,
}

impl<'a> Verified<'a> {
    /// Verify `bytes` as exactly one batch.
    pub fn check(bytes: &'a [u8]) -> Result<Self> {
        let view = BatchView::parse(bytes)?;
        let head = view.head();
        // Only a repair declares records lost; nobody appends a hole.
        head.check_there(0)?;
        let from = head.producer();
        let id = ProducerId {
            id: from.id,
            epoch: from.epoch,
        };
        Ok(Self {
            bytes,
            count: head.count(),
            producer: (from.id != 0).then_some((id, from.base_sequence)),
            timestamps: (head.min_timestamp(), head.max_timestamp()),
            head: head.head_len(),
            nulls: head.counts().has_null_values(),
        })
    }

    /// How many records it has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether a value in it is null, which earlier versions do not know.
    pub fn has_nulls(&self) -> bool {
        self.nulls
    }

    /// Decide on this batch where `next` is the next LLSN. Of what may have been appended before (`again`) a
    /// producer that may have been forgotten is refused with [`Error::UnknownProducer`].
    pub fn admit(&self, windows: &Producers, next: u64, again: bool) -> Result<Admission> {
        check_range(self, next)?;
        match self.producer {
            Some((ProducerId { id, .. }, _)) if again && windows.may_have_forgotten(id) => {
                // It may have been stored before its producer was forgotten. Storing it again could duplicate it.
                Err(Error::UnknownProducer { id })
            }
            Some((id, sequence)) => windows.admit(id, sequence, self.count.into()),
            None => Ok(Admission::New),
        }
    }

    /// Remember that it was placed at `llsn`, where all before `committed` is.
    pub fn note(&self, windows: &mut Producers, llsn: u64, committed: u64) {
        if let Some((id, sequence)) = self.producer {
            windows.note(id, sequence, llsn, self.count.into(), committed);
        }
    }

    fn change(&self) -> Change {
        Change::Batch {
            count: self.count,
            producer: self.producer,
        }
    }
}

impl Appender {
    /// Place batches, each behind the other. What a producer repeats is not placed again, and what skips one
    /// of its sequences is refused, unless [`Placement::At`] says where they are. `reserve` segments are left
    /// alone.
    pub fn append_batches(
        &mut self,
        stream: u32,
        epoch: u64,
        at: Placement,
        batches: &[Verified<'_>],
        reserve: u64,
    ) -> Result<Vec<Arrival>> {
        self.close_batch(stream)?;
        let plan = plan(self.state.stream(stream)?, epoch, at, batches)?;
        let (mut bytes, mut growth, mut frames) = (0, 0, Vec::new());
        for (batch, arrival) in batches.iter().zip(&plan).filter(|(_, to)| to.new) {
            Self::check_batch_len(batch.bytes.len(), self.batch_bytes_max())?;
            let header = Self::header(Kind::Batch, stream, batch.count, epoch, arrival.llsn);
            bytes += frame_len(batch.bytes.len());
            growth += self.state.growth(&header, &batch.change());
            frames.push((header, batch));
        }
        // Streams that have to leave the order first do so by frames of their own.
        let leaving = self.orders.room(stream, bytes as u64);
        self.reserve(Kind::Batch, bytes + leaving, reserve)?;
        self.reserve_state(growth)?;
        self.make_order_room(stream, bytes)?;
        for (header, batch) in frames {
            let placed = self.place_verified(header, batch);
            // Batches before it are placed, so the rest can no longer be refused.
            self.must(placed)?;
        }
        Ok(plan)
    }

    fn place_verified(&mut self, header: FrameHeader, batch: &Verified<'_>) -> Result<()> {
        let frame = self.place(header, batch.bytes.len(), |out| {
            out.extend_from_slice(batch.bytes);
            Ok(batch.head)
        })?;
        self.fold(&header, &frame, &batch.change(), batch.timestamps)
    }
}

/// Refuse a batch whose positions or sequences no log can have.
fn check_range(batch: &Verified<'_>, next: u64) -> Result<()> {
    let count = u64::from(batch.count);
    let in_range = batch.producer.is_none_or(|(_, first)| fits(first, count));
    if fits(next, count) && in_range {
        return Ok(());
    }
    let reason = "positions or producer sequences would pass 2**62";
    Err(Error::InvalidArgument(reason.into()))
}

/// Where each batch goes; refuses all of them if one cannot go there.
fn plan(
    stream: &Stream,
    epoch: u64,
    at: Placement,
    batches: &[Verified<'_>],
) -> Result<Vec<Arrival>> {
    stream.check_epoch(epoch)?;
    let mut next = stream.next;
    // The primary has decided, by its windows, that these are new, and where they go.
    let placed = matches!(at, Placement::At(_));
    if let Placement::At(given) = at
        && given != next
    {
        let (what, expected) = ("LLSN", next);
        return Err(Error::NotDense {
            what,
            given,
            expected,
        });
    }
    // What one batch does to the windows decides on the next one.
    let mut noted = (!placed && batches.len() > 1).then(|| stream.producers.clone());
    let mut plan = Vec::with_capacity(batches.len());
    for batch in batches {
        let windows = noted.as_ref().unwrap_or(&stream.producers);
        let count = u64::from(batch.count);
        let admission = if placed {
            check_range(batch, next)?;
            Admission::New
        } else {
            batch.admit(windows, next, at == Placement::Again)?
        };
        let (llsn, new) = match admission {
            Admission::New => (next, true),
            Admission::Repeat(llsn) => (llsn, false),
        };
        plan.push(Arrival {
            llsn,
            count: batch.count,
            new,
        });
        if new {
            if let Some(windows) = &mut noted {
                batch.note(windows, llsn, stream.settled());
            }
            next += count;
        }
    }
    Ok(plan)
}

impl Store {
    /// Append verified batches to a stream, all of them or none. A repeat of a producer's append is told where
    /// it was stored.
    pub fn append_batches(
        &self,
        stream: u32,
        epoch: u64,
        batches: &[Verified<'_>],
    ) -> Result<Vec<Arrival>> {
        self.arrive(stream, epoch, Placement::Next, batches)
    }

    /// As [`Store::append_batches`], of what may have been appended before: refused with
    /// [`Error::UnknownProducer`] if its producer may have been forgotten since.
    pub fn repeat_batches(
        &self,
        stream: u32,
        epoch: u64,
        batches: &[Verified<'_>],
    ) -> Result<Vec<Arrival>> {
        self.arrive(stream, epoch, Placement::Again, batches)
    }

    /// Append verified batches exactly at `llsn`, where the primary put them.
    pub fn place_batches(
        &self,
        stream: u32,
        epoch: u64,
        llsn: u64,
        batches: &[Verified<'_>],
    ) -> Result<()> {
        self.arrive(stream, epoch, Placement::At(llsn), batches)
            .map(|_| ())
    }

    /// As [`Store::place_batches`], where records find no room from the room that they leave alone: for
    /// what frees space, such as the entries of a Raft group that decides on trims.
    pub fn place_reserved(
        &self,
        stream: u32,
        epoch: u64,
        llsn: u64,
        batches: &[Verified<'_>],
    ) -> Result<()> {
        match self.place_batches(stream, epoch, llsn, batches) {
            // Go on with the room that records leave alone.
            Err(Error::LogFull { .. }) => {}
            other => return other,
        }
        self.allow_nulls(batches.iter().any(|batch| batch.nulls))?;
        let place = || {
            let mut inner = self.guard()?;
            self.arrived(&mut inner);
            let appender = &mut inner.appender;
            let at = Placement::At(llsn);
            appender.append_batches(stream, epoch, at, batches, CATALOG_RESERVE)
        };
        loop {
            match place() {
                Err(Error::LogFull { .. }) if self.ensure_slot()? => {}
                other => return other.map(|_| ()),
            }
        }
    }

    fn arrive(
        &self,
        stream: u32,
        epoch: u64,
        at: Placement,
        batches: &[Verified<'_>],
    ) -> Result<Vec<Arrival>> {
        self.allow_nulls(batches.iter().any(|batch| batch.nulls))?;
        let bytes: usize = batches.iter().map(|batch| batch.bytes.len() + 1024).sum();
        let mut inner = self.admit(Some(stream), bytes)?;
        self.arrived(&mut inner);
        inner
            .appender
            .append_batches(stream, epoch, at, batches, RESERVE_SEGMENTS)
    }

    /// Say that a stream with explicit commits is one of log `log`: those share one order, and of what is
    /// pending of them a reader of the files never has to hold more than the budget.
    pub fn share_order(&self, stream: u32, log: u128) -> Result<()> {
        let mut inner = self.guard()?;
        let appender = &mut inner.appender;
        // Without commits there is nothing to put in order.
        if !appender.state.stream(stream)?.explicit_commit {
            let reason = "only streams with explicit commits share an order";
            return Err(Error::InvalidArgument(reason.into()));
        }
        if appender.orders.log_of(stream) == Some(log) {
            return Ok(());
        }
        appender.reserve_state(ORDER_FRAME)?;
        appender.orders.register(&appender.state, stream, log);
        appender.join_order(stream)
    }

    /// Begin a log anew, empty. Returns its new stream; the old one is gone when [`Store::latest`] is durable.
    pub fn restart(&self, id: u128, epoch: u64, restart: Restart) -> Result<u32> {
        let first = restart.first;
        let change = Change::Restart(id, restart);
        loop {
            let (stream, log) = {
                let appender = &self.guard()?.appender;
                let old = appender.state.logs.get(&id).map(|log| log.stream);
                let log = old.and_then(|old| appender.orders.log_of(old));
                (appender.state.next_stream, log)
            };
            match self.change(stream, Some(epoch), first, &change) {
                // Another thread took the number.
                Err(Error::NotDense { .. }) => {}
                Err(error) => break Err(error),
                Ok(_) => {
                    if let Some(log) = log {
                        self.share_order(stream, log)?;
                    }
                    break Ok(stream);
                }
            }
        }
    }

    /// What the producers of a stream stored below `from`, encoded.
    pub fn producers_below(&self, stream: u32, from: u64) -> Result<Vec<u8>> {
        let mut inner = self.guard()?;
        inner.appender.close_batch(stream)?;
        let state = inner.appender.state.stream(stream)?;
        let (mut producers, committed) = (state.producers.clone(), state.settled());
        drop(inner);
        producers.cut(from);
        if from <= committed {
            producers.settle();
        }
        let mut out = Vec::with_capacity(producers.encoded_len());
        producers.encode(&mut out);
        Ok(out)
    }

    /// The stream as of the last placed frame, and where what is durable of it ends.
    pub fn with_stream<R>(&self, stream: u32, f: impl FnOnce(&Stream, u64) -> R) -> Result<R> {
        let inner = self.guard()?;
        let state = inner.appender.state.stream(stream)?;
        let shown = self.view.stream(stream)?.range();
        Ok(f(state, inner.durable_end(stream, state, shown)))
    }
}
