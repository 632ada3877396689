//! A whole version as the bytes of a new manifest file. Pure.

use super::codec::{self, Field, Header, TAG_SNAPSHOT};
use super::{Identity, Operation, Options, Version};
use crate::error::{Error, Result};
use crate::limits::MANIFEST_FILE_BYTES_MAX;

/// Header and snapshot, encoded.
pub(super) struct File {
    pub bytes: Vec<u8>,
    /// Number of the first edit behind the snapshot.
    pub next_edit: u64,
    /// Seed of the file's frame checksums.
    pub seed: u32,
}

/// Encode a file of nothing but the snapshot of `version`, in edits of about `part_bytes`.
pub(super) fn encode_file<V: Version>(
    header: &Header,
    version: &V,
    kept: &[Field],
    part_bytes: usize,
) -> Result<File> {
    let seed = header.seed();
    let mut next_edit = header.first_edit;
    let mut bytes = header.encode().to_vec();
    let parts = parts(version, kept, part_bytes);
    for (index, part) in parts.iter().enumerate() {
        let left = (parts.len() - 1 - index) as u32;
        let mut fields = Vec::with_capacity(part.len() + 16);
        codec::push_field(&mut fields, TAG_SNAPSHOT, |out| {
            out.extend_from_slice(&left.to_le_bytes());
        });
        fields.extend_from_slice(part);
        codec::encode_frame(&mut bytes, seed, next_edit, &fields)?;
        next_edit += 1;
    }
    // Room for edits must be left, or the file could not be read again.
    let (size, max) = (bytes.len() as u64, MANIFEST_FILE_BYTES_MAX / 2);
    if size > max {
        return Err(Error::TooLarge {
            what: "manifest snapshot",
            size,
            max,
        });
    }
    Ok(File {
        bytes,
        next_edit,
        seed,
    })
}

/// Bytes of a manifest file for a copy: one of nothing but the snapshot of `version`, with its first edit.
pub fn encode_snapshot<V: Version>(
    identity: Identity,
    file_number: u64,
    version: &V,
) -> Result<Vec<u8>> {
    let header = Header {
        identity,
        kind: V::KIND,
        file_number,
        first_edit: 1,
    };
    let part_bytes = Options::default().snapshot_edit_bytes;
    encode_file(&header, version, &[], part_bytes).map(|file| file.bytes)
}

/// The fields of an edit.
pub(super) fn encode_operations<O: Operation>(operations: &[O]) -> Vec<u8> {
    let mut fields = Vec::new();
    for operation in operations {
        codec::push_field(&mut fields, operation.tag(), |out| operation.encode(out));
    }
    fields
}

/// The fields of the snapshot, cut so that no part exceeds the given size unless a single field
/// does. At least one part.
fn parts<V: Version>(version: &V, kept: &[Field], part_bytes: usize) -> Vec<Vec<u8>> {
    let part_bytes = part_bytes.min(codec::FIELDS_BYTES_MAX);
    let mut done = Vec::new();
    let mut part = Vec::new();
    let mut add = |field: Vec<u8>| {
        if !part.is_empty() && part.len() + field.len() > part_bytes {
            done.push(std::mem::take(&mut part));
        }
        part.extend_from_slice(&field);
    };
    for operation in version.snapshot() {
        add(encode_operations(&[operation]));
    }
    for field in kept {
        let mut encoded = Vec::new();
        codec::push_field(&mut encoded, field.tag, |out| {
            out.extend_from_slice(&field.bytes);
        });
        add(encoded);
    }
    done.push(part);
    done
}
