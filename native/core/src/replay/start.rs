//! Where a log begins that was trimmed: replicas trim at moments of their own, so what the slowest of them
//! still has is not complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::damage::is_damage;
use super::directory::Directory;
use super::late::commit_runs;
use crate::error::Result;

/// The first position from which on nothing was trimmed, as far as the directories tell.
pub(super) fn first_kept(sources: &[(Arc<Directory>, BTreeMap<u32, u64>)]) -> Result<u64> {
    let mut bound = 1;
    for (directory, streams) in sources {
        for number in streams.keys() {
            let first = undamaged(first_of(directory, *number))?;
            bound = bound.max(first.unwrap_or(1));
        }
    }
    let mut kept = Vec::new();
    for (directory, streams) in sources {
        for number in streams.keys() {
            let stream = directory.state.stream(*number)?;
            if !stream.explicit_commit {
                kept.push((stream.low, stream.committed));
                continue;
            }
            let runs = undamaged(below(directory, *number, stream.low, bound))?;
            kept.extend(runs.unwrap_or_default());
        }
    }
    // Back from the bound, as far as there is no gap.
    kept.sort_by_key(|(_, end)| std::cmp::Reverse(*end));
    let mut first = bound;
    for (begin, end) in kept {
        if end < first {
            break;
        }
        first = first.min(begin);
    }
    Ok(first)
}

/// Nothing, where the index of a directory is damaged: what it lacks shows as a hole when it is read.
fn undamaged<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Position of the first record kept of a stream that was trimmed; 1 if it was not.
fn first_of(directory: &Directory, number: u32) -> Result<u64> {
    let stream = directory.state.stream(number)?;
    if stream.low == 1 {
        return Ok(1);
    }
    if !stream.explicit_commit {
        return Ok(stream.low);
    }
    let runs = commit_runs(directory, number, stream.low, stream.low + 1)?;
    Ok(match runs.first() {
        Some(run) => run.glsn_begin + stream.low.saturating_sub(run.llsn_begin),
        None => stream.context.glsn_begin + stream.context.length,
    })
}

/// The kept positions of a stream below `bound`, as ranges.
fn below(directory: &Directory, number: u32, low: u64, bound: u64) -> Result<Vec<(u64, u64)>> {
    let (mut found, mut from) = (Vec::new(), low);
    loop {
        let runs = commit_runs(directory, number, from, from + 4096)?;
        let before = from;
        for run in &runs {
            let skipped = from.saturating_sub(run.llsn_begin).min(run.length);
            let (begin, end) = (run.glsn_begin + skipped, run.glsn_end());
            if begin >= bound {
                return Ok(found);
            }
            found.push((begin, end));
            from = from.max(run.llsn_end());
        }
        if from == before {
            return Ok(found);
        }
    }
}
