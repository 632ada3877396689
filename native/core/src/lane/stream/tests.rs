use super::*;

fn standing(committed: u64, next: u64) -> Standing {
    Standing {
        low: 1,
        committed,
        next,
        epoch: 3,
        context: CommitContext {
            version: 5,
            glsn_begin: 10,
            llsn_begin: committed - 2,
            length: 2,
            high_watermark: 20,
        },
    }
}

fn settled(part: Part) -> Stream<u32> {
    let mut stream = Stream::new(7, standing(4, 9));
    stream.settle(Some(part));
    stream
}

fn cut(version: u64, high_watermark: u64, runs: &[(u64, u64, u64, u64, u64)]) -> Cut<'static> {
    let run = |&(stream, llsn, glsn, length, epoch): &(u64, u64, u64, u64, u64)| Run {
        stream,
        llsn,
        glsn,
        length,
        epoch,
    };
    Cut {
        log: b"0123456789abcdef",
        version,
        high_watermark,
        runs: runs.iter().map(run).collect(),
    }
}

#[test]
fn only_what_is_next_is_taken() {
    let batches = |stream, epoch, llsn, sizes: &[usize]| Batches {
        stream,
        epoch,
        llsn,
        sizes: sizes.to_vec(),
    };
    let backup = settled(Part::Backup);
    assert!(backup.takes(&batches(7, 3, 9, &[5])));
    for other in [
        batches(8, 3, 9, &[5]),
        batches(7, 4, 9, &[5]),
        batches(7, 2, 9, &[5]),
        batches(7, 3, 8, &[5]),
        batches(7, 3, 10, &[5]),
        batches(7, 3, 9, &[]),
    ] {
        assert!(!backup.takes(&other), "{other:?}");
    }
    assert!(!settled(Part::Primary).takes(&batches(7, 3, 9, &[5])));
    let mut cold = settled(Part::Backup);
    cold.settle(None);
    assert!(!cold.takes(&batches(7, 3, 9, &[5])));
}

#[test]
fn only_the_next_cut_is_taken() {
    let stream = settled(Part::Backup);
    let taken = |cut: &Cut<'_>| stream.cut(cut);
    assert_eq!(taken(&cut(5, 99, &[])), Some(Taken::Known));
    let Some(Taken::Commit(context)) = taken(&cut(6, 24, &[(7, 4, 21, 3, 3), (8, 1, 24, 1, 3)]))
    else {
        panic!("the next cut");
    };
    assert_eq!((context.version, context.llsn_begin), (6, 4));
    assert_eq!((context.glsn_begin, context.length), (21, 3));
    assert_eq!(context.high_watermark, 24);
    // The log went on without this stream.
    let Some(Taken::Commit(idle)) = taken(&cut(7, 22, &[(8, 1, 21, 2, 3)])) else {
        panic!("an idle cut");
    };
    assert_eq!((idle.llsn_begin, idle.glsn_begin, idle.length), (4, 12, 0));
    for other in [
        // A cut between was missed.
        cut(7, 25, &[(8, 1, 24, 2, 3)]),
        // Not the next records, not of this epoch, not durable, or nothing.
        cut(6, 24, &[(7, 5, 21, 3, 3)]),
        cut(6, 24, &[(7, 3, 21, 3, 3)]),
        cut(6, 24, &[(7, 4, 21, 3, 2)]),
        cut(6, 24, &[(7, 4, 21, 6, 3)]),
        cut(6, 24, &[(7, 4, 21, 0, 3)]),
        cut(6, 24, &[(7, 4, 0, 3, 3)]),
        // The GLSN falls, or a number has no successor.
        cut(6, 24, &[(7, 4, 11, 3, 3)]),
        cut(6, 24, &[(7, 4, 21, u64::MAX, 3)]),
        cut(6, 1, &[(8, 1, 21, u64::MAX, 3), (9, 1, 1, 1, 3)]),
    ] {
        assert_eq!(taken(&other), None, "{other:?}");
    }
}

