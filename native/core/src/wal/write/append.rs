//! Appending to a store: waiting until records may be placed, and placing them.

use std::ops::Range;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use crate::batch::{ColumnsRef, check_columns, parse_head};
use crate::error::{Error, Result};
use crate::limits::BATCH_RECORDS_MAX;
use crate::wal::placing::admission::{columns_bytes, record_bytes};
use crate::wal::placing::appender::{Appender, NewRecord, Sequenced, Ticket};
use crate::wal::write::demand::Room;
use crate::wal::write::store::{Inner, Store};

impl Store {
    /// Append one record; it is durable once [`Store::wait`] returns for the ticket.
    pub fn append(
        &self,
        stream: u32,
        record: NewRecord<'_>,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        self.allow_nulls(record.has_null_values())?;
        let bytes = record_bytes(&record);
        let mut inner = match self.admit(Some(stream), bytes) {
            // No trim would help a record that no batch can hold, so the caller is told that instead.
            Err(full @ Error::LogFull { .. }) => {
                let max = self.guard()?.appender.batch_bytes_max();
                return Appender::check_batch_len(bytes, max).and(Err(full));
            }
            admitted => admitted?,
        };
        self.arrived(&mut inner);
        inner.appender.push(stream, record, producer)
    }

    /// Before null values are placed: earlier builds would take their batch for a torn write and cut it, so the
    /// manifest says first that there may be some, and those builds refuse the directory. Each append does it by
    /// itself; a caller who must not wait for a disk may do it beforehand.
    pub fn allow_nulls(&self, some: bool) -> Result<()> {
        if !some || self.nulls.load(Ordering::Acquire) {
            return Ok(());
        }
        // A store that failed or is closed changes no file.
        drop(self.guard()?);
        self.files.lock().allow_nulls()?;
        self.nulls.store(true, Ordering::Release);
        Ok(())
    }

    /// Count an append, and tell a leader when the crowd is complete.
    pub(crate) fn arrived(&self, inner: &mut Inner) {
        inner.arrivals += 1;
        // Without this the leader sleeps to the end of its slice though everybody is there.
        if inner.gathering && inner.arrivals >= inner.crowd {
            self.gathered.notify_one();
        }
    }

    /// Whether an append of about `bytes` would return without waiting for anything.
    pub fn would_wait(&self, stream: u32, bytes: usize) -> bool {
        let inner = self.inner.lock();
        let crowded = inner.bulk.contains(&stream)
            || inner.unsynced() > self.options.unsynced_bytes_max
            || inner.stalled().is_some();
        // An append that will be refused does not wait.
        crowded || !matches!(inner.room(bytes), Ok(Room::Ready) | Err(_))
    }

    /// Wait at most `timeout` for what [`Store::would_wait`] speaks of, helping where possible.
    pub fn wait_for_room(
        &self,
        stream: u32,
        bytes: usize,
        timeout: std::time::Duration,
    ) -> Result<()> {
        let mut inner = self.guard()?;
        let stalled = inner.stalled().is_some();
        let full = stalled || inner.unsynced() > self.options.unsynced_bytes_max;
        // Write what has gathered instead of waiting for another thread to do so.
        if full && self.may_lead(&inner) {
            self.lead(&mut inner)
        } else if full || inner.bulk.contains(&stream) {
            self.flushed.wait_for(&mut inner, timeout);
            inner.check()
        } else {
            // An append that will be refused does not wait here either. It says why itself: this call does not
            // know what no batch can hold.
            let Ok(room) = inner.room(bytes) else {
                return Ok(());
            };
            drop(inner);
            self.make(room, bytes)
        }
    }

