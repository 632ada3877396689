//! Windows alone, and against a model.

use super::*;

const P: ProducerId = ProducerId { id: 5, epoch: 0 };

#[test]
fn repeat_returns_the_original_position_and_a_gap_is_refused() {
    let mut producers = Producers::default();
    assert_eq!(producers.admit(P, 1, 3).unwrap(), Admission::New);
    producers.note(P, 1, 100, 3);
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
    producers.note(newer, 1, 1, 1);
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
        producers.note(P, 1 + i, 1 + 10 * i, 1);
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
        producers.note(P, 1, 10, 5);
        producers.note(P, sequence, 20, 3);
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
    producers.note(P, 1, 10, 5);
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
        producers.note(ProducerId { id, epoch: 0 }, 1, id, 1);
    }
    assert_eq!(producers.len() as u64, LONE_MAX);
    assert_eq!(producers.next_sequence(1), 1);
    assert_eq!(producers.next_sequence(2), 2);
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
            producers.note(producer, sequence, llsn, 1);
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
    producers.note(P, 1, 10, 5);
    producers.note(P, 6, 20, 5);
    producers.note(ProducerId { id: 9, epoch: 4 }, 1, 15, 5);
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
            producers.note(producer, next, llsn, 1);
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
