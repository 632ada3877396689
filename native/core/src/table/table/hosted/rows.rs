//! Answers: rows as one encoded batch, with their positions.

use super::super::payload::Payload;
use super::super::read::TableSnapshot;
use super::super::table::Table;
use crate::batch::{BatchBuilder, Compression};
use crate::error::{Error, Result};
use crate::table::entry::Direction;

/// Which rows a scan is after.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The index; none: by key.
    pub tree: Option<u128>,
    /// First key, as the tree orders them.
    pub begin: &'a [u8],
    /// Key behind the last; none: behind all.
    pub end: Option<&'a [u8]>,
    /// Which way to go.
    pub direction: Direction,
    /// Most rows, one at least.
    pub count_max: usize,
    /// Most bytes of them, but for the last row.
    pub bytes_max: usize,
}

/// Rows as of a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundRows {
    /// What they are as of.
    pub position: u64,
    /// One batch; empty if there are none.
    pub batch: Vec<u8>,
    /// Of each row.
    pub positions: Vec<u64>,
    /// Which of the keys that were asked for they have.
    pub found: Vec<u64>,
    /// How many of these keys were looked up.
    pub looked: u64,
    /// Where a scan goes on: as `begin`, or as `end` in reverse; none: it is over.
    pub next: Option<Vec<u8>>,
}

/// Where to divide a tree, as of a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Divided {
    /// What it is as of.
    pub position: u64,
    /// First key of each part, as the tree orders them, and about how many bytes of files it has.
    pub parts: Vec<(Vec<u8>, u64)>,
    /// About how many bytes of files the whole tree has.
    pub whole: u64,
}

/// Rows that are gathered.
#[derive(Default)]
struct Gathered {
    builder: BatchBuilder,
    positions: Vec<u64>,
}

impl Gathered {
    fn is_full(&self, count_max: usize, bytes_max: usize) -> bool {
        let is_over = self.builder.encoded_len_max() >= bytes_max;
        !self.builder.is_empty() && (self.builder.len() >= count_max || is_over)
    }

    /// Take a row in; false if the batch has no room for it.
    fn push(&mut self, key: &[u8], position: u64, payload: &Payload<'_>) -> Result<bool> {
        let headers: Vec<_> = payload.headers.clone().collect();
        let (value, key, timestamp) = (payload.value, Some(key), payload.timestamp);
        if !self.builder.fits(value, key, timestamp, &headers)? {
            return Ok(false);
        }
        self.builder.push(value, key, timestamp, &headers)?;
        self.positions.push(position);
        Ok(true)
    }

    fn finish(self, position: u64) -> Result<FoundRows> {
        let mut batch = Vec::new();
        if !self.builder.is_empty() {
            batch.reserve(self.builder.encoded_len_max());
            self.builder.encode_into(Compression::None, &mut batch)?;
        }
        Ok(FoundRows {
            position,
            batch,
            positions: self.positions,
            ..FoundRows::default()
        })
    }
}

impl Table {
    /// The table as of a position, or as of what is applied where it is 0; with one index or none.
    fn snapshot_for(&self, tree: Option<u128>, at: u64) -> Result<TableSnapshot> {
        let snapshot = self.snapshot_with(|indexes| {
            let wanted = indexes.iter().filter(|index| Some(index.id) == tree);
            wanted.cloned().collect()
        })?;
        if at == 0 {
            return Ok(snapshot);
        }
        snapshot.at(at)
    }

    /// Look keys up, as many as `bytes_max` allows, one at least.
    ///
    /// # Errors
    /// [`Error::Trimmed`] and [`Error::BeyondEnd`] where it cannot be read at that position.
    pub(super) fn get_rows(&self, keys: &[&[u8]], at: u64, bytes_max: usize) -> Result<FoundRows> {
        let snapshot = self.snapshot_for(None, at)?;
        let (mut rows, mut found, mut looked) = (Gathered::default(), Vec::new(), 0);
        for (number, key) in (0..).zip(keys) {
            if rows.is_full(usize::MAX, bytes_max) {
                break;
            }
            if let Some(row) = snapshot.get(key)? {
                if !rows.push(key, row.position(), &row.payload()?)? {
                    break;
                }
                found.push(number);
            }
            looked = number + 1;
        }
        Ok(FoundRows {
            found,
            looked,
            ..rows.finish(snapshot.position())?
        })
    }

