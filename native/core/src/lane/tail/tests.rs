//! The steady state of a group, and every frame that is not of it.

use super::{
    Answer, Entry, Feed, Found, Heading, Mode, PLAIN, Steady, Tail, Window, encode_answer,
    encode_append,
};

type Log = Tail<Vec<u8>, Vec<u8>>;

const WINDOW: Window = Window {
    message_bytes_max: 100,
    messages: 4,
    bytes: 1000,
};

fn steady(id: u64) -> Steady {
    Steady {
        id,
        leader: 1,
        term: 2,
        epoch: 0,
    }
}

fn entry(term: u64, data: &[u8]) -> Entry<Vec<u8>> {
    Entry {
        term,
        kind: PLAIN,
        size: data.len() as u64,
        data: data.to_vec(),
    }
}

/// A log with entry 1 of term 1, stored and committed.
fn log() -> Log {
    let mut log = Log::new(0, 0, None);
    log.append(1, entry(1, b"a")).unwrap();
    log.loaded(1);
    log.resume(1);
    log
}

/// Take what `node` is to be sent.
fn fed(log: &mut Log, node: u64) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Feed::Append {
        begin,
        end,
        bytes_max,
    } = log.feed(node, &WINDOW, true).unwrap()
    {
        let Found::Memory(places) = log.find(begin, end, bytes_max).unwrap() else {
            panic!("everything is in memory")
        };
        let heading = Heading {
            sender: 1,
            receiver: node,
            term: 2,
            epoch: 0,
            previous: begin - 1,
            previous_term: log.term(begin - 1).unwrap(),
            commit: log.commit(),
        };
        let entries: Vec<_> = places.map(|at| log.entry(at)).collect();
        let weight = entries.iter().map(|each| each.weight()).sum();
        frames.push(encode_append(&heading, entries.iter().copied(), |data| {
            data.as_slice()
        }));
        let last = begin - 1 + entries.len() as u64;
        log.sent(node, last, weight);
    }
    frames
}

fn take(log: &mut Log, frame: &[u8], node: u64) -> Option<Answer> {
    let keep = |_, _, data: &[u8]| Ok::<_, ()>(data.to_vec());
    log.take_append(frame, &steady(node), keep).unwrap()
}

#[test]
fn a_steady_group_needs_nobody() {
    let (mut leader, mut follower) = (log(), log());
    leader.append(2, entry(2, b"")).unwrap();
    leader.track(&[2, 3]);
    for round in 0..20_u64 {
        leader
            .append(leader.last() + 1, entry(2, &[round as u8; 30]))
            .unwrap();
        for frame in fed(&mut leader, 2) {
            let answer = take(&mut follower, &frame, 2).unwrap();
            follower.promise(encode_answer(&answer));
        }
        let write = follower.take_write(false).unwrap();
        assert!(follower.release().is_empty(), "before it is durable");
        follower.stored(write.number).unwrap();
        assert_eq!(follower.durable(), leader.last());
        for answer in follower.release() {
            assert_eq!(leader.take_answer(&answer, &steady(1)), Some(2));
        }
        assert_eq!(leader.peer(2).unwrap().matched, leader.last());
        assert_eq!(leader.peer(2).unwrap().mode, Mode::Replicate);
        leader.commit_to(leader.last()).unwrap();
        leader.check().unwrap();
        follower.check().unwrap();
    }
    // The last append was sent before it was committed.
    assert_eq!(follower.commit(), leader.last() - 1);
    assert_eq!(follower.term(2), Some(2));
    assert_eq!(follower.term(1), Some(1));
}

#[test]
fn what_does_not_continue_the_log_is_cold() {
    let good = Heading {
        sender: 1,
        receiver: 2,
        term: 2,
        epoch: 7,
        previous: 1,
        previous_term: 1,
        commit: 2,
    };
    let plain = || vec![entry(2, b"x"), entry(2, b"y")];
    let frame = |heading: &Heading, entries: Vec<Entry<Vec<u8>>>| {
        encode_append(heading, entries.iter(), |data| data.as_slice())
    };
    let whole = frame(&good, plain());
    let answer = take(&mut log(), &whole, 2).unwrap();
    assert_eq!((answer.index, answer.receiver, answer.epoch), (3, 1, 0));
    let mut cold = vec![
        frame(&Heading { sender: 3, ..good }, plain()),
        frame(
            &Heading {
                receiver: 3,
                ..good
            },
            plain(),
        ),
        frame(&Heading { term: 3, ..good }, plain()),
        frame(
            &Heading {
                previous: 0,
                ..good
            },
            plain(),
        ),
        frame(
            &Heading {
                previous: 2,
                ..good
            },
            plain(),
        ),
        frame(
            &Heading {
                previous_term: 2,
                ..good
            },
            plain(),
        ),
        frame(&good, vec![entry(1, b"x")]),
        frame(&good, vec![entry(3, b"x")]),
        frame(
            &good,
            vec![Entry {
                kind: 3,
                ..entry(2, b"x")
            }],
        ),
        [whole.as_slice(), b"\0"].concat(),
    ];
    for at in 0..whole.len() {
        cold.push(whole[..at].to_vec());
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        cold.push(flipped);
    }
    for frame in cold {
        let mut log = log();
        assert_eq!(take(&mut log, &frame, 2), None, "{frame:?}");
        assert_eq!((log.last(), log.commit()), (1, 1));
    }
    // A membership that is not committed may become it.
    let mut log = log();
    let late = Steady {
        epoch: 2,
        ..steady(2)
    };
    let keep = |_, _, data: &[u8]| Ok::<_, ()>(data.to_vec());
    assert_eq!(log.take_append(&whole, &late, keep), Ok(None));
    // Data that cannot be kept changes nothing.
    let full = |_, _, _: &[u8]| Err("full");
    assert_eq!(log.take_append(&whole, &steady(2), full), Err("full"));
    assert_eq!(log.last(), 1);
}

