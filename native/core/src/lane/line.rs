//! What waits to become part of a batch, and the room that appends take.

use std::collections::VecDeque;

/// What is appended together, and is never in two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its records.
    pub records: u64,
    /// Bytes that it is counted with.
    pub bytes: u64,
    /// Whether it goes in a batch of its own, because it has a producer of its own.
    pub alone: bool,
}

/// When a batch is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a batch.
    pub bytes_max: u64,
    /// Records of a batch.
    pub records_max: u64,
}

/// What waits to become part of a batch, in the order in which it was appended.
///
/// *Invariant.* The sums are those of what waits.
pub struct Line<P> {
    waiting: VecDeque<(Extent, P)>,
    limits: Limits,
    bytes: u64,
    records: u64,
}

impl<P> Line<P> {
    /// Nothing waits.
    pub fn new(limits: Limits) -> Self {
        Self {
            waiting: VecDeque::new(),
            limits,
            bytes: 0,
            records: 0,
        }
    }

    /// When a batch of it is full.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All that wait, in order.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        self.waiting.iter().map(|(_, payload)| payload)
    }

    /// Wait behind all others.
    pub fn push(&mut self, extent: Extent, payload: P) {
        self.bytes += extent.bytes;
        self.records += extent.records;
        self.waiting.push_back((extent, payload));
    }

    /// Whether the next batch would have to be closed, whatever else may come.
    pub fn is_full(&self) -> bool {
        let head_alone = self.waiting.front().is_some_and(|(head, _)| head.alone);
        self.bytes >= self.limits.bytes_max || self.records >= self.limits.records_max || head_alone
    }

    /// Take what goes together next, and its number of records.
    pub fn close(&mut self) -> (Vec<P>, u64) {
        let (mut taken, mut bytes, mut records) = (0, 0, 0);
        for (each, _) in &self.waiting {
            let (larger, more) = (bytes + each.bytes, records + each.records);
            let over = larger > self.limits.bytes_max || more > self.limits.records_max;
            if taken > 0 && (each.alone || over) {
                break;
            }
            (bytes, records) = (larger, more);
            taken += 1;
            if each.alone {
                break;
            }
        }
        self.bytes -= bytes;
        self.records -= records;
        let payloads = self.waiting.drain(..taken).map(|(_, payload)| payload);
        (payloads.collect(), records)
    }

    /// Take those that `gone` says it of.
    pub fn remove(&mut self, gone: impl Fn(&P) -> bool) -> Vec<P> {
        if !self.iter().any(&gone) {
            return Vec::new();
        }
        let (mut removed, waiting) = (Vec::new(), std::mem::take(&mut self.waiting));
        (self.bytes, self.records) = (0, 0);
        for (extent, payload) in waiting {
            if gone(&payload) {
                removed.push(payload);
            } else {
                self.push(extent, payload);
            }
        }
        removed
    }
}

/// So many bytes, of which those that are appended take some until they are settled.
///
/// *Invariant.* What is free is never more than all of it.
#[derive(Debug)]
pub struct Budget {
    size: u64,
    free: u64,
    shut: bool,
}

impl Budget {
    /// All of it is free.
    pub fn new(size: u64) -> Self {
        Self {
            size,
            free: size,
            shut: false,
        }
    }

    /// Whether nobody gets anything, because others came before.
    pub fn is_shut(&self) -> bool {
        self.shut
    }

    /// Give nobody anything, or go on.
    pub fn set_shut(&mut self, shut: bool) {
        self.shut = shut;
    }

    /// Take bytes if so many are free, whoever came before; who wants more than there is gets all of it.
    pub fn take(&mut self, bytes: u64) -> bool {
        let wanted = bytes.min(self.size);
        let there = wanted <= self.free;
        if there {
            self.free -= wanted;
        }
        there
    }

    /// Give back what was taken for so many bytes.
    pub fn give(&mut self, bytes: u64) {
        self.free = self.size.min(self.free + bytes.min(self.size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes_max: 100,
        records_max: 4,
    };

    fn extent(bytes: u64) -> Extent {
        Extent {
            records: 1,
            bytes,
            alone: false,
        }
    }

    fn alone() -> Extent {
        Extent {
            alone: true,
            ..extent(1)
        }
    }

    fn line(extents: &[Extent]) -> Line<usize> {
        let mut line = Line::new(LIMITS);
        for (number, each) in extents.iter().enumerate() {
            line.push(*each, number);
        }
        line
    }

    fn batches(extents: &[Extent]) -> Vec<Vec<usize>> {
        let mut line = line(extents);
        let mut all = Vec::new();
        while !line.is_empty() {
            all.push(line.close().0);
        }
        assert_eq!((line.bytes, line.records), (0, 0));
        all
    }

    #[test]
    fn a_batch_has_as_much_as_fits() {
        assert_eq!(batches(&[extent(60); 3]), [[0], [1], [2]]);
        assert_eq!(batches(&[extent(50); 3]), [vec![0, 1], vec![2]]);
        assert_eq!(batches(&[extent(1); 5]), [vec![0, 1, 2, 3], vec![4]]);
    }

    #[test]
    fn what_is_larger_than_a_batch_makes_one() {
        assert_eq!(
            batches(&[extent(1), extent(200), extent(1)]),
            [[0], [1], [2]]
        );
    }

    #[test]
    fn what_goes_alone_is_not_joined() {
        let extents = [extent(1), extent(1), alone(), alone(), extent(1)];
        assert_eq!(batches(&extents), [vec![0, 1], vec![2], vec![3], vec![4]]);
        assert!(line(&[alone(), extent(1)]).is_full());
        assert!(!line(&[extent(1), alone()]).is_full());
    }

    #[test]
    fn it_is_full_at_either_limit() {
        assert!(!line(&[extent(99)]).is_full());
        assert!(line(&[extent(60), extent(40)]).is_full());
        assert!(line(&[extent(1); 4]).is_full());
    }

    #[test]
    fn what_is_removed_counts_no_more() {
        let mut line = line(&[extent(50), extent(30), extent(20)]);
        assert!(line.is_full());
        assert_eq!(line.remove(|number| *number == 1), [1]);
        assert!(!line.is_full());
        assert_eq!(line.remove(|number| *number == 1), []);
        assert_eq!(line.close(), (vec![0, 2], 2));
    }

    #[test]
    fn room_is_taken_and_given_back() {
        let mut budget = Budget::new(10);
        assert!(budget.take(7));
        assert!(!budget.take(4));
        assert!(budget.take(3));
        budget.give(7);
        assert!(!budget.take(8));
        assert!(budget.take(7));
    }

    #[test]
    fn what_is_larger_than_all_takes_all() {
        let mut budget = Budget::new(10);
        assert!(budget.take(11));
        assert!(!budget.take(1));
        budget.give(11);
        assert!(budget.take(10));
    }
}
