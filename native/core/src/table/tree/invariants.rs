//! Whether a version is sound. Pure.

use std::collections::BTreeSet;

use super::version::{Range, Slice, TreeVersion, has_keys, lower, shown};

impl TreeVersion {
    /// Whether the invariants hold.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_ranges()?;
        let mut used = BTreeSet::new();
        for (begin, range) in self.ranges() {
            self.check_slices(begin, range)?;
            used.extend(range.slices.iter().map(|slice| slice.run));
        }
        for (number, run) in self.runs() {
            if !used.contains(number) {
                return Err(format!("run {number} has no slice"));
            }
            if run.newest >= self.next_recency() {
                return Err(format!("run {number} is newer than any flush"));
            }
            if run.info.position_max > self.flushed() {
                return Err(format!("run {number} has positions that were not flushed"));
            }
        }
        if self.floor() > self.flushed() {
            return Err(format!("floor {} is above what was flushed", self.floor()));
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), String> {
        let mut expected = Some(&[][..]);
        for (begin, range) in self.ranges() {
            if expected != Some(begin) {
                let before = expected.map_or("the end".into(), shown);
                return Err(format!(
                    "a range begins at {}, not at {before}",
                    shown(begin)
                ));
            }
            if !has_keys(begin, range.end.as_deref()) {
                return Err(format!("range {} is empty", shown(begin)));
            }
            expected = range.end.as_deref();
        }
        match expected {
            None => Ok(()),
            Some(key) => Err(format!("no range has the keys from {}", shown(key))),
        }
    }

    fn check_slices(&self, begin: &[u8], range: &Range) -> Result<(), String> {
        for (at, slice) in range.slices.iter().enumerate() {
            let Slice { run, .. } = slice;
            let Some(listed) = self.runs().get(run) else {
                return Err(format!("a slice of run {run}, which is not listed"));
            };
            let end = slice.end.as_deref();
            if !has_keys(&slice.begin, end) {
                return Err(format!("a slice of run {run} is empty"));
            }
            if *slice.begin < *begin || lower(end, range.end.as_deref()) != end {
                return Err(format!(
                    "a slice of run {run} reaches out of range {}",
                    shown(begin)
                ));
            }
            for other in &range.slices[..at] {
                let newer = &self.runs()[&other.run];
                let apart = listed.newest < newer.oldest || newer.newest < listed.oldest;
                if slice.meets(other) && !apart {
                    return Err(format!("runs {} and {run} are of the same time", other.run));
                }
            }
        }
        Ok(())
    }
}
