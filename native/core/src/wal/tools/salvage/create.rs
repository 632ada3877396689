//! Makes a node directory that begins with logs that are there already.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::manifest::{self, Identity, Manifest, WalFiles};
use crate::vfs::{Vfs, VfsLock};
use crate::wal::format::identity::{IDENTITY, NodeIdentity};
use crate::wal::format::salt::mix;
use crate::wal::format::state::State;
use crate::wal::placing::appender::Appender;
use crate::wal::placing::bound;
use crate::wal::read::stream::range_of;
use crate::wal::read::view::{View, new_pool};
use crate::wal::recover::directory::{LOCK, make_dirs, sync_parents};
use crate::wal::tools::inspect::Survey;
use crate::wal::write::files::Files;
use crate::wal::write::options;
use crate::wal::write::progress::ProgressFiles;
use crate::wal::write::store::Store;

/// Refuse to write into anything that is there.
pub fn refuse_existing(vfs: &dyn Vfs, target: &Path) -> Result<()> {
    if vfs.exists(target)? && !vfs.list(target)?.is_empty() {
        return Err(Error::AlreadyExists {
            what: target.display().to_string(),
        });
    }
    Ok(())
}

/// The same node with a log of its own, so that no file of the old directory is taken for one of its.
pub fn identity(survey: &Survey, holes: bool, entropy: u64) -> Result<NodeIdentity> {
    // Nothing is taken from a damaged identity: the headers of segments also say how long they are.
    let known = survey.identity.as_ref().ok().copied().flatten();
    let bytes = known.map(|identity| identity.segment_bytes);
    let bytes = bytes.or(survey.newest().map(|lap| lap.bytes));
    let Some(segment_bytes) = bytes else {
        let reason = "no segment can be read";
        return Err(Error::corrupt(&survey.dir, 0, reason));
    };
    let random = |n: u64| u128::from(mix(entropy.wrapping_add(n)));
    Ok(NodeIdentity {
        node: survey.node,
        wal: random(3) << 64 | random(4),
        segment_bytes,
        holes: holes || known.is_some_and(|identity| identity.holes),
        // A repair saves none.
        tables: false,
    })
}

/// Who makes a directory.
pub struct Holder<'a> {
    /// Random number for salts.
    pub entropy: u64,
    /// What the lock file says.
    pub name: &'a str,
    /// The lock of the directory.
    pub lock: Box<dyn VfsLock>,
}

impl<'a> Holder<'a> {
    /// Make the directory, unless it is there, and take its lock.
    pub fn take(vfs: &dyn Vfs, target: &Path, name: &'a str, entropy: u64) -> Result<Self> {
        vfs.create_dir_all(target)?;
        sync_parents(vfs, target)?;
        let lock = vfs.lock(&target.join(LOCK), name)?;
        Ok(Self {
            entropy,
            name,
            lock,
        })
    }
}

/// What a directory needs room for.
pub struct Room {
    /// Segments that its records took.
    pub segments: u64,
    /// The bound that opens go by.
    pub bound: Option<u64>,
}

/// A store on a new directory, which has no identity yet.
pub fn store(
    vfs: &Arc<dyn Vfs>,
    target: &Path,
    identity: &NodeIdentity,
    state: State,
    holder: Holder<'_>,
    room: &Room,
) -> Result<Store> {
    let who = Identity {
        object: identity.wal,
        node: identity.node,
    };
    let manifest =
        Manifest::<WalFiles>::create(Arc::clone(vfs), target, who, manifest::Options::default())?;
    make_dirs(&**vfs, target)?;
    let segment_bytes = u64::from(identity.segment_bytes);
    let store_options = options::Options {
        segment_bytes,
        entropy: holder.entropy,
        holder: holder.name.to_owned(),
        ..options::Options::default()
    };
    // What was packed densely may need more segments than the old directory's bound allows.
    let most = (room.segments * 2 + 16) * segment_bytes;
    let sizes = bound::sizes(identity.segment_bytes, most, 0, store_options.begin_bytes);
    let pool = new_pool();
    let view = View::new(
        Arc::clone(vfs),
        target.to_owned(),
        pool.clone(),
        0,
        64 << 20,
        0,
    );
    for (number, stream) in &state.streams {
        view.publish(*number, range_of(stream));
    }
    let appender = Appender::create_from(state, sizes, identity.node, holder.entropy, pool)?;
    let progress = ProgressFiles::open(&**vfs, target)?;
    let mut files = Files::new(Arc::clone(vfs), target.to_owned(), manifest);
    if let Some(bytes) = room.bound {
        files.set_bound(bytes)?;
    }
    Store::assemble(
        Arc::new(view),
        appender,
        files,
        progress,
        store_options,
        holder.lock,
    )
    .start()
}

/// Let the directory be opened.
pub fn finish(vfs: &dyn Vfs, target: &Path, identity: &NodeIdentity) -> Result<()> {
    // Last of all: without it no open takes the directory, so what a kill leaves behind cannot pass for a whole
    // one.
    vfs.replace(&target.join(IDENTITY), &identity.encode())
}
