//! Runs on the in-memory disk, against sorted lists.

mod cost;
mod crash;
mod damage;
mod faults;
mod filters;
mod golden;
mod model;
mod refusals;
mod verify;

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::batch::Compression;
use crate::error::{Error, Result};
use crate::table::entry::{Direction, Entries, Entry};
use crate::vfs::{MemoryVfs, Vfs};

const DIR: &str = "/tree";

const ID: RunIdentity = RunIdentity {
    node: 0x0102,
    tree: 0x0304,
    number: 7,
};

/// An entry that owns its bytes.
type Owned = (Vec<u8>, u64, Option<Vec<u8>>);

fn borrowed((key, position, payload): &Owned) -> Entry<'_> {
    Entry {
        key,
        position: *position,
        payload: payload.as_deref(),
    }
}

fn owned(entry: Entry<'_>) -> Owned {
    (
        entry.key.to_vec(),
        entry.position,
        entry.payload.map(Into::into),
    )
}

fn options(compression: Compression, page_bytes: usize) -> RunOptions {
    RunOptions {
        compression,
        page_bytes,
        filter_bits_per_key: 10,
    }
}

fn memory() -> MemoryVfs {
    let vfs = MemoryVfs::new();
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    vfs.settle();
    vfs
}

fn write(vfs: &dyn Shared, entries: &[Owned], options: RunOptions) -> Result<Option<RunInfo>> {
    let mut writer = RunWriter::create(vfs.arc(), Path::new(DIR), ID, options)?;
    for entry in entries {
        writer.push(borrowed(entry))?;
    }
    writer.finish()
}

/// A file system that can be shared.
trait Shared {
    fn arc(&self) -> Arc<dyn Vfs>;
}

impl<V: Vfs + Clone + 'static> Shared for V {
    fn arc(&self) -> Arc<dyn Vfs> {
        Arc::new(self.clone())
    }
}

fn open(vfs: &dyn Shared, info: &RunInfo) -> Result<Arc<Run>> {
    let cache = Arc::new(RunCache::default());
    Run::open(vfs.arc(), Path::new(DIR), ID, info, &cache)
}

fn collect(mut entries: impl Entries) -> Result<Vec<Owned>> {
    let mut found = Vec::new();
    while entries.advance()? {
        found.push(owned(entries.entry()));
    }
    assert!(!entries.advance()?, "goes on behind the end");
    Ok(found)
}

fn all(run: &Arc<Run>) -> Result<Vec<Owned>> {
    collect(run.entries(None, None, Direction::Forward))
}

/// `keys` keys with a few versions each, some of them tombstones; enough to fill several pages of 512 bytes.
fn some_entries(keys: u64) -> Vec<Owned> {
    (0..keys)
        .flat_map(|key| {
            (0..=key % 3).map(move |version| {
                let payload = format!("payload {key} {version} {}", "x".repeat(key as usize % 40));
                let is_tombstone = (key + version) % 5 == 0;
                (
                    format!("key-{key:05}").into_bytes(),
                    1000 * (3 - version) + key,
                    (!is_tombstone).then(|| payload.into_bytes()),
                )
            })
        })
        .collect()
}

/// The content of the run's file.
fn file(vfs: &MemoryVfs) -> Vec<u8> {
    vfs.read(&Path::new(DIR).join(file_name(ID.number)), 1 << 30)
        .unwrap()
}

/// A disk that has this as the run's file.
fn disk_of(bytes: &[u8]) -> MemoryVfs {
    let vfs = memory();
    vfs.replace(&Path::new(DIR).join(file_name(ID.number)), bytes)
        .unwrap();
    vfs
}
