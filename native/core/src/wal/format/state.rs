//! What a node knows of its logs: catalog, stream ranges, producer windows, cursors.
//!
//! # Theory of operation
//!
//! The state is a fold of [`Change`]s in log order. Every segment opens with the state as it was at
//! that point (the preamble), so recovery folds one segment only and old segments can be dropped
//! unread. The writer checks a change against the state before a byte is written; recovery and
//! followers run the same check (but for cursor positions) on what they read, so a frame that does not
//! apply is noticed.
//!
//! # Invariants
//!
//! - `low <= committed <= next` for each stream; `next` is the next LLSN, from 1.
//! - LLSNs are dense, epochs never fall, stream numbers are never reused.
//! - Producer windows hold only LLSNs below `next`.
//! - A table follows a log that is there, and pins it by a cursor that only the table moves.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::wal::format::change::{Change, Cursor, NewLog, Restart};
use crate::wal::format::frame::FrameHeader;
use crate::wal::format::number::fits;
use crate::wal::format::stream::{CURSORS_MAX, NAME_BYTES_MAX, Stream, check_cursor, fold};
use crate::wal::format::table_change::{TableChange, pin_name};
use crate::wal::format::tables::{Logs, Pin, Table, Tables};

/// One log of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// As created, with current options.
    pub log: NewLog,
    /// Its stream.
    pub stream: u32,
}

/// Everything a preamble holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Next stream number.
    pub next_stream: u32,
    /// Logs by id.
    pub logs: BTreeMap<u128, Log>,
    /// Streams by number.
    pub streams: BTreeMap<u32, Stream>,
    /// Tables.
    pub tables: Tables,
}

impl Default for State {
    fn default() -> Self {
        Self {
            next_stream: 1,
            logs: BTreeMap::new(),
            streams: BTreeMap::new(),
            tables: Tables::default(),
        }
    }
}

impl State {
    /// The stream, or [`Error::NotFound`].
    pub fn stream(&self, stream: u32) -> Result<&Stream> {
        self.streams.get(&stream).ok_or_else(|| Error::NotFound {
            what: format!("stream {stream}"),
        })
    }

    /// The log of that name.
    pub fn log_named(&self, name: &str) -> Option<&Log> {
        self.logs.values().find(|log| log.log.name == name)
    }

    fn log(&self, id: u128) -> Result<&Log> {
        self.logs.get(&id).ok_or_else(|| Error::NotFound {
            what: format!("log {id:032x}"),
        })
    }

    /// Whether the change may be made; nothing is changed.
    pub fn check(&self, header: &FrameHeader, change: &Change) -> Result<()> {
        self.check_applies(header, change)?;
        match change {
            Change::SetCursor(_, cursor) => {
                check_position(cursor.position, self.stream(header.stream)?.next)
            }
            Change::Trim => self.check_pins(header.stream, header.llsn),
            _ => Ok(()),
        }
    }

    /// Whether a change that was made applies. Cursors used to be set to any position, and logs that hold such
    /// ones are good logs.
    fn check_applies(&self, header: &FrameHeader, change: &Change) -> Result<()> {
        match change {
            Change::Close | Change::Nothing => Ok(()),
            Change::CreateLog(log) => self.check_create(header.stream, log),
            Change::DeleteLog(id) => self.check_delete(*id),
            Change::AlterLog(id, _) => self.log(*id).map(|_| ()),
            Change::Tables(changes) => self.with_changes(changes).map(|_| ()),
            Change::Restart(id, restart) => self.check_restart(header, *id, restart),
            _ => self.check_stream(header, change),
        }
    }

    fn check_create(&self, stream: u32, log: &NewLog) -> Result<()> {
        if log.name.is_empty() {
            return Err(Error::InvalidArgument(
                "a log name must not be empty".into(),
            ));
        }
        if log.name.len() > NAME_BYTES_MAX {
            let size = log.name.len() as u64;
            return Err(Error::TooLarge {
                what: "log name",
                size,
                max: NAME_BYTES_MAX as u64,
            });
        }
        if self.logs.contains_key(&log.id) || self.log_named(&log.name).is_some() {
            return Err(Error::AlreadyExists {
                what: format!("log {:?}", log.name),
            });
        }
        self.check_number(stream)
    }

    /// Stream numbers are given once.
    fn check_number(&self, stream: u32) -> Result<()> {
        if stream == u32::MAX {
            return Err(Error::InvalidArgument(
                "this directory has used up its stream numbers; create the log in another one"
                    .into(),
            ));
        }
        if stream != self.next_stream {
            let (given, expected) = (u64::from(stream), u64::from(self.next_stream));
            return Err(Error::NotDense {
                what: "stream number",
                given,
                expected,
            });
        }
        Ok(())
    }

