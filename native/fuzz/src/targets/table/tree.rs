//! Manifests of trees: `CURRENT` and the file it names.
//!
//! Accepted means that it opens for writing. Then the version is sound enough that its own snapshot, an empty flush
//! and one more open give what they should.

use std::path::Path;
use std::sync::Arc;

use braidlog_core::error::{Error, Result as Outcome};
use braidlog_core::manifest::{Context, Manifest, Options, Version};
use braidlog_core::table::run::RunInfo;
use braidlog_core::table::tree::{Flushed, ListedRun, TreeOperation as Op, TreeVersion};
use braidlog_core::vfs::{MemoryVfs, Vfs};

use crate::input::Input;
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};
use crate::targets::manifest_bytes;
use crate::targets::manifest_make::{DIR, identity, mount, unmount};

/// The target.
pub struct Trees;

impl Target for Trees {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        make(rng).unwrap_or_default()
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let others = other.files.iter().filter(|(name, _)| name != "CURRENT");
        let foreign = others.map(|(_, bytes)| bytes.as_slice()).next();
        for (name, bytes) in &mut input.files {
            if name != "CURRENT" {
                manifest_bytes::mutate(bytes, foreign.unwrap_or_default(), rng);
            }
        }
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        for (name, bytes) in &mut input.files {
            if name != "CURRENT" {
                manifest_bytes::reseal(bytes, rng);
            }
        }
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let vfs = mount(input).map_err(|error| format!("mount: {error}"))?;
        let Ok(mut manifest) = open(&vfs)? else {
            return Ok(Verdict::Refused);
        };
        let version = Arc::clone(manifest.version());
        let mut again = TreeVersion::default();
        let context = Context {
            edit: 1,
            snapshot: true,
        };
        let applied = again.apply(context, &version.snapshot());
        hold(applied.is_ok() && again == *version, || {
            format!("a snapshot of {version:?} gives {again:?}, {applied:?}")
        })?;
        let position = version.flushed().saturating_add(1);
        let what = Flushed::Nothing;
        let is_higher = version.has_begun() && position > version.flushed();
        let committed = manifest.commit(&[Op::Flush { position, what }]).is_ok();
        // The numbers of edits may be used up.
        hold(is_higher || !committed, || {
            "it flushes a tree that has not begun".into()
        })?;
        let expected = Arc::clone(manifest.version());
        drop(manifest);
        if let Ok(again) = open(&vfs)? {
            hold(*again.version() == expected, || {
                format!("{expected:?} was committed, {:?} opened", again.version())
            })?;
        } else {
            hold(!committed, || "refused after a commit".into())?;
        }
        Ok(Verdict::Accepted)
    }
}

fn open(vfs: &MemoryVfs) -> Result<Outcome<Manifest<TreeVersion>>, Broken> {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    match Manifest::open(shared, Path::new(DIR), identity(), Options::default()) {
        Ok((manifest, _)) => Ok(Ok(manifest)),
        Err(Error::Io { .. } | Error::Malformed { .. } | Error::InvalidArgument(_)) => {
            Err("refused as if the caller or the disk were to blame".into())
        }
        Err(error) => Ok(Err(error)),
    }
}

/// A manifest after flushes, merges and splits.
fn make(rng: &mut Rng) -> Outcome<Input> {
    let vfs = mount(&Input::default())?;
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let options = Options {
        rotate_edits: rng.within(2..=20) as u64,
        snapshot_edit_bytes: rng.within(30..=600),
        ..Options::default()
    };
    let mut manifest =
        Manifest::<TreeVersion>::create(shared, Path::new(DIR), identity(), options)?;
    let flushed = rng.hurtful(8, 1 << 40) >> 1;
    manifest.commit(&[Op::Begin { flushed }])?;
    for _ in 0..rng.below(16) {
        let version = Arc::clone(manifest.version());
        let edit = match rng.below(5) {
            0 => split(&version, rng),
            1 => merge(&version, rng),
            2 => vec![Op::Floor {
                position: version.flushed(),
            }],
            _ => flush(&version, rng),
        };
        manifest.commit(&edit)?;
    }
    if rng.one_in(3) {
        manifest.close()?;
    }
    unmount(&vfs)
}

fn run(number: u64, recency: (u64, u64), positions: (u64, u64), rng: &mut Rng) -> Op {
    let info = RunInfo {
        number,
        bytes: rng.u64() >> 20,
        checksum: rng.u64() as u32,
        entries: 9,
        keys: 2,
        tombstones: rng.below(9) as u64,
        first_key: rng.bytes(3),
        last_key: [0xff; 4].to_vec(),
        position_min: positions.0,
        position_max: positions.1,
    };
    Op::AddRun(ListedRun {
        info: Arc::new(info),
        oldest: recency.0,
        newest: recency.1,
    })
}

fn slice(range: &[u8], run: u64) -> Op {
    Op::AddSlice {
        range: range.to_vec(),
        run,
        begin: None,
        end: None,
    }
}

fn flush(version: &TreeVersion, rng: &mut Rng) -> Vec<Op> {
    let position = version.flushed() + rng.within(1..=20) as u64;
    if rng.one_in(4) {
        let what = Flushed::Nothing;
        return vec![Op::Flush { position, what }];
    }
    let (number, recency) = (version.next_number(), version.next_recency());
    let positions = (version.flushed() + 1, position);
    let mut edit = vec![run(number, (recency, recency), positions, rng)];
    edit.extend(version.ranges().keys().map(|range| slice(range, number)));
    let what = Flushed::Run(number);
    edit.push(Op::Flush { position, what });
    edit
}

/// All slices of a range become one.
fn merge(version: &TreeVersion, rng: &mut Rng) -> Vec<Op> {
    let ranges: Vec<_> = version.ranges().iter().collect();
    let (begin, range) = ranges[rng.below(ranges.len())];
    let listed = || range.slices.iter().map(|slice| &version.runs()[&slice.run]);
    let recency = listed()
        .map(|run| run.oldest)
        .min()
        .zip(listed().map(|run| run.newest).max());
    let Some(recency) = recency else {
        return flush(version, rng);
    };
    let mut edit = Vec::new();
    for slice in &range.slices {
        edit.push(Op::RemoveSlice {
            range: begin.clone(),
            run: slice.run,
            begin: slice.begin.clone(),
        });
        let others = version.ranges().values().flat_map(|range| &range.slices);
        if others.filter(|other| other.run == slice.run).count() == 1 {
            edit.push(Op::RemoveRun { number: slice.run });
        }
    }
    let number = version.next_number();
    edit.push(run(number, recency, (0, version.flushed()), rng));
    edit.push(slice(begin, number));
    edit
}

fn split(version: &TreeVersion, rng: &mut Rng) -> Vec<Op> {
    let at = rng.bytes(2);
    let found = version.ranges().range(..at.clone()).next_back();
    let Some((begin, range)) = found.filter(|(_, range)| range.end.as_ref() != Some(&at)) else {
        return flush(version, rng);
    };
    let mut edit: Vec<Op> = range
        .slices
        .iter()
        .map(|slice| Op::RemoveSlice {
            range: begin.clone(),
            run: slice.run,
            begin: slice.begin.clone(),
        })
        .collect();
    let begin = begin.clone();
    edit.push(Op::RemoveRange {
        begin: begin.clone(),
    });
    for (begin, end) in [(begin, Some(at.clone())), (at, range.end.clone())] {
        edit.push(Op::AddRange {
            begin: begin.clone(),
            end,
        });
        edit.extend(range.slices.iter().map(|of| slice(&begin, of.run)));
    }
    edit
}
