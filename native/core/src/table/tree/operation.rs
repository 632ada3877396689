//! Operations on the list of a tree, and their bytes.
//!
//! # Fields
//!
//! ```text
//! 16  Begin        u64 flushed                            (the first edit of a tree)
//! 17  AddRun       u64 oldest, u64 newest recency, then what is listed of the run
//! 18  RemoveRun    u64 number
//! 19  AddRange     bytes begin, bound end
//! 20  RemoveRange  bytes begin
//! 21  AddSlice     bytes range, u64 run, bound begin, bound end   (no bound: that of the range)
//! 22  RemoveSlice  bytes range, u64 run, bytes begin
//! 23  Flush        u64 position, u8 what (0 nothing, 1 a run), u64 run (0 of nothing)
//! 24  Floor        u64 position
//! 25  Settle       u64 below
//! 26  Given        u64 number                             (snapshots only)
//! 27  Restore      u64 flushed, u64 floor, u64 next recency, u64 settled   (snapshots only)
//!
//! bound            u8 0 none, 1 a key; then the key as bytes
//! ```

use std::sync::Arc;

use super::version::ListedRun;
use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::manifest::Operation;
use crate::manifest::current::NUMBER_MAX;
use crate::table::run::RunInfo;

/// What a flush wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The log has no entry for this tree up to the position.
    Nothing,
    /// The run of that number, which the same edit adds.
    Run(u64),
}

/// One change of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeOperation {
    /// Make a tree of one range without slices.
    Begin {
        /// The position behind which it follows the log.
        flushed: u64,
    },
    /// List a run, which exists and is durable.
    AddRun(ListedRun),
    /// Forget a run of which no slice is left.
    RemoveRun {
        /// Its number.
        number: u64,
    },
    /// Add a range without slices.
    AddRange {
        /// First key.
        begin: Vec<u8>,
        /// Key behind the last.
        end: Option<Vec<u8>>,
    },
    /// Remove a range that has no slices.
    RemoveRange {
        /// Its first key.
        begin: Vec<u8>,
    },
    /// Add a part of a run to a range.
    AddSlice {
        /// First key of the range.
        range: Vec<u8>,
        /// Number of the run.
        run: u64,
        /// First key, unless it is that of the range.
        begin: Option<Vec<u8>>,
        /// Key behind the last, unless it is that of the range.
        end: Option<Vec<u8>>,
    },
    /// Remove a slice.
    RemoveSlice {
        /// First key of its range.
        range: Vec<u8>,
        /// Number of its run.
        run: u64,
        /// Its own first key.
        begin: Vec<u8>,
    },
    /// Everything up to a position is in runs.
    Flush {
        /// The position.
        position: u64,
        /// What the flush wrote.
        what: Flushed,
    },
    /// Raise the lowest position that can be read at.
    Floor {
        /// The position.
        position: u64,
    },
    /// Let no run get a number below this any more.
    Settle {
        /// Lowest number that may still be given.
        below: u64,
    },
    /// Written by snapshots only: a number that was given, and whose run is gone.
    Given {
        /// The number.
        number: u64,
    },
    /// Written by snapshots only, and last: the rest, which makes it whole.
    Restore {
        /// Flushed position.
        flushed: u64,
        /// Floor.
        floor: u64,
        /// Recency of the next flush.
        next_recency: u64,
        /// Lowest number that may still be given.
        settled: u64,
    },
}

fn put_bound(out: &mut Vec<u8>, bound: Option<&Vec<u8>>) {
    out.put_u8(u8::from(bound.is_some()));
    if let Some(key) = bound {
        out.put_bytes(key);
    }
}

fn take_bound(take: &mut Take) -> Result<Option<Vec<u8>>> {
    match take.u8()? {
        0 => Ok(None),
        1 => Ok(Some(take.bytes()?.to_vec())),
        kind => Err(take.error(format!("bound of kind {kind}"))),
    }
}

/// A number from which one can count on.
fn take_number(take: &mut Take) -> Result<u64> {
    match take.u64()? {
        number if number < NUMBER_MAX => Ok(number),
        number => Err(take.error(format!("number {number}"))),
    }
}

fn take_flushed(take: &mut Take) -> Result<Flushed> {
    match (take.u8()?, take_number(take)?) {
        (0, 0) => Ok(Flushed::Nothing),
        (1, run) => Ok(Flushed::Run(run)),
        (what, run) => Err(take.error(format!("flush of kind {what} with run {run}"))),
    }
}

