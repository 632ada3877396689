//! A cut, and the bytes of the command that it is in the log of the group.

use super::End;
use crate::lane::head::{put_array, put_bytes, put_number};

/// Number of the command.
const CUT: u64 = 8;

/// What one cut gives to one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the stream.
    pub stream: u64,
    /// First record of it that is committed by this.
    pub llsn: u64,
    /// Position of that record in the log.
    pub glsn: u64,
    /// Records.
    pub length: u64,
    /// The epoch that was cut.
    pub epoch: u64,
}

/// One cut of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCut {
    /// Identity of the log.
    pub log: Vec<u8>,
    /// Number of the cut.
    pub version: u64,
    /// Last position of the log with it.
    pub high_watermark: u64,
    /// What it gives, by streams rising.
    pub runs: Vec<Run>,
}

impl LogCut {
    /// Append it as `MessagePack`.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        put_array(bytes, 4);
        put_bytes(bytes, &self.log);
        put_number(bytes, self.version);
        put_number(bytes, self.high_watermark);
        put_array(bytes, self.runs.len());
        for run in &self.runs {
            put_array(bytes, 5);
            for value in [run.stream, run.llsn, run.glsn, run.length, run.epoch] {
                put_number(bytes, value);
            }
        }
    }

    /// Where it leaves the log.
    pub fn end(&self) -> End {
        End {
            version: self.version,
            high_watermark: self.high_watermark,
        }
    }
}

/// What one entry commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// A cut for each log that gets something.
    pub cuts: Vec<LogCut>,
    /// Logs of which cuts up to a version are durable on all replicas.
    pub forget: Vec<(Vec<u8>, u64)>,
}

/// Whether the data of an entry are a cut, as [`Cut::encode`] makes them.
pub fn is_cut(data: &[u8]) -> bool {
    // An array of two, the command of three, its number.
    data.starts_with(&[0x92, 0x93, CUT as u8])
}

impl Cut {
    /// The streams that get something.
    pub fn streams(&self) -> impl Iterator<Item = u64> {
        let runs = self.cuts.iter().flat_map(|each| &each.runs);
        runs.map(|run| run.stream)
    }

    /// The entry: the bytes that Python's codec makes of a call without an identity.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_array(&mut bytes, 2);
        put_array(&mut bytes, 3);
        put_number(&mut bytes, CUT);
        put_array(&mut bytes, self.cuts.len());
        for each in &self.cuts {
            each.put(&mut bytes);
        }
        put_array(&mut bytes, self.forget.len());
        for (log, version) in &self.forget {
            put_array(&mut bytes, 2);
            put_bytes(&mut bytes, log);
            put_number(&mut bytes, *version);
        }
        put_bytes(&mut bytes, &[]);
        bytes
    }
}
