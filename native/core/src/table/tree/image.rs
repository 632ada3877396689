//! Taking a tree along: its list, its runs, and putting both in place under another node.
//!
//! # Theory of operation
//!
//! A [`TreeImage`] is what the manifest of a tree lists at one moment. Its runs never change, so they can be copied afterwards; the
//! writer of the tree may merge them meanwhile, which takes their files away. Then a newer image lists what they
//! became. A run is verified as a whole when it is opened for a copy, so damage is not taken along.
//!
//! A [`TreeRestore`] gets the bytes of the runs that an image lists, in order, and makes a tree of them. A run says whose it is in its
//! footer, which is therefore written anew; the list follows, last.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::version::{ListedRun, TreeVersion};
use crate::error::{Error, Result};
use crate::manifest::{Identity, Image, Manifest};
use crate::table::run::{Run, RunCache, RunIdentity, adopt, file_name};
use crate::vfs::{Access, Vfs, VfsFile};

/// Bytes of pages that are kept while a run is verified: none is read twice.
const CACHE_BYTES: usize = 1 << 20;

/// What a tree consists of.
#[derive(Clone, Debug)]
pub struct TreeImage {
    image: Image<TreeVersion>,
}

impl TreeImage {
    /// What the tree in a directory consists of, which another process may be writing.
    ///
    /// # Errors
    /// [`Error::NotFound`] and [`Error::Missing`] where there is none; those of reading a manifest.
    pub fn read(vfs: &Arc<dyn Vfs>, dir: &Path, identity: Identity) -> Result<Self> {
        let follower = Manifest::<TreeVersion>::open_read_only(Arc::clone(vfs), dir, identity)?;
        Self::begun(Image::of(&follower), dir)
    }

    /// The image that was encoded as these bytes. `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Corruption`] for anything else.
    pub fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        Self::begun(Image::decode(path, bytes)?, path)
    }

    fn begun(image: Image<TreeVersion>, path: &Path) -> Result<Self> {
        super::recover::check_begun(path, &image.version)?;
        Ok(Self { image })
    }

    /// The bytes: a manifest file without edits.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.image.encode()
    }

    /// Whose it is.
    pub fn identity(&self) -> Identity {
        self.image.identity
    }

    /// Everything up to this position is in its runs.
    pub fn flushed(&self) -> u64 {
        self.image.version.flushed()
    }

    /// Lowest position that it can be read at.
    pub fn floor(&self) -> u64 {
        self.image.version.floor()
    }

    /// Its runs, by number.
    pub fn runs(&self) -> impl Iterator<Item = &ListedRun> {
        self.image.version.runs().values()
    }

    fn listed(&self, run: u64) -> Result<&ListedRun> {
        let found = self.image.version.runs().get(&run);
        found.ok_or_else(|| Error::NotFound {
            what: format!("run {run}"),
        })
    }

    fn run_identity(&self, number: u64) -> RunIdentity {
        RunIdentity {
            node: self.image.identity.node,
            tree: self.image.identity.object,
            number,
        }
    }
}

/// A run that is being copied. Its file is read to the end even if the tree removes it meanwhile.
pub struct RunCopy {
    file: Arc<dyn VfsFile>,
    bytes: u64,
}

