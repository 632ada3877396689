//! What the leader of the metadata repository knows of the replicas, and what can be committed.
//!
//! *Theory of operation.* Nodes report what their replicas hold; the latest report counts. A cut takes for
//! each stream the minimum of what its replicas hold durably in the current epoch. While cuts are on
//! their way through Raft, the next is computed from what the last one will leave; if one is
//! refused, nothing is proposed until all have come back. What the streams have to be is not in here: each
//! call gets it from whoever has it, as [`Metadata`].
//!
//! *Invariants.* A replica counts only if it has entered the epoch, so a cut never takes what one of
//! them does not hold. Reports of one start of a node only go forward. No cut is proposed twice.

mod answers;
mod cut;
mod reports;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use answers::{AnswerTimes, LAGS_MAX, MARKS_MAX};
pub use cut::{Cut, LogCut, Run, is_cut};
pub use reports::{Node, Reports, Told};

/// Streams in one cut; the rest goes into the next.
pub const CUT_RUNS_MAX: usize = 4096;
/// Greatest position: messages have no greater numbers, so a cut beyond it would be refused.
pub const POSITION_MAX: u64 = i64::MAX as u64;
/// Versions of a log between looks at what can be forgotten.
pub const FORGET_EVERY: u64 = 16;

/// What a stream has to be, and what of it is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The log that it is of.
    pub log: Vec<u8>,
    /// Its current epoch.
    pub epoch: u64,
    /// Whether cuts may give it something.
    pub running: bool,
    /// First record that is not committed.
    pub committed: u64,
    /// The last cut that gave it something.
    pub last_version: u64,
    /// Nodes, the primary first.
    pub replicas: Vec<u64>,
}

/// Where a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its last cut.
    pub version: u64,
    /// The last position that it gave out.
    pub high_watermark: u64,
}

/// The replicated state, as far as a cut depends on it.
pub trait Metadata {
    /// Why it cannot be read.
    type Error;
    /// A stream, `None` if there is no such.
    fn stream(&self, number: u64) -> Result<Option<Stream>, Self::Error>;
    /// Where a log ends.
    fn end(&self, log: &[u8]) -> Result<End, Self::Error>;
    /// The streams of a log, with their numbers.
    fn streams(&self, log: &[u8]) -> Result<Vec<(u64, Stream)>, Self::Error>;
}

/// A cut that was proposed and not seen again.
struct Flight {
    index: u64,
    cut: Cut,
    /// Whether nothing but cuts was in the log between what was applied and it.
    pure: bool,
    /// Whether it is committed, and was told to the replicas.
    told: bool,
}

/// Latest reports, and cuts in flight; `T` is a report of a stream as its giver has it.
pub struct Leader<T> {
    in_flight_max: usize,
    reports: Reports<T>,
    /// Streams of which something was reported that no cut was computed from.
    fresh: BTreeSet<u64>,
    /// The cut that was computed last and is neither proposed nor dropped.
    made: Option<Cut>,
    flights: Vec<Flight>,
    stalled: bool,
    /// What the cuts in flight will leave of the streams, and of the logs.
    committed: BTreeMap<u64, u64>,
    ends: BTreeMap<Vec<u8>, End>,
    stirred: bool,
}

impl<T> Leader<T> {
    /// Know nothing yet.
    pub fn new(in_flight_max: usize) -> Self {
        Self {
            in_flight_max,
            reports: Reports::default(),
            fresh: BTreeSet::new(),
            made: None,
            flights: Vec::new(),
            stalled: false,
            committed: BTreeMap::new(),
            ends: BTreeMap::new(),
            stirred: true,
        }
    }

    /// Whether a replica is in another state or epoch than before, or damaged.
    pub fn stirred(&self) -> bool {
        self.stirred
    }

    /// Say whether it is.
    pub fn set_stirred(&mut self, stirred: bool) {
        self.stirred = stirred;
    }

    /// The latest reports.
    pub fn reports(&self) -> &Reports<T> {
        &self.reports
    }

    // --- reports

    /// Note a report; tell whether it was news.
    pub fn take(&mut self, node: u64, head: Node, streams: Vec<(u64, Told, T)>) -> bool {
        let Some(news) = self.reports.take(node, head, streams) else {
            return false;
        };
        self.stirred |= news.stirred;
        self.fresh.extend(news.fresh);
        true
    }

    /// Drop reports of nodes that were removed.
    pub fn forget_nodes(&mut self, known: &BTreeSet<u64>) {
        self.reports.keep(known);
    }

