//! The files beside the segments: identity, manifest, slots, watermark, and what does not belong.

use std::io::ErrorKind;

use super::{Finding, Verifier};
use crate::error::Error;
use crate::manifest::WalFiles;
use crate::vfs::Access;
use crate::wal::format::identity::IDENTITY;
use crate::wal::format::watermark::WATERMARK;
use crate::wal::recover::directory::LOCK;
use crate::wal::segments::checkpoint::CHECKPOINT;
use crate::wal::segments::segment::slot_path;
use crate::wal::tools::inspect::{SALVAGED, edits, strangers};

impl Verifier<'_> {
    pub(crate) fn files(&mut self) {
        self.identity();
        self.manifest();
        if let Ok(files) = &self.survey.files {
            let files = files.clone();
            self.slots(&files);
        }
        self.watermark();
        self.directories();
        self.strangers();
    }

    /// Directories where an open needs files: it would be refused.
    fn directories(&mut self) {
        for name in [LOCK, WATERMARK, CHECKPOINT] {
            let path = self.survey.dir.join(name);
            if self.vfs.list(&path).is_ok() {
                let what =
                    "a directory stands where a file belongs: the log cannot be opened for writing";
                self.find(Finding {
                    next: "move it away, and put a copy of the file in its place if there is one",
                    ..Finding::corruption(&path, None, what)
                });
            }
        }
    }

    fn identity(&mut self) {
        let path = self.survey.dir.join(IDENTITY);
        let finding = match &self.survey.identity {
            Ok(Some(_)) => return,
            Ok(None) => Finding::corruption(&path, None, "missing, though the node has files"),
            Err(error) => Finding::of(error, &path),
        };
        self.find(finding);
    }

    fn manifest(&mut self) {
        // Without an identity the manifest cannot be judged, and that was found already.
        if !matches!(self.survey.identity, Ok(Some(_))) {
            return;
        }
        let finding = self.survey.files.as_ref().err().map(|error| {
            let path = self.survey.dir.join("CURRENT");
            Finding::of(error, &path)
        });
        if let Some(finding) = finding {
            return self.find(finding);
        }
        if self.survey.alive {
            return;
        }
        match edits(&**self.vfs, &self.survey.dir) {
            Ok(edits) => {
                if let Some(offset) = edits.torn {
                    let what = "torn last edit: it was never acknowledged";
                    let next = "nothing to do: the next open drops it";
                    self.find(Finding::note(&edits.path, offset, what, next));
                }
            }
            Err(error) => self.find(Finding::of(&error, &self.survey.dir.join("CURRENT"))),
        }
        let newest = self.survey.newest();
        if newest.is_some_and(|lap| lap.sealed.is_some()) {
            let what = "the manifest lists no segment to write to";
            self.find(Finding::corruption(
                &self.survey.dir.join("CURRENT"),
                None,
                what,
            ));
        }
    }

    /// Whether free slots are there with their length; the others are found with their segments.
    fn slots(&mut self, files: &WalFiles) {
        let node_bytes = match &self.survey.identity {
            Ok(Some(identity)) => u64::from(identity.segment_bytes),
            _ => return,
        };
        for (slot, bytes) in files.slots() {
            let path = slot_path(&self.survey.dir, slot);
            if bytes != node_bytes {
                let what =
                    format!("listed with {bytes} bytes, the node's segments have {node_bytes}");
                self.find(Finding::corruption(&path, None, what));
            }
        }
        for slot in files.free_slots() {
            let path = slot_path(&self.survey.dir, slot);
            let bytes = files.slot_bytes(slot).unwrap_or(0);
            let filled = files.filled_bytes(slot).unwrap_or(0);
            let len = self
                .vfs
                .open(&path, Access::Read)
                .and_then(|file| file.len());
            let absent = |error: &Error| matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound);
            // It holds nothing: an open does without it.
            let next = "nothing to do: it is made again when it is needed";
            let finding = match len {
                Ok(len) if (filled..=bytes).contains(&len) => continue,
                Ok(len) => {
                    let what = format!("free slot of {len} bytes instead of {filled}");
                    Finding::degraded(&path, what, next)
                }
                Err(error) if absent(&error) => {
                    Finding::degraded(&path, "a free slot is missing", next)
                }
                Err(error) => Finding::of(&error, &path),
            };
            self.find(finding);
        }
    }

    fn watermark(&mut self) {
        let path = self.survey.dir.join(WATERMARK);
        if self.vfs.list(&path).is_ok() {
            return; // A directory: that is found as one.
        }
        let Some(mark) = self.survey.watermark else {
            let exists = self.vfs.exists(&path).unwrap_or(false);
            let what = if exists { "not whole" } else { "missing" };
            let next = "nothing to do: the next open writes it";
            return self.find(Finding::note(&path, None, what, next));
        };
        let Some(newest) = self.survey.newest().filter(|_| self.survey.files.is_ok()) else {
            return;
        };
        // It is written only after the manifest lists the segment.
        if mark.segment == newest.number && mark.salt != newest.seed.salt {
            let what = format!(
                "the log was durable in segment {} (salt {:016x}), which the manifest does not list: \
                 edits of the manifest are lost",
                mark.segment, mark.salt
            );
            self.find(Finding::corruption(&path, None, what));
        }
    }

    /// Files that are not in use.
    fn strangers(&mut self) {
        let salvaged = self.survey.dir.join(SALVAGED);
        if self.vfs.exists(&salvaged).unwrap_or(false) {
            let what = "the directory was made by `braidlog repair`; the file says what was lost";
            self.find(Finding::note(&salvaged, None, what, "nothing"));
        }
        let found = match strangers(&**self.vfs, &self.survey) {
            Ok(found) => found,
            Err(error) => {
                let finding = Finding::of(&error, &self.survey.dir);
                return self.find(finding);
            }
        };
        // A running writer has files that are not listed yet.
        let orphans = found.files.iter().filter(|_| !self.survey.alive);
        let orphans: Vec<_> = orphans.map(|path| self.survey.dir.join(path)).collect();
        for path in orphans {
            let next = "nothing to do: the next open removes it";
            self.find(Finding::note(
                &path,
                None,
                "the manifest does not list this file",
                next,
            ));
        }
        for path in found.foreign {
            let path = self.survey.dir.join(path);
            let next = "nothing to do: Braidlog leaves it alone";
            self.find(Finding::note(&path, None, "not a file of Braidlog", next));
        }
    }
}
