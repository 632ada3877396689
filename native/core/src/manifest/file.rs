//! The writer's side of a manifest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::{self, Field, Header, TAG_CLOSE};
use super::current::{
    CURRENT, encode_current, file_name, named_but_missing, parse_file_name, read_current,
};
use super::replay::Replay;
use super::{Context, Follower, Identity, OpenReport, Options, Version, snapshot};
use crate::error::{Error, Result};
use crate::limits::MANIFEST_FILE_BYTES_MAX;
use crate::vfs::{Access, Vfs, VfsFile};

/// The file that edits are appended to.
struct Live {
    file: Arc<dyn VfsFile>,
    number: u64,
    seed: u32,
    /// Where the snapshot ends.
    begin: u64,
    /// Where the next edit goes; everything before it was written and synced by this instance.
    end: u64,
    edits: u64,
}

/// A manifest open for writing. The caller holds the lock of the directory.
pub struct Manifest<V> {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    identity: Identity,
    options: Options,
    version: Arc<V>,
    /// Fields of newer builds, written again with every snapshot.
    kept: Vec<Field>,
    next_edit: u64,
    /// Never goes back, so that no attempt meets the remains of an earlier one.
    next_file: u64,
    /// `None` before the first file of this instance, and after a failed write.
    live: Option<Live>,
    /// The file that was read, which is closed in good order, until this instance changes anything.
    untouched: Option<u64>,
    /// Files to remove as soon as `CURRENT` durably names a newer one.
    stale: Vec<u64>,
}

impl<V: Version> Manifest<V> {
    /// Create an empty manifest in an existing directory.
    ///
    /// What an interrupted creation left behind is overwritten, anything else that looks like a
    /// manifest refuses. The caller makes sure that nothing else in the directory tells of an
    /// earlier life: a lost manifest is not to be replaced by an empty one.
    pub fn create(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        options: Options,
    ) -> Result<Self> {
        Self::create_from(vfs, dir, identity, options, V::default(), Vec::new())
    }

    /// As [`Self::create`], with a version from the start. What that lists is there and durable.
    pub(super) fn create_from(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        options: Options,
        version: V,
        kept: Vec<Field>,
    ) -> Result<Self> {
        if vfs.exists(&dir.join(CURRENT))? {
            let what = format!("manifest in {}", dir.display());
            return Err(Error::AlreadyExists { what });
        }
        let mut manifest = Self::unstarted(vfs, dir, identity, options);
        manifest.version = Arc::new(version);
        manifest.kept = kept;
        let initial = manifest.encode_file(1)?.bytes.len() as u64;
        for name in manifest.vfs.list(dir)? {
            let Some(number) = parse_file_name(&name) else {
                continue;
            };
            let path = dir.join(&name);
            // Only the first file has no predecessor, and only without edits does it tell nothing.
            let length = manifest.vfs.open(&path, Access::Read)?.len()?;
            if number != 1 || length > initial {
                let reason = format!("{CURRENT} is lost, {name} with edits is there");
                return Err(Error::Missing {
                    path: dir.join(CURRENT),
                    reason,
                });
            }
            manifest.vfs.remove(&path)?;
        }
        manifest.start_file()?;
        Ok(manifest)
    }