    /// The replicas that are in an epoch of a stream.
    pub fn entered(&self, number: u64, epoch: u64, replicas: &[u64]) -> Vec<u64> {
        let entered = |node: &u64| self.reports.end(*node, number, epoch).is_some();
        replicas.iter().copied().filter(entered).collect()
    }

    // --- cuts

    /// Whether there is a stream of which something was reported since it was looked at.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Whether [`Leader::cut`] may find something; forget what it would find nothing in.
    ///
    /// Of the reports of all replicas of a stream only the last one lets it.
    pub fn ripe<M: Metadata>(
        &mut self,
        metadata: &M,
        excluded: &BTreeSet<u64>,
    ) -> Result<bool, M::Error> {
        let looked: Vec<u64> = self.fresh.difference(excluded).copied().collect();
        for number in looked {
            if self.gain(metadata, number)?.is_some() {
                return Ok(true);
            }
            self.fresh.remove(&number);
        }
        Ok(false)
    }

    /// What can be committed, if anything; it has to be proposed or dropped.
    ///
    /// `excluded` are streams that change, which are left out; `dead` are the nodes for
    /// which no cuts are kept where another replica can tell them.
    pub fn cut<M: Metadata>(
        &mut self,
        metadata: &M,
        excluded: &BTreeSet<u64>,
        dead: &BTreeSet<u64>,
    ) -> Result<Option<&Cut>, M::Error> {
        self.dropped();
        if self.stalled || self.flying().count() >= self.in_flight_max {
            return Ok(None);
        }
        let looked: Vec<u64> = self
            .fresh
            .difference(excluded)
            .copied()
            .take(CUT_RUNS_MAX)
            .collect();
        let mut runs: BTreeMap<Vec<u8>, Vec<Run>> = BTreeMap::new();
        for number in &looked {
            if let Some((log, run)) = self.gain(metadata, *number)? {
                runs.entry(log).or_default().push(run);
            }
        }
        let cut = self.numbered(metadata, runs, dead)?;
        for number in &looked {
            self.fresh.remove(number);
        }
        self.made = (!cut.cuts.is_empty()).then_some(cut);
        Ok(self.made.as_ref())
    }

    /// What of a stream can be committed, with its log; its positions are not given out yet.
    fn gain<M: Metadata>(
        &self,
        metadata: &M,
        number: u64,
    ) -> Result<Option<(Vec<u8>, Run)>, M::Error> {
        let Some(stream) = metadata.stream(number)?.filter(|stream| stream.running) else {
            return Ok(None);
        };
        let begin = *self.committed.get(&number).unwrap_or(&stream.committed);
        let held = |node: &u64| {
            self.reports
                .end(*node, number, stream.epoch)
                .unwrap_or_default()
        };
        let end = stream.replicas.iter().map(held).min().unwrap_or_default();
        let run = (end > begin).then(|| Run {
            stream: number,
            llsn: begin,
            glsn: 0,
            length: end - begin,
            epoch: stream.epoch,
        });
        Ok(run.map(|run| (stream.log, run)))
    }

    /// Hand out positions and versions.
    fn numbered<M: Metadata>(
        &self,
        metadata: &M,
        runs: BTreeMap<Vec<u8>, Vec<Run>>,
        dead: &BTreeSet<u64>,
    ) -> Result<Cut, M::Error> {
        let mut made = Cut::default();
        for (log, mut runs) in runs {
            let end = match self.ends.get(&log) {
                Some(end) => *end,
                None => metadata.end(&log)?,
            };
            let (version, mut last) = (end.version + 1, end.high_watermark);
            // Whoever reports more than there are positions is broken, or lies: the others get theirs.
            runs.retain_mut(|run| {
                let next = last.checked_add(run.length);
                let Some(next) = next.filter(|next| *next <= POSITION_MAX) else {
                    return false;
                };
                run.glsn = last + 1;
                last = next;
                true
            });
            if runs.is_empty() {
                continue;
            }
            if version % FORGET_EVERY == 0 {
                let durable = self.durable_version(metadata, &log, dead)?;
                made.forget.push((log.clone(), durable));
            }
            let high_watermark = last;
            made.cuts.push(LogCut {
                log,
                version,
                high_watermark,
                runs,
            });
        }
        Ok(made)
    }

