//! A leader of the metadata repository as a lane has it: reports in, cuts out, as of the state that Python has applied.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Instant;

use braidlog_core::lane::leader::{Cut, LogCut, Metadata, Run, Stream, Told};
use braidlog_core::lane::report::Report;
use braidlog_core::lane::stream::encode_commit;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::leader::{Leader, State, numbers};

/// The class of what a node says of a replica.
static STREAM_REPORT: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// What became of a report.
pub enum Outcome {
    /// It is Python's.
    Cold,
    /// It says nothing that a later one has not said.
    Old,
    /// It was taken; whether a cut may follow from it.
    Taken(bool),
}

/// Where the streams of a log are.
struct Places {
    nodes: BTreeSet<u64>,
    primaries: BTreeMap<u64, u64>,
}

impl Places {
    fn of(state: &State<'_>, log: &[u8]) -> PyResult<Self> {
        let streams = state.streams(log)?;
        let nodes = streams.iter().flat_map(|(_, each)| &each.replicas);
        let primary = |(number, each): &(u64, Stream)| Some((*number, *each.replicas.first()?));
        Ok(Self {
            nodes: nodes.copied().collect(),
            primaries: streams.iter().filter_map(primary).collect(),
        })
    }
}

/// A leader as a lane has it until Python says something else.
pub struct Leads {
    leader: Py<Leader>,
    state: Py<PyAny>,
    /// Streams that change.
    excluded: BTreeSet<u64>,
    /// Nodes that are taken for dead.
    gone: BTreeSet<u64>,
    /// The nodes with streams of a log, and the primary of each stream, as they were asked for.
    nodes: BTreeMap<Vec<u8>, Places>,
    /// Whether answers are measured.
    measures: bool,
}

impl Leads {
    /// Take the reports of a leader, as of this state.
    pub fn new(
        leader: Py<Leader>,
        state: Py<PyAny>,
        excluded: &Bound<'_, PyAny>,
        gone: &Bound<'_, PyAny>,
        measures: bool,
    ) -> PyResult<Self> {
        Ok(Self {
            leader,
            state,
            excluded: numbers(Some(excluded))?,
            gone: numbers(Some(gone))?,
            nodes: BTreeMap::new(),
            measures,
        })
    }

    /// The data of a cut, if something can be committed now; it has to be proposed or dropped.
    pub fn cut(&self, py: Python<'_>) -> PyResult<Option<Vec<u8>>> {
        let mut leader = self.leader.bind(py).borrow_mut();
        let state = State::of(self.state.bind(py))?;
        let cut = leader.core.cut(&state, &self.excluded, &self.gone)?;
        Ok(cut.map(Cut::encode))
    }

    /// Note that the last cut is in the log, behind nothing but cuts.
    pub fn proposed(&self, py: Python<'_>, index: u64) {
        let mut leader = self.leader.bind(py).borrow_mut();
        leader.core.proposed(index, true);
        leader.begun.insert(index, Instant::now());
    }

    /// Note that the last cut was not logged.
    pub fn dropped(&self, py: Python<'_>) {
        self.leader.bind(py).borrow_mut().core.dropped();
    }

    /// Whether Python has to look at the replicas.
    pub fn is_stirred(&self, py: Python<'_>) -> bool {
        self.leader.bind(py).borrow().core.stirred()
    }

    /// Whether something was reported from which no cut was computed.
    pub fn has_fresh(&self, py: Python<'_>) -> bool {
        self.leader.bind(py).borrow().core.has_fresh()
    }

    /// Whether an entry is a cut that was proposed here and is not applied.
    pub fn has_proposed(&self, py: Python<'_>, index: u64) -> bool {
        self.leader.bind(py).borrow().core.has_proposed(index)
    }

    /// Whether an entry is a cut that nothing can refuse.
    pub fn is_certain(&self, py: Python<'_>, index: u64) -> bool {
        self.leader.bind(py).borrow().core.is_certain(index)
    }

    /// Take what nodes are to be told of entries that are committed: heads of `Commit`, for primaries first.
    pub fn tell(
        &mut self,
        py: Python<'_>,
        indexes: RangeInclusive<u64>,
    ) -> PyResult<Vec<(u64, Vec<u8>)>> {
        let mut leader = self.leader.bind(py).borrow_mut();
        let state = State::of(self.state.bind(py))?;
        let mut cuts = Vec::new();
        for index in indexes {
            leader.note(index);
            let cut = leader.core.tell(index);
            cuts.extend(cut.into_iter().flat_map(|cut| cut.cuts.iter().cloned()));
        }
        let mut of_nodes: BTreeMap<u64, Vec<&LogCut>> = BTreeMap::new();
        let mut first: BTreeSet<u64> = BTreeSet::new();
        for cut in &cuts {
            let places = match self.nodes.entry(cut.log.clone()) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(place) => place.insert(Places::of(&state, &cut.log)?),
            };
            for node in &places.nodes {
                of_nodes.entry(*node).or_default().push(cut);
            }
            let primary = |run: &Run| places.primaries.get(&run.stream);
            first.extend(cut.runs.iter().filter_map(primary));
        }
        // Those who wait for a commit wait at the primary.
        let mut order: Vec<u64> = of_nodes.keys().copied().collect();
        order.sort_by_key(|node| !first.contains(node));
        let head = |node: u64| (node, encode_commit(&of_nodes[&node]));
        Ok(order.into_iter().map(head).collect())
    }

    /// Take a report from which no more can follow than a cut.
    pub fn take(&self, py: Python<'_>, report: &Report, now: f64) -> PyResult<Outcome> {
        let Ok(mut leader) = self.leader.bind(py).try_borrow_mut() else {
            return Ok(Outcome::Cold);
        };
        let Leader { core, times, .. } = &mut *leader;
        let (state, shown) = (self.state.bind(py), State::of(self.state.bind(py))?);
        // What a node says for the first time, or as a whole, may change more.
        let known = core.reports().node(report.node);
        let known = known.is_some_and(|known| known.incarnation == report.head.incarnation);
        if report.head.full || !known || !shown.is_steady(state, report)? {
            return Ok(Outcome::Cold);
        }
        let class = STREAM_REPORT.get_or_try_init(py, || -> PyResult<_> {
            let module = py.import("braidlog.wire.messages")?;
            let class = module.getattr("StreamReport")?.cast_into::<PyType>()?;
            Ok(class.unbind())
        })?;
        let row = |(number, told): &(u64, Told)| -> PyResult<_> {
            let Told {
                epoch,
                version,
                committed,
                end,
                state,
                damaged,
            } = *told;
            let fields = (*number, epoch, version, committed, end, state, damaged);
            Ok((*number, *told, class.bind(py).call1(fields)?.unbind()))
        };
        let rows = report.streams.iter().map(row).collect::<PyResult<_>>()?;
        if !core.take(report.node, report.head, rows) {
            return Ok(Outcome::Old);
        }
        if self.measures {
            let told = report.streams.iter().copied();
            times.heard(&shown, core.reports(), (report.node, false), told, now)?;
        }
        let ripe = core.ripe(&shown, &self.excluded)?;
        Ok(Outcome::Taken(ripe || core.stirred()))
    }

    /// Tell the collector of Python what is held.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.leader)?;
        visit.call(&self.state)
    }
}
