//! What to merge, split or coalesce next. Pure.
//!
//! # Theory of operation
//!
//! The slices of a range stand on levels whose sizes grow by a ratio. The last level has one slice,
//! the oldest and largest, from which the sizes of the others follow; each of these may have a few.
//! Where a level has too many, they are merged together with all newer ones. So what is read for a
//! key is bounded by the number of levels, and an entry is rewritten about once on each. The range
//! with the most slices to merge goes first: it is the one that readers pay most for.
//!
//! A range that is too large is split and neighbours that are small are coalesced, by slices
//! alone; so a merge never has more to write than a range.

use std::cmp::Reverse;

/// How a tree is kept in shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeOptions {
    /// Size of a level in hundredths of the one before.
    pub ratio_percent: u64,
    /// Slices on a level, but for the last one.
    pub slices_per_level: usize,
    /// Slices of a range above which all are merged, whatever their sizes.
    pub slices_max: usize,
    /// Bytes that a range should have. It is split above 4/3 of them, and neighbours are coalesced that
    /// have less than half of them together. A run that is merged is cut there, too.
    pub range_bytes: u64,
}

impl Default for ShapeOptions {
    fn default() -> Self {
        Self {
            ratio_percent: 350,
            slices_per_level: 2,
            slices_max: 16,
            range_bytes: 512 << 20,
        }
    }
}

/// A slice as far as the choice depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceShape {
    /// Bytes in the file.
    pub bytes: u64,
    /// Oldest flush in it.
    pub oldest: u64,
    /// Newest flush in it.
    pub newest: u64,
    /// Entries of its run.
    pub entries: u64,
    /// Of these, those that a merge of everything would drop: tombstones, and versions that the
    /// floor does not see any more.
    pub garbage: u64,
    /// Whether most of the run's file belongs to no slice any more.
    pub is_rest: bool,
}

/// A range as far as the choice depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeShape {
    /// Newest first.
    pub slices: Vec<SliceShape>,
    /// Whether a task works on it.
    pub is_busy: bool,
}

impl RangeShape {
    fn bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.bytes).sum()
    }
}

/// A merge to run: the newest slices of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergePlan {
    /// Which range.
    pub range: usize,
    /// How many of its slices, newest first.
    pub slices: usize,
}

/// A change of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reshape {
    /// Split this range in the middle.
    Split(usize),
    /// Coalesce this range with the next one.
    Coalesce(usize),
}

/// The merge that is wanted most, if any is.
pub fn pick_merge(ranges: &[RangeShape], options: &ShapeOptions) -> Option<MergePlan> {
    let wanted = ranges
        .iter()
        .enumerate()
        .filter(|(_, range)| !range.is_busy);
    let plans = wanted.filter_map(|(at, range)| {
        let slices = closed(&range.slices, slices_to_merge(&range.slices, options));
        (slices > 0).then_some((at, range, slices))
    });
    // Most slices first; of these the fewest bytes, so that readers gain soon.
    let best = plans.min_by_key(|(_, range, slices)| (Reverse(*slices), range.bytes()));
    best.map(|(range, _, slices)| MergePlan { range, slices })
}

/// The next range that has more than one slice, or anything to drop: for a merge of everything.
pub fn pick_any(ranges: &[RangeShape]) -> Option<MergePlan> {
    let wanted = ranges.iter().position(|range| {
        let has_garbage = range
            .slices
            .iter()
            .any(|slice| slice.garbage > 0 || slice.is_rest);
        !range.is_busy && (groups(&range.slices).count() > 1 || has_garbage)
    });
    wanted.map(|range| MergePlan {
        range,
        slices: ranges[range].slices.len(),
    })
}

/// The split or coalescing that is wanted next.
pub fn pick_reshape(ranges: &[RangeShape], options: &ShapeOptions) -> Option<Reshape> {
    let size = options.range_bytes;
    let oldest = |range: &RangeShape| groups(&range.slices).last().map_or(0, |group| group.bytes);
    let large = ranges
        .iter()
        .position(|range| !range.is_busy && oldest(range) > size.saturating_add(size / 3));
    let small = || {
        ranges.windows(2).position(|pair| {
            let is_busy = pair[0].is_busy || pair[1].is_busy;
            !is_busy && pair[0].bytes().saturating_add(pair[1].bytes()) < size / 2
        })
    };
    large
        .map(Reshape::Split)
        .or_else(|| small().map(Reshape::Coalesce))
}

/// Slices that one merge wrote, as one.
struct Group {
    bytes: u64,
    /// Slices up to and with it.
    end: usize,
}

fn groups(slices: &[SliceShape]) -> impl Iterator<Item = Group> {
    let mut end = 0;
    let parts = slices.chunk_by(|a, b| (a.oldest, a.newest) == (b.oldest, b.newest));
    parts.map(move |part| {
        end += part.len();
        Group {
            bytes: part.iter().map(|slice| slice.bytes).sum(),
            end,
        }
    })
}

/// How many slices to merge, newest first; 0 is none.
fn slices_to_merge(slices: &[SliceShape], options: &ShapeOptions) -> usize {
    let groups: Vec<Group> = groups(slices).collect();
    let by_levels = groups_to_merge(&groups, options);
    let by_levels = by_levels.checked_sub(1).map_or(0, |last| groups[last].end);
    // What is mostly garbage, or the rest of a file, is rewritten with all that is newer.
    let (entries, garbage) = slices.iter().fold((0, 0), |(entries, garbage), slice| {
        (entries + slice.entries, garbage + slice.garbage)
    });
    let rest = slices.iter().rposition(|slice| slice.is_rest);
    let by_garbage = if garbage > entries / 2 {
        slices.len()
    } else {
        rest.map_or(0, |at| at + 1)
    };
    let by_count = if groups.len() > options.slices_max {
        slices.len()
    } else {
        0
    };
    by_levels.max(by_garbage).max(by_count)
}

/// How many groups the levels want merged, newest first.
fn groups_to_merge(groups: &[Group], options: &ShapeOptions) -> usize {
    let (Some(newest), Some(oldest)) = (groups.first(), groups.last()) else {
        return 0;
    };
    let ratio = options.ratio_percent.max(101);
    // The last group fills its level; the first level is no larger than the newest.
    let mut level_bytes = oldest.bytes;
    while level_bytes > newest.bytes.max(1) {
        level_bytes = level_bytes.saturating_mul(100) / ratio;
    }
    let (mut on_level, mut total) = (0, 0_u64);
    let (mut wanted, mut merged_bytes) = (0, 0);
    for (at, group) in groups.iter().enumerate() {
        total = total.saturating_add(group.bytes);
        on_level += 1;
        while group.bytes > level_bytes {
            // It belongs to the next level; so does what comes out of a merge that does not fit this one.
            on_level = if merged_bytes > level_bytes { 2 } else { 1 };
            level_bytes = level_bytes.saturating_mul(ratio) / 100 + 1;
        }
        if on_level > options.slices_per_level.max(1) {
            (wanted, merged_bytes) = (at + 1, total);
        }
    }
    // The last level has one.
    if on_level > 1 { groups.len() } else { wanted }
}

/// Take along what is not older than everything that was chosen, so that the spans of recency stay
/// disjoint.
fn closed(slices: &[SliceShape], mut count: usize) -> usize {
    if count == 0 {
        return 0;
    }
    let mut oldest = slices[..count].iter().map(|slice| slice.oldest).min();
    while let Some(next) = slices.get(count)
        && Some(next.newest) >= oldest
    {
        oldest = oldest.min(Some(next.oldest));
        count += 1;
    }
    count
}