    /// The last cut of a log that no replica needs from here any more.
    ///
    /// Who is dead, or not in the epoch, may never report: what it lacks it gets from a
    /// replica that has everything, and only if there is none the cuts are kept for it.
    pub fn durable_version<M: Metadata>(
        &self,
        metadata: &M,
        log: &[u8],
        dead: &BTreeSet<u64>,
    ) -> Result<u64, M::Error> {
        let mut durable = metadata.end(log)?.version;
        for (number, stream) in metadata.streams(log)? {
            let told = self.has_all(number, &stream, dead);
            for node in &stream.replicas {
                let report = self.reports.told(*node, number);
                let known = report.map_or(0, |report| report.version);
                // A replica that has its last run on the disk lacks nothing after it:
                // its next run will continue what it has, whatever lies between.
                if known >= stream.last_version {
                    continue;
                }
                let away = report.is_none_or(|report| report.epoch != stream.epoch);
                if !(told && (away || dead.contains(node))) {
                    durable = durable.min(known);
                }
            }
        }
        Ok(durable)
    }

    /// Whether a replica has the place of everything committed on its disk.
    fn has_all(&self, number: u64, stream: &Stream, dead: &BTreeSet<u64>) -> bool {
        let has = |node: &u64| {
            let report = self.reports.told(*node, number);
            report.is_some_and(|report| {
                report.end_in(stream.epoch).is_some() && report.version >= stream.last_version
            })
        };
        let mut living = stream.replicas.iter().filter(|node| !dead.contains(node));
        living.any(has)
    }

    /// Note that the last cut is in the log, and compute the next from what it leaves. It is `pure` if nothing but cuts
    /// that were proposed here is in the log between what was applied and it.
    ///
    /// `false` if there is none.
    pub fn proposed(&mut self, index: u64, pure: bool) -> bool {
        let Some(cut) = self.made.take() else {
            return false;
        };
        for each in &cut.cuts {
            self.ends.insert(each.log.clone(), each.end());
            for run in &each.runs {
                self.committed.insert(run.stream, run.llsn + run.length);
            }
        }
        self.flights.push(Flight {
            index,
            cut,
            pure,
            told: false,
        });
        true
    }

    /// Whether an entry is one of the cuts that were proposed and not applied.
    pub fn has_proposed(&self, index: u64) -> bool {
        self.flights.iter().any(|flight| flight.index == index)
    }

    /// Whether an entry is a cut that nothing can refuse, if none before it is refused: it was computed from what was
    /// applied then and from the cuts behind that, and nothing else is between.
    pub fn is_certain(&self, index: u64) -> bool {
        let mut flights = self.flights.iter();
        !self.stalled && flights.any(|flight| flight.index == index && flight.pure)
    }

    /// The cut of an entry that is committed, to tell it to the replicas before it is applied; `None` if it was told. All
    /// between it and what is applied are certain.
    pub fn tell(&mut self, index: u64) -> Option<&Cut> {
        let mut flights = self.flights.iter_mut();
        let flight = flights.find(|flight| flight.index == index && !flight.told)?;
        flight.told = true;
        Some(&flight.cut)
    }

    /// Note that the last cut could not be logged: its streams are looked at again.
    pub fn dropped(&mut self) {
        if let Some(cut) = self.made.take() {
            self.fresh.extend(cut.streams());
        }
    }

    /// Note that an entry was applied; return the logs that it cut and whose cuts are to be told, `None` if it is of no cut
    /// that was proposed here.
    pub fn settled(&mut self, index: u64, refused: bool) -> Option<Vec<Vec<u8>>> {
        let settled = self.flights.iter().find(|flight| flight.index == index)?;
        let cuts = settled.cut.cuts.iter().filter(|_| !settled.told);
        let logs = cuts.map(|each| each.log.clone()).collect();
        if refused {
            self.stalled = true;
            let streams = self.flights.iter().flat_map(|flight| flight.cut.streams());
            self.fresh.extend(streams);
        }
        self.flights.retain(|flight| flight.index > index);
        if self.flights.is_empty() {
            self.stalled = false;
            self.committed.clear();
            self.ends.clear();
        }
        Some(logs)
    }

    /// Whether the cut of an entry was told and is not applied.
    pub fn is_told(&self, index: u64) -> bool {
        let mut flights = self.flights.iter();
        flights.any(|flight| flight.index == index && flight.told)
    }

    /// The entries of the cuts that are on their way, and were not told.
    pub fn flying(&self) -> impl Iterator<Item = u64> {
        let flying = self.flights.iter().filter(|flight| !flight.told);
        flying.map(|flight| flight.index)
    }
}
