//! What the leader of the metadata repository knows of the replicas, and what can be committed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use braidlog_core::lane::leader::{
    AnswerTimes, End, Leader as CoreLeader, Metadata, Node, Stream, Told,
};
use braidlog_core::lane::report::Report;
use braidlog_core::lane::tail::Broken;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::tail::broke;

/// Latencies of cuts that are kept until Python takes them.
const LATENCIES_MAX: usize = 1024;

/// Number of the status of a stream that cuts may give something.
const RUNNING: u64 = 1;

/// What a node said last of itself.
#[pyclass(frozen, get_all, module = "braidlog._native")]
pub struct NodeReport {
    /// Number of its start.
    incarnation: u64,
    /// Number of the report.
    number: u64,
    /// Whether all of its replicas are known.
    full: bool,
    /// What its version knows.
    features: u64,
}

impl From<Node> for NodeReport {
    fn from(node: Node) -> Self {
        Self {
            incarnation: node.incarnation,
            number: node.number,
            full: node.full,
            features: node.features,
        }
    }
}

/// The replicated state as Python has it: it is read, and nothing of it is kept.
pub struct State<'py> {
    streams: Bound<'py, PyDict>,
    logs: Bound<'py, PyDict>,
}

impl<'py> State<'py> {
    pub fn of(state: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = state.py();
        Ok(Self {
            streams: state.getattr(intern!(py, "streams"))?.cast_into()?,
            logs: state.getattr(intern!(py, "logs"))?.cast_into()?,
        })
    }

