//! Reading a table.
// One file: a snapshot and what goes through it go on alike where another process has removed a file.

use std::sync::Arc;

use super::payload::Payload;
use super::table::{Index, OnRefusal, Table};
use super::verify::tell;
use crate::error::{Error, Result};
use crate::table::entry::{Direction, Entries};
use crate::table::order::IndexSpec;
use crate::table::run::Stretch;
use crate::table::tree::{Hit, Snapshot, Tombstones, Versions, Visible, is_missing};

/// Times that the trees may change while they are looked at one after the other.
const ATTEMPTS: usize = 100;

/// Looks again at a table whose files another process may remove.
pub(super) trait Renew: Send + Sync {
    /// The table as of the same position, of the files that there are now.
    ///
    /// # Errors
    /// [`Error::Overtaken`] where these do not have it any more.
    fn renew(&self, position: u64) -> Result<TableSnapshot>;
}

/// A table as of one position. It needs no lock, and what it needs stays there while it lives, unless another process writes
/// the table: then what was removed is read from the files that have it now.
#[derive(Clone)]
pub struct TableSnapshot {
    position: u64,
    floor: u64,
    primary: Snapshot,
    indexes: Vec<(Arc<Index>, Snapshot)>,
    /// For a table that another process writes.
    pub(super) renew: Option<Arc<dyn Renew>>,
}

/// A record that was found, without a copy.
pub struct Row {
    hit: Hit,
}

impl Row {
    /// Its key.
    pub fn key(&self) -> &[u8] {
        self.hit.entry().key
    }

    /// Its position in the log.
    pub fn position(&self) -> u64 {
        self.hit.position()
    }

    /// The rest of it.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the bytes are no record, which their checksum does not allow.
    pub fn payload(&self) -> Result<Payload<'_>> {
        Payload::decode(self.encoded())
    }

    /// The rest of it as the tree has it: what [`Payload::decode`] takes.
    pub fn encoded(&self) -> &[u8] {
        self.hit.payload().unwrap_or_default()
    }
}

impl Table {
    /// The newest record of a key; none if there is none, or it was deleted.
    pub fn get(&self, key: &[u8]) -> Result<Option<Row>> {
        let primary = self.primary.snapshot();
        let hit = primary.get(key, primary.position())?;
        Ok(hit
            .filter(|hit| hit.payload().is_some())
            .map(|hit| Row { hit }))
    }

    /// The table as of its position.
    pub fn snapshot(&self) -> Result<TableSnapshot> {
        self.snapshot_with(<[Arc<Index>]>::to_vec)
    }

    /// The table with some of its indexes only, as of the position of these.
    pub(super) fn snapshot_with(
        &self,
        choose: impl Fn(&[Arc<Index>]) -> Vec<Arc<Index>>,
    ) -> Result<TableSnapshot> {
        (0..ATTEMPTS)
            .find_map(|_| self.snapshot_of(choose(&self.indexes.load_full())))
            .ok_or_else(|| Error::Failed {
                reason: "the trees of the table changed each time that they were looked at".into(),
            })
    }

    /// The table as of its position, unless the trees have none in common.
    pub(super) fn snapshot_once(&self) -> Option<TableSnapshot> {
        self.snapshot_of(self.indexes.load().to_vec())
    }

    /// The same with these indexes: between two looks something may be applied and flushed.
    fn snapshot_of(&self, indexes: Vec<Arc<Index>>) -> Option<TableSnapshot> {
        let indexes: Vec<_> = indexes
            .into_iter()
            .map(|index| {
                let snapshot = index.tree.snapshot();
                (index, snapshot)
            })
            .collect();
        let primary = self.primary.snapshot();
        let of_indexes = indexes.iter().map(|(_, snapshot)| snapshot.position());
        let position = of_indexes.fold(primary.position(), u64::min);
        let floors = indexes.iter().map(|(_, snapshot)| snapshot.floor());
        let floor = floors.fold(primary.floor(), u64::max);
        (floor <= position).then_some(TableSnapshot {
            position,
            floor,
            primary,
            indexes,
            renew: None,
        })
    }

