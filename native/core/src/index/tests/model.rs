//! Random histories against a list of every frame and every committed record.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Error;
use crate::limits::SAMPLE_BYTES;

#[derive(Clone, Debug)]
enum Op {
    /// `skip`: bytes of other streams before it. `gap`: LLSNs left out, for moved frames.
    Note {
        key: usize,
        count: u32,
        bytes: u32,
        skip: u32,
        gap: u64,
    },
    Commit {
        key: usize,
        length: u64,
        glsn_gap: u64,
    },
    Cut {
        stream: u32,
        back: u64,
    },
}

const KEYS: [(u32, u32); 3] = [(7, NATIVE), (7, 1), (8, NATIVE)];

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![4 => 64..1500_u32, 1 => 4000..4200_u32, 1 => 1..20_000_u32];
    let gap = prop_oneof![3 => Just(0_u64), 1 => 1..40_u64];
    let back = prop_oneof![4 => 0..40_u64, 1 => 0..400_u64];
    prop_oneof![
        12 => (0..3_usize, 1..20_u32, bytes, 0..3000_u32, gap).prop_map(
            |(key, count, bytes, skip, gap)| Op::Note { key, count, bytes, skip, gap }
        ),
        2 => (0..3_usize, 1..12_u64, 0..3_u64).prop_map(
            |(key, length, glsn_gap)| Op::Commit { key, length, glsn_gap }
        ),
        2 => (7..9_u32, back).prop_map(|(stream, back)| Op::Cut { stream, back }),
    ]
}

/// A frame that was written, and how much of it still counts.
#[derive(Clone, Debug)]
struct Written {
    llsn: u64,
    count: u32,
    offset: u32,
    bytes: u32,
    usable: u32,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    range: Option<(u64, u64)>,
    frames: Vec<Written>,
    /// (GLSN, LLSN) of every committed record.
    committed: Vec<(u64, u64)>,
    /// Offset of the rollback frame, if nothing was written since.
    cut_last: Option<u32>,
    /// Samples that a gap or a cut may have cost.
    extra_samples: usize,
}

impl Stream {
    fn committed_end(&self) -> u64 {
        self.committed.last().map_or(0, |(_, llsn)| llsn + 1)
    }

    fn cut(&mut self, from: u64, offset: u32) {
        for frame in &mut self.frames {
            frame.usable = frame.usable.min(from.saturating_sub(frame.llsn) as u32);
        }
        let begin = self.range.map_or(from, |(begin, _)| begin.min(from));
        self.range = Some((begin, from));
        self.cut_last = Some(offset);
        self.extra_samples += 1;
    }

    fn live(&self) -> impl DoubleEndedIterator<Item = &Written> {
        self.frames.iter().filter(|frame| frame.usable > 0)
    }

    /// Hold every answer for `llsn`, which must be in the range, against the list.
    fn check_number(&self, index: &StreamIndex, llsn: u64) {
        let (floor, ceil) = (index.floor(llsn).unwrap(), index.ceil(llsn).unwrap());
        assert!(floor.llsn <= llsn, "floor({llsn}) = {floor:?}");
        let is_frame = |p: Position| {
            self.live()
                .any(|f| (f.llsn, f.offset) == (p.llsn, p.offset))
        };
        assert!(
            is_frame(floor),
            "floor({llsn}) = {floor:?} is not a live frame"
        );
        let last = self.live().next_back().unwrap();
        if ceil.llsn < llsn {
            assert_eq!(
                (ceil.llsn, ceil.offset),
                (last.llsn, last.offset),
                "ceil({llsn})"
            );
        } else if Some(ceil.offset) == self.cut_last {
            assert_eq!(ceil.llsn, self.range.unwrap().1, "ceil({llsn})");
        } else {
            assert!(
                is_frame(ceil),
                "ceil({llsn}) = {ceil:?} is not a live frame"
            );
        }
        let holds = |f: &&Written| f.llsn <= llsn && llsn < f.llsn + u64::from(f.usable);
        let Some(home) = self.live().find(holds) else {
            return; // In a gap of moved frames.
        };
        assert!(
            floor.offset <= home.offset && home.offset <= ceil.offset,
            "{llsn}"
        );
        let walked = self
            .frames
            .iter()
            .filter(|f| floor.offset <= f.offset && f.offset < home.offset);
        let walked: u64 = walked.map(|f| u64::from(f.bytes)).sum();
        assert!(walked < SAMPLE_BYTES, "{walked} bytes from floor({llsn})");
    }

    fn check(&self, index: &StreamIndex, thorough: bool) {
        assert_eq!(index.range(), self.range.map(|(begin, end)| begin..end));
        let (begin, end) = self.range.unwrap_or_default();
        for outside in [begin.wrapping_sub(1), end, end + 1] {
            assert_eq!((index.floor(outside), index.ceil(outside)), (None, None));
        }
        let (first, last) = (self.live().next(), self.live().next_back());
        assert_eq!(index.first(), first.and_then(|f| at(f.llsn, f.offset)));
        if self.cut_last.is_none() {
            assert_eq!(index.last(), last.and_then(|f| at(f.llsn, f.offset)));
        }
        for frame in &self.frames {
            assert_eq!(
                index.clip(frame.llsn, frame.count, frame.offset),
                frame.usable,
                "{frame:?}"
            );
        }
        if thorough {
            (begin..end).for_each(|llsn| self.check_number(index, llsn));
        } else {
            for frame in self.live() {
                self.check_number(index, frame.llsn);
                self.check_number(index, frame.llsn + u64::from(frame.usable) - 1);
            }
        }
        let bytes: u64 = self.frames.iter().map(|f| u64::from(f.bytes)).sum();
        assert_eq!(
            (index.frames(), index.bytes()),
            (self.frames.len() as u64, bytes)
        );
        let most = 1 + (bytes / SAMPLE_BYTES) as usize + self.extra_samples;
        assert!(index.samples().len() <= most);
    }

