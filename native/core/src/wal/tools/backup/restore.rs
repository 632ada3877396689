//! Makes a directory of what a backup has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cut::LogCut;
use super::part::Entries;
use crate::batch::parse_head;
use crate::error::{Error, Result};
use crate::vfs::{Vfs, remove_all};
use crate::wal::format::identity::{IDENTITY, NodeIdentity};
use crate::wal::format::salt::mix;
use crate::wal::format::state::{Log, State};
use crate::wal::format::stream::Stream;
use crate::wal::format::tables::Table;
use crate::wal::format::watermark::WATERMARK;
use crate::wal::placing::bound;
use crate::wal::recover::directory::{LOCK, RESTORING};
use crate::wal::segments::checkpoint::CHECKPOINT;
use crate::wal::tools::salvage::create::{self, Holder, Room};
use crate::wal::write::store::Store;

/// Name of the directory with the files of tables.
pub const TABLES: &str = "tables";

/// What the directory is to be like.
#[derive(Clone, Debug, Default)]
pub struct NewDirectory {
    /// Length of its segments.
    pub segment_bytes: u32,
    /// Most bytes of all segments.
    pub bound: Option<u64>,
    /// About how many bytes of records come.
    pub bytes: u64,
    /// Random number for identity and salts.
    pub entropy: u64,
    /// What the lock file says about the holder.
    pub holder: String,
    /// What [`RESTORING`] says, for people.
    pub note: String,
}

/// A table, with the first position that it needs of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCut {
    /// As the catalog had it.
    pub table: Table,
    /// Position of its cursor.
    pub pin: u64,
}

/// A directory that is being made. Dropped before [`Restore::finish`] it leaves files that no open accepts.
pub struct Restore {
    vfs: Arc<dyn Vfs>,
    target: PathBuf,
    store: Store,
    identity: NodeIdentity,
    /// Number of the stream in the directory, and where the log must end, by log.
    logs: BTreeMap<u128, (u32, u64)>,
    holes: bool,
}

impl Restore {
    /// Begin a directory in which each log is empty at its first position, with the tables in its catalog. What a restore
    /// that did not finish has left there is removed. The files of the tables have to be there before
    /// [`Restore::finish`], in [`TABLES`], and to name [`Restore::node`].
    ///
    /// Fails with [`Error::AlreadyExists`] if `target` holds anything else, [`Error::Locked`] if another restore
    /// fills it.
    pub fn create(
        vfs: Arc<dyn Vfs>,
        target: &Path,
        logs: Vec<LogCut>,
        tables: Vec<TableCut>,
        how: &NewDirectory,
    ) -> Result<Self> {
        bound::check(how.segment_bytes, how.bound)?;
        // Two logs are not to share a past: what is appended from here on is not what the source appends.
        let random = |n: u64| u128::from(mix(how.entropy.wrapping_add(n)));
        let identity = NodeIdentity {
            node: random(1) << 64 | random(2),
            wal: random(3) << 64 | random(4),
            segment_bytes: how.segment_bytes,
            holes: false,
            tables: !tables.is_empty(),
        };
        let mut state = State::default();
        let mut ends = BTreeMap::new();
        for log in logs {
            let number = state.next_stream;
            ends.insert(log.log.id, (number, log.end));
            add(&mut state, log)?;
        }
        state.restore_tables(tables.into_iter().map(|cut| (cut.table, cut.pin)))?;
        refuse_existing(&*vfs, target)?;
        let holder = Holder::take(&*vfs, target, &how.holder, how.entropy)?;
        // Again, now that nobody else fills it.
        refuse_existing(&*vfs, target)?;
        let marker = target.join(RESTORING);
        if vfs.exists(&marker)? {
            remove_remains(&*vfs, target)?;
        } else {
            // First of all: without it an open would take what is there for a directory that was never used.
            vfs.replace(&marker, how.note.as_bytes())?;
        }
        let room = Room {
            segments: how.bytes / u64::from(how.segment_bytes) + 1,
            bound: how.bound,
        };
        let store = create::store(&vfs, target, &identity, state, holder, &room)?;
        Ok(Self {
            vfs,
            target: target.to_owned(),
            store,
            identity,
            logs: ends,
            holes: false,
        })
    }

