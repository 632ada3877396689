//! Appending many records: checked as a whole, then placed piece by piece.
//!
//! Positions of one call are consecutive, and what is refused changes nothing. Only a stream of Arrow
//! batches that is longer than [`AHEAD_BYTES`] is not checked to its end before its beginning is placed,
//! and a log may turn out to be full half-way; the error then carries a note of what was appended.

use std::collections::VecDeque;

use braidlog_core::batch::ColumnsRef;
use braidlog_core::wal::{self, Sequenced, Ticket};
use braidlog_core::{Error, Result};
use pyo3::prelude::*;

use crate::append::pieces;
use crate::arrow::{Columns, RecordBatches, columns_of};
use crate::error::to_py;

/// Batches of bulk appends: large enough for Arrow consumers, small enough to place many in a segment.
const BATCH_BYTES: usize = 1280 << 10;

/// A bulk append is placed in pieces of this size.
const PIECE_BYTES: usize = 8 << 20;

/// Arrow batches that are checked before the first of them is placed.
const AHEAD_BYTES: usize = 64 << 20;

/// A failure, and what had been appended before it.
pub struct Broken {
    error: Error,
    placed: Ticket,
}

impl Broken {
    /// The Python exception, with a note if something was appended.
    pub fn into_py(self, py: Python<'_>) -> PyErr {
        let error = to_py(self.error);
        let Ticket { llsn, count, .. } = self.placed;
        if count > 0 {
            let note = format!("the first {count} records were appended, from position {llsn} on");
            // A note that cannot be added is not worth another error.
            let _ = error.value(py).call_method1("add_note", (note,));
        }
        error
    }
}

/// One call that appends many records to a stream.
pub struct Bulk<'a> {
    store: &'a wal::Store,
    stream: u32,
    producer: Option<Sequenced>,
    placed: Ticket,
}

impl<'a> Bulk<'a> {
    /// Nothing appended yet.
    pub fn new(store: &'a wal::Store, stream: u32, producer: Option<Sequenced>) -> Self {
        let placed = Ticket {
            llsn: 0,
            count: 0,
            group: 0,
        };
        Self {
            store,
            stream,
            producer,
            placed,
        }
    }

    /// Append columns.
    pub fn columns(mut self, columns: &ColumnsRef<'_>) -> std::result::Result<Ticket, Broken> {
        self.run(|bulk| {
            bulk.store.check_columns(columns)?;
            bulk.place(columns)
        })
    }

    /// Append Arrow batches; `now` is the timestamp of records without one.
    pub fn batches(
        mut self,
        mut batches: RecordBatches,
        now: i64,
    ) -> std::result::Result<Ticket, Broken> {
        self.run(|bulk| {
            let (store, stream) = (bulk.store, bulk.stream);
            let mut rows = 0;
            let mut next = || -> Result<Option<Columns>> {
                for batch in batches.by_ref() {
                    let columns = columns_of(&batch?, rows, now)?;
                    rows += columns.len() as u64;
                    if !columns.is_empty() {
                        store.check_columns(&columns.borrow())?;
                        return Ok(Some(columns));
                    }
                }
                Ok(None)
            };
            let (mut ahead, mut bytes) = (VecDeque::new(), 0);
            while bytes < AHEAD_BYTES {
                let Some(columns) = next()? else { break };
                bytes += columns.borrow().encoded_len_max(&(0..columns.len()));
                ahead.push_back(columns);
            }
            // The stream is the caller's code and may be slow: others wait only once it has begun.
            store.begin_bulk(stream)?;
            let placed = loop {
                let columns = match ahead.pop_front() {
                    Some(columns) => Ok(Some(columns)),
                    None if bytes < AHEAD_BYTES => Ok(None),
                    None => next(),
                };
                match columns {
                    Ok(None) => break Ok(()),
                    Ok(Some(columns)) => {
                        if let Err(error) = bulk.place_pieces(&columns.borrow()) {
                            break Err(error);
                        }
                    }
                    Err(error) => break Err(error),
                }
            };
            store.end_bulk(stream);
            placed
        })
    }

    fn run(
        &mut self,
        append: impl FnOnce(&mut Self) -> Result<()>,
    ) -> std::result::Result<Ticket, Broken> {
        let done = append(self).and_then(|()| {
            if self.placed.count == 0 {
                self.placed.llsn = self.store.next_llsn(self.stream)?;
            }
            Ok(())
        });
        let placed = self.placed;
        done.map(|()| placed)
            .map_err(|error| Broken { error, placed })
    }

    fn place(&mut self, columns: &ColumnsRef<'_>) -> Result<()> {
        let bytes = PIECE_BYTES.min(self.store.bulk_bytes_max());
        if pieces(columns, bytes).len() > 1 {
            self.store.begin_bulk(self.stream)?;
            let placed = self.place_pieces(columns);
            self.store.end_bulk(self.stream);
            return placed;
        }
        if columns.len > 0 {
            let (rows, producer) = (0..columns.len, self.producer);
            let append = wal::Store::append_columns;
            self.placed = append(
                self.store,
                self.stream,
                columns,
                rows,
                BATCH_BYTES,
                producer,
            )?;
        }
        Ok(())
    }

    /// Place columns behind what is placed; others do not append to the stream meanwhile.
    fn place_pieces(&mut self, columns: &ColumnsRef<'_>) -> Result<()> {
        let bytes = PIECE_BYTES.min(self.store.bulk_bytes_max());
        for rows in pieces(columns, bytes) {
            let done = self.placed.count;
            let producer = self.producer.map(|(id, sequence)| (id, sequence + done));
            self.check_follows(producer)?;
            let (stream, store) = (self.stream, self.store);
            let piece = store.append_piece(stream, columns, rows, BATCH_BYTES, producer)?;
            if done == 0 {
                self.placed = piece;
            } else if piece.llsn == self.placed.llsn + done {
                self.placed.count += piece.count;
                self.placed.group = piece.group;
            } else {
                return Err(self.scattered());
            }
        }
        Ok(())
    }

    /// A repeat of an append of which only the beginning was stored goes on only where that ends.
    fn check_follows(&self, producer: Option<Sequenced>) -> Result<()> {
        let Some((id, sequence)) = producer.filter(|_| self.placed.count > 0) else {
            return Ok(());
        };
        let (next, _) = self.store.producer(self.stream, id.id)?;
        let fresh = next == sequence;
        let end = self.placed.llsn + self.placed.count;
        if fresh && self.store.next_llsn(self.stream)? != end {
            return Err(self.scattered());
        }
        Ok(())
    }

    fn scattered(&self) -> Error {
        let stored = self.placed.count;
        Error::InvalidArgument(format!(
            "the first {stored} records were stored by an earlier append and others came after them; \
             send the rest as an append of its own"
        ))
    }
}
