//! Rebuild a version from the bytes of one manifest file. Pure.
//!
//! The bytes may come in several pieces: a writer reads the whole file at once, a follower reads
//! what was added since the last time.

use std::path::Path;

use super::codec::{self, Field, Header, TAG_CLOSE, TAG_SNAPSHOT};
use super::current::NUMBER_MAX;
use super::{Context, DroppedTail, FIRST_TAG, IGNORABLE, Identity, Operation, Version};
use crate::error::{Error, Result};

/// How far the snapshot at the head of the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    /// No edit was read.
    Expected,
    /// So many edits are left.
    Parts(u32),
    Complete,
}

/// The state of reading one file.
#[derive(Clone, Debug)]
pub(super) struct Replay<V> {
    /// The version so far. Meaningless after an error.
    pub version: V,
    /// Unknown ignorable fields, in the order in which they were read.
    pub kept: Vec<Field>,
    /// Number of the next edit.
    pub next_edit: u64,
    /// Offset in the file behind the last valid edit.
    pub end: u64,
    /// Edits behind the snapshot.
    pub edits: u64,
    /// Whether the close edit was read.
    pub closed: bool,
    seed: u32,
    snapshot: Snapshot,
}

impl<V: Version> Replay<V> {
    /// Begin with the header, which must be the one of file `number` of `identity`.
    pub fn begin(path: &Path, bytes: &[u8], number: u64, identity: &Identity) -> Result<Self> {
        let header = Header::decode(path, bytes)?;
        check_identity(path, &header, identity, V::KIND)?;
        if header.file_number != number {
            let reason = format!("the header names file number {}", header.file_number);
            return Err(Error::corrupt(path, 40, reason));
        }
        if !(1..NUMBER_MAX).contains(&header.first_edit) {
            let reason = format!("first edit number {}", header.first_edit);
            return Err(Error::corrupt(path, 48, reason));
        }
        Ok(Self {
            version: V::default(),
            kept: Vec::new(),
            next_edit: header.first_edit,
            end: codec::HEADER_BYTES as u64,
            edits: 0,
            closed: false,
            seed: header.seed(),
            snapshot: Snapshot::Expected,
        })
    }