    /// Whether a report is of the start of a node that is known, and of replicas that have all that is committed.
    pub fn is_steady(&self, state: &Bound<'py, PyAny>, report: &Report) -> PyResult<bool> {
        let py = state.py();
        let nodes = state.getattr(intern!(py, "nodes"))?;
        let Some(known) = nodes.cast::<PyDict>()?.get_item(report.node)? else {
            return Ok(false);
        };
        if field(&known, intern!(py, "incarnation"))? > report.head.incarnation {
            return Ok(false);
        }
        for (number, told) in &report.streams {
            let steady = self.stream(*number)?.is_some_and(|stream| {
                stream.replicas.contains(&report.node) && told.committed >= stream.committed
            });
            if !steady {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn log(&self, log: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        self.logs
            .as_any()
            .get_item(PyBytes::new(self.logs.py(), log))
    }
}

impl Metadata for State<'_> {
    type Error = PyErr;

    fn stream(&self, number: u64) -> PyResult<Option<Stream>> {
        self.streams
            .get_item(number)?
            .as_ref()
            .map(stream)
            .transpose()
    }

    fn end(&self, log: &[u8]) -> PyResult<End> {
        let found = self.log(log)?;
        Ok(End {
            version: field(&found, intern!(found.py(), "version"))?,
            high_watermark: field(&found, intern!(found.py(), "high_watermark"))?,
        })
    }

    fn streams(&self, log: &[u8]) -> PyResult<Vec<(u64, Stream)>> {
        let found = self.log(log)?;
        let numbers: Vec<u64> = found.getattr(intern!(found.py(), "streams"))?.extract()?;
        let streams = self.streams.as_any();
        let found = |number| Ok((number, stream(&streams.get_item(number)?)?));
        numbers.into_iter().map(found).collect()
    }
}

fn field(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<u64> {
    object.getattr(name)?.extract()
}

fn stream(found: &Bound<'_, PyAny>) -> PyResult<Stream> {
    let py = found.py();
    let log = found.getattr(intern!(py, "log"))?;
    Ok(Stream {
        log: log.cast::<PyBytes>()?.as_bytes().to_vec(),
        epoch: field(found, intern!(py, "epoch"))?,
        running: field(found, intern!(py, "status"))? == RUNNING,
        committed: field(found, intern!(py, "committed"))?,
        last_version: field(found, intern!(py, "last_version"))?,
        replicas: found.getattr(intern!(py, "replicas"))?.extract()?,
    })
}

fn told(report: Bound<'_, PyAny>) -> PyResult<(u64, Told, Py<PyAny>)> {
    let py = report.py();
    let told = Told {
        epoch: field(&report, intern!(py, "epoch"))?,
        version: field(&report, intern!(py, "version"))?,
        committed: field(&report, intern!(py, "committed"))?,
        end: field(&report, intern!(py, "end"))?,
        state: field(&report, intern!(py, "state"))?,
        damaged: report.getattr(intern!(py, "damaged"))?.extract()?,
    };
    let number = field(&report, intern!(py, "stream"))?;
    Ok((number, told, report.unbind()))
}

/// Numbers of nodes or streams, which mostly are none.
pub fn numbers(given: Option<&Bound<'_, PyAny>>) -> PyResult<BTreeSet<u64>> {
    let Some(given) = given else {
        return Ok(BTreeSet::new());
    };
    given.try_iter()?.map(|each| each?.extract()).collect()
}

/// Latest reports, and cuts in flight.
#[pyclass(subclass, module = "braidlog._native")]
pub struct Leader {
    pub core: CoreLeader<Py<PyAny>>,
    pub times: AnswerTimes,
    /// When cuts were proposed that were not told.
    pub begun: BTreeMap<u64, Instant>,
    latencies: Vec<f64>,
}

#[pymethods]
impl Leader {
    #[new]
    #[pyo3(signature = (in_flight_max=4))]
    fn new(in_flight_max: usize) -> Self {
        Self {
            core: CoreLeader::new(in_flight_max),
            times: AnswerTimes::default(),
            begun: BTreeMap::new(),
            latencies: Vec::new(),
        }
    }

    // --- reports

    /// Whether a replica is in another state or epoch than before, or damaged.
    #[getter]
    fn stirred(&self) -> bool {
        self.core.stirred()
    }

    #[setter]
    fn set_stirred(&mut self, stirred: bool) {
        self.core.set_stirred(stirred);
    }

    /// Note a report; tell whether it was news.
    fn take(&mut self, report: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = report.py();
        let node = field(report, intern!(py, "node"))?;
        let head = Node {
            incarnation: field(report, intern!(py, "incarnation"))?,
            number: field(report, intern!(py, "number"))?,
            full: report.getattr(intern!(py, "full"))?.extract()?,
            features: field(report, intern!(py, "features"))?,
        };
        let streams = report.getattr(intern!(py, "streams"))?;
        let streams = streams.cast::<PyTuple>()?.iter().map(told);
        let streams = streams.collect::<PyResult<_>>()?;
        Ok(self.core.take(node, head, streams))
    }

    /// Measure the answer times of a report that was news, at a time in seconds.
    fn measure(
        &mut self,
        state: &Bound<'_, PyAny>,
        report: &Bound<'_, PyAny>,
        now: f64,
    ) -> PyResult<()> {
        let py = report.py();
        let node = field(report, intern!(py, "node"))?;
        let full = report.getattr(intern!(py, "full"))?.extract()?;
        let streams = report.getattr(intern!(py, "streams"))?;
        let streams: Vec<_> = streams
            .cast::<PyTuple>()?
            .iter()
            .map(told)
            .collect::<PyResult<_>>()?;
        let told = streams.iter().map(|(number, told, _)| (*number, *told));
        let state = State::of(state)?;
        self.times
            .heard(&state, self.core.reports(), (node, full), told, now)
    }

    /// The median lag of each node since the last call, in seconds. A mark that still waits counts if it is at least
    /// `least` old.
    fn take_lags(
        &mut self,
        state: &Bound<'_, PyAny>,
        now: f64,
        least: f64,
    ) -> PyResult<BTreeMap<u64, f64>> {
        self.times.take(&State::of(state)?, now, least)
    }

    /// Drop what was measured while the leader itself was late.
    fn forget_lags(&mut self) {
        self.times.forget();
    }

    /// Drop reports of nodes that were removed.
    fn forget_nodes(&mut self, known: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core.forget_nodes(&numbers(Some(known))?);
        Ok(())
    }

    /// What all nodes said of themselves, in the order in which they were heard first.
    #[getter]
    fn reports<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (id, node) in self.core.reports().nodes() {
            found.set_item(id, NodeReport::from(node).into_pyobject(py)?)?;
        }
        Ok(found)
    }

    /// What a node said of itself, None if nothing.
    fn node(&self, node: u64) -> Option<NodeReport> {
        self.core.reports().node(node).map(NodeReport::from)
    }

    /// What a node said of its replicas.
    fn streams<'py>(&self, py: Python<'py>, node: u64) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (number, report) in self.core.reports().streams(node) {
            found.set_item(number, report)?;
        }
        Ok(found)
    }

