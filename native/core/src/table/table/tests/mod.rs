//! Tables over a log on the in-memory disk, against a list of everything that was appended.

mod backup;
mod building;
mod counting;
mod crash;
mod files;
mod following;
mod hosted;
mod model;
mod origin;
mod payloads;
mod reading;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::error::{Error, Result};
use crate::table::entry::Direction;
use crate::table::order::{Extractor, IndexSpec, Outcome, Value};
use crate::table::run::{RunCache, RunOptions};
use crate::table::tree::TreeOptions;
use crate::vfs::{MemoryVfs, Vfs};
use crate::wal::{NewLog, NewRecord, Options, Store, StreamView, View, open};

const TABLES: &str = "/data/tables";
const STREAM: u32 = 1;

/// Key and value of each record; positions count from 1.
type Appended = Vec<(Option<Vec<u8>>, Vec<u8>)>;

/// A table and the log that it follows.
struct Fixture {
    vfs: MemoryVfs,
    store: Store,
    table: Arc<Table>,
    definition: TableDefinition,
    options: TableOptions,
    appended: Appended,
}

fn table_options() -> TableOptions {
    TableOptions {
        deletes: Deletes::Empty,
        tree: TreeOptions {
            run: RunOptions {
                page_bytes: 256,
                ..RunOptions::default()
            },
            ..TreeOptions::default()
        },
        ..TableOptions::default()
    }
}

fn definition(indexes: &[(&str, &str)]) -> TableDefinition {
    TableDefinition {
        node: 1,
        id: 2,
        primary: 3,
        base: 0,
        indexes: indexes
            .iter()
            .zip(10..)
            .map(|((name, spec), tree)| index_definition(name, spec, tree, 0))
            .collect(),
    }
}

fn index_definition(name: &str, spec: &str, tree: u128, base: u64) -> IndexDefinition {
    IndexDefinition {
        tree,
        name: name.into(),
        spec: IndexSpec::parse(spec).unwrap(),
        on_refusal: OnRefusal::Incomplete,
        base,
    }
}

fn open_store(vfs: &MemoryVfs) -> Result<Store> {
    let options = Options {
        segment_bytes: 256 << 10,
        begin_bytes: 64 << 10,
        entropy: 42,
        ..Options::default()
    };
    Ok(open(Arc::new(vfs.clone()), Path::new("/data"), options)?.0)
}

fn shared(vfs: &MemoryVfs) -> Arc<dyn Vfs> {
    Arc::new(vfs.clone())
}

fn open_table(
    vfs: &MemoryVfs,
    store: &Store,
    definition: &TableDefinition,
    options: TableOptions,
) -> Result<Arc<Table>> {
    let stream = store.view().stream(STREAM)?;
    let first = stream.range().first;
    let cache = Arc::new(RunCache::default());
    let table = Table::open(
        &shared(vfs),
        Path::new(TABLES),
        definition,
        options,
        first,
        &cache,
    )?;
    table.check_origin(store.view(), &stream)?;
    Ok(table)
}

impl Fixture {
    fn new(indexes: &[(&str, &str)], options: TableOptions) -> Self {
        Self::on(MemoryVfs::new(), indexes, options)
    }

    fn on(vfs: MemoryVfs, indexes: &[(&str, &str)], options: TableOptions) -> Self {
        let store = open_store(&vfs).unwrap();
        let log = NewLog {
            id: 9,
            explicit_commit: false,
            created: 0,
            name: "log".into(),
            options: Vec::new(),
        };
        assert_eq!(store.create_log(log).unwrap(), STREAM);
        let definition = definition(indexes);
        let cache = Arc::new(RunCache::default());
        vfs.create_dir_all(Path::new(TABLES)).unwrap();
        Table::create(
            &shared(&vfs),
            Path::new(TABLES),
            &definition,
            &options,
            &cache,
        )
        .unwrap();
        let table = open_table(&vfs, &store, &definition, options.clone()).unwrap();
        Self {
            vfs,
            store,
            table,
            definition,
            options,
            appended: Vec::new(),
        }
    }

    fn append(&mut self, key: Option<&[u8]>, value: &[u8]) -> u64 {
        let record = NewRecord {
            value: Some(value),
            key,
            timestamp: 1_000 + self.appended.len() as i64,
            headers: &[("h", Some(b"x"))],
        };
        let ticket = self.store.append(STREAM, record, None).unwrap();
        self.store.wait(ticket.group).unwrap();
        self.appended.push((key.map(Into::into), value.into()));
        ticket.llsn
    }

    fn put(&mut self, key: &str, value: &str) -> u64 {
        self.append(Some(key.as_bytes()), value.as_bytes())
    }

    fn view(&self) -> (Arc<View>, Arc<StreamView>) {
        let view = Arc::clone(self.store.view());
        let stream = view.stream(STREAM).unwrap();
        (view, stream)
    }

    fn catch_up(&self) -> u64 {
        let (view, stream) = self.view();
        self.table.catch_up(&view, &stream, u64::MAX).unwrap()
    }

    fn reopen(&mut self) {
        self.table = open_table(
            &self.vfs,
            &self.store,
            &self.definition,
            self.options.clone(),
        )
        .unwrap();
    }

