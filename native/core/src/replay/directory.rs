//! One node's files: what they add up to, before anything but the newest segment is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::damage::Damage;
use super::ending::Files;
use super::forward::Held;
use crate::error::{Error, Result};
use crate::index::CommitRun;
use crate::manifest::{Identity, Manifest, WalFiles};
use crate::vfs::{Vfs, VfsLock};
use crate::wal::{
    CommitContext, LOCK, NodeIdentity, Orders, State, Stream, View, Watermark, new_pool, range_of,
    tables,
};

/// How directories are read.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most bytes that are pending in one directory; `None`: what its writer promised.
    pub order_bytes_max: Option<u64>,
    /// Memory for the number indexes of what is not in order.
    pub index_bytes_max: usize,
    /// What the lock file says about the holder.
    pub holder: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order_bytes_max: None,
            index_bytes_max: 16 << 20,
            holder: "replay".into(),
        }
    }
}

/// A directory that no writer has, and none gets while this lives.
pub struct Directory {
    /// Where it is.
    pub path: PathBuf,
    pub(super) options: Options,
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) node: u128,
    pub(super) view: Arc<View>,
    pub(super) state: State,
    pub(super) orders: Orders,
    /// Commits by stream that are known from elsewhere; they go on where the files end.
    pub(super) known: BTreeMap<u32, Vec<CommitContext>>,
    pub(super) newest: Option<Arc<Held>>,
    /// How far the newest segment was durable, if it is damaged before that; else 0.
    pub(super) durable: u32,
    /// What cannot be read of the end of the log.
    pub damages: Vec<Damage>,
    /// Streams of which it is not known for that reason where they end.
    pub doubtful: BTreeSet<u32>,
    pub(super) bytes: Arc<AtomicU64>,
    _lock: Box<dyn VfsLock>,
}

impl Directory {
    /// Open a directory for reading: its newest segment is read here, once, and kept in memory.
    ///
    /// Where durable bytes of it are damaged, what can be read is, and `damages` says what cannot. A torn tail is
    /// no damage: nobody was promised what was in it.
    ///
    /// Fails with [`Error::Locked`] if a node runs on it, [`Error::Corruption`] or [`Error::Missing`] if
    /// nothing in it says what the streams are: its manifest, or the heads of all segments, are damaged.
    pub fn open(vfs: Arc<dyn Vfs>, path: &Path, options: Options) -> Result<Self> {
        let Some(identity) = NodeIdentity::read(&*vfs, path)? else {
            return Err(Error::NotFound {
                what: format!("a Braidlog directory at {}", path.display()),
            });
        };
        let lock = vfs.lock(&path.join(LOCK), &options.holder)?;
        let who = Identity {
            object: identity.wal,
            node: identity.node,
        };
        let manifest = Manifest::<WalFiles>::open_read_only(Arc::clone(&vfs), path, who)?;
        let files = Arc::clone(manifest.version());
        let segments = tables(path, &files, identity.segment_bytes)?;
        let ending = Files {
            vfs: &*vfs,
            dir: path,
            node: identity.node,
            listed: &files,
            segments: &segments,
            mark: Watermark::read(&*vfs, path)?,
            closed: manifest.closed(),
        }
        .ending()?;
        let view = View::new(
            Arc::clone(&vfs),
            path.to_owned(),
            new_pool(),
            0,
            options.index_bytes_max,
            0,
        );
        let directory = Self {
            path: path.to_owned(),
            options,
            vfs,
            node: identity.node,
            view: Arc::new(view),
            state: ending.state,
            orders: ending.orders,
            known: BTreeMap::new(),
            newest: ending.newest,
            durable: ending.durable,
            damages: ending.damages,
            doubtful: ending.doubtful,
            bytes: Arc::new(AtomicU64::new(ending.bytes)),
            _lock: lock,
        };
        directory.view.set_segments(segments);
        for (number, stream) in &directory.state.streams {
            directory.view.publish(*number, range_of(stream));
        }
        Ok(directory)
    }

    /// Where a stream stands, the commits included that [`Directory::commit`] told of.
    pub fn stream(&self, number: u32) -> Result<&Stream> {
        self.state.stream(number)
    }

    /// Take over a commit of which no file tells: the node was killed before its frame was written. It has to
    /// be of the epoch in which the stream's last records were stored, and to go on where it is committed.
    ///
    /// Fails with [`Error::StaleEpoch`], [`Error::NotDense`] or [`Error::BeyondEnd`] otherwise, changing nothing.
    pub fn commit(&mut self, number: u32, epoch: u64, context: CommitContext) -> Result<()> {
        let stream = self.state.streams.get_mut(&number);
        let stream = stream.ok_or_else(|| Error::NotFound {
            what: format!("stream {number}"),
        })?;
        stream.commit(epoch, &context)?;
        self.view.publish(number, range_of(stream));
        self.known.entry(number).or_default().push(context);
        Ok(())
    }

    /// The runs of [`Directory::commit`], rising.
    pub(super) fn known_runs(&self, number: u32) -> impl Iterator<Item = CommitRun> {
        let known = self.known.get(&number).into_iter().flatten();
        known
            .filter(|context| context.length > 0)
            .map(|context| CommitRun {
                glsn_begin: context.glsn_begin,
                llsn_begin: context.llsn_begin,
                length: context.length,
            })
    }

    /// The logs in it by name: (stream, options, whether commits are frames).
    pub fn logs(&self) -> BTreeMap<String, (u32, Vec<u8>, bool)> {
        let logs = self.state.logs.values();
        let row = |log: &crate::wal::Log| {
            let options = log.log.options.clone();
            (
                log.log.name.clone(),
                (log.stream, options, log.log.explicit_commit),
            )
        };
        logs.map(row).collect()
    }
}
