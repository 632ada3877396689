//! Whether a log is still the one that a table was made of.
//!
//! A table takes in what is durable in its log. So a log that ends before the table does, or has another record where the table
//! counted last, has lost its end: an older copy was put in its place, or a repair could not save what was there. What is
//! appended then gets positions that the table has passed, and would never come in. Such a table is refused.
//!
//! The end of the log alone would not do: it grows again, as a table that is refused does not keep anybody from appending. But the
//! table holds the log from behind what it counted, so the record to compare stays until the table is opened.

use std::path::Path;

use twox_hash::XxHash3_64;

use super::counters::Counters;
use super::payload;
use super::table::Table;
use crate::batch::{BatchView, RecordRef};
use crate::error::{Error, Result};
use crate::wal::{Position, StreamView, View};

/// By what a table knows the record again at which it counted last; never 0.
pub(super) fn digest_of(record: &RecordRef<'_>) -> u64 {
    let mut bytes = Vec::new();
    // The length also says whether there is a key.
    let len = record.key.map_or(u64::MAX, |key| key.len() as u64);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(record.key.unwrap_or_default());
    let (value, headers) = (record.value, record.headers.clone());
    payload::encode(record.timestamp, value, headers, &mut bytes);
    XxHash3_64::oneshot(&bytes).max(1)
}

impl Table {
    /// Check that the log has what the table has, as far as the log can be read there.
    ///
    /// # Errors
    /// [`Error::Corruption`] that says what the log lacks, if it has not.
    pub fn check_origin(&self, view: &View, stream: &StreamView) -> Result<()> {
        self.check_behind(stream.range().end)?;
        self.counters().check_in(view, stream, &self.dir)
    }

    /// Last position of which a file or what was counted has something.
    pub(super) fn reached(&self) -> u64 {
        let flushed = self.trees().into_iter().map(|tree| tree.flushed());
        flushed.fold(self.counters.lock().position, u64::max)
    }

    /// Check that no tree, and nothing that was counted, reaches beyond a log that ends before `end`.
    ///
    /// # Errors
    /// [`Error::Corruption`].
    pub(super) fn check_behind(&self, end: u64) -> Result<()> {
        let position = self.reached();
        if position < end || position <= self.base {
            return Ok(());
        }
        let reason = format!(
            "the table has position {position}, and its log ends at {end}: an older copy of the log was put in its place, or its end was lost"
        );
        Err(Error::corrupt(&self.dir, 0, reason))
    }
}

impl Counters {
    /// Check that a log has the record that was counted last, if that is known, and the log can be read there. `dir` is that of
    /// the table.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it has another one.
    pub(super) fn check_in(&self, view: &View, stream: &StreamView, dir: &Path) -> Result<()> {
        let (position, range) = (self.position, stream.range());
        if self.last == 0 || !(range.first..range.end).contains(&position) {
            return Ok(());
        }
        let mut place = Position::default();
        // A trim may have been faster, and damage of the log is told to whoever reads it. The table needs neither.
        let Ok(batches) = view.read(stream, position, position + 1, 1, &mut place) else {
            return Ok(());
        };
        for batch in &batches {
            if let Ok(parsed) = BatchView::parse_verified(batch.bytes())
                && !parsed.head().is_hole()
                && let Some(record) = parsed.record(batch.begin)
            {
                self.check_last(&record, dir)?;
            }
        }
        Ok(())
    }

    /// Check that the log has the record that was counted last, if that is known. `dir` is that of the table.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it has another one.
    pub(super) fn check_last(&self, record: &RecordRef<'_>, dir: &Path) -> Result<()> {
        if self.last == 0 || self.last == digest_of(record) {
            return Ok(());
        }
        let reason = format!(
            "its log has another record at position {}: an older copy of the log was put in its place, or its end was lost, and others were appended",
            self.position
        );
        Err(Error::corrupt(dir, 0, reason))
    }
}
