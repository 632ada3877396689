//! Where a log begins that was trimmed: replicas trim at moments of their own, so what the slowest of them
//! still has is not complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::directory::Directory;
use crate::error::Result;

/// The first position from which on nothing was trimmed, as far as the directories tell.
pub(super) fn first_kept(sources: &[(Arc<Directory>, BTreeMap<u32, u64>)]) -> Result<u64> {
    let mut bound = 1;
    for (directory, streams) in sources {
        for number in streams.keys() {
            bound = bound.max(first_of(directory, *number)?);
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
            for run in below(directory, *number, stream.low, bound)? {
                kept.push(run);
            }
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

/// Position of the first record kept of a stream that was trimmed; 1 if it was not.
fn first_of(directory: &Directory, number: u32) -> Result<u64> {
    let stream = directory.state.stream(number)?;
    if stream.low == 1 {
        return Ok(1);
    }
    if !stream.explicit_commit {
        return Ok(stream.low);
    }
    let runs = directory
        .view
        .commit_runs(number, stream.low, stream.low + 1)?;
    Ok(match runs.first() {
        Some(run) => run.glsn_begin + stream.low.saturating_sub(run.llsn_begin),
        None => stream.context.glsn_begin + stream.context.length,
    })
}

/// The kept positions of a stream below `bound`, as ranges.
fn below(directory: &Directory, number: u32, low: u64, bound: u64) -> Result<Vec<(u64, u64)>> {
    let (mut found, mut from) = (Vec::new(), low);
    loop {
        let runs = directory.view.commit_runs(number, from, from + 4096)?;
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
