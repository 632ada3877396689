//! Appending records: one at a time into the open batch of their stream, or whole columns.

use std::ops::Range;

use crate::batch::{BatchBuilder, ColumnsRef, Producer, check_columns, encode_columns};
use crate::error::{Error, Result};
use crate::limits::BATCH_RECORDS_MAX;
use crate::wal::format::frame::{Kind, frame_len};
use crate::wal::format::producer::Admission;
use crate::wal::placing::admission::record_bytes;
use crate::wal::placing::appender::{
    Appender, BATCH_TARGET, NewRecord, OpenBatch, Sequenced, Ticket,
};
use crate::wal::placing::bound::RESERVE_SEGMENTS;

impl Appender {
    /// Push one record.
    ///
    /// Fails, with nothing changed, if it is too large, the log is full, or the producer's sequence is
    /// not the next one (a repeat is not an error: the ticket tells the original place).
    pub fn push(
        &mut self,
        stream: u32,
        record: NewRecord<'_>,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        let llsn = self.next_llsn(stream)?;
        // A repeat gets its first place as the answer, also where the log is too full for a new record.
        if let Some(ticket) = self.admit(stream, producer, 1)? {
            return Ok(ticket);
        }
        let continues = self
            .open
            .get(&stream)
            .is_some_and(|open| open.continues(producer));
        let NewRecord {
            value,
            key,
            timestamp,
            headers,
        } = record;
        let bytes = record_bytes(&record);
        // Whether it goes into the open batch. A record that no batch can hold is refused here, before anything
        // changes.
        let joins = match self.open.get(&stream).filter(|_| continues) {
            Some(open) => {
                let len = open.builder.encoded_len_max();
                open.builder.fits(value, key, timestamp, headers)?
                    && len < BATCH_TARGET.min(self.batch_bytes_max() / 2)
                    && len + bytes <= self.batch_bytes_max()
            }
            None => BatchBuilder::new()
                .fits(value, key, timestamp, headers)
                .map(|_| false)?,
        };
        if bytes > self.batch_bytes_max() / 2 {
            Self::check_batch_len(bytes, self.batch_bytes_max())?;
        }
        // Space in the log and in the preamble, before the record gets its number: afterwards nothing may fail.
        self.reserve(Kind::Batch, bytes, RESERVE_SEGMENTS)?;
        self.reserve_state(self.producer_growth(stream, producer, llsn))?;
        // A batch holds one run of one producer, and is closed when it is large enough.
        if !joins {
            self.close_batch(stream)?;
            self.open_batch(stream, producer)?;
        }
        let Some(open) = self.open.get_mut(&stream) else {
            return Err(Error::Closed);
        };
        if let Err(error) = open.builder.push(value, key, timestamp, headers) {
            // It was found to fit. If it does not, the batch may be half changed.
            return self.must(Err(error));
        }
        Ok(Ticket {
            llsn,
            count: 1,
            group: self.group,
        })
    }

    /// Append the given rows of columns at once, as batches of about `target` bytes.
    pub fn append_columns(
        &mut self,
        stream: u32,
        columns: &ColumnsRef<'_>,
        rows: Range<usize>,
        target: usize,
        producer: Option<Sequenced>,
    ) -> Result<Ticket> {
        let count = rows.len() as u64;
        let llsn = self.next_llsn(stream)?;
        if count == 0 {
            // Group 0 is always durable: there is nothing to wait for.
            return Ok(Ticket {
                llsn,
                count: 0,
                group: 0,
            });
        }
        if let Some(ticket) = self.admit(stream, producer, count)? {
            return Ok(ticket);
        }
        let target = target.min(self.batch_bytes_max());
        let ranges: Vec<_> = columns
            .split(rows.clone(), target, BATCH_RECORDS_MAX)
            .collect();
        let sizes: Vec<usize> = ranges
            .iter()
            .map(|range| columns.encoded_len_max(range))
            .collect();
        Self::check_batch_len(
            sizes.iter().copied().max().unwrap_or(0),
            self.batch_bytes_max(),
        )?;
        // All of them before the first one has a number: rows cannot be refused in the middle.
        for range in &ranges {
            check_columns(columns, range)?;
        }
        let bytes = sizes.iter().map(|size| frame_len(*size)).sum();
        self.reserve(Kind::Batch, bytes, RESERVE_SEGMENTS)?;
        self.reserve_state(self.producer_growth(stream, producer, llsn))?;
        // Records of the open batch have lower numbers, so their frame comes first.
        self.close_batch(stream)?;
        for (range, size) in ranges.into_iter().zip(sizes) {
            let records = range.len() as u32;
            let done = (range.start - rows.start) as u64;
            let sequenced = producer.map(|(id, first)| (id, first + done));
            let from = sequenced.map_or(Producer::default(), |(id, sequence)| Producer {
                id: id.id,
                epoch: id.epoch,
                base_sequence: sequence,
            });
            let compression = self.compression(stream);
            let placed = self.place_batch(stream, records, sequenced, size, |out| {
                encode_columns(columns, range, from, compression, out)
            });
            // Rows of earlier batches may be placed, so the rest can no longer be refused.
            self.must(placed)?;
        }
        Ok(Ticket {
            llsn,
            count,
            group: self.group,
        })
    }

    pub(crate) fn admit(
        &self,
        stream: u32,
        producer: Option<Sequenced>,
        count: u64,
    ) -> Result<Option<Ticket>> {
        let Some((id, sequence)) = producer else {
            return Ok(None);
        };
        let placed = &self.state.stream(stream)?.producers;
        // Records of the open batch count as stored: the next sequence is the one behind them.
        let admission = match self.open.get(&stream).and_then(OpenBatch::pending) {
            Some(pending) => pending.admit(placed, id, sequence, count)?,
            None => placed.admit(id, sequence, count)?,
        };
        match admission {
            Admission::New => Ok(None),
            // The original may still be on its way, so the caller waits for all that was appended up to now.
            Admission::Repeat(llsn) => Ok(Some(Ticket {
                llsn,
                count,
                group: self.latest(),
            })),
        }
    }
}
