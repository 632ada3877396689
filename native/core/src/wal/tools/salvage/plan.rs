//! Decides what to keep of each log, and says what that loses.

use std::ops::Range;
use std::path::PathBuf;

use super::collect::{Collected, Place};
use crate::wal::format::state::Log;
use crate::wal::format::stream::Stream;
use crate::wal::tools::inspect::Survey;

/// What of a log with holes is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Everything, with the holes declared.
    #[default]
    All,
    /// The stretch with the most records.
    Most,
    /// The one at the end.
    Newest,
    /// The one at the beginning.
    Oldest,
}

impl Keep {
    /// The choice of that name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "all" => Self::All,
            "most" => Self::Most,
            "newest" => Self::Newest,
            "oldest" => Self::Oldest,
            _ => return None,
        })
    }

    fn choose(self, stretches: &[Range<u64>]) -> Option<&Range<u64>> {
        match self {
            Self::All | Self::Most => stretches.iter().max_by_key(|range| range.end - range.start),
            Self::Newest => stretches.last(),
            Self::Oldest => stretches.first(),
        }
    }
}

/// Records that are not in the new directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Log; `None` if nothing tells which.
    pub log: Option<String>,
    /// First position.
    pub first: u64,
    /// One past the last.
    pub end: u64,
    /// How many; 0 if that is unknown.
    pub records: u64,
    /// Why.
    pub reason: String,
}

/// What becomes of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlan {
    /// Name.
    pub name: String,
    /// Stream.
    pub stream: u32,
    /// First readable position and next one as the old directory has them.
    pub range: Range<u64>,
    /// What is kept of it.
    pub kept: Range<u64>,
    /// Positions in there of which the records are lost.
    pub holes: Vec<Range<u64>>,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// File.
    pub path: PathBuf,
    /// Where it begins.
    pub offset: u64,
    /// Where it ends.
    pub end: u64,
    /// What it is.
    pub what: String,
}

/// What a salvage keeps and loses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Each log.
    pub logs: Vec<LogPlan>,
    /// Records that are lost.
    pub losses: Vec<Loss>,
    /// What else is lost or had to be guessed.
    pub guesses: Vec<String>,
    /// Where the damage is.
    pub damage: Vec<Damage>,
}

/// Decide.
pub fn decide(survey: &Survey, collected: &Collected, keep: Keep) -> Plan {
    let mut plan = Plan {
        guesses: collected.fold.guesses.iter().cloned().collect(),
        ..Plan::default()
    };
    let state = &collected.fold.state;
    for log in state.logs.values() {
        if let Some(stream) = state.streams.get(&log.stream) {
            plan.log(log, stream, collected, keep);
        }
    }
    plan.logs.sort_by(|a, b| a.name.cmp(&b.name));
    for table in state.tables.iter() {
        plan.guesses.push(format!(
            "table {:?} is left out: create it again, and it is made of what is left of its log",
            table.name
        ));
    }
    plan.files(survey);
    for place in &collected.places {
        plan.place(place, survey);
    }
    plan
}

impl Plan {
    fn log(&mut self, log: &Log, stream: &Stream, collected: &Collected, keep: Keep) {
        let range = stream.low..stream.next;
        let islands = collected.coverage.islands(log.stream, &range);
        // A replica is made whole by the others, which have no holes. So it gets none, but ends earlier.
        let all = keep == Keep::All && !stream.explicit_commit;
        let kept = match islands.first() {
            Some(first) if all => first.start..range.end,
            _ => keep
                .choose(&islands)
                .cloned()
                .unwrap_or(range.end..range.end),
        };
        let holes = collected.coverage.holes(log.stream, &kept);
        let name = &log.log.name;
        let mut lost: Vec<(Range<u64>, &str)> = Vec::new();
        for hole in collected.coverage.holes(log.stream, &range) {
            lost.push((hole, "damaged"));
        }
        let left = |island: &Range<u64>| island.start < kept.start || island.end > kept.end;
        for island in islands.into_iter().filter(left) {
            lost.push((island, "whole, but only one side of the hole is kept"));
        }
        lost.sort_by_key(|(range, _)| range.start);
        self.losses
            .extend(lost.into_iter().map(|(range, reason)| Loss {
                log: Some(name.clone()),
                first: range.start,
                end: range.end,
                records: range.end - range.start,
                reason: reason.into(),
            }));
        for (cursor, at) in &stream.cursors {
            // A cursor may not stand behind the next record.
            if at.position > kept.end {
                self.guesses.push(format!(
                    "cursor {cursor:?} of log {name:?} goes back from {} to {}",
                    at.position, kept.end
                ));
            }
        }
        let (name, stream) = (name.clone(), log.stream);
        self.logs.push(LogPlan {
            name,
            stream,
            range,
            kept,
            holes,
        });
    }

    fn files(&mut self, survey: &Survey) {
        if let Err(error) = &survey.identity {
            self.guesses.push(format!("identity: {error}"));
        }
        if let Err(error) = &survey.files {
            self.guesses.push(format!(
                "the file list is lost ({error}): segments are known by their header blocks"
            ));
        }
        for path in &survey.unknown_slots {
            self.guesses
                .push(format!("{} holds no readable segment", path.display()));
        }
        let numbers = survey.laps.iter().zip(survey.laps.iter().skip(1));
        for (before, after) in numbers.filter(|_| survey.files.is_err()) {
            if before.number + 1 != after.number {
                self.guesses.push(format!(
                    "segments {}..{} are missing: they were dropped after a trim, or lost",
                    before.number + 1,
                    after.number
                ));
            }
        }
    }

    fn place(&mut self, place: &Place, survey: &Survey) {
        let bad = &place.bad;
        self.damage.push(Damage {
            path: place.path.clone(),
            offset: bad.offset.into(),
            end: bad.end.into(),
            what: bad.reason.clone(),
        });
        // What changes older segments held is known from the preambles of later ones; no preamble follows the newest.
        let newest = survey.newest().map(|lap| lap.number) == Some(place.segment);
        if newest && bad.frame.is_none() {
            self.losses.push(Loss {
                log: None,
                first: 0,
                end: 0,
                records: 0,
                reason: format!(
                    "{} at offsets {}..{} of the newest segment is lost; no other file tells \
                     which records, cursors, logs or trims that was",
                    match bad.frames {
                        0 => "everything".into(),
                        frames => format!("{frames} frames"),
                    },
                    bad.offset,
                    bad.end
                ),
            });
        }
    }
}