    /// Append the records of a part that its log still lacks: those from its first position on.
    ///
    /// Fails with [`Error::NotDense`] if records are missing before them.
    pub fn place(&mut self, part: &[u8]) -> Result<()> {
        let entries = Entries::new(part)?;
        let log = entries.header.log;
        let &(stream, end) = self.logs.get(&log).ok_or_else(|| Error::NotFound {
            what: format!("log {log:032x}"),
        })?;
        for entry in entries {
            let entry = entry?;
            let next = self.next(stream)?;
            let behind = entry.llsn + u64::from(entry.count);
            if behind <= next {
                continue;
            }
            if entry.llsn > next || behind > end {
                return Err(Error::NotDense {
                    what: "position in a backup",
                    given: entry.llsn,
                    expected: next.min(end),
                });
            }
            let skip = (next - entry.llsn) as u32;
            let mut cut = Vec::new();
            let batch = if skip == 0 {
                entry.batch
            } else {
                let count = entry.count - skip;
                super::part::put(&mut cut, (next, next), skip, count, entry.batch)?;
                &cut[24..]
            };
            self.holes |= parse_head(batch)?.is_hole();
            self.store.append_encoded(stream, 0, next, batch)?;
        }
        Ok(())
    }

    /// Identity of the node whose directory it becomes: files of tables name it.
    pub fn node(&self) -> u128 {
        self.identity.node
    }

    fn next(&self, stream: u32) -> Result<u64> {
        self.store
            .with_state(|state| state.stream(stream).map(|stream| stream.next))
    }

    /// Make everything durable, and let the directory be opened.
    ///
    /// Fails with [`Error::NotDense`] if a log does not reach its end; the directory then cannot be opened.
    pub fn finish(self) -> Result<()> {
        for (stream, end) in self.logs.values() {
            let next = self.next(*stream)?;
            if next != *end {
                return Err(Error::NotDense {
                    what: "end of a log in a backup",
                    given: next,
                    expected: *end,
                });
            }
        }
        self.store.close()?;
        drop(self.store);
        let identity = NodeIdentity {
            holes: self.holes,
            ..self.identity
        };
        create::finish(&*self.vfs, &self.target, &identity)?;
        // From here on it is a directory like any other; an open removes the marker too.
        self.vfs.remove(&self.target.join(RESTORING))?;
        self.vfs.sync_dir(&self.target)
    }
}

/// Refuse a directory that holds anything but what a restore left that did not finish.
fn refuse_existing(vfs: &dyn Vfs, target: &Path) -> Result<()> {
    if !vfs.exists(target)? {
        return Ok(());
    }
    let names = vfs.list(target)?;
    let is = |what: &str| names.iter().any(|name| name == what);
    let ours = |name: &String| is_left(name) || name == "wal" || name == TABLES;
    let began = |name: &String| name == LOCK || name == "RESTORING.tmp";
    let unfinished = is(RESTORING) && !is(IDENTITY) && names.iter().all(ours);
    if unfinished || names.iter().all(began) {
        return Ok(());
    }
    Err(Error::AlreadyExists {
        what: target.display().to_string(),
    })
}

/// Whether a restore may leave a file of this name.
fn is_left(name: &str) -> bool {
    let fixed = [
        LOCK,
        RESTORING,
        "IDENTITY.tmp",
        "RESTORING.tmp",
        "CURRENT",
        "CURRENT.tmp",
        WATERMARK,
        CHECKPOINT,
        "BALLAST",
    ];
    name.starts_with("MANIFEST-") || fixed.contains(&name)
}

fn remove_remains(vfs: &dyn Vfs, target: &Path) -> Result<()> {
    let wal = target.join("wal");
    if vfs.exists(&wal)? {
        for name in vfs.list(&wal)? {
            vfs.remove(&wal.join(name))?;
        }
        vfs.sync_dir(&wal)?;
    }
    let tables = target.join(TABLES);
    if vfs.exists(&tables)? {
        remove_all(vfs, &tables)?;
    }
    for name in vfs.list(target)? {
        if is_left(&name) && name != LOCK && name != RESTORING {
            vfs.remove(&target.join(name))?;
        }
    }
    vfs.sync_dir(target)
}

fn add(state: &mut State, log: LogCut) -> Result<()> {
    let LogCut {
        log,
        first,
        mut producers,
        cursors,
        ..
    } = log;
    let twice = state.logs.contains_key(&log.id) || state.log_named(&log.name).is_some();
    if twice {
        return Err(Error::AlreadyExists {
            what: format!("log {:?}", log.name),
        });
    }
    if log.explicit_commit || first == 0 {
        let reason = format!("log {:?} is no embedded log", log.name);
        return Err(Error::InvalidArgument(reason));
    }
    // What they stored from there on they learn again, from the records.
    producers.cut(first);
    let stream = Stream {
        low: first,
        committed: first,
        next: first,
        producers,
        cursors,
        ..Stream::new(false)
    };
    let number = state.next_stream;
    state.next_stream += 1;
    state.streams.insert(number, stream);
    let (id, stream) = (log.id, number);
    state.logs.insert(id, Log { log, stream });
    Ok(())
}
