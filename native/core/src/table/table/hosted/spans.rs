//! The log as it is given: parts of encoded batches, with their positions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::follow::Applier;
use super::super::table::Table;
use crate::batch::BatchView;
use crate::error::{Error, Result};

/// Some records of an encoded batch.
#[derive(Clone, Copy, Debug)]
pub struct LogSpan<'a> {
    /// The batch.
    pub batch: &'a [u8],
    /// Position of the first of these records.
    pub first: u64,
    /// Records of the batch before it.
    pub skip: u32,
    /// How many they are.
    pub records: u32,
}

impl LogSpan<'_> {
    /// Position behind the last one.
    fn next(&self) -> Result<u64> {
        let next = self.first.checked_add(self.records.into());
        next.filter(|_| self.first > 0 && self.records > 0)
            .ok_or_else(|| {
                let (first, records) = (self.first, self.records);
                Error::InvalidArgument(format!("{records} records at position {first}"))
            })
    }
}

impl Table {
    /// Position of the first record that it has to be given next.
    pub(super) fn wanted(&self) -> u64 {
        let wanted = self.position().min(self.counted(&self.indexes.load_full())) + 1;
        match self.unproven.load(Ordering::Acquire) {
            0 => wanted,
            unproven => wanted.min(unproven),
        }
    }

    /// Want to be given the record once more at which it counted last, if the log still has it: so it is known whether it is still
    /// the same log.
    pub(super) fn prove_from(&self, first: u64) {
        let counters = self.counters.lock();
        let is_there = counters.last != 0 && counters.position >= first;
        let position = if is_there { counters.position } else { 0 };
        self.unproven.store(position, Ordering::Release);
    }

    /// Apply what the log has next, all of it or nothing. What was applied before is passed over.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where something is left out, or a batch has fewer records; [`Error::Malformed`] for
    /// what is no batch; [`Error::Corruption`] where the log is not the one that the table was made of; those of [`Tree::apply`](crate::table::tree::Tree::apply).
    pub(super) fn apply_spans(&self, spans: &[LogSpan<'_>]) -> Result<()> {
        let following = &mut *self.following.lock();
        self.primary.check_wanted()?;
        let Some(first) = spans.first() else {
            return Ok(());
        };
        let indexes = self.indexes.load_full();
        let wanted = self.wanted();
        if first.first > wanted {
            let first = first.first;
            let text = format!("the log goes on at {wanted} for the table, not at {first}");
            return Err(Error::InvalidArgument(text));
        }
        // After an error these records are given and counted again.
        let mut counted = self.counters();
        let mut applier = Applier::new(
            &self.options.deletes,
            Some((&self.primary, &mut counted)),
            indexes.iter().map(Arc::as_ref),
            following.extractor(&indexes),
        );
        let mut next = first.first;
        for span in spans {
            if span.first != next {
                let text = format!("position {} comes where {next} should", span.first);
                return Err(Error::InvalidArgument(text));
            }
            next = span.next()?;
            let view = BatchView::parse(span.batch)?;
            let end = span.skip.checked_add(span.records);
            let Some(end) = end.filter(|end| *end <= view.count()) else {
                let (skip, records, count) = (span.skip, span.records, view.count());
                let text = format!("{records} records behind {skip} of a batch with {count}");
                return Err(Error::InvalidArgument(text));
            };
            applier.records(&view, span.skip..end, span.first)?;
        }
        applier.apply(next - 1)?;
        *self.counters.lock() = counted;
        if next > self.unproven.load(Ordering::Acquire) {
            self.unproven.store(0, Ordering::Release);
        }
        Ok(())
    }
}