    /// Read rows in order, one at least.
    ///
    /// # Errors
    /// As [`Table::get_rows`]; [`Error::NotFound`] if there is no such index, or it is not built yet.
    pub(super) fn scan_rows(&self, bounds: &Bounds<'_>, at: u64) -> Result<FoundRows> {
        let snapshot = self.snapshot_for(bounds.tree, at)?;
        let (begin, end) = (Some(bounds.begin), bounds.end);
        let mut rows = Gathered::default();
        let mut goes_on = GoesOn::new(bounds);
        match bounds.tree {
            None => {
                let mut found = snapshot.scan(begin, end, bounds.direction)?;
                while found.advance()? {
                    let key = found.key();
                    if goes_on.stops(&rows)
                        || !rows.push(key, found.position(), &found.payload()?)?
                    {
                        return goes_on.finish(rows, key, snapshot.position());
                    }
                    goes_on.took(key);
                }
            }
            Some(tree) => {
                let name = self.name_of(tree)?;
                let mut found = snapshot.scan_index(&name, begin, end, bounds.direction)?;
                while found.advance()? {
                    let (order, row) = (found.index_key(), found.row());
                    if goes_on.stops(&rows)
                        || !rows.push(row.key(), row.position(), &row.payload()?)?
                    {
                        return goes_on.finish(rows, order, snapshot.position());
                    }
                    goes_on.took(order);
                }
            }
        }
        rows.finish(snapshot.position())
    }

    /// Divide the keys of `bounds` into parts with about `bytes_max` bytes of files each, `count_max` at most.
    ///
    /// # Errors
    /// As [`Table::scan_rows`].
    pub(super) fn divide(&self, bounds: &Bounds<'_>, at: u64) -> Result<Divided> {
        let snapshot = self.snapshot_for(bounds.tree, at)?;
        let name = bounds.tree.map(|tree| self.name_of(tree)).transpose()?;
        let (name, begin) = (name.as_deref(), Some(bounds.begin));
        let (bytes, parts_max) = (bounds.bytes_max as u64, bounds.count_max);
        let whole = snapshot.divide(name, None, None, u64::MAX, 1)?;
        Ok(Divided {
            position: snapshot.position(),
            parts: snapshot.divide(name, begin, bounds.end, bytes, parts_max)?,
            whole: whole.iter().map(|(_, bytes)| bytes).sum(),
        })
    }

    /// Name of an index that can be read.
    fn name_of(&self, tree: u128) -> Result<String> {
        let indexes = self.indexes.load();
        let found = indexes.iter().find(|index| index.id == tree);
        found
            .map(|index| index.name.clone())
            .ok_or_else(|| Error::NotFound {
                what: format!("built index with the tree {tree:032x}"),
            })
    }
}

/// Where a scan goes on that was cut short.
struct GoesOn<'a> {
    bounds: &'a Bounds<'a>,
    /// The last key that was taken, of a scan in reverse.
    last: Vec<u8>,
}

impl<'a> GoesOn<'a> {
    fn new(bounds: &'a Bounds<'a>) -> Self {
        let last = Vec::new();
        Self { bounds, last }
    }

    /// Whether there is no room for another row.
    fn stops(&self, rows: &Gathered) -> bool {
        rows.is_full(self.bounds.count_max, self.bounds.bytes_max)
    }

    fn took(&mut self, key: &[u8]) {
        if self.bounds.direction == Direction::Reverse {
            self.last.clear();
            self.last.extend_from_slice(key);
        }
    }

    /// The rows, of which `next` is none any more.
    fn finish(self, rows: Gathered, next: &[u8], position: u64) -> Result<FoundRows> {
        let next = match self.bounds.direction {
            Direction::Forward => next.to_vec(),
            Direction::Reverse => self.last,
        };
        Ok(FoundRows {
            next: Some(next),
            ..rows.finish(position)?
        })
    }
}