impl TreeOperation {
    fn take(tag: u16, take: &mut Take) -> Result<Self> {
        Ok(match tag {
            16 => Self::Begin {
                flushed: take.u64()?,
            },
            17 => {
                let (oldest, newest) = (take_number(take)?, take_number(take)?);
                let info = RunInfo::decode(take)?;
                if info.number >= NUMBER_MAX {
                    return Err(take.error(format!("number {}", info.number)));
                }
                Self::AddRun(ListedRun {
                    info: Arc::new(info),
                    oldest,
                    newest,
                })
            }
            18 => Self::RemoveRun {
                number: take.u64()?,
            },
            19 => Self::AddRange {
                begin: take.bytes()?.to_vec(),
                end: take_bound(take)?,
            },
            20 => Self::RemoveRange {
                begin: take.bytes()?.to_vec(),
            },
            21 => Self::AddSlice {
                range: take.bytes()?.to_vec(),
                run: take.u64()?,
                begin: take_bound(take)?,
                end: take_bound(take)?,
            },
            22 => Self::RemoveSlice {
                range: take.bytes()?.to_vec(),
                run: take.u64()?,
                begin: take.bytes()?.to_vec(),
            },
            23 => Self::Flush {
                position: take.u64()?,
                what: take_flushed(take)?,
            },
            24 => Self::Floor {
                position: take.u64()?,
            },
            25 => Self::Settle {
                below: take_number(take)?,
            },
            26 => Self::Given {
                number: take_number(take)?,
            },
            _ => Self::Restore {
                flushed: take.u64()?,
                floor: take.u64()?,
                next_recency: take_number(take)?,
                settled: take_number(take)?,
            },
        })
    }
}

impl Operation for TreeOperation {
    const NEWEST_TAG: u16 = 27;

    fn tag(&self) -> u16 {
        match self {
            Self::Begin { .. } => 16,
            Self::AddRun(_) => 17,
            Self::RemoveRun { .. } => 18,
            Self::AddRange { .. } => 19,
            Self::RemoveRange { .. } => 20,
            Self::AddSlice { .. } => 21,
            Self::RemoveSlice { .. } => 22,
            Self::Flush { .. } => 23,
            Self::Floor { .. } => 24,
            Self::Settle { .. } => 25,
            Self::Given { .. } => 26,
            Self::Restore { .. } => 27,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin { flushed: number }
            | Self::RemoveRun { number }
            | Self::Floor { position: number }
            | Self::Settle { below: number }
            | Self::Given { number } => out.put_u64(*number),
            Self::AddRun(run) => {
                out.put_u64(run.oldest);
                out.put_u64(run.newest);
                run.info.encode(out);
            }
            Self::AddRange { begin, end } => {
                out.put_bytes(begin);
                put_bound(out, end.as_ref());
            }
            Self::RemoveRange { begin } => out.put_bytes(begin),
            Self::AddSlice {
                range,
                run,
                begin,
                end,
            } => {
                out.put_bytes(range);
                out.put_u64(*run);
                put_bound(out, begin.as_ref());
                put_bound(out, end.as_ref());
            }
            Self::RemoveSlice { range, run, begin } => {
                out.put_bytes(range);
                out.put_u64(*run);
                out.put_bytes(begin);
            }
            Self::Flush { position, what } => {
                let (kind, run) = match what {
                    Flushed::Nothing => (0, 0),
                    Flushed::Run(run) => (1, *run),
                };
                out.put_u64(*position);
                out.put_u8(kind);
                out.put_u64(run);
            }
            Self::Restore {
                flushed,
                floor,
                next_recency,
                settled,
            } => {
                for number in [flushed, floor, next_recency, settled] {
                    out.put_u64(*number);
                }
            }
        }
    }

    fn decode(tag: u16, bytes: &[u8]) -> Option<std::result::Result<Self, String>> {
        let read = || {
            let mut take = Take::new("edit of a tree", bytes);
            let operation = Self::take(tag, &mut take)?;
            take.finish()?;
            Ok(operation)
        };
        let known = (16..=Self::NEWEST_TAG).contains(&tag);
        known.then(|| read().map_err(|error: Error| error.to_string()))
    }
}