    fn check_commits(&self, index: &StreamIndex) {
        let points: Vec<CommitPoint> = self
            .committed
            .iter()
            .map(|(glsn, llsn)| CommitPoint {
                glsn: *glsn,
                llsn: *llsn,
            })
            .collect();
        let glsn_end = points.last().map_or(0, |p| p.glsn) + 3;
        for glsn in 0..glsn_end {
            let exact = points.iter().find(|p| p.glsn == glsn).map(|p| p.llsn);
            assert_eq!(index.llsn_of(glsn), exact);
            assert_eq!(
                index.glsn_floor(glsn),
                points.iter().rfind(|p| p.glsn <= glsn).copied()
            );
            assert_eq!(
                index.glsn_ceil(glsn),
                points.iter().find(|p| p.glsn >= glsn).copied()
            );
        }
        for point in &points {
            assert_eq!(index.glsn_of(point.llsn), Some(point.glsn));
        }
        let continues = |pair: &&[CommitPoint]| {
            pair[0].glsn + 1 == pair[1].glsn && pair[0].llsn + 1 == pair[1].llsn
        };
        let breaks = points.windows(2).filter(|pair| !continues(pair)).count();
        assert_eq!(
            index.runs().len(),
            if points.is_empty() { 0 } else { breaks + 1 }
        );
    }
}

#[derive(Default)]
struct Model {
    streams: BTreeMap<(u32, u32), Stream>,
    offset: u32,
    glsn: u64,
}

impl Model {
    fn apply(&mut self, index: &mut SegmentIndex, op: &Op) {
        match *op {
            Op::Note {
                key,
                count,
                bytes,
                skip,
                gap,
            } => {
                let (stream, lane) = KEYS[key];
                self.offset += skip;
                let entry = self.streams.entry((stream, lane)).or_default();
                let end = entry.range.map_or(1000, |(_, end)| end);
                let gap = if lane > NATIVE { gap } else { 0 };
                let llsn = end + gap;
                let offset = self.offset;
                index
                    .note(stream, lane, frame(llsn, count, offset, bytes))
                    .unwrap();
                self.offset += bytes;
                // An empty range begins where the next frame does.
                let begin = entry
                    .range
                    .filter(|(b, e)| b < e)
                    .map_or(llsn, |(begin, _)| begin);
                entry.range = Some((begin, llsn + u64::from(count)));
                entry.frames.push(Written {
                    llsn,
                    count,
                    offset,
                    bytes,
                    usable: count,
                });
                entry.cut_last = None;
                entry.extra_samples += usize::from(gap > 0);
            }
            Op::Commit {
                key,
                length,
                glsn_gap,
            } => {
                let (stream, lane) = KEYS[key];
                let Some(entry) = self.streams.get_mut(&(stream, lane)) else {
                    return;
                };
                let Some((begin, end)) = entry.range else {
                    return;
                };
                let from = if entry.committed.is_empty() {
                    begin
                } else {
                    entry.committed_end()
                };
                let length = length.min(end.saturating_sub(from));
                if length == 0 {
                    return;
                }
                self.glsn += glsn_gap;
                let run = CommitRun {
                    glsn_begin: self.glsn,
                    llsn_begin: from,
                    length,
                };
                index.commit(stream, lane, run).unwrap();
                entry
                    .committed
                    .extend((0..length).map(|i| (self.glsn + i, from + i)));
                self.glsn += length;
            }
            Op::Cut { stream, back } => self.cut(index, stream, back),
        }
    }

    fn cut(&mut self, index: &mut SegmentIndex, stream: u32, back: u64) {
        let native = self.streams.entry((stream, NATIVE)).or_default();
        let from = native
            .range
            .map_or(1000, |(_, end)| end)
            .saturating_sub(back);
        let mut keys = vec![(stream, NATIVE)];
        let moved = self.streams.get(&(stream, 1));
        if moved
            .and_then(|entry| entry.range)
            .is_some_and(|(_, end)| from < end)
        {
            keys.push((stream, 1));
        }
        if keys
            .iter()
            .any(|key| from < self.streams[key].committed_end())
        {
            let before = index.clone();
            let refused = index.cut(stream, from, self.offset);
            assert!(
                matches!(refused, Err(Error::Committed { .. })),
                "{refused:?}"
            );
            assert_eq!(*index, before);
            return;
        }
        index.cut(stream, from, self.offset).unwrap();
        for key in keys {
            self.streams.get_mut(&key).unwrap().cut(from, self.offset);
        }
        self.offset += 48;
    }

    fn check(&self, index: &SegmentIndex, thorough: bool) {
        let blank = StreamIndex::new(false);
        for ((stream, lane), entry) in &self.streams {
            let index = index.stream(*stream, *lane).unwrap_or(&blank);
            entry.check(index, thorough);
            if thorough {
                entry.check_commits(index);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_history_answers_like_the_list_of_its_frames(ops in prop::collection::vec(op(), 1..80)) {
        let (mut model, mut index) = (Model::default(), SegmentIndex::new());
        for op in &ops {
            model.apply(&mut index, op);
            model.check(&index, false);
        }
        model.check(&index, true);

        let sealed_bytes = u64::from(model.offset) + 1;
        let bytes = index.encode(9, 0xFEED, sealed_bytes);
        let (header, decoded) = decode(&bytes).unwrap();
        prop_assert_eq!((header.segment, header.salt), (9, 0xFEED));
        prop_assert_eq!(header.sealed_bytes, sealed_bytes);
        prop_assert_eq!(&decoded, &index);
        model.check(&decoded, true);
    }
}
