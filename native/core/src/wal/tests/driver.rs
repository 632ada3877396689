//! Drives a store on the in-memory file system and keeps the model of what it promised.

use std::path::Path;
use std::sync::Arc;

use super::DIR;
use super::oracle::{Expected, History, Kept, Moment};
use crate::batch::{BytesRef, ColumnsRef, Compression, Offsets, Timestamps};
use crate::error::Result;
use crate::vfs::{CrashPolicy, MemoryVfs, Vfs};
use crate::wal::{
    CommitContext, Cursor, NewLog, NewRecord, OpenReport, Options, ProducerId, Reclaimed, Store,
    TableChange, open, pin_name,
};

pub struct Driver {
    pub vfs: MemoryVfs,
    pub store: Store,
    pub history: History,
    pub options: Options,
    /// What each mark of the trace acknowledged.
    pub acked: Vec<Moment>,
    /// Whether logs with commits share an order.
    pub orders: bool,
    submitted: u64,
    opened: u64,
}

/// Open the node directory, with numbers of its own for salts.
pub fn open_with(vfs: &MemoryVfs, options: &Options, lap: u64) -> Result<(Store, OpenReport)> {
    let options = Options {
        entropy: options.entropy ^ (lap << 32),
        ..options.clone()
    };
    open(
        Arc::new(vfs.clone()) as Arc<dyn Vfs>,
        Path::new(DIR),
        options,
    )
}

/// A value that no other record has, and its timestamp, which does not rise.
pub fn kept(tag: u64, len: usize) -> Kept {
    let bytes = (0..len.max(8) as u64).map(|i| match i {
        0..8 => (tag >> (8 * i)) as u8,
        _ => (tag.wrapping_mul(31) ^ i.wrapping_mul(i / 7 + 3)) as u8,
    });
    Kept {
        value: bytes.collect(),
        timestamp: (tag * 7919 % 1000).cast_signed(),
    }
}

pub fn record(kept: &Kept) -> NewRecord<'_> {
    NewRecord {
        value: Some(&kept.value),
        key: None,
        timestamp: kept.timestamp,
        headers: &[],
    }
}