    /// Open for writing. Starts a new file, and only then removes older ones.
    ///
    /// Nothing is changed unless the manifest is read without an error. [`Error::NotFound`] only
    /// if the directory holds nothing at all besides a lock: see `current`.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        options: Options,
    ) -> Result<(Self, OpenReport)> {
        let (mut manifest, mut report) = Self::load(vfs, dir, identity, options)?;
        let older = manifest.stale.clone();
        manifest.begin()?;
        let removed = older
            .into_iter()
            .filter(|number| !manifest.stale.contains(number));
        report.removed = removed.map(file_name).collect();
        Ok((manifest, report))
    }

    /// As [`Self::open`], or [`Self::create`] where `CURRENT` never was, also behind a creation that was cut short.
    pub fn open_or_create(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        options: Options,
    ) -> Result<Self> {
        if vfs.exists(&dir.join(CURRENT))? {
            return Self::open(vfs, dir, identity, options).map(|(manifest, _)| manifest);
        }
        Self::create(vfs, dir, identity, options)
    }

    /// As [`Self::open`], but behind a close in good order nothing is written before the first commit or
    /// [`Self::begin`]: until then this instance may end anywhere, and leaves the directory closed.
    pub fn resume(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        options: Options,
    ) -> Result<(Self, OpenReport)> {
        let (mut manifest, report) = Self::load(vfs, dir, identity, options)?;
        if report.clean_close {
            manifest.untouched = Some(report.file_number);
        } else {
            manifest.begin()?;
        }
        Ok((manifest, report))
    }

    fn load(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        options: Options,
    ) -> Result<(Self, OpenReport)> {
        let number = read_current(vfs.as_ref(), dir)?;
        let path = dir.join(file_name(number));
        if !vfs.exists(&path)? {
            return Err(named_but_missing(path));
        }
        let bytes = vfs.read(&path, MANIFEST_FILE_BYTES_MAX)?;
        let mut replay = Replay::<V>::begin(&path, &bytes, number, &identity)?;
        let dropped = replay.feed(&path, &bytes[codec::HEADER_BYTES..])?;

        let mut manifest = Self::unstarted(vfs, dir, identity, options);
        let names = manifest.vfs.list(dir)?;
        let older: Vec<u64> = names
            .iter()
            .filter_map(|name| parse_file_name(name))
            .collect();
        let report = OpenReport {
            file_number: number,
            last_edit: replay.next_edit - 1,
            edits: replay.edits,
            clean_close: replay.closed,
            dropped,
            unknown_fields: replay.kept.len(),
            removed: Vec::new(),
        };
        // A file without a successor in CURRENT may still be there: never take its name.
        manifest.next_file = older.iter().copied().fold(number, u64::max) + 1;
        manifest.next_edit = replay.next_edit;
        manifest.version = Arc::new(replay.version);
        manifest.kept = replay.kept;
        manifest.stale = older;
        Ok((manifest, report))
    }

    /// Follow a manifest that another process may be writing.
    pub fn open_read_only(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
    ) -> Result<Follower<V>> {
        Follower::open(vfs, dir, identity)
    }

    /// The current version: everything committed, and nothing else.
    pub fn version(&self) -> &Arc<V> {
        &self.version
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file system.
    pub fn vfs(&self) -> &dyn Vfs {
        self.vfs.as_ref()
    }

    /// Number of the next edit.
    pub fn next_edit(&self) -> u64 {
        self.next_edit
    }

    /// Number of the file that `CURRENT` names; `None` while the outcome of a write is unknown.
    pub fn file_number(&self) -> Option<u64> {
        self.live
            .as_ref()
            .map(|live| live.number)
            .or(self.untouched)
    }

    /// Whether this instance has changed nothing, and the manifest is still closed in good order.
    pub fn is_untouched(&self) -> bool {
        self.untouched.is_some()
    }

    /// Start a file of this instance: from then on the manifest is not closed. To be called before
    /// anything is written that a close would speak for.
    pub fn begin(&mut self) -> Result<()> {
        if self.live.is_some() {
            return Ok(());
        }
        self.start_file()
    }

    /// Commit one edit and return its number. On success it is durable and installed.
    ///
    /// On an error the version is unchanged, and:
    /// - [`Error::InvalidArgument`] (it does not apply), [`Error::TooLarge`] and
    ///   [`Error::Failed`] (no new file could be started): the edit was not written. The manifest
    ///   is usable; after `Failed` the next commit tries again.
    /// - an error that [`Error::is_exhausted`]: as `Failed`, for only a new file needs a descriptor.
    /// - anything else: **the outcome is unknown**. After a crash now the edit may turn up. So the
    ///   caller deletes and reuses nothing that either version names, until [`Self::settle`] or
    ///   another commit succeeds: from then on the edit is known not to have happened.
    pub fn commit(&mut self, operations: &[V::Operation]) -> Result<u64> {
        if operations.is_empty() {
            return Err(Error::InvalidArgument(
                "an edit of the manifest needs an operation".into(),
            ));
        }
        let fields = snapshot::encode_operations(operations);
        codec::check_fields(&fields)?;
        let mut version = self.validate(operations)?;
        if self.needs_new_file() {
            self.start_file().map_err(|error| match error {
                error if error.is_exhausted() => error,
                error => Error::Failed {
                    reason: format!(
                        "cannot start a manifest file, the edit was not written: {error}"
                    ),
                },
            })?;
            // The snapshot took edit numbers.
            version = self.validate(operations)?;
        }
        let number = self.append(&fields)?;
        self.version = Arc::new(version);
        Ok(number)
    }

    /// Make the durable manifest agree with [`Self::version`] again after a failed write, by
    /// starting a new file. Does nothing if no write failed.
    pub fn settle(&mut self) -> Result<()> {
        if self.is_untouched() {
            Ok(())
        } else {
            self.begin()
        }
    }

    /// Whether the durable manifest is known to agree with [`Self::version`]. Files may be removed
    /// only then.
    pub fn check_settled(&self) -> Result<()> {
        if self.file_number().is_some() {
            return Ok(());
        }
        Err(Error::Failed {
            reason: "a write of the manifest failed, and whether it happened is unknown".into(),
        })
    }

    /// Say that nothing follows, so that from now on damage to any edit is told from a torn write.
    /// A manifest that is dropped instead loses nothing else.
    pub fn close(mut self) -> Result<()> {
        if self.is_untouched() {
            return Ok(());
        }
        self.settle()?;
        let mut fields = Vec::new();
        codec::push_field(&mut fields, TAG_CLOSE, |_| ());
        self.append(&fields).map(|_| ())
    }

    fn unstarted(vfs: Arc<dyn Vfs>, dir: &Path, identity: Identity, options: Options) -> Self {
        Self {
            vfs,
            dir: dir.to_owned(),
            identity,
            options,
            version: Arc::default(),
            kept: Vec::new(),
            next_edit: 1,
            next_file: 1,
            live: None,
            untouched: None,
            stale: Vec::new(),
        }
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.dir.join(file_name(number))
    }

    fn encode_file(&self, number: u64) -> Result<snapshot::File> {
        let header = Header {
            identity: self.identity,
            kind: V::KIND,
            file_number: number,
            first_edit: self.next_edit,
        };
        let part_bytes = self.options.snapshot_edit_bytes;
        snapshot::encode_file(&header, self.version.as_ref(), &self.kept, part_bytes)
    }

    fn validate(&self, operations: &[V::Operation]) -> Result<V> {
        let mut version = V::clone(&self.version);
        let context = Context {
            edit: self.next_edit,
            snapshot: false,
        };
        version
            .apply(context, operations)
            .map_err(Error::InvalidArgument)?;
        Ok(version)
    }

    fn needs_new_file(&self) -> bool {
        self.live.as_ref().is_none_or(|live| {
            live.end - live.begin >= self.options.rotate_bytes
                || live.edits >= self.options.rotate_edits
        })
    }

    /// Append and sync one edit. After a failure the file is never touched again: what it holds is
    /// unknown, and a second sync may report success for pages that the kernel gave up.
    fn append(&mut self, fields: &[u8]) -> Result<u64> {
        let Some(live) = self.live.as_mut() else {
            return Err(Error::Failed {
                reason: "no manifest file is open".into(),
            });
        };
        let number = self.next_edit;
        let mut frame = Vec::new();
        codec::encode_frame(&mut frame, live.seed, number, fields)?;
        let written = live
            .file
            .write_all_at(&frame, live.end)
            .and_then(|()| live.file.sync());
        if let Err(error) = written {
            self.stale.extend(self.live.take().map(|live| live.number));
            return Err(error);
        }
        live.end += frame.len() as u64;
        live.edits += 1;
        self.next_edit += 1;
        Ok(number)
    }

    /// Write the current version to a new file, let `CURRENT` name it, remove older ones.
    ///
    /// A failure before `CURRENT` is touched changes nothing. After that it may name either file,
    /// so neither is appended to or removed until a later attempt succeeds.
    fn start_file(&mut self) -> Result<()> {
        let number = self.next_file;
        let encoded = self.encode_file(number)?;
        self.next_file += 1;
        let path = self.path_of(number);
        let file = self.vfs.open(&path, Access::CreateNew)?;
        self.stale.push(number);
        self.untouched = None;
        file.write_all_at(&encoded.bytes, 0)?;
        file.sync()?;
        // The entry must be durable before CURRENT names it.
        self.vfs.sync_dir(&self.dir)?;
        self.stale.extend(self.live.take().map(|live| live.number));
        self.vfs
            .replace(&self.dir.join(CURRENT), &encode_current(number))?;

        self.stale.retain(|&stale| stale != number);
        self.next_edit = encoded.next_edit;
        let end = encoded.bytes.len() as u64;
        self.live = Some(Live {
            file,
            number,
            seed: encoded.seed,
            begin: end,
            end,
            edits: 0,
        });
        // A file that cannot be removed now is tried again by the next rotation or open.
        let (vfs, dir) = (&self.vfs, &self.dir);
        self.stale.retain(|&number| {
            let path = dir.join(file_name(number));
            vfs.remove(&path).is_err() && vfs.exists(&path).unwrap_or(true)
        });
        Ok(())
    }
}