    fn check_restart(&self, header: &FrameHeader, id: u128, restart: &Restart) -> Result<()> {
        let first = restart.first;
        let old = self.stream(self.log(id)?.stream)?;
        old.check_epoch(header.epoch)?;
        // Only a replica begins anew: the records of an embedded log are nowhere else.
        if !old.explicit_commit {
            let reason = "only a log with explicit commits can begin anew";
            return Err(Error::InvalidArgument(reason.into()));
        }
        if first == 0 || !fits(first, 1) {
            return Err(Error::InvalidArgument(format!(
                "a log cannot begin anew at LLSN {first}"
            )));
        }
        // Windows come from another node. They must not know records that this stream will get later.
        if !restart.producers.is_within(first) || !restart.producers.is_bounded() {
            let reason = format!("the producer windows have records at LLSN {first} or behind it");
            return Err(Error::InvalidArgument(reason));
        }
        self.check_number(header.stream)
    }

    fn check_stream(&self, header: &FrameHeader, change: &Change) -> Result<()> {
        let stream = self.stream(header.stream)?;
        match change {
            Change::Batch { count, producer } => {
                stream.check_epoch(header.epoch)?;
                // LLSNs are dense: a gap means that a frame is missing in front of this one.
                if header.llsn != stream.next {
                    let (given, expected) = (header.llsn, stream.next);
                    return Err(Error::NotDense {
                        what: "LLSN",
                        given,
                        expected,
                    });
                }
                let count = u64::from(*count);
                if count == 0 || !fits(header.llsn, count) {
                    return Err(Error::InvalidArgument(
                        "a batch of no records, or of so many that positions would pass 2**62"
                            .into(),
                    ));
                }
                if producer.is_some_and(|(_, sequence)| !fits(sequence, count)) {
                    let reason = "the producer sequence would pass 2**62";
                    return Err(Error::InvalidArgument(reason.into()));
                }
                Ok(())
            }
            Change::Commit(context) => stream
                .check_epoch(header.epoch)
                .and(stream.check_commit(context)),
            Change::Rollback => {
                stream.check_epoch(header.epoch)?;
                // What is committed has its place in the log for good.
                if header.llsn < stream.committed || !stream.explicit_commit {
                    let (given, committed) = (header.llsn, stream.committed);
                    return Err(Error::Committed { given, committed });
                }
                if header.llsn > stream.next {
                    return Err(Error::BeyondEnd {
                        position: header.llsn,
                        next: stream.next,
                    });
                }
                Ok(())
            }
            Change::Trim => stream.check_trim(header.llsn),
            Change::Epoch => stream.check_epoch(header.epoch),
            Change::SetCursor(name, cursor) => {
                check_cursor(stream, name)?;
                self.check_pin(name, cursor)
            }
            Change::DeleteCursor(name) if !stream.cursors.contains_key(name) => {
                Err(Error::NotFound {
                    what: format!("cursor {name:?}"),
                })
            }
            Change::DeleteCursor(name) => self.check_own(name),
            _ => Ok(()),
        }
    }

    /// Check and fold one change.
    pub fn apply(&mut self, header: &FrameHeader, change: &Change) -> Result<()> {
        if let Change::Tables(changes) = change {
            let (tables, pins) = self.with_changes(changes)?;
            self.tables = tables;
            self.fold_pins(pins);
            return Ok(());
        }
        self.check_applies(header, change)?;
        match change {
            Change::CreateLog(log) => {
                let stream = header.stream;
                self.next_stream = stream + 1;
                self.streams
                    .insert(stream, Stream::new(log.explicit_commit));
                self.logs.insert(
                    log.id,
                    Log {
                        log: log.clone(),
                        stream,
                    },
                );
            }
            Change::DeleteLog(id) => {
                if let Some(log) = self.logs.remove(id) {
                    self.streams.remove(&log.stream);
                }
            }
            Change::Restart(id, restart) => self.restart(header, *id, restart),
            Change::AlterLog(id, options) => {
                if let Some(log) = self.logs.get_mut(id) {
                    log.log.options.clone_from(options);
                }
            }
            _ => {
                if let Some(stream) = self.streams.get_mut(&header.stream) {
                    fold(stream, header, change);
                }
            }
        }
        Ok(())
    }
}

/// Tables and the cursors by which they pin logs.
impl State {
    /// Whether the table has its cursor.
    pub(super) fn is_pinned(&self, table: &Table) -> bool {
        let stream = self.logs.get(&table.log).map(|log| log.stream);
        let stream = stream.and_then(|stream| self.streams.get(&stream));
        let cursor = stream.and_then(|stream| stream.cursors.get(&pin_name(table.id)));
        cursor.is_some_and(|cursor| cursor.pin && cursor.lease == 0)
    }

