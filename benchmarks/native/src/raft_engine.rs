//! TiKV's log store: a Raft group for each caller, every write synced.

use std::path::Path;
use std::sync::Mutex;

use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};
use raft_proto::eraftpb::Entry;

use crate::{Log, Outcome};

/// Most callers of a task.
const CALLERS_MAX: usize = 1024;

struct Entries;

impl MessageExt for Entries {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// The entries of a group have consecutive indexes, so that two callers cannot append to one group at once: each has
/// its own, as in TiKV.
pub struct RaftEngine {
    engine: Engine,
    next: Vec<Mutex<u64>>,
}

impl RaftEngine {
    /// Create the store in an empty directory.
    pub fn open(directory: &Path) -> Outcome<Self> {
        let config = Config {
            dir: directory.to_string_lossy().into_owned(),
            // Nobody else compresses either.
            batch_compression_threshold: ReadableSize(0),
            ..Config::default()
        };
        let next = (0..CALLERS_MAX).map(|_| Mutex::new(1)).collect();
        Ok(Self {
            engine: Engine::open(config)?,
            next,
        })
    }

    fn write(&self, caller: usize, values: impl Iterator<Item = Vec<u8>>) -> Outcome<()> {
        let next = self.next.get(caller).ok_or("too many callers")?;
        let mut next = next.lock().map_err(|_| "a caller panicked")?;
        let entries: Vec<Entry> = values
            .map(|value| {
                let mut entry = Entry::new();
                entry.index = *next;
                entry.data = value.into();
                *next += 1;
                entry
            })
            .collect();
        let mut batch = LogBatch::default();
        batch.add_entries::<Entries>(caller as u64 + 1, &entries)?;
        self.engine.write(&mut batch, true)?;
        Ok(())
    }
}

impl Log for RaftEngine {
    fn append(&self, caller: usize, value: &[u8]) -> Outcome<()> {
        self.write(caller, std::iter::once(value.to_vec()))
    }

    fn append_batch(&self, values: &[u8], records: usize) -> Outcome<()> {
        self.write(
            0,
            values
                .chunks_exact(values.len() / records)
                .map(<[u8]>::to_vec),
        )
    }
}
