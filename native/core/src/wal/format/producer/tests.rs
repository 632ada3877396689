//! Windows alone, and against a model.

use super::*;

const P: ProducerId = ProducerId { id: 5, epoch: 0 };

/// What a stream without explicit commits is committed up to.
const SETTLED: u64 = u64::MAX;

#[test]
fn repeat_returns_the_original_position_and_a_gap_is_refused() {
    let mut producers = Producers::default();
    assert_eq!(producers.admit(P, 1, 3).unwrap(), Admission::New);
    producers.note(P, 1, 100, 3, SETTLED);
    assert_eq!(producers.admit(P, 2, 1).unwrap(), Admission::Repeat(101));
    assert_eq!(producers.admit(P, 4, 1).unwrap(), Admission::New);
    assert!(matches!(
        producers.admit(P, 5, 1),
        Err(Error::NotDense { expected: 4, .. })
    ));
    assert!(matches!(
        producers.admit(P, 3, 2),
        Err(Error::NotDense { expected: 4, .. })
    ));
}

#[test]
fn an_older_epoch_is_fenced_and_a_newer_one_begins_again() {
    let mut producers = Producers::default();
    let newer = ProducerId { epoch: 2, ..P };
    producers.note(newer, 1, 1, 1, SETTLED);
    assert!(matches!(
        producers.admit(P, 2, 1),
        Err(Error::StaleEpoch { .. })
    ));
    let newest = ProducerId { epoch: 3, ..P };
    assert!(producers.admit(newest, 2, 1).is_err());
    assert_eq!(producers.admit(newest, 1, 1).unwrap(), Admission::New);
}

#[test]
fn a_repeat_older_than_the_window_says_so() {
    let mut producers = Producers::default();
    for i in 0..=RUNS_MAX as u64 {
        producers.note(P, 1 + i, 1 + 10 * i, 1, SETTLED);
    }
    assert!(matches!(
        producers.admit(P, 1, 1),
        Err(Error::SequenceExpired { first: 2, .. })
    ));
    assert_eq!(producers.admit(P, 2, 1).unwrap(), Admission::Repeat(11));
}

#[test]
fn what_does_not_continue_begins_anew_and_is_read_back() {
    for sequence in [40, 4, 1] {
        let mut producers = Producers::default();
        producers.note(P, 1, 10, 5, SETTLED);
        producers.note(P, sequence, 20, 3, SETTLED);
        assert_eq!(producers.next_sequence(5), sequence + 3);
        let mut bytes = Vec::new();
        producers.encode(&mut bytes);
        let read = Producers::decode(&mut Take::new("producers", &bytes)).unwrap();
        assert_eq!(read, producers);
    }
}

#[test]
fn rollback_forgets_what_it_cut() {
    let mut producers = Producers::default();
    producers.note(P, 1, 10, 5, SETTLED);
    producers.cut(12);
    assert_eq!(producers.next_sequence(5), 3);
    producers.cut(10);
    assert!(producers.is_empty());
}

/// Producers of one run each that have room.
const LONE_MAX: u64 = (PRODUCERS_BYTES_MAX / (WINDOW_BYTES + RUN_BYTES)) as u64;

#[test]
fn the_least_recently_active_producer_is_forgotten_first() {
    let mut producers = Producers::default();
    for id in 1..=LONE_MAX + 1 {
        producers.note(ProducerId { id, epoch: 0 }, 1, id, 1, SETTLED);
    }
    // One window says that somebody was.
    assert_eq!(producers.len() as u64, LONE_MAX - 1);
    assert_eq!(producers.next_sequence(2), 1);
    assert_eq!(producers.next_sequence(3), 2);
}

