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
/// One that is taken out leaves its place empty, so that many cost as much as each of them alone. Empty places go when
/// those before them have gone, or when they are more than half of all.
///
/// *Invariants.* The sums are those of what waits. Numbers rise. The first place is not empty.
pub struct Line<P> {
    places: VecDeque<Waiting<P>>,
    empty: usize,
    next: u64,
    limits: Limits,
    bytes: u64,
    records: u64,
}

/// A place in a line.
struct Waiting<P> {
    number: u64,
    extent: Extent,
    payload: Option<P>,
}

/// So many empty places are never too many.
const EMPTY_MIN: usize = 64;

impl<P> Line<P> {
    /// Nothing waits.
    pub fn new(limits: Limits) -> Self {
        Self {
            places: VecDeque::new(),
            empty: 0,
            next: 0,
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
        self.places.len() - self.empty
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// All that wait, in order.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        self.places
            .iter()
            .filter_map(|place| place.payload.as_ref())
    }

    /// The number of the next that waits.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Wait behind all others.
    pub fn push(&mut self, extent: Extent, payload: P) {
        self.bytes += extent.bytes;
        self.records += extent.records;
        let number = self.next;
        self.next += 1;
        self.places.push_back(Waiting {
            number,
            extent,
            payload: Some(payload),
        });
    }

    /// Whether the next batch would have to be closed, whatever else may come.
    pub fn is_full(&self) -> bool {
        let head_alone = self.places.front().is_some_and(|head| head.extent.alone);
        self.bytes >= self.limits.bytes_max || self.records >= self.limits.records_max || head_alone
    }

    /// Take what goes together next, and its number of records.
    pub fn close(&mut self) -> (Vec<P>, u64) {
        let (mut taken, mut bytes, mut records) = (0, 0, 0);
        for place in &self.places {
            let each = &place.extent;
            if place.payload.is_none() {
                taken += 1;
                continue;
            }
            let (larger, more) = (bytes + each.bytes, records + each.records);
            let over = larger > self.limits.bytes_max || more > self.limits.records_max;
            if records > 0 && (each.alone || over) {
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
        let gone = self.places.drain(..taken);
        let payloads: Vec<P> = gone.filter_map(|place| place.payload).collect();
        self.empty -= taken - payloads.len();
        self.tidy();
        (payloads, records)
    }

    /// Take the one of that number out, if `is` says that it is the right one.
    pub fn take_out(&mut self, number: u64, is: impl Fn(&P) -> bool) -> Option<P> {
        let at = self
            .places
            .binary_search_by_key(&number, |place| place.number);
        let place = self.places.get_mut(at.ok()?)?;
        let payload = place.payload.take_if(|payload| is(payload))?;
        self.bytes -= place.extent.bytes;
        self.records -= place.extent.records;
        self.empty += 1;
        self.tidy();
        Some(payload)
    }

    /// Take those that `gone` says it of.
    pub fn remove(&mut self, gone: impl Fn(&P) -> bool) -> Vec<P> {
        let mut removed = Vec::new();
        for place in &mut self.places {
            if let Some(payload) = place.payload.take_if(|payload| gone(payload)) {
                self.bytes -= place.extent.bytes;
                self.records -= place.extent.records;
                self.empty += 1;
                removed.push(payload);
            }
        }
        self.tidy();
        removed
    }

    fn tidy(&mut self) {
        while self
            .places
            .front()
            .is_some_and(|place| place.payload.is_none())
        {
            self.places.pop_front();
            self.empty -= 1;
        }
        if self.empty > EMPTY_MIN && 2 * self.empty > self.places.len() {
            self.places.retain(|place| place.payload.is_some());
            self.empty = 0;
        }
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
    fn one_that_is_taken_out_leaves_the_others_in_order() {
        for step in [1, 3, 7] {
            let mut line = line(&[extent(1); 500]);
            let out: Vec<_> = (0..500).map(|at| at * step % 500).take(499).collect();
            for (done, number) in out.iter().enumerate() {
                let is = |each: &usize| *each as u64 == *number;
                assert_eq!(line.take_out(*number, |_| false), None);
                assert_eq!(line.take_out(*number, is), Some(*number as usize));
                assert_eq!(line.take_out(*number, is), None);
                assert_eq!((line.len(), line.records), (499 - done, 499 - done as u64));
                assert!(line.places.len() <= 2 * line.len() + EMPTY_MIN + 1);
            }
            line.push(extent(1), 500);
            assert_eq!(line.close().0.last(), Some(&500));
            assert!(line.is_empty());
        }
    }

    #[test]
    fn empty_places_are_in_no_batch() {
        let mut line = line(&[extent(1), extent(60), extent(60), alone(), extent(1)]);
        assert_eq!(line.take_out(1, |_| true), Some(1));
        assert_eq!(line.close(), (vec![0, 2], 2));
        assert_eq!(line.take_out(3, |_| true), Some(3));
        assert_eq!(line.close(), (vec![4], 1));
        assert!(line.is_empty());
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