    /// Apply all edits of `bytes`, which lie in the file at `self.end` and reach to its end.
    /// Returns what stands behind the last valid edit, if that may be a write cut short.
    pub fn feed(&mut self, path: &Path, bytes: &[u8]) -> Result<Option<DroppedTail>> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let corrupt = |reason: String| Error::corrupt(path, self.end, reason);
            if self.closed {
                return Err(corrupt("bytes behind the close edit".into()));
            }
            let frame = match codec::decode_frame(rest, self.seed) {
                Ok(frame) => frame,
                Err(reason) => return self.judge(path, rest, reason).map(Some),
            };
            if frame.number != self.next_edit {
                let (found, expected) = (frame.number, self.next_edit);
                return Err(corrupt(format!(
                    "edit {found} stands where {expected} should"
                )));
            }
            self.apply(path, &frame)?;
            at += frame.length;
            self.end += frame.length as u64;
        }
        match self.snapshot {
            Snapshot::Complete => Ok(None),
            // The file was synced before CURRENT named it, so this is no torn tail.
            _ => Err(Error::corrupt(
                path,
                self.end,
                "the file ends inside its snapshot",
            )),
        }
    }

    /// A torn tail or corruption?
    fn judge(&self, path: &Path, rest: &[u8], reason: &str) -> Result<DroppedTail> {
        let edit = self.next_edit;
        if self.snapshot != Snapshot::Complete {
            let reason = format!("{reason} (edit {edit}, part of the snapshot)");
            return Err(Error::corrupt(path, self.end, reason));
        }
        if let Some(at) = codec::resync(rest, self.seed, edit) {
            let behind = self.end + at as u64;
            let reason = format!("{reason} (edit {edit}), a valid edit follows at {behind}");
            return Err(Error::corrupt(path, self.end, reason));
        }
        Ok(DroppedTail {
            offset: self.end,
            bytes: rest.len() as u64,
            edit,
        })
    }

    fn apply(&mut self, path: &Path, frame: &codec::Frame<'_>) -> Result<()> {
        let offset = self.end;
        let number = frame.number;
        let corrupt =
            |reason: String| Error::corrupt(path, offset, format!("edit {number}: {reason}"));
        let mut operations = Vec::new();
        let mut part = None;
        for (index, field) in codec::fields(frame.fields).enumerate() {
            let (tag, bytes) =
                field.map_err(|at| corrupt(format!("field at byte {at} is cut off")))?;
            match tag {
                TAG_SNAPSHOT if index == 0 => part = Some(snapshot_part(bytes).map_err(corrupt)?),
                TAG_CLOSE if index == 0 && bytes.is_empty() => self.closed = true,
                TAG_SNAPSHOT | TAG_CLOSE => {
                    return Err(corrupt(format!("misplaced field {tag}")));
                }
                _ => match V::Operation::decode(tag, bytes).filter(|_| user_tag(tag)) {
                    Some(decoded) => {
                        let refused = |reason| corrupt(format!("field {tag}: {reason}"));
                        operations.push(decoded.map_err(refused)?);
                    }
                    None if tag & IGNORABLE != 0 => {
                        self.kept.push(Field {
                            tag,
                            bytes: bytes.to_vec(),
                        });
                    }
                    None => {
                        return Err(Error::Newer {
                            path: path.into(),
                            what: "manifest field",
                            found: tag.into(),
                            supported: V::Operation::NEWEST_TAG.into(),
                        });
                    }
                },
            }
        }
        self.advance_snapshot(part).map_err(corrupt)?;
        if self.closed && !operations.is_empty() {
            return Err(corrupt("operations in the close edit".into()));
        }
        let context = Context {
            edit: number,
            snapshot: part.is_some(),
        };
        self.version
            .apply(context, &operations)
            .map_err(|reason| corrupt(format!("does not apply: {reason}")))?;
        if part == Some(0) {
            self.version.whole().map_err(corrupt)?;
        }
        self.next_edit = number
            .checked_add(1)
            .ok_or_else(|| corrupt("last number".into()))?;
        self.edits += u64::from(part.is_none());
        Ok(())
    }

    /// A file begins with its snapshot, whole, and has no other.
    fn advance_snapshot(&mut self, part: Option<u32>) -> std::result::Result<(), String> {
        self.snapshot = match (self.snapshot, part) {
            (Snapshot::Complete, None) => Snapshot::Complete,
            (Snapshot::Complete, Some(_)) => return Err("a second snapshot".into()),
            (_, None) => return Err("the snapshot is incomplete".into()),
            (Snapshot::Parts(left), Some(part)) if left.checked_sub(1) != Some(part) => {
                return Err(format!("snapshot part {part} where {left} were left"));
            }
            (_, Some(0)) => Snapshot::Complete,
            (_, Some(left)) => Snapshot::Parts(left),
        };
        Ok(())
    }
}

fn user_tag(tag: u16) -> bool {
    tag & !IGNORABLE >= FIRST_TAG
}

fn snapshot_part(bytes: &[u8]) -> std::result::Result<u32, String> {
    let mut reader = codec::FieldReader::new(bytes);
    let part = reader.u32()?;
    reader.end()?;
    Ok(part)
}

fn check_identity(path: &Path, header: &Header, expected: &Identity, kind: u32) -> Result<()> {
    let differs = |what, found: String, expected: String| {
        Err(Error::WrongIdentity {
            path: path.into(),
            what,
            found,
            expected,
        })
    };
    let found = &header.identity;
    if header.kind != kind {
        return differs("object kind", header.kind.to_string(), kind.to_string());
    }
    if found.node != expected.node {
        return differs(
            "node",
            format!("{:032x}", found.node),
            format!("{:032x}", expected.node),
        );
    }
    if found.object != expected.object {
        let (found, expected) = (found.object, expected.object);
        return differs(
            "object",
            format!("{found:032x}"),
            format!("{expected:032x}"),
        );
    }
    Ok(())
}