#[test]
fn positions_are_forgotten_before_producers() {
    let mut producers = Producers::default();
    let mut llsn = 0;
    for sequence in 1..=3 {
        for id in 1..=LONE_MAX {
            llsn += 1;
            let producer = ProducerId { id, epoch: 0 };
            let before = producers.encoded_len();
            let growth = producers.growth(producer, sequence, llsn);
            producers.note(producer, sequence, llsn, 1, SETTLED);
            assert!(producers.encoded_len() <= before + growth);
            let mut bytes = Vec::new();
            if id % 100 == 0 {
                producers.encode(&mut bytes);
                assert_eq!(bytes.len(), producers.encoded_len());
            }
            assert!(producers.is_bounded());
        }
    }
    assert_eq!(producers.len() as u64, LONE_MAX);
    for id in 1..=LONE_MAX {
        let producer = ProducerId { id, epoch: 0 };
        // Stored long ago is still told from new, and the last from both.
        assert!(matches!(
            producers.admit(producer, 1, 1),
            Err(Error::SequenceExpired { first: 3, .. })
        ));
        let last = Admission::Repeat(2 * LONE_MAX + id);
        assert_eq!(producers.admit(producer, 3, 1).unwrap(), last);
        assert_eq!(producers.admit(producer, 4, 1).unwrap(), Admission::New);
    }
}

#[test]
fn round_trip() {
    let mut producers = Producers::default();
    producers.note(P, 1, 10, 5, SETTLED);
    producers.note(P, 6, 20, 5, SETTLED);
    producers.note(ProducerId { id: 9, epoch: 4 }, 1, 15, 5, SETTLED);
    let mut bytes = Vec::new();
    producers.encode(&mut bytes);
    let mut take = Take::new("producers", &bytes);
    assert_eq!(Producers::decode(&mut take).unwrap(), producers);
    take.finish().unwrap();
}

