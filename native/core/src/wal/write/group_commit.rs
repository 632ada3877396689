//! Group commit: leaders, followers, and what happens when a group is durable.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::error::{Error, Result};
use crate::wal::placing::group::{Effect, Group};
use crate::wal::segments::part::Part;
use crate::wal::write::baton::{Baton, Turn};
use crate::wal::write::store::{Flight, Inner, Stalled, Store};

/// How long a leader waits for one more record of the callers it expects.
const GATHER_SLICE: Duration = Duration::from_micros(100);

/// Between attempts to write what lacked a descriptor.
const STALL_PAUSE: Duration = Duration::from_millis(20);

/// A close waits no longer for a descriptor: what is placed is lost then, and the caller is told.
const STALL_MAX: Duration = Duration::from_secs(5);

/// Most slices a leader waits: a few syncs' worth, while records keep coming.
const GATHER_SLICES: usize = 20;

/// The moment at which a wait ends that may be woken any number of times before.
#[expect(
    clippy::disallowed_methods,
    reason = "condition variables wait by this clock, and a wait that is led or found done never reads it; \
              nothing that is stored or decided depends on it"
)]
fn after(timeout: Duration) -> Instant {
    Instant::now() + timeout
}

impl Store {
    /// Begin: write what the open has placed. Nobody else is there yet, so a descriptor that is missing fails the open.
    pub(crate) fn start(self) -> Result<Self> {
        let mut inner = self.guard()?;
        while inner.appender.has_unsealed() {
            self.lead(&mut inner)?;
        }
        self.publish_watermark(&inner)?;
        drop(inner);
        Ok(self)
    }

    /// Make everything appended so far durable.
    pub fn sync(&self) -> Result<()> {
        let latest = self.guard()?.appender.latest();
        self.wait(latest)
    }

