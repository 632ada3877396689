//! Valid runs of frames with random parameters: what a stream of changes looks like in a segment.

use braidlog_core::batch::parse_head;
use braidlog_core::wal::{
    Change, CommitContext, Cursor, FLAG_MORE, FRAME_HEADER, FrameHeader, Kind, NewIndex, NewLog,
    NewTable, Order, Replacement, Restart, Seed, State, Table, TableChange, frame_change,
    frame_len, parse_frame, pin_name, seal_frame,
};

use super::batch_make::{self, Size};
use crate::rng::Rng;

/// Builds a run of frames that all apply.
pub struct Maker<'r> {
    rng: &'r mut Rng,
    seed: Seed,
    first: u32,
    /// What the frames add up to.
    pub state: State,
    /// The frames.
    pub bytes: Vec<u8>,
    ordinal: u32,
}

impl<'r> Maker<'r> {
    /// Nothing yet.
    pub fn new(seed: Seed, first: u32, rng: &'r mut Rng) -> Self {
        Self {
            rng,
            seed,
            first,
            state: State::default(),
            bytes: Vec::new(),
            ordinal: 0,
        }
    }

    /// Forget the frames, keep the state, and begin with it as a preamble.
    pub fn restart(&mut self) {
        self.bytes.clear();
        self.ordinal = 0;
        let state = self.state.encode();
        let chunk = if self.rng.one_in(2) { 64 } else { 1 << 16 };
        let mut chunks = state.chunks(chunk).peekable();
        while let Some(chunk) = chunks.next() {
            let mut header = self.header(Kind::Preamble, 0);
            header.flags = if chunks.peek().is_some() {
                FLAG_MORE
            } else {
                0
            };
            self.append(&header, chunk, chunk.len());
        }
    }

    /// Try `count` random changes; those that apply become frames.
    pub fn changes(&mut self, count: usize) {
        for _ in 0..count {
            match self.rng.below(16) {
                0 | 1 => self.create(),
                2..=8 => self.batch(),
                9 => self.commit(),
                10 | 11 => self.tables(),
                _ => self.other(),
            }
        }
    }

    fn header(&self, kind: Kind, stream: u32) -> FrameHeader {
        FrameHeader {
            kind,
            flags: 0,
            stream,
            count: 0,
            epoch: self
                .state
                .streams
                .get(&stream)
                .map_or(0, |stream| stream.epoch),
            llsn: 0,
            durable: self.first,
            ordinal: self.ordinal,
        }
    }

    fn append(&mut self, header: &FrameHeader, payload: &[u8], head: usize) {
        let at = self.bytes.len();
        let offset = self.first + at as u32;
        self.bytes.resize(at + frame_len(payload.len()), 0);
        let frame = &mut self.bytes[at..];
        frame[FRAME_HEADER..FRAME_HEADER + payload.len()].copy_from_slice(payload);
        seal_frame(frame, header, self.seed, offset, payload.len(), head);
        self.ordinal += 1;
    }

    /// Append the frame if its change applies.
    fn add(&mut self, header: &FrameHeader, payload: &[u8], head: usize) {
        let (length, ordinal) = (self.bytes.len(), self.ordinal);
        let offset = self.first + length as u32;
        self.append(header, payload, head);
        let applied = parse_frame(&self.bytes[length..], self.seed, offset)
            .and_then(|frame| frame_change(&frame, payload))
            .and_then(|(change, _)| self.state.apply(header, &change));
        if applied.is_err() {
            self.bytes.truncate(length);
            self.ordinal = ordinal;
        }
    }

    fn add_change(&mut self, header: &FrameHeader, change: &Change) {
        let payload = change.payload();
        self.add(header, &payload, payload.len());
    }

    fn stream(&mut self) -> u32 {
        let streams: Vec<u32> = self.state.streams.keys().copied().collect();
        if streams.is_empty() {
            1
        } else {
            *self.rng.pick(&streams)
        }
    }

    fn create(&mut self) {
        let header = self.header(Kind::Catalog, self.state.next_stream);
        let options = self.rng.below(20);
        let log = NewLog {
            id: u128::from(self.rng.u64()),
            explicit_commit: self.rng.one_in(2),
            created: self.rng.u32().into(),
            name: format!("log {}", self.rng.below(30)),
            options: self.rng.bytes(options),
        };
        self.add_change(&header, &Change::CreateLog(log));
    }

    /// One frame with one to three changes of tables, or a table's own cursor.
    fn tables(&mut self) {
        let header = self.header(Kind::Catalog, 0);
        let tables: Vec<Table> = self.state.tables.iter().cloned().collect();
        let changes: Vec<TableChange> = (0..=self.rng.below(3))
            .filter_map(|_| {
                if tables.is_empty() || self.rng.one_in(3) {
                    return self.new_table();
                }
                let table = self.rng.pick(&tables).clone();
                Some(self.table_change(&table))
            })
            .collect();
        self.add_change(&header, &Change::Tables(changes));
        let table = tables.first().cloned().filter(|_| self.rng.one_in(3));
        let log = table
            .as_ref()
            .and_then(|table| self.state.logs.get(&table.log));
        if let Some((table, log)) = table.zip(log) {
            let header = self.header(Kind::Cursor, log.stream);
            let cursor = Cursor {
                position: table.start + 1,
                pin: true,
                touched: 0,
                lease: 0,
            };
            let change = Change::SetCursor(pin_name(table.id), cursor);
            self.add_change(&header, &change);
        }
    }