/// Against a model that forgets nothing: a position may be forgotten, that it was stored may not.
#[test]
fn as_many_as_have_room_are_never_taken_for_new() {
    let mut random = 7_u64;
    let mut below = |n: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % n
    };
    for active in [100, 600, LONE_MAX] {
        let mut producers = Producers::default();
        let mut stored: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for llsn in 1..=10_000 {
            let producer = ProducerId {
                id: 1 + below(active),
                epoch: 0,
            };
            let lsns = stored.entry(producer.id).or_default();
            let next = lsns.len() as u64 + 1;
            let admitted = producers.admit(producer, next, 1).unwrap();
            assert_eq!(admitted, Admission::New, "{producer:?}");
            let (before, growth) = (
                producers.encoded_len(),
                producers.growth(producer, next, llsn),
            );
            producers.note(producer, next, llsn, 1, SETTLED);
            assert!(producers.encoded_len() <= before + growth);
            assert!(producers.is_bounded());
            lsns.push(llsn);
            let again = 1 + below(next);
            match producers.admit(producer, again, 1) {
                Ok(repeat) => assert_eq!(repeat, Admission::Repeat(lsns[again as usize - 1])),
                Err(Error::SequenceExpired { first, .. }) => assert!(again < first),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(producers.len(), stored.len());
    }
}

fn encoded(producers: &Producers) -> Vec<u8> {
    let mut bytes = Vec::new();
    producers.encode(&mut bytes);
    assert_eq!(bytes.len(), producers.encoded_len());
    bytes
}

#[test]
fn a_rollback_of_an_epoch_brings_the_one_before_back() {
    let newer = ProducerId { epoch: 1, ..P };
    let mut producers = Producers::default();
    producers.note(P, 1, 10, 5, 1);
    let before = producers.clone();
    producers.note(newer, 1, 20, 5, 15);
    assert_eq!(
        (producers.epoch(5), producers.next_sequence(5)),
        (Some(1), 6)
    );
    assert!(producers.admit(P, 6, 1).is_err());
    // A preamble, a checkpoint and a restart keep it too.
    let mut read = Producers::parse(&encoded(&producers)).unwrap();
    assert_eq!(read, producers);
    read.cut(20);
    assert_eq!(read, before);
    assert_eq!(read.admit(P, 5, 1).unwrap(), Admission::Repeat(14));
    // Of an epoch of which something is committed nothing before it comes back.
    producers.note(newer, 6, 30, 1, 21);
    let committed = producers.clone();
    producers.settle();
    assert_eq!(producers, committed);
    producers.cut(22);
    assert_eq!(
        (producers.epoch(5), producers.next_sequence(5)),
        (Some(1), 3)
    );
}

#[test]
fn epochs_out_of_order_are_refused() {
    let mut producers = Producers::default();
    producers.note(P, 1, 10, 5, 1);
    producers.note(ProducerId { epoch: 1, ..P }, 1, 20, 5, 1);
    let bytes = encoded(&producers);
    // The second window: its epoch, then the LLSN of its run.
    for (at, value) in [(4 + 40 + 8, 0), (4 + 40 + 16 + 8, 14)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(Producers::parse(&bytes).is_err(), "{at}");
    }
}

#[test]
fn that_somebody_was_forgotten_is_kept_until_what_he_stored_is_gone() {
    let mut producers = Producers::default();
    for id in 1..=LONE_MAX {
        producers.note(ProducerId { id, epoch: 0 }, 1, 10 * id, 1, SETTLED);
    }
    assert!(!producers.may_have_forgotten(LONE_MAX + 1));
    let id = LONE_MAX + 1;
    producers.note(ProducerId { id, epoch: 0 }, 1, 10 * id, 1, SETTLED);
    assert!(producers.is_bounded());
    let mut read = Producers::parse(&encoded(&producers)).unwrap();
    assert_eq!(read, producers);
    assert!(read.may_have_forgotten(1) && !read.may_have_forgotten(id));
    assert!(!read.is_within(10));
    assert!(read.is_within(10 * id + 1));
    read.cut(10);
    assert!(read.may_have_forgotten(1));
    read.cut(1);
    assert_eq!(read, Producers::default());
}

/// Against a model that forgets nothing, with epochs, commits and rollbacks.
#[test]
fn windows_are_after_a_rollback_what_they_were_before() {
    let mut random = 11_u64;
    let mut below = |n: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % n
    };
    for active in [3, 500, LONE_MAX] {
        let mut producers = Producers::default();
        // What each producer stored: (LLSN, epoch, sequence). No more than 7 are not committed.
        let mut stored: BTreeMap<u64, Vec<(u64, u32, u64)>> = BTreeMap::new();
        let (mut next, mut committed) = (1, 1);
        for _ in 0..5000 {
            let id = 1 + below(active);
            let rows = stored.entry(id).or_default();
            let newest = rows.iter().rev();
            let open = newest.take_while(|(llsn, ..)| *llsn >= committed).count();
            if open > 6 || below(20) == 0 {
                committed += below(next - committed + 1);
            }
            if below(50) == 0 {
                next = committed + below(next - committed + 1);
                producers.cut(next);
                for rows in stored.values_mut() {
                    rows.retain(|(llsn, ..)| *llsn < next);
                }
            } else if open <= 6 {
                let last = rows
                    .last()
                    .map_or((0, 1), |(_, epoch, at)| (*epoch, at + 1));
                let (epoch, sequence) = if below(4) == 0 { (last.0 + 1, 1) } else { last };
                let producer = ProducerId { id, epoch };
                let before = producers.encoded_len();
                let growth = producers.growth(producer, sequence, next);
                producers.note(producer, sequence, next, 1, committed);
                assert!(producers.encoded_len() <= before + growth);
                assert!(producers.is_bounded() && producers.is_within(next + 1));
                rows.push((next, epoch, sequence));
                next += 1;
            }
            for id in [id, 1 + below(active)] {
                let last = stored.get(&id).and_then(|rows| rows.last());
                match (producers.epoch(id), last) {
                    (Some(epoch), Some((_, given, at))) => {
                        assert_eq!((epoch, producers.next_sequence(id)), (*given, at + 1));
                    }
                    (None, Some(_)) => assert!(producers.may_have_forgotten(id)),
                    (known, None) => assert_eq!(known, None),
                }
            }
        }
        assert_eq!(encoded(&producers).len(), producers.encoded_len());
    }
}