    /// The table as of a position that is applied and not below the floor.
    ///
    /// # Errors
    /// [`Error::Trimmed`] below the floor, [`Error::BeyondEnd`] where nothing is applied yet.
    pub fn snapshot_at(&self, position: u64) -> Result<TableSnapshot> {
        let snapshot = self.snapshot()?;
        snapshot.at(position)
    }
}

impl TableSnapshot {
    /// The same at an earlier position.
    ///
    /// # Errors
    /// [`Error::Trimmed`] below the floor, [`Error::BeyondEnd`] above its own position.
    pub fn at(mut self, position: u64) -> Result<Self> {
        if position < self.floor {
            let first = self.floor;
            return Err(Error::Trimmed { position, first });
        }
        if position > self.position {
            let next = self.position + 1;
            return Err(Error::BeyondEnd { position, next });
        }
        self.position = position;
        Ok(self)
    }

    /// The position that is read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Lowest position that it can be read at.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The record of a key; none if there is none, or it was deleted.
    pub fn get(&self, key: &[u8]) -> Result<Option<Row>> {
        self.retrying(|snapshot| snapshot.get_once(key))
    }

    fn get_once(&self, key: &[u8]) -> Result<Option<Row>> {
        let hit = self.primary.get(key, self.position)?;
        Ok(hit
            .filter(|hit| hit.payload().is_some())
            .map(|hit| Row { hit }))
    }

    /// Read, and again by a newer snapshot of the same position where another process has removed a file.
    fn retrying<T>(&self, read: impl Fn(&Self) -> Result<T>) -> Result<T> {
        let mut found = read(self);
        for _ in 0..ATTEMPTS {
            let Err(error) = found else { break };
            found = read(&self.renewed(error)?);
        }
        found
    }