    /// What a node said of one replica, None if nothing.
    fn report(&self, py: Python<'_>, node: u64, stream: u64) -> Option<Py<PyAny>> {
        let found = self.core.reports().report(node, stream);
        found.map(|report| report.clone_ref(py))
    }

    /// The replicas that are in the current epoch of a stream.
    fn entered<'py>(
        &self,
        py: Python<'py>,
        stream: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let number = field(stream, intern!(py, "stream"))?;
        let epoch = field(stream, intern!(py, "epoch"))?;
        let replicas: Vec<u64> = stream.getattr(intern!(py, "replicas"))?.extract()?;
        PyTuple::new(py, self.core.entered(number, epoch, &replicas))
    }

    // --- cuts

    /// Whether there is a stream of which something was reported since it was looked at.
    #[getter]
    fn has_fresh(&self) -> bool {
        self.core.has_fresh()
    }

    /// Whether `cut` may find something; forget what it would find nothing in.
    #[pyo3(signature = (state, excluded=None))]
    fn ripe(
        &mut self,
        state: &Bound<'_, PyAny>,
        excluded: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        self.core.ripe(&State::of(state)?, &numbers(excluded)?)
    }

    /// The call that commits what can be committed, or None; it has to be proposed or dropped.
    #[pyo3(signature = (state, excluded=None, dead=None))]
    fn cut<'py>(
        &mut self,
        state: &Bound<'py, PyAny>,
        excluded: Option<&Bound<'py, PyAny>>,
        dead: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (excluded, dead) = (numbers(excluded)?, numbers(dead)?);
        let cut = self.core.cut(&State::of(state)?, &excluded, &dead)?;
        Ok(cut.map(|cut| PyBytes::new(state.py(), &cut.encode())))
    }

    /// The last cut of a log that no replica needs from here any more.
    #[pyo3(signature = (state, log, dead=None))]
    fn durable_version(
        &self,
        state: &Bound<'_, PyAny>,
        log: &[u8],
        dead: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let dead = numbers(dead)?;
        self.core.durable_version(&State::of(state)?, log, &dead)
    }

    /// Note that the last cut is in the log, and compute the next from what it leaves.
    fn proposed(&mut self, index: u64) -> PyResult<()> {
        // What Python proposes may have anything before it.
        if self.core.proposed(index, false) {
            self.begun.insert(index, Instant::now());
            return Ok(());
        }
        Err(PyValueError::new_err("no cut was made"))
    }

    /// Note that the last cut could not be logged: its streams are looked at again.
    fn dropped(&mut self) {
        self.core.dropped();
    }

    /// Note that an entry was applied; return the logs that it cut, None if it is of no cut in flight.
    #[pyo3(signature = (index, *, refused))]
    fn settled<'py>(
        &mut self,
        py: Python<'py>,
        index: u64,
        refused: bool,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if refused && self.core.is_told(index) {
            let reason = format!("the cut {index} was told to replicas, and is refused");
            return Err(broke(py, &Broken(reason)));
        }
        self.note(index);
        let logs = self.core.settled(index, refused);
        let bytes =
            |logs: Vec<Vec<u8>>| PyTuple::new(py, logs.iter().map(|log| PyBytes::new(py, log)));
        logs.map(bytes).transpose()
    }

    /// How many cuts are on their way.
    #[getter]
    fn in_flight(&self) -> usize {
        self.core.flying().count()
    }

    /// The entries of the cuts that are on their way.
    #[getter]
    fn flying<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.flying().collect::<Vec<_>>())
    }

    /// How long cuts took from their proposal until they were told, in seconds, since the last call.
    fn take_latencies(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.latencies)
    }
}

impl Leader {
    /// Note that a cut is told, or was applied.
    pub fn note(&mut self, index: u64) {
        if let Some(begun) = self.begun.remove(&index)
            && self.latencies.len() < LATENCIES_MAX
        {
            self.latencies.push(begun.elapsed().as_secs_f64());
        }
    }
}