    /// As [`Store::sync`], but not for longer than [`STALL_MAX`] for want of a descriptor.
    pub(super) fn sync_last(&self) -> Result<()> {
        let latest = self.guard()?.appender.latest();
        while !self.wait_for(latest, STALL_MAX)? {
            if let Some(error) = self.guard()?.stalled() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The group that makes everything appended so far durable.
    pub fn latest(&self) -> Result<u64> {
        Ok(self.guard()?.appender.latest())
    }

    /// The newest durable group; fails once nothing becomes durable any more.
    pub fn durable(&self) -> Result<u64> {
        Ok(self.guard()?.durable_group)
    }

    /// Make everything appended so far durable in the calling thread, without waiting for others to append.
    pub fn flush(&self) -> Result<()> {
        let latest = {
            let mut inner = self.guard()?;
            while self.may_lead(&inner) && inner.flights.is_empty() {
                match self.lead(&mut inner) {
                    // The wait tries again.
                    Err(error) if error.is_exhausted() => break,
                    led => led?,
                }
            }
            inner.appender.latest()
        };
        self.wait(latest)
    }

    /// Whether the group is durable.
    pub fn is_durable(&self, group: u64) -> Result<bool> {
        let inner = self.inner.lock();
        if inner.durable_group >= group {
            return Ok(true);
        }
        inner.check().map(|()| false)
    }

    /// Wait until the group is durable, leading its sync if nobody does.
    ///
    /// Fails with [`Error::Failed`] if a write failed: whether the records survive is then unknown.
    pub fn wait(&self, group: u64) -> Result<()> {
        while !self.wait_for(group, Duration::from_secs(3600))? {}
        Ok(())
    }

    /// Wait at most `timeout` for the group; false if it is not durable then. Leads if it may.
    pub fn wait_for(&self, group: u64, timeout: Duration) -> Result<bool> {
        Ok(self.wait_turn(group, timeout)?.0)
    }

    /// Like [`Store::wait_for`]; the others that wait for the group wake up when the baton is dropped.
    pub fn wait_turn(&self, group: u64, timeout: Duration) -> Result<(bool, Baton)> {
        let mut inner = self.inner.lock();
        if inner.durable_group >= group {
            return Ok((true, Baton(None)));
        }
        inner.check()?;
        // It is neither gathered nor in flight, and not durable: nothing was placed under this number.
        let Some(turn) = inner.turn(group).cloned() else {
            return Err(Error::InvalidArgument(format!(
                "there is no group {group} yet"
            )));
        };
        inner.waiters += 1;
        let durable = self.wait_locked(&mut inner, &turn, group, timeout);
        inner.waiters -= 1;
        Ok((durable?, Baton(Some(turn))))
    }

    fn wait_locked(
        &self,
        inner: &mut MutexGuard<'_, Inner>,
        turn: &Turn,
        group: u64,
        timeout: Duration,
    ) -> Result<bool> {
        let mut deadline = None;
        while inner.durable_group < group {
            inner.check()?;
            let mut until = None;
            if self.may_lead(inner) {
                self.gather(inner);
                match self.lead(inner) {
                    // No descriptor is left. The group waits as for a slow disk, and is tried again soon.
                    Err(error) if error.is_exhausted() => {
                        until = Some(after(STALL_PAUSE));
                    }
                    led => {
                        led?;
                        continue;
                    }
                }
            }
            // Read as late as here: a caller that leads, or finds its group durable, never reads the clock.
            let deadline = *deadline.get_or_insert_with(|| after(timeout));
            let until = until.map_or(deadline, |until| until.min(deadline));
            // The end of a pause between two attempts is not the end of the wait.
            if turn.wait_until(inner, until).timed_out() && until == deadline {
                return Ok(inner.durable_group >= group);
            }
        }
        Ok(true)
    }

    /// Before leading: let the callers that the last sync released come back with their next records.
    /// Otherwise the first of them would take a sync for itself while the others are still waking up.
    /// A lone caller never waits here, and a crowd that dissolves costs one slice.
    fn gather(&self, inner: &mut MutexGuard<'_, Inner>) {
        // While a sync is in flight records gather anyway. A crowd of one is the caller itself.
        if !inner.flights.is_empty() || inner.crowd <= 1 {
            return;
        }
        inner.gathering = true;
        for _ in 0..GATHER_SLICES {
            let before = inner.arrivals;
            if before >= inner.crowd || inner.check().is_err() {
                break;
            }
            self.gathered.wait_for(inner, GATHER_SLICE);
            if inner.arrivals == before {
                // Nobody came within a slice: the others have other things to do.
                break;
            }
        }
        inner.gathering = false;
    }

    /// Serve as a dedicated sync thread: return the durable group once it is above `seen`, whoever
    /// synced it, syncing what waits meanwhile. `None` once the store is closed or failed.
    pub fn sync_next(&self, seen: u64) -> Option<u64> {
        let mut inner = self.inner.lock();
        loop {
            if inner.check().is_err() {
                return None;
            }
            if inner.durable_group > seen {
                return Some(inner.durable_group);
            }
            if self.may_lead(&inner) {
                // A failure is kept in the state, where the next check finds it.
                if let Err(error) = self.lead(&mut inner)
                    && error.is_exhausted()
                {
                    self.flushed.wait_for(&mut inner, STALL_PAUSE);
                }
            } else {
                self.flushed.wait(&mut inner);
            }
        }
    }

    /// Tell a dedicated sync thread that something waits.
    pub fn nudge(&self) {
        self.flushed.notify_all();
    }

    pub(super) fn may_lead(&self, inner: &Inner) -> bool {
        if inner.gathering {
            // A leader waits for the crowd. A second one would write what that one waits for.
            return false;
        }
        if inner.stalled().is_some() {
            // What lacked a descriptor has to be written before anything that was placed behind it.
            return true;
        }
        // A second sync beside one in flight pays only for many bytes. None goes beside a group that opens a
        // segment: a crash must not leave records in a segment that the manifest does not list.
        inner.appender.has_unsealed()
            && (inner.flights.is_empty()
                || (inner.flights.len() < self.options.sync_depth
                    && inner.appender.unsealed_bytes() >= self.options.gather_bytes
                    && !inner.flights.iter().any(|flight| flight.group.rolls())))
    }

    /// Wait for unsynced bytes to become durable, or make them so.
    pub(super) fn make_room<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
    ) -> Result<MutexGuard<'a, Inner>> {
        if self.may_lead(&inner) {
            self.lead(&mut inner)?;
        } else {
            self.flushed.wait(&mut inner);
        }
        inner.check()?;
        Ok(inner)
    }

