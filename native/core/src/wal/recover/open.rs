//! Opening a node directory: the preamble of the newest segment and one scan of it.
//!
//! # Theory of operation
//!
//! The manifest names the segments. The newest one begins with the whole state; folding its frames gives
//! the state of the log. A checkpoint has it as of a later frame, and saves folding those before. The scan
//! ends where no valid frame begins. That place is a *torn tail* if
//! nothing shows that it was ever durable, and *corruption* if something does: a later frame of the
//! same lap which says so, the watermark file, or an orderly close behind it. A torn tail is cut: what
//! a later, unacknowledged write left behind it is overwritten with zeros before anything is appended, so
//! that it can never be read as the successor of new frames.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;
use crate::limits::BLOCK_BYTES;
use crate::manifest;
use crate::vfs::{Access, AlignedBuf, Vfs};
use crate::wal::format::header::SegmentHeader;
use crate::wal::format::order::Orders;
use crate::wal::format::salt::mix;
use crate::wal::format::state::State;
use crate::wal::format::watermark::Watermark;
use crate::wal::placing::appender::{Active, Appender};
use crate::wal::placing::bound;
use crate::wal::read::stream::range_of;
use crate::wal::read::view::{View, new_pool};
use crate::wal::recover::directory::{
    Found, LOCK, create_identity, end_restore, identify, open_manifest, sync_parents,
};
use crate::wal::recover::evidence::{check_durable, reach};
use crate::wal::recover::fold::{begin, fold};
use crate::wal::recover::tables::tables;
use crate::wal::recover::tail::is_torn;
use crate::wal::segments::segment::Segment;
use crate::wal::write::files::Files;
use crate::wal::write::options::Options;
use crate::wal::write::progress::ProgressFiles;
use crate::wal::write::store::Store;

/// Bytes at the end of the log that nobody was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Segment file.
    pub path: PathBuf,
    /// Where the log ends now.
    pub offset: u32,
    /// What the check found there.
    pub reason: String,
    /// Bytes of later unacknowledged writes that were overwritten with zeros.
    pub erased: u64,
}

/// What an open found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Whether the directory was new.
    pub created: bool,
    /// Whether the last writer closed in good order.
    pub clean: bool,
    /// Newest segment.
    pub segment: u64,
    /// Bytes scanned in it.
    pub scanned_bytes: u64,
    /// Frames folded.
    pub frames: u64,
    /// A tail that was cut.
    pub torn: Option<TornTail>,
    /// A torn last edit of the manifest was dropped.
    pub manifest_torn: bool,
    /// Files that nothing named. Slots among them are removed by housekeeping, others were.
    pub orphans: Vec<PathBuf>,
    /// Files that this program never writes; left alone.
    pub foreign: Vec<PathBuf>,
}

/// Open a node directory for writing, creating it if it does not exist.
///
/// Fails without changing anything if another writer has it ([`Error::Locked`]), if it belongs to
/// something else ([`Error::Foreign`], [`Error::Newer`]), if files are missing ([`Error::Missing`])
/// or durable bytes are damaged ([`Error::Corruption`]).
#[expect(clippy::needless_pass_by_value, reason = "the store keeps it")]
pub fn open(vfs: Arc<dyn Vfs>, dir: &Path, options: Options) -> Result<(Store, OpenReport)> {
    options.check()?;
    // Before the lock file is made, so that a directory of something else stays as it is, and none is begun that
    // the options would refuse.
    if let Found::Unfinished = identify(&*vfs, dir)? {
        bound::check(options.segment_bytes as u32, options.wal_bytes_max)?;
    }
    vfs.create_dir_all(dir)?;
    // From here on nobody else writes, so what was looked at before is looked at again.
    let lock = vfs.lock(&dir.join(LOCK), &options.holder)?;
    let mut report = OpenReport::default();
    let identity = match identify(&*vfs, dir)? {
        Found::Node(identity) => {
            end_restore(&*vfs, dir)?;
            identity
        }
        Found::Unfinished => {
            report.created = true;
            sync_parents(&*vfs, dir)?;
            create_identity(&*vfs, dir, &options)?
        }
    };
    let (manifest, opened) = open_manifest(&vfs, dir, &identity)?;
    let said = |is: fn(&manifest::OpenReport) -> bool| opened.as_ref().is_some_and(is);
    report.manifest_torn = said(|opened| opened.dropped.is_some());
    // Still true now: a writer that had opened it since would have begun a new manifest file first.
    report.clean = said(|opened| opened.clean_close);
    let (segment_bytes, given) = (identity.segment_bytes, options.wal_bytes_max);
    let wal_bytes_max = bound::choose(dir, manifest.version(), segment_bytes, given)?;
    // Every open begins a manifest file and so takes edit numbers: a segment that was begun and never listed
    // shares its salt with no successor, even if the same number is given twice.
    let entropy = mix(options.entropy ^ mix(manifest.next_edit()));
    let pool = new_pool();
    let view = View::new(
        Arc::clone(&vfs),
        dir.to_owned(),
        pool.clone(),
        options.recent_bytes_max,
        options.index_bytes_max,
        options.lookup_bytes_max,
    );
    let segments = tables(dir, manifest.version(), identity.segment_bytes)?;
    let used = segments.len() as u64;
    let sizes = bound::sizes(segment_bytes, wal_bytes_max, used, options.begin_bytes);
    let mut files = Files::new(Arc::clone(&vfs), dir.to_owned(), manifest);
    let mut appender = match segments.last() {
        None => {
            let mut appender = Appender::create(sizes, identity.node, entropy, pool)?;
            appender.orders = Orders::new(options.order_bytes_max);
            appender
        }
        Some(newest) => {
            newest.check_header(&*vfs, identity.node)?;
            let mut orders = Orders::new(options.order_bytes_max);
            let (state, active) = recover(&*vfs, dir, newest, &options, &mut orders, &mut report)?;
            if !report.clean {
                // The manifest may say so all the same, if files were put here from elsewhere.
                files.begin()?;
            }
            let mut appender =
                Appender::new(state, active, sizes, used, identity.node, entropy, pool);
            appender.state_bytes += orders.encoded_len();
            appender.orders = orders;
            appender
        }
    };
    view.set_segments(segments);
    for (number, stream) in &appender.state.streams {
        view.publish(*number, range_of(stream));
    }
    files.set_bound(wal_bytes_max)?;
    // After a close in good order nothing is half done, so there is nothing to look for.
    if !report.clean {
        let orphans = files.collect_orphans()?;
        (report.orphans, report.foreign) = (orphans.files, orphans.foreign);
    }
    files.make_ballast()?;
    // The first segment of a log takes one of them.
    appender.slots_ready = files.ready_slots().saturating_sub(u64::from(used == 0));
    let progress = ProgressFiles::open(&*vfs, dir)?;
    let view = Arc::new(view);
    let store = Store::assemble(view, appender, files, progress, options, lock).start()?;
    // A kill may have cut off a trim, or the making of a slot. To find the first each segment is looked at, and
    // removing the second writes. Both take too long for an open, so housekeeping does it.
    store.inner.lock().reclaim_due = !report.clean;
    Ok((store, report))
}