    /// Take tables as they were elsewhere, each with the first position that it needs of its log.
    pub(crate) fn restore_tables(
        &mut self,
        tables: impl IntoIterator<Item = (Table, u64)>,
    ) -> Result<()> {
        for (table, pin) in tables {
            let (first, _) = self.range(table.log)?;
            let stream = self.log(table.log)?.stream;
            if pin < first || table.start == 0 {
                let position = pin;
                return Err(Error::Trimmed { position, first });
            }
            let cursor = Cursor {
                position: pin,
                pin: true,
                touched: table.created,
                lease: 0,
            };
            let name = pin_name(table.id);
            self.tables.add(table)?;
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.cursors.insert(name, cursor);
            }
        }
        Ok(())
    }

    /// Forget all tables, and with them their cursors.
    pub(crate) fn forget_tables(&mut self) {
        let names: BTreeSet<String> = self.tables.iter().map(|table| pin_name(table.id)).collect();
        for stream in self.streams.values_mut() {
            stream.cursors.retain(|name, _| !names.contains(name));
        }
        self.tables.clear();
    }

    /// The table of this name, or [`Error::NotFound`].
    pub fn table_named(&self, name: &str) -> Result<&Table> {
        self.tables.named(name).ok_or_else(|| Error::NotFound {
            what: format!("table {name:?}"),
        })
    }

    /// Refuse a cursor that belongs to a table; its name may be any while there is no such table.
    pub fn check_own(&self, cursor: &str) -> Result<()> {
        self.tables.pinned_by(cursor).map_or(Ok(()), |table| {
            Err(Error::TableCursor {
                cursor: cursor.into(),
                table: table.name.clone(),
            })
        })
    }

    fn check_pin(&self, name: &str, cursor: &Cursor) -> Result<()> {
        if cursor.pin && cursor.lease == 0 {
            Ok(())
        } else {
            self.check_own(name)
        }
    }

    fn check_delete(&self, id: u128) -> Result<()> {
        let log = self.log(id)?;
        let tables = self.tables.followers(id);
        if tables.is_empty() {
            return Ok(());
        }
        let log = log.log.name.clone();
        Err(Error::LogInUse { log, tables })
    }

    /// A trim leaves what a table has not stored in files: nobody else has it.
    fn check_pins(&self, stream: u32, first: u64) -> Result<()> {
        if self.tables.is_empty() {
            return Ok(());
        }
        let cursors = self.stream(stream)?.cursors.iter();
        let held = cursors
            .filter(|(_, cursor)| cursor.position < first)
            .find_map(|(name, cursor)| Some((self.tables.pinned_by(name)?, cursor.position)));
        held.map_or(Ok(()), |(table, position)| {
            let table = table.name.clone();
            Err(Error::TablePin {
                first,
                table,
                position,
            })
        })
    }

    /// Tables as the changes leave them, and cursors that come and go with them.
    fn with_changes(&self, changes: &[TableChange]) -> Result<(Tables, Vec<Pin>)> {
        let (tables, pins) = self.tables.changed(changes, self)?;
        let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
        for (log, name, cursor) in &pins {
            let stream = self.stream(self.log(*log)?.stream)?;
            let count = counts.entry(*log).or_insert(stream.cursors.len());
            if cursor.is_none() {
                *count -= 1;
                continue;
            }
            *count += 1;
            if stream.cursors.contains_key(name) {
                let what = format!("cursor {name:?}");
                return Err(Error::AlreadyExists { what });
            }
            if *count > CURSORS_MAX {
                let (size, max) = (*count as u64, CURSORS_MAX as u64);
                let what = "number of cursors";
                return Err(Error::TooLarge { what, size, max });
            }
        }
        Ok((tables, pins))
    }

    fn fold_pins(&mut self, pins: Vec<Pin>) {
        for (log, name, cursor) in pins {
            let stream = self.logs.get(&log).map(|log| log.stream);
            let Some(stream) = stream.and_then(|stream| self.streams.get_mut(&stream)) else {
                continue;
            };
            match cursor {
                Some(cursor) => _ = stream.cursors.insert(name, cursor),
                None => _ = stream.cursors.remove(&name),
            }
        }
    }
}

impl Logs for State {
    fn range(&self, log: u128) -> Result<(u64, u64)> {
        let stream = self.stream(self.log(log)?.stream)?;
        Ok((stream.low, stream.next))
    }
}

impl State {
    fn restart(&mut self, header: &FrameHeader, id: u128, restart: &Restart) {
        let Some(log) = self.logs.get_mut(&id) else {
            return;
        };
        let old = self.streams.remove(&log.stream);
        log.stream = header.stream;
        log.log.options.clone_from(&restart.options);
        let (mut stream, first) = (Stream::new(true), restart.first);
        // So that a repeat of what was stored below is still known to be one.
        stream.producers = restart.producers.clone();
        (stream.low, stream.committed, stream.next) = (first, first, first);
        stream.context.llsn_begin = first;
        // Readers go on with the new stream where they were.
        stream.cursors = old.map(|old| old.cursors).unwrap_or_default();
        stream.enter(header.epoch);
        self.next_stream = header.stream + 1;
        self.streams.insert(header.stream, stream);
    }
}

/// A cursor may stand where records were trimmed, and up to the next record.
fn check_position(position: u64, next: u64) -> Result<()> {
    if position == 0 {
        let reason = "cursor positions begin at 1";
        return Err(Error::InvalidArgument(reason.into()));
    }
    if position > next {
        return Err(Error::BeyondEnd { position, next });
    }
    Ok(())
}