#[test]
fn what_was_rolled_back_is_never_durable() {
    let mut stream = settled(Part::Primary);
    stream.wrote(standing(4, 12), 1).unwrap();
    stream.wrote(standing(4, 15), 2).unwrap();
    stream.take_back(10);
    stream.wrote(standing(4, 10), 3).unwrap();
    stream.synced(1);
    assert_eq!(stream.durable().end, 10);
    stream.synced(2);
    assert_eq!(stream.durable().end, 10);
    assert!(stream.is_unsynced());
    stream.synced(3);
    assert!(!stream.is_unsynced());
    assert_eq!(
        stream.wrote(standing(11, 10), 4),
        Err(Broken("positions are out of order"))
    );
}

#[test]
fn those_who_wait_are_given_back_once() {
    let mut stream = settled(Part::Primary);
    for (request, llsn, count) in [(1, 9, 2), (2, 11, 1), (3, 12, 3)] {
        stream.wait(Waiter {
            request,
            llsn,
            count,
            size: 10 * count,
        });
    }
    assert_eq!((stream.waiting(), stream.waiting_bytes()), (3, 60));
    stream.wrote(standing(12, 15), 1).unwrap();
    let run = Run {
        stream: 7,
        llsn: 9,
        glsn: 30,
        length: 3,
        epoch: 3,
    };
    let released = stream.release(&run).unwrap();
    let placed: Vec<_> = released.iter().map(|at| (at.request, at.glsn)).collect();
    assert_eq!(placed, [(1, 30), (2, 32)]);
    assert_eq!(stream.give_up(12), [3]);
    assert_eq!((stream.waiting(), stream.waiting_bytes()), (0, 0));
    stream.wait(Waiter {
        request: 4,
        llsn: 11,
        count: 2,
        size: 1,
    });
    let torn = stream.release(&run);
    assert_eq!(torn, Err(Broken("a batch is not wholly in one cut")));
}

#[test]
fn heads_are_read_as_the_codec_writes_them() {
    let head = [0x94, 7, 3, 0xcd, 1, 0, 0x92, 5, 0xcc, 200];
    let batches = replicate(&head).unwrap();
    assert_eq!((batches.stream, batches.epoch, batches.llsn), (7, 3, 256));
    assert_eq!(batches.sizes, [5, 200]);
    let payload = vec![0; 205];
    let parts = batches.split(&payload).unwrap();
    assert_eq!(
        parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
        [5, 200]
    );
    assert!(batches.split(&payload[1..]).is_none());
    assert!(batches.split(&[&payload[..], &[0]].concat()).is_none());
    for end in 0..head.len() {
        assert!(replicate(&head[..end]).is_none());
    }

    let mut two = vec![0x91, 0x92];
    for version in [6, 7] {
        two.extend([
            0x94, 0xc4, 2, b'l', b'g', version, 24, 0x91, 0x95, 7, 4, 21, 3, 3,
        ]);
    }
    let cuts = commits(&two).unwrap();
    assert_eq!(cuts.len(), 2);
    assert_eq!((cuts[0].log, cuts[0].version), (&b"lg"[..], 6));
    assert_eq!(cuts[1].runs[0].glsn, 21);
    assert_eq!(cuts[1].given(), Some(3));
    for end in 0..two.len() {
        assert!(commits(&two[..end]).is_none());
    }
    // Cuts of a log are in the order of their versions.
    let first_version = 7;
    two[first_version] = 7;
    assert!(commits(&two).is_none());
}

#[test]
fn a_long_head_is_cold_before_anything_is_decoded() {
    // An array that claims to be long, in a head that is.
    let mut head = vec![0x91, 0xdd, 0xff, 0xff, 0xff, 0xff];
    head.resize(16 << 20, 0x90);
    assert!(commits(&head).is_none());
    let mut sizes = vec![0x94, 7, 3, 9, 0xdd, 0, 1, 0, 0];
    sizes.resize(9 + (1 << 16), 1);
    assert!(replicate(&sizes).is_none());
}
