//! What a target is fed: the bytes of one file, or the files of a directory.

use braidlog_core::codec::{Put, Take};
use braidlog_core::error::Result;

const MAGIC: &[u8] = b"BRFZ0001";

/// Files by name. Targets that decode one piece of bytes have a single file without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Names, relative to the directory, and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Input {
    /// A single piece of bytes.
    pub fn single(bytes: Vec<u8>) -> Self {
        let name = String::new();
        Self {
            files: vec![(name, bytes)],
        }
    }

    /// The single piece of bytes.
    pub fn bytes(&self) -> &[u8] {
        self.files.first().map_or(&[], |(_, bytes)| bytes)
    }

    /// The single piece of bytes.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        if self.files.is_empty() {
            *self = Self::single(Vec::new());
        }
        &mut self.files[0].1
    }

    /// A file of that name.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        let mut files = self.files.iter();
        files
            .find(|(found, _)| found == name)
            .map(|(_, bytes)| bytes.as_slice())
    }

    /// Bytes of all files.
    pub fn len(&self) -> usize {
        self.files.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// A number that differs where inputs differ.
    pub fn digest(&self) -> u64 {
        self.files.iter().fold(0, |digest, (name, bytes)| {
            let name = u64::from(crc32c::crc32c(name.as_bytes())) << 32;
            crate::rng::mix(digest ^ name ^ u64::from(crc32c::crc32c(bytes)))
        })
    }

    /// The content of a reproducer file.
    pub fn encode(&self, target: &str) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_bytes(target.as_bytes());
        out.put_u32(self.files.len() as u32);
        for (name, bytes) in &self.files {
            out.put_bytes(name.as_bytes());
            out.put_bytes(bytes);
        }
        out
    }

    /// Target and input of a reproducer file.
    pub fn decode(bytes: &[u8]) -> Result<(String, Self)> {
        let mut take = Take::new("reproducer", bytes);
        if take.slice(MAGIC.len())? != MAGIC {
            return Err(take.error("no reproducer of this fuzzer"));
        }
        let target = take.string()?;
        let mut files = Vec::new();
        for _ in 0..take.count(8)? {
            files.push((take.string()?, take.bytes()?.to_vec()));
        }
        take.finish()?;
        Ok((target, Self { files }))
    }
}
