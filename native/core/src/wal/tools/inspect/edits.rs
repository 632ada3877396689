//! The edits of a manifest, one row for each operation, the bad ones too.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::limits::MANIFEST_FILE_BYTES_MAX;
use crate::manifest::codec::{self, Header, TAG_CLOSE, TAG_SNAPSHOT};
use crate::manifest::current::{file_name, read_current};
use crate::manifest::{Operation, WalOperation};
use crate::vfs::Vfs;

/// One operation of an edit, or bytes that are no edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditRow {
    /// Number of the edit; `None` for bytes that are none.
    pub number: Option<u64>,
    /// Manifest file.
    pub file: String,
    /// Offset of the edit.
    pub offset: u64,
    /// What it does.
    pub operation: &'static str,
    /// With which values.
    pub details: String,
    /// Why it is no edit.
    pub problem: Option<String>,
}

/// A manifest file as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Number of the file.
    pub file_number: u64,
    /// Its path.
    pub path: PathBuf,
    /// Operations in order.
    pub rows: Vec<EditRow>,
    /// Where an unfinished last edit begins.
    pub torn: Option<u64>,
}

/// The edits of the file that `CURRENT` names.
pub fn edits(vfs: &dyn Vfs, dir: &Path) -> Result<Edits> {
    let file_number = read_current(vfs, dir)?;
    let path = dir.join(file_name(file_number));
    if !vfs.exists(&path)? {
        let reason = "CURRENT names it".into();
        return Err(Error::Missing { path, reason });
    }
    let bytes = vfs.read(&path, MANIFEST_FILE_BYTES_MAX)?;
    let header = Header::decode(&path, &bytes)?;
    let mut edits = Edits {
        file_number,
        path,
        ..Edits::default()
    };
    edits.read(&bytes, &header);
    Ok(edits)
}

impl Edits {
    fn read(&mut self, bytes: &[u8], header: &Header) {
        let seed = header.seed();
        let (mut at, mut expected) = (codec::HEADER_BYTES, header.first_edit);
        while at < bytes.len() {
            match codec::decode_frame(&bytes[at..], seed) {
                Ok(frame) => {
                    self.operations(at as u64, frame.number, frame.fields);
                    (at, expected) = (at + frame.length, frame.number + 1);
                }
                Err(reason) => {
                    let row = self.row(at as u64, None, "bad", String::new());
                    let problem = Some(reason.to_owned());
                    self.rows.push(EditRow { problem, ..row });
                    let Some(next) = codec::resync(&bytes[at..], seed, expected) else {
                        self.torn = Some(at as u64);
                        return;
                    };
                    at += next;
                }
            }
        }
    }

    fn row(
        &self,
        offset: u64,
        number: Option<u64>,
        operation: &'static str,
        details: String,
    ) -> EditRow {
        EditRow {
            number,
            file: file_name(self.file_number),
            offset,
            operation,
            details,
            problem: None,
        }
    }

    fn operations(&mut self, offset: u64, number: u64, fields: &[u8]) {
        for field in codec::fields(fields) {
            let (operation, details) = match field {
                Ok((TAG_SNAPSHOT, _)) => ("snapshot", String::new()),
                Ok((TAG_CLOSE, _)) => ("close", String::new()),
                Ok((tag, bytes)) => match WalOperation::decode(tag, bytes) {
                    Some(Ok(operation)) => describe(&operation),
                    Some(Err(reason)) => ("bad field", reason),
                    None => ("unknown", format!("tag {tag}, {} bytes", bytes.len())),
                },
                Err(at) => ("bad field", format!("cut off at byte {at}")),
            };
            let row = self.row(offset, Some(number), operation, details);
            self.rows.push(row);
        }
    }
}

fn describe(operation: &WalOperation) -> (&'static str, String) {
    use WalOperation as Op;
    match *operation {
        Op::AddSlot { slot, bytes } => ("add-slot", format!("slot {slot}, {bytes} bytes")),
        Op::RemoveSlot { slot } => ("remove-slot", format!("slot {slot}")),
        Op::OpenSegment { number, slot, salt } => (
            "open-segment",
            format!("segment {number} in slot {slot}, salt {salt:016x}"),
        ),
        Op::SealSegment {
            number,
            sealed_bytes,
            side_bytes,
            side_crc,
        } => (
            "seal-segment",
            format!(
                "segment {number} at {sealed_bytes}, side file of {side_bytes} bytes, \
                 checksum {side_crc:08x}"
            ),
        ),
        Op::DropSegment { number } => ("drop-segment", format!("segment {number}")),
        Op::RestoreSegment {
            number,
            slot,
            salt,
            created_by,
        } => (
            "restore-segment",
            format!("segment {number} in slot {slot}, salt {salt:016x}, edit {created_by}"),
        ),
        Op::Advance {
            next_segment,
            next_slot,
        } => (
            "advance",
            format!("next segment {next_segment}, next slot {next_slot}"),
        ),
        Op::FillSlot { slot, bytes } => ("fill-slot", format!("slot {slot}, {bytes} bytes")),
        Op::SetBound { bytes } => ("set-bound", format!("{bytes} bytes")),
        Op::AllowNulls => ("allow-nulls", String::new()),
    }
}
