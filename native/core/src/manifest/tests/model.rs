//! Random operations against a dumb model, reopening and rotating at random.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Default)]
struct Model {
    slots: HashMap<u32, u64>,
    /// Bytes of those that are not whole.
    short: HashMap<u32, u64>,
    segments: HashMap<u64, (u32, u64, Option<u64>)>,
    /// Numbers and ids that were given, for ever.
    last_segment: u64,
    last_slot: u32,
    nulls: bool,
}

impl Model {
    fn used(&self, slot: u32) -> bool {
        self.segments.values().any(|segment| segment.0 == slot)
    }

    fn accepts(&mut self, operation: WalOperation) -> bool {
        use WalOperation as Op;
        match operation {
            Op::AddSlot { slot, bytes } => {
                let good = slot > self.last_slot && slot < u32::MAX && bytes > 0;
                if good {
                    self.slots.insert(slot, bytes);
                    self.last_slot = slot;
                }
                good
            }
            Op::RemoveSlot { slot } => {
                let good = !self.used(slot) && self.slots.remove(&slot).is_some();
                if good {
                    self.short.remove(&slot);
                }
                good
            }
            Op::FillSlot { slot, bytes } => {
                let Some(&whole) = self.slots.get(&slot) else {
                    return false;
                };
                let before = match self.short.get(&slot) {
                    Some(before) => *before,
                    None if self.used(slot) => whole,
                    None => 1,
                };
                let good = (before..=whole).contains(&bytes);
                if good {
                    self.short.insert(slot, bytes);
                    self.short.retain(|_, bytes| *bytes < whole);
                }
                good
            }
            Op::OpenSegment { number, slot, salt } => {
                let good = number == self.last_segment + 1
                    && self.segments.values().all(|segment| segment.2.is_some())
                    && self.slots.contains_key(&slot)
                    && !self.used(slot);
                if good {
                    self.segments.insert(number, (slot, salt, None));
                    self.last_segment = number;
                }
                good
            }
            Op::SealSegment {
                number,
                sealed_bytes,
                ..
            } => match self.segments.get_mut(&number) {
                Some((slot, _, sealed @ None))
                    if sealed_bytes <= *self.short.get(slot).unwrap_or(&self.slots[slot]) =>
                {
                    *sealed = Some(sealed_bytes);
                    true
                }
                _ => false,
            },
            Op::DropSegment { number } => {
                let sealed = self
                    .segments
                    .get(&number)
                    .is_some_and(|segment| segment.2.is_some());
                sealed && number != self.last_segment && self.segments.remove(&number).is_some()
            }
            Op::AllowNulls => {
                self.nulls = true;
                true
            }
            _ => false,
        }
    }

    fn check(&self, files: &WalFiles) {
        let slots: HashMap<_, _> = files.slots().collect();
        assert_eq!(slots, self.slots);
        for (slot, bytes) in &self.slots {
            let filled = self.short.get(slot).unwrap_or(bytes);
            assert_eq!(files.filled_bytes(*slot), Some(*filled));
        }
        let segments: HashMap<_, _> = files
            .segments()
            .map(|one| {
                (
                    one.number,
                    (one.slot, one.salt, one.sealed.map(|sealed| sealed.bytes)),
                )
            })
            .collect();
        assert_eq!(segments, self.segments);
        assert_eq!(files.nulls(), self.nulls);
        assert_eq!(files.next_segment(), self.last_segment + 1);
        assert_eq!(files.next_slot(), self.last_slot + 1);
        let mut free: Vec<_> = self
            .slots
            .keys()
            .copied()
            .filter(|&slot| !self.used(slot))
            .collect();
        free.sort_unstable();
        assert!(files.free_slots().eq(free));
        let active = self
            .segments
            .iter()
            .find(|(_, segment)| segment.2.is_none());
        assert_eq!(
            files.active().map(|one| one.number),
            active.map(|(&number, _)| number)
        );
        for (&number, segment) in &self.segments {
            assert_eq!(files.slot_of(number), Some(segment.0));
        }
    }
}

/// An operation near what the model would accept.
type Wish = (u8, u8, u8);

fn grant(model: &Model, (kind, first, second): Wish) -> WalOperation {
    let slot = u32::from(first) % (model.last_slot + 2);
    let number = (model.last_segment + 1).saturating_sub(u64::from(second) % 5);
    match kind % 10 {
        8 => WalOperation::FillSlot {
            slot,
            bytes: u64::from(second) % 6,
        },
        0 => WalOperation::AddSlot {
            slot: model.last_slot + u32::from(first) % 3,
            bytes: 4,
        },
        1 if second < 64 => WalOperation::RemoveSlot { slot },
        1..=3 => {
            let number = model.last_segment + 1 + u64::from(second == 0);
            WalOperation::OpenSegment {
                number,
                slot,
                salt: u64::from(second),
            }
        }
        4..=5 => WalOperation::SealSegment {
            number: model.last_segment + u64::from(first == 0),
            sealed_bytes: u64::from(second) % 6,
            side_bytes: first.into(),
            side_crc: second.into(),
        },
        9 => WalOperation::AllowNulls,
        _ => WalOperation::DropSegment { number },
    }
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Wish>),
    Reopen,
    Close,
    Follow,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => proptest::collection::vec(any::<Wish>(), 1..4).prop_map(Step::Commit),
        1 => Just(Step::Reopen),
        1 => Just(Step::Close),
        2 => Just(Step::Follow),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn the_manifest_is_the_model(
        steps in steps(),
        rotate_edits in 1..9_u64,
        rotate_bytes in 1..400_u64,
        snapshot_edit_bytes in 0..200_usize,
    ) {
        let options = Options { rotate_bytes, rotate_edits, snapshot_edit_bytes };
        let vfs = memory();
        let dir = Path::new(DIR);
        let mut manifest =
            Manifest::<WalFiles>::create(vfs.clone(), dir, ID, options).unwrap();
        let mut follower = Manifest::<WalFiles>::open_read_only(vfs.clone(), dir, ID).unwrap();
        let mut model = Model::default();
        let mut last = manifest.next_edit() - 1;
        for step in steps {
            match step {
                Step::Commit(wishes) => {
                    let mut wanted = model.clone();
                    let mut operations = Vec::new();
                    let mut accepted = true;
                    for wish in wishes {
                        let operation = grant(&wanted, wish);
                        operations.push(operation);
                        accepted &= wanted.accepts(operation);
                    }
                    let committed = manifest.commit(&operations);
                    prop_assert_eq!(committed.is_ok(), accepted, "{:?}", operations);
                    if let Ok(number) = committed {
                        model = wanted;
                        prop_assert!(number > last);
                        prop_assert_eq!(manifest.next_edit(), number + 1);
                        last = number;
                    }
                }
                Step::Reopen => {
                    drop(manifest);
                    let before = last;
                    let report;
                    (manifest, report) = Manifest::open(vfs.clone(), dir, ID, options).unwrap();
                    prop_assert_eq!(report.dropped, None);
                    prop_assert!(report.last_edit >= before);
                }
                Step::Close => {
                    manifest.close().unwrap();
                    let report;
                    (manifest, report) = Manifest::open(vfs.clone(), dir, ID, options).unwrap();
                    prop_assert!(report.clean_close);
                }
                Step::Follow => {
                    follower.refresh().unwrap();
                    model.check(follower.version());
                    prop_assert!(!follower.refresh().unwrap());
                }
            }
            model.check(manifest.version());
        }
    }
}
