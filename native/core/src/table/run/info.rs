//! What a run is called, whose it is, and what the manifest says of it.

use std::path::{Path, PathBuf};

use crate::codec::{Put, Take};
use crate::error::{Error, Result};

const SUFFIX: &str = ".run";

/// Whose run it is. The footer has it, so a file in the wrong directory is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunIdentity {
    /// The directory's node id.
    pub node: u128,
    /// The tree's id.
    pub tree: u128,
    /// The run's number; no tree gives one twice.
    pub number: u64,
}

/// What the manifest lists of a run: enough to choose among runs without opening them, and to
/// tell whether a file is the one that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// The run's number.
    pub number: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the footer, which has the checksums of all else.
    pub checksum: u32,
    /// Entries, tombstones included; never 0.
    pub entries: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Entries without a payload.
    pub tombstones: u64,
    /// Smallest key.
    pub first_key: Vec<u8>,
    /// Largest key.
    pub last_key: Vec<u8>,
    /// Smallest position.
    pub position_min: u64,
    /// Largest position.
    pub position_max: u64,
}

impl RunInfo {
    /// Append the encoding: fixed-width fields in the order above, each key behind its length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.number);
        out.put_u64(self.bytes);
        out.put_u32(self.checksum);
        out.put_u64(self.entries);
        out.put_u64(self.keys);
        out.put_u64(self.tombstones);
        out.put_bytes(&self.first_key);
        out.put_bytes(&self.last_key);
        out.put_u64(self.position_min);
        out.put_u64(self.position_max);
    }

    /// Take an encoding; refuses what no run can have.
    pub fn decode(take: &mut Take) -> Result<Self> {
        let info = Self {
            number: take.u64()?,
            bytes: take.u64()?,
            checksum: take.u32()?,
            entries: take.u64()?,
            keys: take.u64()?,
            tombstones: take.u64()?,
            first_key: take.bytes()?.to_vec(),
            last_key: take.bytes()?.to_vec(),
            position_min: take.u64()?,
            position_max: take.u64()?,
        };
        match info.contradiction() {
            None => Ok(info),
            Some(reason) => Err(take.error(reason)),
        }
    }

    /// What no run can have.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        if self.entries == 0 {
            Some("a run without entries")
        } else if self.keys == 0 || self.keys > self.entries {
            Some("more keys than entries, or none")
        } else if self.tombstones > self.entries {
            Some("more tombstones than entries")
        } else if self.first_key > self.last_key
            || (self.keys == 1) != (self.first_key == self.last_key)
        {
            Some("smallest and largest key contradict the number of keys")
        } else if self.position_min > self.position_max {
            Some("the smallest position is above the largest")
        } else {
            None
        }
    }
}

/// Name of a run's file.
pub fn file_name(number: u64) -> String {
    format!("{number:06}{SUFFIX}")
}

/// Number of a run, if the name is exactly one that [`file_name`] gives.
pub fn parse_file_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// Path of a run that is still being written.
pub(super) fn temporary(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{}.tmp", file_name(number)))
}

/// Refuse a file of somebody else.
pub(super) fn check_identity(path: &Path, found: RunIdentity, expected: RunIdentity) -> Result<()> {
    let parts = [
        (
            "node",
            format!("{:032x}", found.node),
            format!("{:032x}", expected.node),
        ),
        (
            "tree",
            format!("{:032x}", found.tree),
            format!("{:032x}", expected.tree),
        ),
        ("run", found.number.to_string(), expected.number.to_string()),
    ];
    match parts
        .into_iter()
        .find(|(_, found, expected)| found != expected)
    {
        None => Ok(()),
        Some((what, found, expected)) => Err(Error::WrongIdentity {
            path: path.into(),
            what,
            found,
            expected,
        }),
    }
}