    /// The records of many keys, in their order. They are looked up in the order of the tree, which reads each page once.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Row>>> {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_unstable_by_key(|at| keys[*at as usize].as_ref());
        let mut rows: Vec<Option<Row>> = Vec::new();
        rows.resize_with(keys.len(), || None);
        for at in order {
            rows[at as usize] = self.get(keys[at as usize].as_ref())?;
        }
        Ok(rows)
    }

    /// Go through the records with keys of `begin..end`; `None` is no bound.
    pub fn scan(
        &self,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        direction: Direction,
    ) -> Result<Rows> {
        let left = Left::new(begin, end, direction);
        Ok(Rows {
            entries: left.entries(&self.primary, self.position)?,
            left: self.renew.is_some().then(|| (self.clone(), left)),
        })
    }

    /// Divide the records with keys of `begin..end`, or the entries of an index with such index keys, for reading them in parts: see
    /// [`Snapshot::divide`].
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such index, or it is not built.
    pub fn divide(
        &self,
        index: Option<&str>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        bytes: u64,
        parts_max: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>> {
        let tree = match index {
            None => &self.primary,
            Some(name) => &self.find(name)?.1,
        };
        Ok(tree.divide(begin.unwrap_or_default(), end, bytes, parts_max))
    }

    /// Indexes, and each one's tree.
    pub(super) fn indexes(&self) -> &[(Arc<Index>, Snapshot)] {
        &self.indexes
    }

    /// Check all files against their footers and filters; `progress` is told the entries read so far.
    pub(super) fn verify_runs(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let mut entries = 0;
        let indexes = self.indexes.iter().map(|(_, snapshot)| snapshot);
        for snapshot in std::iter::once(&self.primary).chain(indexes) {
            for run in snapshot.runs() {
                entries += run.verify(&mut |_| {})?.entries;
                tell(progress, entries)?;
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&(Arc<Index>, Snapshot)> {
        let found = self.indexes.iter().find(|(index, _)| index.name == name);
        found.ok_or_else(|| Error::NotFound {
            what: format!("index {name:?} that is built"),
        })
    }

    /// What an index of it is over.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there was no such index when this was made, or it was not built.
    pub fn index_spec(&self, name: &str) -> Result<&IndexSpec> {
        Ok(&self.find(name)?.0.spec)
    }

    /// The same position of the files that there are now, if the error is that another process has removed one.
    fn renewed(&self, error: Error) -> Result<Self> {
        match &self.renew {
            Some(renew) if is_missing(&error) => Ok(Self {
                renew: self.renew.clone(),
                ..renew.renew(self.position)?
            }),
            _ => Err(error),
        }
    }

    /// About how many bytes of an index's files have index keys of `begin..end`, and of how many. What is only in memory does not
    /// count.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such index.
    pub fn index_part(
        &self,
        name: &str,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<(u64, u64)> {
        let (_, tree) = self.find(name)?;
        Ok((
            tree.bytes_between(begin, end),
            tree.bytes_between(None, None),
        ))
    }

    /// Go through the records in the order of an index, with index keys of `begin..end`, as
    /// [`IndexSpec::encode`](crate::table::order::IndexSpec::encode) makes them.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such index, or it is not built; [`Error::Trimmed`] below its base;
    /// [`Error::InvalidArgument`] if a record could not be in it and it must not be incomplete.
    pub fn scan_index(
        &self,
        name: &str,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        direction: Direction,
    ) -> Result<IndexRows> {
        let (index, snapshot) = self.find(name)?;
        if self.position < index.base {
            let (position, first) = (self.position, index.base);
            return Err(Error::Trimmed { position, first });
        }
        let refused = index.refused();
        if let (OnRefusal::Refuse, Some((position, reason))) =
            (index.on_refusal, refused.first.first())
        {
            return Err(Error::InvalidArgument(format!(
                "index {name:?} lacks {} records and must not be incomplete; the first is at position {position}: {reason}. Correct these records, then drop the index and make it again",
                refused.count
            )));
        }
        let left = Left::new(begin, end, direction);
        Ok(IndexRows {
            snapshot: self.clone(),
            index: Arc::clone(index),
            entries: left.entries(snapshot, self.position)?,
            row: None,
            left,
        })
    }
}

/// What a scan has still to go through.
struct Left {
    begin: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    direction: Direction,
}

impl Left {
    fn new(begin: Option<&[u8]>, end: Option<&[u8]>, direction: Direction) -> Self {
        Self {
            begin: begin.map(Into::into),
            end: end.map(Into::into),
            direction,
        }
    }

    fn entries(&self, snapshot: &Snapshot, at: u64) -> Result<Visible<Versions>> {
        let (begin, end) = (self.begin.as_deref(), self.end.as_deref());
        snapshot.entries(begin, end, self.direction, at, Tombstones::Hidden)
    }

    /// Take a key out that was gone through, with all before it.
    fn passed(&mut self, key: &[u8]) {
        let bound = match self.direction {
            Direction::Forward => &mut self.begin,
            Direction::Reverse => &mut self.end,
        };
        let bound = bound.get_or_insert_default();
        bound.clear();
        bound.extend_from_slice(key);
        if self.direction == Direction::Forward {
            // The next key that there can be.
            bound.push(0);
        }
    }
}

/// Goes through records in the order of their keys.
pub struct Rows {
    entries: Visible<Versions>,
    /// What goes on where another process has removed a file.
    left: Option<(TableSnapshot, Left)>,
}

impl Rows {
    /// Step to the next record; false behind the last.
    ///
    /// # Errors
    /// [`Error::Overtaken`] where another process writes the table and has merged what the position needs.
    pub fn advance(&mut self) -> Result<bool> {
        let Some((snapshot, left)) = &mut self.left else {
            return self.entries.advance();
        };
        let mut stepped = self.entries.advance();
        for _ in 0..ATTEMPTS {
            let Err(error) = stepped else { break };
            *snapshot = snapshot.renewed(error)?;
            self.entries = left.entries(&snapshot.primary, snapshot.position)?;
            stepped = self.entries.advance();
        }
        if stepped? {
            left.passed(self.entries.entry().key);
            return Ok(true);
        }
        Ok(false)
    }

    /// Step over the records that come next and lie together, at most `max` and at least one; it stands on the last of them.
    ///
    /// # Errors
    /// As [`Rows::advance`].
    pub fn advance_stretch(&mut self, max: usize) -> Result<bool> {
        let Some((snapshot, left)) = &mut self.left else {
            return self.entries.advance_stretch(max);
        };
        let mut stepped = self.entries.advance_stretch(max);
        for _ in 0..ATTEMPTS {
            let Err(error) = stepped else { break };
            *snapshot = snapshot.renewed(error)?;
            self.entries = left.entries(&snapshot.primary, snapshot.position)?;
            stepped = self.entries.advance_stretch(max);
        }
        if stepped? {
            left.passed(self.entries.entry().key);
            return Ok(true);
        }
        Ok(false)
    }

    /// The records of the last [`Rows::advance_stretch`]; none if it is a single one that is in no page.
    pub fn stretch(&self) -> Option<Stretch<'_>> {
        self.entries.stretch()
    }

    /// Key, position and the rest of the record it stands on.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the bytes are no record, which their checksum does not allow.
    pub fn record(&self) -> Result<(&[u8], u64, Payload<'_>)> {
        let entry = self.entries.entry();
        let payload = Payload::decode(entry.payload.unwrap_or_default())?;
        Ok((entry.key, entry.position, payload))
    }

    /// As [`Row::encoded`].
    pub fn encoded(&self) -> &[u8] {
        self.entries.entry().payload.unwrap_or_default()
    }

    /// The key of the record it stands on.
    pub fn key(&self) -> &[u8] {
        self.entries.entry().key
    }

    /// Its position in the log.
    pub fn position(&self) -> u64 {
        self.entries.entry().position
    }

    /// The rest of it.
    pub fn payload(&self) -> Result<Payload<'_>> {
        Payload::decode(self.entries.entry().payload.unwrap_or_default())
    }
}

/// Goes through records in the order of an index.
pub struct IndexRows {
    snapshot: TableSnapshot,
    index: Arc<Index>,
    entries: Visible<Versions>,
    row: Option<Row>,
    /// Behind the last record that was given.
    left: Left,
}

impl IndexRows {
    /// Step to the next record; false behind the last. Entries whose record was replaced or deleted are left out.
    ///
    /// # Errors
    /// As [`Rows::advance`].
    pub fn advance(&mut self) -> Result<bool> {
        let mut stepped = self.step();
        for _ in 0..ATTEMPTS {
            let Err(error) = stepped else { break };
            self.snapshot = self.snapshot.renewed(error)?;
            let (_, tree) = self.snapshot.find(&self.index.name)?;
            self.entries = self.left.entries(tree, self.snapshot.position)?;
            stepped = self.step();
        }
        if stepped? {
            if self.snapshot.renew.is_some() {
                self.left.passed(self.entries.entry().key);
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn step(&mut self) -> Result<bool> {
        while self.entries.advance()? {
            let entry = self.entries.entry();
            let Some(position) = record_position(entry.position, entry.payload) else {
                continue;
            };
            // Only the mark of a building that was interrupted has an empty key.
            if entry.key.is_empty() {
                continue;
            }
            let at = self.index.spec.record_key_at(entry.key)?;
            let row = self.snapshot.get_once(&entry.key[at..])?;
            self.row = row.filter(|row| row.position() == position);
            if self.row.is_some() {
                return Ok(true);
            }
        }
        self.row = None;
        Ok(false)
    }

    /// The index key of the record it stands on: the fields, and then the record's key.
    pub fn index_key(&self) -> &[u8] {
        self.entries.entry().key
    }

    /// The record it stands on.
    ///
    /// # Panics
    /// Panics before the first step and behind the last record.
    pub fn row(&self) -> &Row {
        self.row.as_ref().expect("stands on a record")
    }
}

/// Position of the record that an index entry is of: its own, or the payload of one that a building made.
pub(super) fn record_position(position: u64, payload: Option<&[u8]>) -> Option<u64> {
    let payload = payload?;
    match payload.first_chunk::<8>() {
        Some(raw) => Some(u64::from_le_bytes(*raw)),
        None => Some(position),
    }
}