/// Run `f` with records as columns.
pub fn with_columns<R>(records: &[Kept], f: impl FnOnce(&ColumnsRef<'_>) -> R) -> R {
    let (mut offsets, mut data) = (vec![0], Vec::new());
    for record in records {
        data.extend_from_slice(&record.value);
        offsets.push(data.len() as u32);
    }
    let timestamps: Vec<i64> = records.iter().map(|record| record.timestamp).collect();
    f(&ColumnsRef {
        len: records.len(),
        values: BytesRef {
            offsets: Offsets::U32(&offsets),
            data: &data,
        }
        .into(),
        keys: None,
        timestamps: Timestamps::Each(&timestamps),
        headers: None,
    })
}

impl Driver {
    pub fn new(options: Options) -> Self {
        let vfs = MemoryVfs::new();
        let (store, _) = open_with(&vfs, &options, 0).unwrap();
        Self {
            vfs,
            store,
            history: History::default(),
            options,
            acked: Vec::new(),
            orders: true,
            submitted: 0,
            opened: 1,
        }
    }

    /// Go on with a store that was recovered to `history`.
    pub fn resume(vfs: MemoryVfs, store: Store, history: History, options: Options) -> Self {
        let (acked, submitted, opened) = (Vec::new(), 1 << 40, 1 << 20);
        Self {
            vfs,
            store,
            history,
            options,
            acked,
            orders: true,
            submitted,
            opened,
        }
    }

    /// Everything submitted so far is acknowledged.
    pub fn ack(&mut self) {
        self.vfs.mark(self.acked.len() as u64);
        self.acked.push(self.history.now());
    }

    pub fn sync(&mut self) {
        self.store.sync().unwrap();
        self.ack();
    }

    pub fn create(&mut self, name: &str, explicit: bool) -> u32 {
        let log = NewLog {
            id: u128::from(crc32c::crc32c(name.as_bytes())) + 1,
            explicit_commit: explicit,
            created: 0,
            name: name.into(),
            options: name.as_bytes().to_vec(),
        };
        let stream = self.store.with_state(|state| state.next_stream);
        self.history.create(stream, Expected::new(name, explicit));
        assert_eq!(self.store.create_log(log).unwrap(), stream);
        self.ack();
        if explicit && self.orders {
            self.store.share_order(stream, 1).unwrap();
        }
        stream
    }

    pub fn delete(&mut self, stream: u32) {
        let id = u128::from(crc32c::crc32c(self.history.get(stream).name.as_bytes())) + 1;
        self.history.delete(stream);
        self.store.delete_log(id).unwrap();
        self.ack();
    }

    fn fresh(&mut self, len: usize) -> Kept {
        self.submitted += 1;
        kept(self.submitted, len)
    }

    /// Submit a record; not acknowledged before the next sync.
    pub fn push(&mut self, stream: u32, len: usize) -> Result<u64> {
        let kept = self.fresh(len);
        let ticket = self.store.append(stream, record(&kept), None)?;
        assert_eq!(ticket.llsn, self.history.get(stream).next());
        self.history.change(stream, |e| e.push(kept, None));
        Ok(ticket.llsn)
    }

    /// Submit the next record of a producer.
    pub fn produce(&mut self, stream: u32, producer: u64, len: usize) -> Result<u64> {
        let next = self.history.get(stream).sequences.get(&producer);
        let sequence = next.copied().unwrap_or(1);
        let kept = self.fresh(len);
        let id = ProducerId {
            id: producer,
            epoch: 0,
        };
        let sequenced = Some((id, sequence));
        let ticket = self.store.append(stream, record(&kept), sequenced)?;
        assert_eq!(ticket.llsn, self.history.get(stream).next());
        let from = Some((producer, sequence));
        self.history.change(stream, |e| e.push(kept, from));
        Ok(ticket.llsn)
    }

    /// Repeat what a producer sent last: it must get the original position.
    pub fn repeat(&mut self, stream: u32, context: &str) {
        let expected = self.history.get(stream);
        for (producer, next) in expected.sequences.clone() {
            let (id, sequence) = (
                ProducerId {
                    id: producer,
                    epoch: 0,
                },
                next - 1,
            );
            let llsn = self.history.get(stream).placed[&(producer, sequence)];
            let kept = kept(0, 8);
            let ticket = self
                .store
                .append(stream, record(&kept), Some((id, sequence)));
            assert_eq!(ticket.unwrap().llsn, llsn, "{context}: repeat {sequence}");
        }
    }

    /// Submit records as columns, in batches of about `target` bytes.
    pub fn columns(&mut self, stream: u32, lens: &[usize], target: usize) -> Result<u64> {
        let records: Vec<Kept> = lens.iter().map(|len| self.fresh(*len)).collect();
        let ticket = with_columns(&records, |columns| {
            self.store
                .append_columns(stream, columns, 0..columns.len, target, None)
        })?;
        assert_eq!(ticket.llsn, self.history.get(stream).next());
        for kept in records {
            self.history.change(stream, |e| e.push(kept, None));
        }
        Ok(ticket.llsn)
    }

    pub fn compress(&mut self, stream: u32, compression: Compression) {
        self.store.set_compression(stream, compression);
    }

    /// Commit the next `count` records.
    pub fn commit(&mut self, stream: u32, count: u64) {
        let expected = self.history.get(stream);
        let context = CommitContext {
            version: expected.version + 1,
            glsn_begin: expected.glsn + 3,
            llsn_begin: expected.committed,
            length: count,
            high_watermark: expected.glsn + 3 + count,
        };
        let epoch = expected.epoch;
        self.store.commit(stream, epoch, context).unwrap();
        self.history.change(stream, |e| {
            let run = (0..count).map(|at| (context.llsn_begin + at, context.glsn_begin + at));
            e.glsns.extend(run);
            e.version += 1;
            e.committed += count;
            e.glsn += 3 + count;
        });
    }

    pub fn roll_back(&mut self, stream: u32, from: u64) {
        let epoch = self.history.get(stream).epoch;
        self.store.rollback(stream, epoch, from).unwrap();
        self.history.change(stream, |e| e.roll_back(from));
    }

    pub fn raise_epoch(&mut self, stream: u32, epoch: u64) {
        self.store.raise_epoch(stream, epoch).unwrap();
        self.history.change(stream, |e| e.epoch = epoch);
    }

    pub fn set_cursor(&mut self, stream: u32, name: &str, position: u64) {
        let cursor = Cursor {
            position,
            pin: false,
            touched: 5,
            lease: 0,
        };
        self.store.set_cursor(stream, name, cursor).unwrap();
        let name = name.to_owned();
        self.history
            .change(stream, |e| _ = e.cursors.insert(name, position));
    }

    pub fn delete_cursor(&mut self, stream: u32, name: &str) {
        self.history.change(stream, |e| _ = e.cursors.remove(name));
        self.store.delete_cursor(stream, name).unwrap();
        self.ack();
    }

    /// Change tables. That is acknowledged, and the cursors of their logs come and go with them.
    pub fn change_tables(&mut self, changes: &[TableChange]) -> Result<()> {
        let before = self.store.state();
        self.store.change_tables(changes.to_vec())?;
        let (tables, pins) = before.tables.changed(changes, &before).unwrap();
        for (log, name, cursor) in pins {
            let stream = before.logs[&log].stream;
            self.history.change(stream, |e| match cursor {
                Some(cursor) => _ = e.cursors.insert(name, cursor.position),
                None => _ = e.cursors.remove(&name),
            });
        }
        self.history.change_tables(tables);
        self.ack();
        Ok(())
    }

    pub fn move_table_pin(&mut self, stream: u32, table: u128, position: u64) {
        self.store.move_table_pin(table, position, 5).unwrap();
        self.history.change(stream, |e| {
            let pin = e.cursors.get_mut(&pin_name(table)).unwrap();
            *pin = position.max(*pin);
        });
    }

    pub fn trim(&mut self, stream: u32, first: u64) {
        self.history.change(stream, |e| e.low = e.low.max(first));
        self.store.trim(stream, first).unwrap();
        self.ack();
    }

    pub fn clean(&mut self, target: u64) -> Reclaimed {
        let done = self.store.clean(target, 0.9).unwrap();
        self.sync();
        done
    }

    /// Close and open again: everything is as it was.
    pub fn reopen(&mut self) {
        self.sync();
        let before = self.store.state();
        self.store.close().unwrap();
        self.ack();
        let (store, report) = open_with(&self.vfs, &self.options, self.opened).unwrap();
        self.opened += 1;
        assert!(report.clean && report.torn.is_none(), "{report:?}");
        assert_eq!(store.state(), before, "state after a reopen");
        self.store = store;
        self.check("reopened");
    }

    /// Crash, open again, and go on with what was recovered.
    pub fn kill(&mut self, policy: CrashPolicy) -> OpenReport {
        let acked = self.acked.last().cloned().unwrap_or_default();
        let image = self.vfs.trace().crash(self.vfs.operations(), policy);
        let (store, report) = open_with(&image, &self.options, self.opened).unwrap();
        let now = self.history.now();
        self.history = self.history.locate(&store.state(), &acked, &now, "kill");
        (self.vfs, self.store) = (image, store);
        self.opened += 1;
        self.check("recovered");
        self.acked = Vec::new();
        self.ack();
        report
    }

    pub fn check(&self, context: &str) {
        self.history.check(self.store.view(), context);
    }

    /// Append to every stream, commit everything, and check all of it.
    pub fn go_on(&mut self, context: &str) {
        for stream in self.history.live() {
            self.repeat(stream, context);
            for len in [20, 3000, 200] {
                self.push(stream, len).unwrap();
            }
            let expected = self.history.get(stream);
            if expected.explicit {
                self.commit(stream, expected.next() - expected.committed);
            }
            self.sync();
        }
        self.check(context);
    }
}
