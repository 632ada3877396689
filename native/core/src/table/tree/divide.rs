//! Dividing the keys of a tree for those who read it in parts.

use super::snapshot::Snapshot;
use super::version::{has_keys, lower};
use super::view::{OpenRange, OpenSlice};

impl Snapshot {
    /// Divide the keys `begin..end` into parts with about `bytes` bytes of files each, `parts_max` at most: the first key of each part, and
    /// about how many bytes it has.
    ///
    /// The first part begins at `begin`, each goes up to the next, and the last one up to `end`. What is only in memory does not count,
    /// and a page is not divided. No keys are no parts.
    pub fn divide(
        &self,
        begin: &[u8],
        end: Option<&[u8]>,
        bytes: u64,
        parts_max: usize,
    ) -> Vec<(Vec<u8>, u64)> {
        let whole = self.bytes_between(Some(begin), end);
        // Two neighbours have more than that together, or they would be one part.
        let least = (whole / parts_max.max(1) as u64).saturating_mul(2);
        let most = bytes.max(least).max(1);
        let mut pieces = Vec::new();
        for range in &self.state.view.ranges {
            let (low, high) = (begin.max(&range.begin), lower(end, range.end.as_deref()));
            if has_keys(low, high) {
                bisect(range, low, high, most, &mut pieces);
            }
        }
        let mut parts: Vec<(Vec<u8>, u64)> = Vec::new();
        for (first, bytes) in pieces {
            let is_last = parts.len() >= parts_max;
            match parts.last_mut() {
                Some((_, sum)) if is_last || *sum + bytes <= most => *sum += bytes,
                _ => parts.push((first, bytes)),
            }
        }
        parts
    }
}

/// Halve a part of a range until no piece has more than `most` bytes, or none can be halved.
fn bisect(
    range: &OpenRange,
    begin: &[u8],
    end: Option<&[u8]>,
    most: u64,
    pieces: &mut Vec<(Vec<u8>, u64)>,
) {
    let bytes_of = |slice: &OpenSlice| slice.bytes_between(begin, end);
    let bytes = range.slices.iter().map(bytes_of).sum();
    let largest = range.slices.iter().max_by_key(|slice| bytes_of(slice));
    let middle = largest.filter(|_| bytes > most).and_then(|slice| {
        let (begin, end) = (begin.max(&slice.begin), lower(end, slice.end.as_deref()));
        slice.run.middle_key(Some(begin), end)
    });
    match middle {
        Some(at) => {
            bisect(range, begin, Some(at), most, pieces);
            bisect(range, at, end, most, pieces);
        }
        None => pieces.push((begin.to_vec(), bytes)),
    }
}