#[test]
fn an_answer_that_says_more_than_yes_is_cold() {
    let good = Answer {
        sender: 2,
        receiver: 1,
        term: 2,
        epoch: 0,
        index: 1,
    };
    let cold = [
        Answer { sender: 4, ..good },
        Answer {
            receiver: 2,
            ..good
        },
        Answer { term: 1, ..good },
        Answer { index: 2, ..good },
    ];
    let mut log = log();
    log.track(&[2]);
    for answer in cold {
        let taken = log.take_answer(&encode_answer(&answer), &steady(1));
        assert_eq!(taken, None, "{answer:?}");
    }
    let whole = encode_answer(&good);
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        assert_eq!(log.take_answer(&flipped, &steady(1)), None, "{at}");
        assert_eq!(log.take_answer(&whole[..at], &steady(1)), None, "{at}");
    }
    assert_eq!(log.peer(2).unwrap().matched, 0);
    assert_eq!(log.take_answer(&whole, &steady(1)), Some(2));
    assert_eq!(log.peer(2).unwrap().matched, 1);
}

#[test]
fn a_late_report_says_nothing_about_what_replaced_it() {
    let mut log = log();
    for term in [1, 2, 3] {
        if term > 1 {
            log.cut(2).unwrap();
            log.clip(2);
        }
        log.append(2, entry(term, b"n")).unwrap();
        assert_eq!(log.take_write(false).map(|write| write.number), Some(term));
    }
    for (number, durable) in [(1, 1), (2, 1), (3, 2)] {
        log.stored(number).unwrap();
        assert_eq!(log.durable(), durable);
    }
    assert!(log.stored(4).is_err());
}

#[test]
fn a_broken_rule_is_named() {
    let mut log = log();
    let said = |result: super::Result<()>| result.unwrap_err().to_string();
    assert_eq!(said(log.append(3, entry(1, b""))), "entry 3 leaves a gap");
    assert_eq!(said(log.append(2, entry(0, b""))), "terms fall at 2");
    assert_eq!(said(log.cut(1)), "a conflict at 1, committed is 1");
    assert_eq!(said(log.commit_to(2)), "commit 2 is beyond the end 1");
    assert_eq!(said(log.fold(2)), "cannot fold up to 2");
    assert_eq!(said(log.restart_at(1, 1)), "base 1 is below 1");
    assert_eq!(said(log.applied_to(2)), "2 was not handed out");
    log.set_durable(2);
    assert_eq!(said(log.check()), "more is durable than there is");
}

#[test]
fn a_leader_commits_what_each_half_has_by_a_majority_in_its_term() {
    let joint = [vec![1, 2, 3], vec![3, 4]];
    let alone = [vec![1, 2, 3], vec![]];
    let mut log = log();
    for _ in 0..3 {
        log.append(log.last() + 1, entry(2, b"")).unwrap();
    }
    log.track(&[2, 3, 4]);
    log.set_durable(4);
    assert_eq!(log.committable(1, 2, &alone), 1, "nobody else has more");
    log.accepted(2, 3);
    assert_eq!(log.committable(1, 2, &alone), 3);
    assert_eq!(log.committable(1, 2, &joint), 1, "of the other half nobody");
    log.accepted(3, 4);
    log.accepted(4, 2);
    assert_eq!(log.committable(1, 2, &alone), 4);
    assert_eq!(log.committable(1, 2, &joint), 2);
    // A quorum has entries of an earlier term, which another leader could still replace.
    assert_eq!(log.committable(1, 3, &alone), 1);
    log.set_durable(1);
    assert_eq!(
        log.committable(1, 2, &alone),
        3,
        "the leader is one of three"
    );
    assert_eq!(log.committable(1, 2, &[vec![], vec![]]), 1);
}