impl RunCopy {
    /// Open a run that an image lists, and verify all of it.
    ///
    /// # Errors
    /// [`Error::Missing`] where the file is gone; [`Error::Corruption`] where it is damaged.
    pub fn open(vfs: &Arc<dyn Vfs>, dir: &Path, image: &TreeImage, run: u64) -> Result<Self> {
        let info = Arc::clone(&image.listed(run)?.info);
        let path = dir.join(file_name(run));
        let gone = |error: Error| match error {
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => Error::Missing {
                path: path.clone(),
                reason: "the manifest lists it".into(),
            },
            error => error,
        };
        let file = vfs.open(&path, Access::Read).map_err(gone)?;
        let cache = Arc::new(RunCache::new(CACHE_BYTES, 1));
        let identity = image.run_identity(run);
        let open = Run::open(Arc::clone(vfs), dir, identity, &info, &cache).map_err(gone)?;
        open.verify(&mut |_| {})?;
        Ok(Self {
            file,
            bytes: info.bytes,
        })
    }

    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of it from an offset on, at most so many; none at its end.
    pub fn read(&self, offset: u64, bytes_max: usize) -> Result<Vec<u8>> {
        let left = self.bytes.saturating_sub(offset).min(bytes_max as u64);
        let mut bytes = vec![0; left as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// A tree that is being put in place.
pub struct TreeRestore {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    node: u128,
    image: TreeImage,
    checksums: Vec<(u64, u32)>,
    /// The run that is being written: its number, its file, and how long it is.
    open: Option<(u64, Arc<dyn VfsFile>, u64)>,
}

impl TreeRestore {
    /// Begin in a directory of its own, which is made.
    ///
    /// # Errors
    /// [`Error::WrongIdentity`] for the image of another tree.
    pub fn begin(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        identity: Identity,
        image: TreeImage,
    ) -> Result<Self> {
        let (found, expected) = (image.identity().object, identity.object);
        if found != expected {
            return Err(Error::WrongIdentity {
                path: dir.into(),
                what: "tree",
                found: format!("{found:032x}"),
                expected: format!("{expected:032x}"),
            });
        }
        vfs.create_dir_all(dir)?;
        Ok(Self {
            vfs: Arc::clone(vfs),
            dir: dir.into(),
            node: identity.node,
            image,
            checksums: Vec::new(),
            open: None,
        })
    }

    /// Append to the file of a run; one run after the other.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a run that the image does not list, [`Error::AlreadyExists`] for one that is there,
    /// [`Error::TooLarge`] for more than it has, [`Error::Corruption`] where it is whole and not that run.
    pub fn append(&mut self, run: u64, data: &[u8]) -> Result<()> {
        let info = Arc::clone(&self.image.listed(run)?.info);
        let path = self.dir.join(file_name(run));
        let (file, at) = match self.open.take() {
            Some((number, file, at)) if number == run => (file, at),
            Some((number, _, at)) => return Err(self.incomplete(number, at)),
            None if self.checksums.iter().any(|(number, _)| *number == run) => {
                let what = path.display().to_string();
                return Err(Error::AlreadyExists { what });
            }
            None => (self.vfs.open(&path, Access::CreateNew)?, 0),
        };
        let end = at + data.len() as u64;
        if end > info.bytes {
            return Err(Error::TooLarge {
                what: "file of a run",
                size: end,
                max: info.bytes,
            });
        }
        file.write_all_at(data, at)?;
        if end < info.bytes {
            self.open = Some((run, file, end));
            return Ok(());
        }
        let from = self.image.run_identity(run);
        let checksum = adopt(file.as_ref(), &path, from, &info, self.node)?;
        self.checksums.push((run, checksum));
        Ok(())
    }

    fn incomplete(&self, run: u64, bytes: u64) -> Error {
        Error::Missing {
            path: self.dir.join(file_name(run)),
            reason: format!("{bytes} bytes of it were given"),
        }
    }

    /// List the runs, which makes it a tree; durable on return, but for the entry of its directory.
    ///
    /// # Errors
    /// [`Error::Missing`] where a run is not whole.
    pub fn finish(self) -> Result<()> {
        if let Some((number, _, at)) = self.open {
            return Err(self.incomplete(number, at));
        }
        let has = |run: u64| self.checksums.iter().any(|(number, _)| *number == run);
        if let Some(run) = self.image.runs().find(|run| !has(run.info.number)) {
            return Err(self.incomplete(run.info.number, 0));
        }
        self.vfs.sync_dir(&self.dir)?;
        let mut image = self.image.image;
        image.identity.node = self.node;
        for (run, checksum) in self.checksums {
            image.version.set_checksum(run, checksum);
        }
        image.install(self.vfs, &self.dir)
    }
}