    /// Seal the gathered group, write it without the lock, retire what is done.
    pub(crate) fn lead(&self, inner: &mut MutexGuard<'_, Inner>) -> Result<()> {
        // The crowd of the next group is counted from here.
        inner.arrivals = 0;
        let group = self.next_group(inner)?;
        // This group seals the segment to which the ones before it are being written: they have to be done
        // first.
        while group.rolls() && inner.flights.len() > 1 {
            if let Some(error) = inner.stalled() {
                // The one before it waits for a descriptor, and perhaps no other thread is there to write it.
                return Err(self.stall(inner, &group, error));
            }
            self.flushed.wait(inner);
            inner.check()?;
        }
        // A close waits until this is 0: a write that lands after the lock was released would hit the next
        // writer.
        inner.writing += 1;
        let written = MutexGuard::unlocked(inner, || self.write(&group));
        inner.writing -= 1;
        match written {
            Err(error) if error.is_exhausted() && inner.check().is_ok() => {
                // Nothing is lost: the same bytes can be written to the same place later.
                return Err(self.stall(inner, &group, error));
            }
            // What stands on the disk is unknown now, and a second sync would not tell. So it is over.
            Err(error) => return Err(self.fail(inner, &error)),
            Ok(()) => {}
        }
        // Another write has failed meanwhile. This one is durable, but not all that it stands behind.
        if let Err(error) = inner.check() {
            self.wake_all(inner);
            return Err(error);
        }
        if let Some(flight) = inner
            .flights
            .iter_mut()
            .find(|flight| flight.group.number == group.number)
        {
            flight.done = true;
        }
        // In the order of sealing, whatever the device finished first: a group counts once all before it do.
        while inner.flights.front().is_some_and(|flight| flight.done) {
            let Some(flight) = inner.flights.pop_front() else {
                break;
            };
            inner.appender.in_flight = inner.flights.len();
            if let Err(error) = self.retire(inner, &flight.group) {
                return Err(self.fail(inner, &error));
            }
            flight.turn.notify_one();
        }
        // They will be back with their next records: the next leader waits for so many.
        inner.crowd = inner.waiters;
        // One of those who wait for what has gathered since has to lead it.
        inner.turn.notify_one();
        self.flushed.notify_all();
        Ok(())
    }

    /// The group to write: one that lacked a descriptor, or what was gathered.
    fn next_group(&self, inner: &mut MutexGuard<'_, Inner>) -> Result<Arc<Group>> {
        if let Some(flight) = inner
            .flights
            .iter_mut()
            .find(|flight| flight.stalled.is_some())
        {
            flight.stalled = None;
            return Ok(Arc::clone(&flight.group));
        }
        let group = match inner.appender.seal() {
            Ok(group) => Arc::new(group),
            Err(error) => return Err(self.fail(inner, &error)),
        };
        let turn = mem::take(&mut inner.turn);
        inner.flights.push_back(Flight {
            group: Arc::clone(&group),
            turn,
            done: false,
            stalled: None,
        });
        inner.appender.in_flight = inner.flights.len();
        Ok(group)
    }

    /// Leave a group where it is: whoever leads next writes it, from its beginning. What was written of it
    /// lies where nothing is shown, and is written there again.
    fn stall(&self, inner: &mut MutexGuard<'_, Inner>, group: &Group, error: Error) -> Error {
        let mut flights = inner.flights.iter_mut();
        if let Some(flight) = flights.find(|flight| flight.group.number == group.number)
            && let Error::Io { op, path, source } = &error
        {
            flight.stalled = Some(Stalled {
                op,
                path: path.clone(),
                errno: source.raw_os_error(),
            });
        }
        self.wake_all(inner);
        error
    }