    /// Wait until `bytes` of records may be appended: no bulk append of somebody else to `stream`,
    /// not too much unsynced, and a segment for them.
    pub(crate) fn admit(&self, stream: Option<u32>, bytes: usize) -> Result<MutexGuard<'_, Inner>> {
        let mut inner = self.guard()?;
        loop {
            if inner.stalled().is_some() && self.may_lead(&inner) {
                // A group waits for a descriptor. Nothing is placed behind it, so an append that fails here has
                // changed nothing and may be tried again.
                self.lead(&mut inner)?;
                inner.check()?;
                continue;
            }
            let bulk = stream.is_some_and(|stream| inner.bulk.contains(&stream));
            // Memory is bounded: an append that is faster than the disk waits here, or leads a sync itself.
            if bulk || inner.unsynced() > self.options.unsynced_bytes_max {
                inner = self.make_room(inner)?;
                continue;
            }
            let room = inner.room(bytes)?;
            if room == Room::Ready {
                // The lock is kept, so that nobody else takes the room that was found.
                return Ok(inner);
            }
            drop(inner);
            // Without the lock: it may write a whole segment of zeros. Others may take the room, so look again.
            self.make(room, bytes)?;
            inner = self.guard()?;
        }
    }

    /// Largest piece of a bulk append that is placed at once.
    pub fn bulk_bytes_max(&self) -> usize {
        let segment = self.inner.lock().appender.sizes.segment_bytes as usize;
        self.options.unsynced_bytes_max.min(segment)
    }

    /// Append rows of columns in batches of about `target` bytes. They get consecutive LLSNs; after a
    /// crash a prefix of them may be there.
    pub fn append_columns(
        &self,
        stream: u32,
        columns: &ColumnsRef<'_>,
        rows: Range<usize>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        self.place_columns(Some(stream), stream, columns, rows, target, producer)
    }

    /// Append a piece of a bulk append, see [`Store::begin_bulk`].
    pub fn append_piece(
        &self,
        stream: u32,
        columns: &ColumnsRef<'_>,
        rows: Range<usize>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        // The bulk append itself is what others wait for.
        self.place_columns(None, stream, columns, rows, target, producer)
    }

    fn place_columns(
        &self,
        waits_for: Option<u32>,
        stream: u32,
        columns: &ColumnsRef<'_>,
        rows: Range<usize>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        self.allow_nulls(columns.has_null_values(&rows))?;
        let mut inner = self.admit(waits_for, columns_bytes(columns, &rows, target))?;
        self.arrived(&mut inner);
        inner
            .appender
            .append_columns(stream, columns, rows, target, producer)
    }

    /// Refuse columns that could not be appended to their end, before any of them is.
    pub fn check_columns(&self, columns: &ColumnsRef<'_>) -> Result<()> {
        let max = self.inner.lock().appender.batch_bytes_max();
        for rows in columns.split(0..columns.len, max, BATCH_RECORDS_MAX) {
            Appender::check_batch_len(columns.encoded_len_max(&rows), max)?;
            check_columns(columns, &rows)?;
        }
        Ok(())
    }

    /// Begin a bulk append: until [`Store::end_bulk`] other appends to the stream wait, so that the
    /// pieces get consecutive positions.
    pub fn begin_bulk(&self, stream: u32) -> Result<()> {
        let mut inner = self.guard()?;
        // One bulk append to a stream at a time, or their pieces would alternate.
        while !inner.bulk.insert(stream) {
            self.flushed.wait(&mut inner);
            inner.check()?;
        }
        Ok(())
    }

    /// End a bulk append.
    pub fn end_bulk(&self, stream: u32) {
        self.inner.lock().bulk.remove(&stream);
        self.flushed.notify_all();
    }

    /// Append an encoded batch at exactly this LLSN (replication, salvage).
    pub fn append_encoded(
        &self,
        stream: u32,
        epoch: u64,
        llsn: u64,
        batch: &[u8],
    ) -> Result<Ticket> {
        self.allow_nulls(parse_head(batch)?.counts().has_null_values())?;
        // 1024: more than a frame header and padding take.
        let mut inner = self.admit(None, batch.len() + 1024)?;
        inner.appender.append_encoded(stream, epoch, llsn, batch)
    }
}