    fn new_index(&mut self) -> NewIndex {
        let spec = self.rng.below(20);
        NewIndex {
            tree: self.rng.u64().into(),
            name: format!("index {}", self.rng.below(5)),
            spec: self.rng.bytes(spec),
        }
    }

    fn new_table(&mut self) -> Option<TableChange> {
        let logs: Vec<(u128, u32)> = self
            .state
            .logs
            .iter()
            .map(|(id, log)| (*id, log.stream))
            .collect();
        let (log, stream) = *logs.get(self.rng.below(logs.len().max(1)))?;
        let (options, indexes) = (self.rng.below(20), self.rng.below(3));
        Some(TableChange::Create(NewTable {
            id: self.rng.u64().into(),
            name: format!("table {}", self.rng.below(9)),
            log,
            created: self.rng.u32().into(),
            start: self.state.streams.get(&stream)?.low,
            primary: self.rng.u64().into(),
            options: self.rng.bytes(options),
            indexes: (0..indexes).map(|_| self.new_index()).collect(),
        }))
    }

    fn table_change(&mut self, table: &Table) -> TableChange {
        let id = table.id;
        let tree = table.indexes.first().map_or(0, |index| index.index.tree);
        match self.rng.below(8) {
            0 => TableChange::Drop(id),
            1 => TableChange::Rename(id, format!("table {}", self.rng.below(9))),
            2 => TableChange::Build(id, self.new_index(), table.start),
            3 => TableChange::Activate(id, tree, table.start),
            4 => TableChange::Abort(id, tree, table.start),
            5 => TableChange::Unindex(id, tree),
            6 => TableChange::Replace(
                id,
                Replacement {
                    id: self.rng.u64().into(),
                    start: table.start,
                    primary: self.rng.u64().into(),
                    trees: table
                        .indexes
                        .iter()
                        .map(|_| self.rng.u64().into())
                        .collect(),
                },
            ),
            _ => TableChange::Options(id, self.rng.bytes(7)),
        }
    }

    fn batch(&mut self) {
        let stream = self.stream();
        let batch = batch_make::batch(Size::Small, self.rng);
        let Ok(head) = parse_head(&batch) else { return };
        let mut header = self.header(Kind::Batch, stream);
        if self.rng.one_in(12) {
            header.kind = Kind::Moved;
        }
        header.count = head.count();
        header.llsn = self
            .state
            .streams
            .get(&stream)
            .map_or(1, |found| found.next);
        self.add(&header, &batch, head.head_len());
    }

    fn commit(&mut self) {
        let stream = self.stream();
        let header = self.header(Kind::Commit, stream);
        let Some(found) = self.state.streams.get(&stream) else {
            return;
        };
        let length = self.rng.below((found.next - found.committed) as usize + 1) as u64;
        let glsn = found.context.glsn_begin + found.context.length;
        let glsn_begin = glsn.max(1) + self.rng.below(3) as u64;
        let context = CommitContext {
            version: found.context.version + 1 + self.rng.below(2) as u64,
            glsn_begin,
            llsn_begin: found.committed,
            length,
            high_watermark: glsn_begin + length,
        };
        self.add_change(&header, &Change::Commit(context));
    }

    fn other(&mut self) {
        let stream = self.stream();
        let mut header = self.header(Kind::Epoch, stream);
        let Some(found) = self.state.streams.get(&stream) else {
            return;
        };
        let (low, committed, next) = (found.low, found.committed, found.next);
        let id = self
            .state
            .logs
            .values()
            .find(|log| log.stream == stream)
            .map_or(0, |log| log.log.id);
        let name = format!("cursor {}", self.rng.below(4));
        let change = match self.rng.below(9) {
            0 => {
                header.llsn = committed + self.rng.below((next - committed) as usize + 1) as u64;
                Change::Rollback
            }
            1 => {
                header.llsn = low + self.rng.below((committed - low) as usize + 1) as u64;
                Change::Trim
            }
            2 => {
                header.epoch += self.rng.below(3) as u64;
                Change::Epoch
            }
            3 if self.rng.one_in(3) => Change::DeleteLog(id),
            4 => {
                let options = self.rng.below(20);
                Change::AlterLog(id, self.rng.bytes(options))
            }
            5 if self.rng.one_in(2) => {
                header.stream = self.state.next_stream;
                let options = self.rng.below(20);
                let restart = Restart {
                    first: low,
                    options: self.rng.bytes(options),
                    ..Restart::default()
                };
                Change::Restart(id, restart)
            }
            5 => Change::DeleteCursor(name),
            6 => {
                header.llsn = if self.rng.one_in(3) { 0 } else { next };
                Change::Order(Order {
                    log: self.rng.below(2) as u128,
                    budget: self.rng.below(2000) as u64,
                    pending: self.rng.below(500) as u64,
                })
            }
            _ => Change::SetCursor(
                name,
                Cursor {
                    position: low,
                    pin: self.rng.one_in(2),
                    touched: self.rng.u32().into(),
                    lease: self.rng.below(100) as u64,
                },
            ),
        };
        header.kind = change.kind();
        self.add_change(&header, &change);
    }
}