    pub(crate) fn fail(&self, inner: &mut MutexGuard<'_, Inner>, error: &Error) -> Error {
        let reason = inner
            .failed
            .get_or_insert_with(|| error.to_string())
            .clone();
        self.view.shut();
        self.wake_all(inner);
        self.slot_wanted.notify_all();
        Error::Failed { reason }
    }

    /// Nothing becomes durable any more: tell everybody.
    pub(super) fn wake_all(&self, inner: &Inner) {
        self.flushed.notify_all();
        inner.turn.notify_all();
        for flight in &inner.flights {
            flight.turn.notify_all();
        }
    }

    pub(crate) fn write(&self, group: &Group) -> Result<()> {
        // Durable before the first byte. Else a crash could leave records behind the close of a log that says it
        // was closed.
        if !self.begun.load(Ordering::Acquire) {
            self.files.lock().begin()?;
            self.begun.store(true, Ordering::Release);
        }
        for part in &group.parts {
            if part.opens {
                self.open_segment(part)?;
            } else {
                self.write_part(part)?;
            }
        }
        Ok(())
    }

    fn write_part(&self, part: &Part) -> Result<()> {
        let writer = part
            .segment
            .take_writer(&*self.view.vfs, self.options.sync_method)?;
        // A recovery looks for lost groups up to the reach, so no write goes beyond it before it is durable.
        self.progress.extend(part)?;
        writer.write_durable_at(&part.buf, part.start.into())?;
        // Not after a failure: the next write must not meet what the system still knows of the failed one.
        part.segment.return_writer(writer);
        Ok(())
    }

    /// Write the first part of a segment, then list it, and seal the one before: only then does it exist.
    pub(crate) fn open_segment(&self, part: &Part) -> Result<()> {
        let mut files = self.files.lock();
        // An attempt that lacked a descriptor has chosen one.
        if part.segment.slot().is_none() {
            let segment = &part.segment;
            let (slot, filled) = files.take_slot(segment.bytes.into(), segment.filled().into())?;
            segment.set_filled(filled as u32);
            segment.set_slot(&self.view.dir, slot);
        }
        self.write_part(part)?;
        // Listed only when the head is durable: an open reads the head of every segment that is listed.
        files.open_segment(&self.view, &part.segment, part.seals.as_ref())?;
        let mut segments = self.view.segments().to_vec();
        segments.push(Arc::clone(&part.segment));
        self.view.set_segments(segments);
        self.view.bound_index_memory();
        Ok(())
    }

    /// Publish a durable group.
    pub(super) fn retire(&self, inner: &mut MutexGuard<'_, Inner>, group: &Group) -> Result<()> {
        for part in &group.parts {
            if part.segment.number == inner.appender.active.segment.number {
                inner.appender.active.durable = part.end;
            }
        }
        inner.durable_group = group.number;
        inner.syncs += 1;
        inner.synced_bytes += group.bytes as u64;
        inner.last_bytes = group.bytes;
        // First the bytes, then the range that lets readers see them: they may replace some that a
        // rollback cut.
        for part in &group.parts {
            self.view.remember(part);
        }
        inner
            .rolled_back
            .retain(|_, (_, until)| *until > group.number);
        for effect in &group.effects {
            match effect {
                Effect::Range(stream, range) => {
                    self.view.publish(*stream, *range);
                    // Committed meanwhile, and durable now.
                    self.show_committed(inner, *stream);
                }
                Effect::Gone(stream) => self.view.remove(*stream),
            }
        }
        if inner.wants_slot() {
            self.slot_wanted.notify_all();
        }
        if let Some(checkpoint) = &group.checkpoint {
            self.progress.checkpoint(checkpoint)?;
        }
        self.publish_watermark(inner)
    }
}
