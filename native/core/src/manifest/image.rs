//! A whole version as bytes that stand alone: a manifest file to which nothing was appended.
//!
//! Such an image is taken of a manifest that somebody writes, kept elsewhere, and put in place under another node. What it lists has
//! to be there by then.

use std::path::Path;
use std::sync::Arc;

use super::codec::{self, Field, Header};
use super::follower::Follower;
use super::replay::Replay;
use super::{Identity, Manifest, Options, Version, snapshot};
use crate::error::{Error, Result};
use crate::vfs::Vfs;

/// Number of the file that an image is.
const NUMBER: u64 = 1;

/// A version, with what newer builds have added to it.
#[derive(Clone, Debug)]
pub struct Image<V> {
    /// The version.
    pub version: V,
    /// Whose it is.
    pub identity: Identity,
    kept: Vec<Field>,
}

impl<V: Version> Image<V> {
    /// What a follower shows.
    pub fn of(follower: &Follower<V>) -> Self {
        let (version, identity, kept) = follower.shown();
        Self {
            version,
            identity,
            kept,
        }
    }

    /// The bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let header = Header {
            identity: self.identity,
            kind: V::KIND,
            file_number: NUMBER,
            first_edit: 1,
        };
        let part_bytes = Options::default().snapshot_edit_bytes;
        let file = snapshot::encode_file(&header, &self.version, &self.kept, part_bytes)?;
        Ok(file.bytes)
    }

    /// The image that has these bytes. `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Corruption`] and [`Error::Newer`] as for a manifest file, and for one that has edits.
    pub fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let identity = Header::decode(path, bytes)?.identity;
        let mut replay = Replay::<V>::begin(path, bytes, NUMBER, &identity)?;
        let dropped = replay.feed(path, &bytes[codec::HEADER_BYTES..])?;
        if dropped.is_some() || replay.closed || replay.edits > 0 {
            let reason = "something follows the snapshot of an image";
            return Err(Error::corrupt(path, replay.end, reason));
        }
        Ok(Self {
            version: replay.version,
            identity,
            kept: replay.kept,
        })
    }

    /// Make it the manifest of an existing directory that has none; durable on return.
    ///
    /// # Errors
    /// As [`Manifest::create`].
    pub fn install(self, vfs: Arc<dyn Vfs>, dir: &Path) -> Result<()> {
        let Self {
            version,
            identity,
            kept,
        } = self;
        Manifest::create_from(vfs, dir, identity, Options::default(), version, kept)?.close()
    }
}