fn recover(
    vfs: &dyn Vfs,
    dir: &Path,
    newest: &Arc<Segment>,
    options: &Options,
    orders: &mut Orders,
    report: &mut OpenReport,
) -> Result<(State, Active)> {
    let file = newest.reader(vfs)?;
    let mut format = [0; 8];
    file.read_exact_at(&mut format, 0)?;
    if !SegmentHeader::has_orders(&format) {
        // The segment is of a format whose readers know no order frames.
        orders.silence();
    }
    let (mut state, mut walk) = begin(vfs, dir, Arc::clone(&file), newest)?;
    let begin = walk.offset;
    let folded = fold(&mut walk, newest, &mut state, orders)?;
    let watermark = Watermark::read(vfs, dir)?;
    let reason = walk.ended.take().unwrap_or_default();
    // The manifest alone is no proof: it may have been copied here without the segments, or they without it.
    report.clean &= folded.closed;
    // Neither is a close frame alone. The log may have been opened again, with groups in flight behind the close
    // of which the first is lost. So anything but a clean close is searched for later frames.
    let ghosts = if report.clean {
        Vec::new()
    } else {
        walk.ghosts(reach(newest, watermark))?
    };
    check_durable(newest, &walk, &ghosts, watermark, &reason)?;
    // Something unfinished stands behind the end. That is no loss, but people are told.
    let torn = !report.clean
        && (!ghosts.is_empty() || is_torn(&*file, walk.offset, walk.ordinal, newest.bytes, &state));
    // What was read may be in memory only. It is made durable before it is served, or a crash could take back what
    // a reader has seen. The zeros go first: frames of lost groups must never be read behind new ones.
    let mut erased = 0;
    if !report.clean {
        let writable = vfs.open(newest.path(), Access::Write)?;
        erased = erase(vfs, newest, options, walk.offset, &ghosts)?;
        writable.sync()?;
    }
    if torn {
        let (path, offset) = (newest.path().into(), walk.offset);
        report.torn = Some(TornTail {
            path,
            offset,
            reason,
            erased,
        });
    }
    report.segment = newest.number;
    report.scanned_bytes = u64::from(walk.offset - begin);
    report.frames = folded.frames;
    // The next part begins with a copy of the last block, which is partly filled.
    let block = walk.offset / BLOCK_BYTES as u32 * BLOCK_BYTES as u32;
    let mut tail = vec![0; (walk.offset - block) as usize];
    file.read_exact_at(&mut tail, block.into())?;
    let (offset, ordinal) = (walk.offset, walk.ordinal);
    let active = Active {
        segment: Arc::clone(newest),
        offset,
        ordinal,
        durable: offset,
        tail,
        last: walk.last,
        checkpoint: begin,
    };
    Ok((state, active))
}

/// Overwrite what unacknowledged later writes left behind the end, so that it is never read again.
fn erase(
    vfs: &dyn Vfs,
    segment: &Segment,
    options: &Options,
    end: u32,
    ghosts: &[(u32, u32, u32)],
) -> Result<u64> {
    let Some(last) = ghosts.iter().map(|(_, end, _)| *end).max() else {
        return Ok(0);
    };
    let block = BLOCK_BYTES as u32;
    // Whole blocks, as direct I/O takes them: the bytes in front of the end are written again as they are.
    let (from, to) = (
        end / block * block,
        last.next_multiple_of(block).min(segment.bytes),
    );
    let mut zeros = AlignedBuf::zeroed((to - from) as usize);
    let keep = (end - from) as usize;
    segment
        .reader(vfs)?
        .read_exact_at(&mut zeros.as_mut_slice()[..keep], from.into())?;
    let writer = vfs.open_durable(segment.path(), options.sync_method)?;
    writer.write_durable_at(&zeros, from.into())?;
    Ok(u64::from(last - end))
}