    fn build(&mut self, name: &str, spec: &str, tree: u128) -> Result<()> {
        let index = index_definition(name, spec, tree, self.table.position());
        let cache = Arc::new(RunCache::default());
        self.table.begin_index(&self.definition, &index, &cache)?;
        self.definition.indexes.push(index);
        let (view, stream) = self.view();
        self.table.build_index(tree, &view, &stream, &mut |_| true)
    }

    /// Everything about the table at a position is as the list says.
    fn check_at(&self, snapshot: &TableSnapshot) {
        let model = state_at(&self.appended, snapshot.position());
        assert_eq!(rows(snapshot, Direction::Forward), model);
        let mut reversed = rows(snapshot, Direction::Reverse);
        reversed.reverse();
        assert_eq!(reversed, model);
        for max in [2, usize::MAX] {
            let mut scan = snapshot.scan(None, None, Direction::Forward).unwrap();
            assert_eq!(positions_in_stretches(&mut scan, max), positions_of(&model));
        }
        for n in 0..12 {
            let key = format!("k{n}").into_bytes();
            let found = snapshot.get(&key).unwrap().map(|row| {
                let payload = row.payload().unwrap();
                (row.position(), payload.value.unwrap().to_vec())
            });
            let expected = model.iter().find(|(known, ..)| *known == key);
            let expected = expected.map(|(_, position, value)| (*position, value.clone()));
            assert_eq!(found, expected);
        }
        for (index, _) in snapshot.indexes() {
            if snapshot.position() < index.base() {
                continue;
            }
            let expected = index_model(&model, index.spec());
            for direction in [Direction::Forward, Direction::Reverse] {
                let mut found = index_rows(snapshot, index.name(), None, None, direction).unwrap();
                if direction == Direction::Reverse {
                    found.reverse();
                }
                assert_eq!(
                    found,
                    expected,
                    "{} at {}",
                    index.name(),
                    snapshot.position()
                );
            }
        }
    }

    fn check(&self) {
        let snapshot = self.table.snapshot().unwrap();
        for at in snapshot.floor()..=snapshot.position() {
            self.check_at(&snapshot.clone().at(at).unwrap());
        }
        self.table.verify(&mut |_| {}).unwrap();
    }
}

/// Key, position and value of each record that is there at a position.
fn state_at(appended: &Appended, position: u64) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let mut state = BTreeMap::new();
    for ((key, value), at) in appended.iter().zip(1..=position) {
        let Some(key) = key.as_ref().filter(|key| key.len() <= 16 << 10) else {
            continue;
        };
        if value.is_empty() {
            state.remove(key);
        } else {
            state.insert(key.clone(), (at, value.clone()));
        }
    }
    let owned = |(key, (at, value))| (key, at, value);
    state.into_iter().map(owned).collect()
}

fn rows(snapshot: &TableSnapshot, direction: Direction) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let mut rows = snapshot.scan(None, None, direction).unwrap();
    let mut found = Vec::new();
    while rows.advance().unwrap() {
        let payload = rows.payload().unwrap();
        assert_eq!(payload.timestamp, 1_000 + rows.position() as i64 - 1);
        let headers: Vec<_> = payload.headers.collect();
        assert_eq!(headers, [("h", Some(&b"x"[..]))]);
        found.push((
            rows.key().to_vec(),
            rows.position(),
            payload.value.unwrap().to_vec(),
        ));
    }
    found
}

fn positions_of(model: &[(Vec<u8>, u64, Vec<u8>)]) -> Vec<u64> {
    model.iter().map(|(_, position, _)| *position).collect()
}

/// Positions of what a scan has still to give, taken in stretches.
fn positions_in_stretches(scan: &mut Rows, max: usize) -> Vec<u64> {
    let mut found = Vec::new();
    while scan.advance_stretch(max).unwrap() {
        match scan.stretch() {
            Some(stretch) => found.extend(stretch.positions()),
            None => found.push(scan.position()),
        }
    }
    found
}

/// Index key and position.
type Indexed = Vec<(Vec<u8>, u64)>;

fn index_model(model: &[(Vec<u8>, u64, Vec<u8>)], spec: &IndexSpec) -> Indexed {
    let mut extractor = Extractor::new(vec![spec.clone()]);
    let mut found = Vec::new();
    for (key, position, value) in model {
        let headers = [("h", Some(&b"x"[..]))].into_iter();
        extractor.extract(key, value, &headers, |_, outcome| {
            if let Outcome::Key(key) = outcome {
                found.push((key.to_vec(), *position));
            }
        });
    }
    found.sort();
    found
}

fn index_rows(
    snapshot: &TableSnapshot,
    name: &str,
    begin: Option<&[u8]>,
    end: Option<&[u8]>,
    direction: Direction,
) -> Result<Indexed> {
    let mut rows = snapshot.scan_index(name, begin, end, direction)?;
    let mut found = Vec::new();
    while rows.advance()? {
        assert!(rows.index_key().ends_with(rows.row().key()));
        found.push((rows.index_key().to_vec(), rows.row().position()));
    }
    Ok(found)
}
