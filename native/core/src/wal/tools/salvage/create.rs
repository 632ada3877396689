//! Makes a node directory that begins with logs that are there already.

use std::path::Path;
use std::sync::Arc;

use super::Options;
use crate::error::{Error, Result};
use crate::manifest::{self, Identity, Manifest, WalFiles};
use crate::vfs::Vfs;
use crate::wal::format::identity::{IDENTITY, NodeIdentity};
use crate::wal::format::salt::mix;
use crate::wal::format::state::State;
use crate::wal::placing::appender::Appender;
use crate::wal::placing::bound;
use crate::wal::read::stream::range_of;
use crate::wal::read::view::{View, new_pool};
use crate::wal::recover::directory::{LOCK, make_dirs};
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
    })
}

/// A store on a new directory, which has no identity yet.
pub fn store(
    vfs: &Arc<dyn Vfs>,
    target: &Path,
    identity: &NodeIdentity,
    state: State,
    survey: &Survey,
    options: &Options,
) -> Result<Store> {
    vfs.create_dir_all(target)?;
    vfs.sync_dir(target.parent().unwrap_or(Path::new(".")))?;
    let lock = vfs.lock(&target.join(LOCK), &options.holder)?;
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
        entropy: options.entropy,
        holder: options.holder.clone(),
        ..options::Options::default()
    };
    // What was packed densely may need more segments than the old directory's bound allows.
    let room = (survey.laps.len() as u64 * 2 + 16) * segment_bytes;
    let sizes = bound::sizes(identity.segment_bytes, room, 0, store_options.begin_bytes);
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
    let appender = Appender::create_from(state, sizes, identity.node, options.entropy, pool)?;
    let progress = ProgressFiles::open(&**vfs, target)?;
    let mut files = Files::new(Arc::clone(vfs), target.to_owned(), manifest);
    let stored = survey.files.as_ref().ok().and_then(|files| files.bound());
    if let Some(bytes) = stored {
        files.set_bound(bytes)?;
    }
    Store::assemble(
        Arc::new(view),
        appender,
        files,
        progress,
        store_options,
        lock,
    )
    .start()
}

/// Let the directory be opened.
pub fn finish(vfs: &dyn Vfs, target: &Path, identity: &NodeIdentity) -> Result<()> {
    // Last of all: without it no open takes the directory, so what a kill leaves behind cannot pass for a whole
    // one.
    vfs.replace(&target.join(IDENTITY), &identity.encode())
}
