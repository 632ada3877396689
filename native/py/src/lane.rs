//! What a node does with every append: one call for each frame, and one for each turn.
// One file: the calls of one Python class, and what frames do to its replicas.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use braidlog_core::lane::report::REPORT;
use braidlog_core::lane::stream::{
    Broken, COMMIT, Cut, Part, REPLICATE, Taken, commits, encode_replicate, replicate,
};
use braidlog_core::wal::Verified;
use braidlog_core::wire::Frame;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::conn::Conn;
use crate::error::to_py;
use crate::group::{CONSENSUS, Group};
use crate::held::Held;
use crate::leader::Leader;
use crate::leads::Leads;
use crate::links::{Links, Written};
use crate::replicas::Replicas;
use crate::round::{Row, kept_of_group};
use crate::stream::{RUNNING, Stream, broke, kept, run_of};
use crate::tail::Tail;

/// An answer to an append: request, LLSN, GLSN, records, version.
pub type Answer = (u32, u64, u64, u64, u64);

/// The replicas of a node, and what frames of peers and appends did to them in this turn.
#[pyclass(module = "braidlog._native")]
pub struct Lane {
    pub replicas: Py<Replicas>,
    streams: BTreeMap<u64, Py<Stream>>,
    by_log: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Streams of which something can be read that could not be before.
    advanced: Vec<u64>,
    /// Streams of which something was written that may not be durable.
    unsynced: Vec<u64>,
    /// Streams that may have something to report.
    due: Vec<u64>,
    answers: Vec<(Py<PyAny>, Answer)>,
    /// What broke while a socket was read, where nobody could be told.
    pub broken: Option<PyErr>,
    pub links: Links,
    pub group: Option<Group>,
    /// What this node leads, while it does.
    pub leads: Option<Leads>,
    /// Whether Python has to look at what it leads.
    pub lead_due: bool,
    /// Nodes that have reported.
    pub heard: BTreeSet<u64>,
    /// Gives the time in seconds, when a report comes.
    pub clock: Py<PyAny>,
    /// Messages of the group that could not be sent from here.
    pub unsent: Vec<Unsent>,
    /// Who reports: node, start, features.
    pub identity: (u64, u64, u64),
    /// Number of the last report.
    reported: u64,
    /// The node that is told what became durable; 0: Python tells it.
    #[pyo3(get, set)]
    pub reports_to: u64,
    /// Who last told this node what was decided.
    #[pyo3(get, set)]
    pub leader_heard: u64,
    /// Whether a heartbeat of the group is waited for: Python has to hear of it.
    #[pyo3(get, set)]
    pub awaits_heartbeat: bool,
    /// Whether nothing of Python's waits for a sync, for room or for a turn: turns may end without it.
    #[pyo3(get, set)]
    pub calm: bool,
    /// Appends of clients, their bytes, and those that were answered with a position.
    #[pyo3(get)]
    pub appends: u64,
    #[pyo3(get)]
    pub append_bytes: u64,
    #[pyo3(get)]
    pub acknowledged: u64,
}

#[pymethods]
impl Lane {
    #[new]
    fn new(replicas: Py<Replicas>, clock: Py<PyAny>) -> Self {
        Self {
            replicas,
            streams: BTreeMap::new(),
            by_log: BTreeMap::new(),
            advanced: Vec::new(),
            unsynced: Vec::new(),
            due: Vec::new(),
            answers: Vec::new(),
            broken: None,
            links: Links::default(),
            group: None,
            leads: None,
            lead_due: false,
            heard: BTreeSet::new(),
            clock,
            unsent: Vec::new(),
            identity: (0, 0, 0),
            reported: 0,
            reports_to: 0,
            leader_heard: 0,
            awaits_heartbeat: false,
            calm: false,
            appends: 0,
            append_bytes: 0,
            acknowledged: 0,
        }
    }

    /// Count appends of clients, and those that were answered with a position.
    #[pyo3(signature = (appends, size, acknowledged=0))]
    pub fn count(&mut self, appends: u64, size: u64, acknowledged: u64) {
        self.appends += appends;
        self.append_bytes += size;
        self.acknowledged += acknowledged;
    }

    // --- who speaks to whom

    /// Say who reports: a node, the number of its start, and what its version knows.
    fn identify(&mut self, node: u64, incarnation: u64, features: u64) {
        self.identity = (node, incarnation, features);
    }

    /// The number of the next report.
    pub fn next_report(&mut self) -> u64 {
        self.reported += 1;
        self.reported
    }

    /// Speak to a node over this connection, of which at most so many bytes may wait for the socket.
    fn link(&mut self, node: u64, conn: Py<Conn>, wire: Py<PyAny>, unsent_bytes_max: usize) {
        self.links.limit(unsent_bytes_max);
        self.links.open(node, conn, wire);
    }

    /// Have this connection to a node no more.
    fn unlink(&mut self, node: u64, conn: Py<Conn>) {
        self.links.close(node, &conn);
    }

    // --- the group

    /// Take part in a Raft group, given the head of its messages.
    fn join(&mut self, head: Vec<u8>, tail: Py<Tail>) {
        self.group = Some(Group::new(head, tail));
    }

    /// Write what the group appends into this log of the store; 0: Python writes it.
    fn write_into(&mut self, log: u32) {
        if let Some(group) = &mut self.group {
            group.write_into(log);
        }
    }

    /// Take the number of a write of the group that became durable and that Python has to be told of; 0: none.
    pub fn take_stored(&mut self) -> u64 {
        self.group.as_mut().map_or(0, Group::take_stored)
    }

    // --- who leads

    /// Take reports for a leader from now on, and make and commit its cuts, as of this state of the repository. Streams
    /// that change, `excluded`, get no cuts; nodes in `gone` are taken for dead; with `measures` answers are measured.
    fn lead(
        &mut self,
        leader: Py<Leader>,
        state: Py<PyAny>,
        excluded: &Bound<'_, PyAny>,
        gone: &Bound<'_, PyAny>,
        measures: bool,
    ) -> PyResult<()> {
        self.leads = Some(Leads::new(leader, state, excluded, gone, measures)?);
        Ok(())
    }

    /// Whether something is committed that Python has not applied.
    #[getter]
    fn behind(&self, py: Python<'_>) -> bool {
        self.group.as_ref().is_some_and(|group| group.is_behind(py))
    }

    /// Take no reports any more.
    fn resign(&mut self) {
        self.leads = None;
    }

    /// Take the nodes that have reported, and those that have answered.
    fn take_heard(&mut self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let kept = self.group.as_mut().map(Group::take_kept);
        (std::mem::take(&mut self.heard), kept.unwrap_or_default())
    }

    // --- replicas

    /// Take frames for a replica from now on.
    fn host(&mut self, number: u64, stream: Py<Stream>) {
        self.streams.insert(number, stream);
    }

    /// Say of which log a stream is one.
    fn of_log(&mut self, number: u64, log: &[u8]) {
        self.by_log.entry(log.to_vec()).or_default().insert(number);
    }

    /// Forget a replica.
    fn drop(&mut self, number: u64) {
        self.streams.remove(&number);
        for streams in self.by_log.values_mut() {
            streams.remove(&number);
        }
        self.by_log.retain(|_, streams| !streams.is_empty());
        for list in [&mut self.advanced, &mut self.unsynced, &mut self.due] {
            list.retain(|of| *of != number);
        }
    }

    /// The streams of a log, rising.
    fn streams_of(&self, log: &[u8]) -> Vec<u64> {
        let found = self.by_log.get(log).into_iter().flatten();
        found.copied().collect()
    }

    /// Whether something is to be done at the end of the turn.
    #[getter]
    fn stirred(&self) -> bool {
        self.is_stirred()
    }

    /// Append batches that came together: where the first of those is that are new, these, the repeats as
    /// (request, LLSN, records), and the backups that Python has to send them to; `None` if Python has to look at
    /// them.
    pub fn append<'py>(
        &mut self,
        py: Python<'py>,
        number: u64,
        epoch: u64,
        requests: Vec<Py<PyAny>>,
        batches: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Appended<'py>>> {
        let Some(held) = self.streams.get(&number) else {
            return Ok(None);
        };
        let mut stream = held.bind(py).borrow_mut();
        let standing = *stream.core.standing();
        let known = epoch == 0 || epoch == standing.epoch;
        if stream.core.part() != Some(Part::Primary) || !known {
            return Ok(None);
        }
        let Some(disk) = stream.disk.clone() else {
            return Ok(None);
        };
        let views = batches.iter().map(|batch| Held::of(batch, "batch"));
        let views: Vec<Held> = views.collect::<PyResult<_>>()?;
        let bytes: Vec<&[u8]> = views.iter().map(Held::as_slice).collect();
        let size: u64 = bytes.iter().map(|batch| batch.len() as u64).sum();
        if stream.core.waiting_bytes() + size > stream.waiting_bytes_max {
            return Ok(None);
        }
        let Some(verified) = disk.ready(&bytes) else {
            return Ok(None);
        };
        if !stream.nulls && verified.iter().any(Verified::has_nulls) {
            return Ok(None);
        }
        // A refused call changes nothing: Python makes it again, and says what is wrong.
        let placed = disk
            .store
            .append_batches(disk.number, standing.epoch, &verified);
        let Ok(placed) = placed else {
            return Ok(None);
        };
        let (after, ticket) = (disk.standing(), disk.store.latest());
        disk.store.nudge();
        self.replicas.get().hurry(size);
        let (fresh, mut repeats) = (PyList::empty(py), Vec::new());
        let mut next = standing.next;
        for ((at, request), batch) in placed.iter().zip(requests).zip(&batches) {
            let (count, size) = (u64::from(at.count), batch.len()? as u64);
            if at.new {
                if at.llsn != next {
                    return Err(broke(py, Broken("the storage left an LLSN out")));
                }
                next += count;
                fresh.append(batch)?;
                stream.put(request, at.llsn, count, size);
            } else {
                repeats.push((request, at.llsn, count));
            }
        }
        let (after, ticket) = (after.map_err(to_py)?, ticket.map_err(to_py)?);
        kept(py, stream.core.wrote(after, ticket))?;
        if after.next != next {
            return Err(broke(py, Broken("the storage placed more than it says")));
        }
        note(&mut self.unsynced, number, &mut stream.unsynced);
        let mut left = Vec::new();
        if !fresh.is_empty() && !stream.backups.is_empty() {
            let parts: Vec<Bound<'py, PyAny>> = fresh.iter().collect();
            let sizes = parts
                .iter()
                .map(PyAnyMethods::len)
                .collect::<PyResult<Vec<_>>>()?;
            let message =
                encode_replicate(number, standing.epoch, standing.next, sizes.into_iter());
            left = self
                .links
                .send_all(py, &stream.backups, REPLICATE, &message, &parts);
        }
        Ok(Some((standing.next, fresh, repeats, left)))
    }

    /// Apply the cuts of a `Commit` that is of this node, given its head; false if Python has to look at them.
    pub fn commit(&mut self, py: Python<'_>, head: &[u8]) -> bool {
        self.take(
            py,
            &Frame {
                kind: COMMIT,
                request: 0,
                head,
                payload: &[],
            },
        )
    }

    /// Note that every write up to `ticket` is durable.
    pub fn synced(&mut self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        for number in std::mem::take(&mut self.unsynced) {
            let Some(held) = self.streams.get(&number) else {
                continue;
            };
            let mut stream = held.bind(py).borrow_mut();
            stream.core.synced(ticket);
            stream.unsynced = false;
            if stream.core.is_unsynced() {
                note(&mut self.unsynced, number, &mut stream.unsynced);
            }
            if stream.core.part().is_some() && stream.core.is_unsaid(RUNNING) {
                self.due.push(number);
            }
        }
        if let Some(group) = &mut self.group {
            let messages = kept_of_group(py, group.synced(py, ticket))?;
            self.send_all(py, messages);
        }
        Ok(())
    }

    /// What there is to do at the end of the turn: the fields of reports, streams of
    /// which something can be read, answers as (session, rows) and when those who get them came, as (time, how many);
    /// messages of the group that Python has to send, and whether it has to look at the group; sockets to write to.
    fn turn<'py>(&mut self, py: Python<'py>) -> PyResult<Turn<'py>> {
        self.end_turn(py)?.into_row(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for stream in self.streams.values() {
            visit.call(stream)?;
        }
        for (request, _) in &self.answers {
            visit.call(request)?;
        }
        if let Some(group) = &self.group {
            group.traverse(&visit)?;
        }
        if let Some(leads) = &self.leads {
            leads.traverse(&visit)?;
        }
        visit.call(&self.clock)?;
        self.links.traverse(&visit)
    }

    fn __clear__(&mut self) {
        self.streams.clear();
        self.answers.clear();
        self.links.clear();
        self.group = None;
        self.leads = None;
    }
}

/// What a turn leaves to do.
pub struct Ended {
    pub reports: Vec<Row>,
    /// Streams of which something can be read that could not be before.
    pub advanced: Vec<u64>,
    pub answers: Vec<(Py<PyAny>, Answer)>,
    pub unsent: Vec<Unsent>,
    pub raft_due: bool,
    pub lead_due: bool,
    pub written: Vec<Written>,
}

impl Ended {
    /// Whether nothing is left but answers, readers and sockets.
    pub fn is_calm(&self) -> bool {
        self.reports.is_empty() && self.unsent.is_empty() && !self.raft_due && !self.lead_due
    }

    /// What Python takes.
    pub fn into_row(self, py: Python<'_>) -> PyResult<Turn<'_>> {
        let (sessions, times) = by_session(py, self.answers)?;
        let due = (self.unsent, self.raft_due, self.lead_due);
        let wires = self.written.into_iter().map(|written| written.wire);
        let wires = wires.collect();
        Ok((self.reports, self.advanced, sessions, times, due, wires))
    }
}

pub type Repeats = Vec<(Py<PyAny>, u64, u64)>;
pub type Appended<'py> = (u64, Bound<'py, PyList>, Repeats, Vec<u64>);
pub type Sessions<'py> = Vec<(Bound<'py, PyAny>, Vec<Answer>)>;
pub type Times = Vec<(f64, usize)>;
/// A message that Python has to send: to whom, its kind, head and payload, if it has one.
pub type Unsent = (u64, u8, Vec<u8>, Py<PyAny>);
pub type OfGroup = (Vec<Unsent>, bool, bool);
pub type Turn<'py> = (
    Vec<Row>,
    Vec<u64>,
    Sessions<'py>,
    Times,
    OfGroup,
    Vec<Py<PyAny>>,
);

impl Lane {
    /// End a turn: what is left to do, which is Python's or the sockets'.
    pub fn end_turn(&mut self, py: Python<'_>) -> PyResult<Ended> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        if let Some(group) = &mut self.group {
            let messages = kept_of_group(py, group.turn(py, self.replicas.get()))?;
            self.send_all(py, messages);
        }
        self.commit_cuts(py)?;
        let mut reports = Vec::new();
        for number in std::mem::take(&mut self.due) {
            let Some(held) = self.streams.get(&number) else {
                continue;
            };
            let mut stream = held.bind(py).borrow_mut();
            // What happened since then is Python's to report.
            if stream.core.part().is_none() || !stream.core.is_unsaid(RUNNING) {
                continue;
            }
            let mark = kept(py, stream.core.say(RUNNING))?;
            let committed = stream.core.standing().committed;
            let (version, end) = (mark.version, mark.end);
            reports.push((number, mark.epoch, version, committed, end, RUNNING));
        }
        if !reports.is_empty() && self.report(py, &reports) {
            reports.clear();
        }
        self.propose_cuts(py)?;
        let advanced = std::mem::take(&mut self.advanced);
        for number in &advanced {
            if let Some(held) = self.streams.get(number) {
                held.bind(py).borrow_mut().advanced = false;
            }
        }
        let look = self.group.as_mut().is_some_and(Group::take_due);
        Ok(Ended {
            reports,
            advanced,
            answers: std::mem::take(&mut self.answers),
            unsent: std::mem::take(&mut self.unsent),
            raft_due: look,
            lead_due: std::mem::take(&mut self.lead_due),
            written: self.links.take_written(),
        })
    }

    /// Which of these streams somebody waits for who reads.
    pub fn watched(&self, py: Python<'_>, streams: &[u64]) -> Vec<u64> {
        let held = |number: &&u64| {
            self.streams
                .get(*number)
                .map(|held| held.bind(py).borrow().watched)
        };
        let watched = streams.iter().filter(|number| held(number).unwrap_or(true));
        watched.copied().collect()
    }

    /// Whether something is to be done at the end of the turn.
    pub fn is_stirred(&self) -> bool {
        let idle = self.advanced.is_empty() && self.due.is_empty() && self.answers.is_empty();
        let group = self.group.as_ref().is_some_and(Group::is_stirred);
        !idle || self.broken.is_some() || group || self.lead_due || self.links.has_written()
    }

    /// Take a frame of a peer, if it is exactly what is next.
    pub fn take(&mut self, py: Python<'_>, frame: &Frame<'_>) -> bool {
        let taken = match frame.kind {
            REPLICATE => self.replicate(py, frame),
            COMMIT => self.apply_all(py, frame),
            CONSENSUS => Ok(self.group.as_mut().map(|group| group.take(py, frame))),
            REPORT => Ok(self.reported(py, frame)),
            _ => Ok(None),
        };
        match taken {
            // Nothing was written, or the store failed: Python does it again, and says what is wrong.
            Ok(taken) => taken.unwrap_or(false),
            Err(broken) => {
                self.broken = Some(broke(py, broken));
                true
            }
        }
    }

    fn replicate(&mut self, py: Python<'_>, frame: &Frame<'_>) -> Result<Option<bool>, Broken> {
        let Some(batches) = replicate(frame.head) else {
            return Ok(None);
        };
        let Some(held) = self.streams.get(&batches.stream) else {
            return Ok(None);
        };
        let mut stream = held.bind(py).borrow_mut();
        let (true, Some(parts), Some(disk)) = (
            stream.core.takes(&batches),
            batches.split(frame.payload),
            stream.disk.clone(),
        ) else {
            return Ok(None);
        };
        let Some(verified) = disk.ready(&parts) else {
            return Ok(None);
        };
        let (epoch, llsn) = (batches.epoch, batches.llsn);
        let placed = disk
            .store
            .place_batches(disk.number, epoch, llsn, &verified);
        let Some(standing) = placed.ok().and_then(|()| disk.written()) else {
            return Ok(None);
        };
        disk.store.nudge();
        self.replicas.get().hurry(frame.payload.len() as u64);
        stream.core.wrote(standing.0, standing.1)?;
        note(&mut self.unsynced, batches.stream, &mut stream.unsynced);
        Ok(Some(true))
    }

    fn apply_all(&mut self, py: Python<'_>, frame: &Frame<'_>) -> Result<Option<bool>, Broken> {
        if !frame.payload.is_empty() {
            return Ok(None);
        }
        let Some(cuts) = commits(frame.head) else {
            return Ok(None);
        };
        for cut in &cuts {
            let Some(streams) = self.by_log.get(cut.log) else {
                return Ok(None);
            };
            for number in streams.clone() {
                // What was applied by then is known when Python does it again.
                if self.apply(py, number, cut)?.is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(true))
    }

    fn apply(&mut self, py: Python<'_>, number: u64, cut: &Cut<'_>) -> Result<Option<()>, Broken> {
        let Some(held) = self.streams.get(&number) else {
            return Ok(None);
        };
        let mut stream = held.bind(py).borrow_mut();
        let context = match stream.core.cut(cut) {
            Some(Taken::Known) => return Ok(Some(())),
            Some(Taken::Commit(context)) => context,
            None => return Ok(None),
        };
        let Some(disk) = stream.disk.clone() else {
            return Ok(None);
        };
        let epoch = stream.core.standing().epoch;
        let committed = disk.store.commit(disk.number, epoch, context);
        let Some((standing, ticket)) = committed.ok().and_then(|_| disk.written()) else {
            return Ok(None);
        };
        stream.core.wrote(standing, ticket)?;
        note(&mut self.unsynced, number, &mut stream.unsynced);
        note(&mut self.advanced, number, &mut stream.advanced);
        let run = run_of(context.llsn_begin, context.glsn_begin, context.length);
        let placed = stream.core.release(&run)?;
        if !placed.is_empty() {
            stream.put_off();
        }
        for each in placed {
            let answer = (0, each.llsn, each.glsn, each.count, context.version);
            self.answers.push((each.request, answer));
        }
        Ok(Some(()))
    }
}

/// Put a stream into a list, once.
fn note(list: &mut Vec<u64>, number: u64, noted: &mut bool) {
    if !std::mem::replace(noted, true) {
        list.push(number);
    }
}

/// Answers for each session, and when those came who get them.
pub fn by_session<'py>(
    py: Python<'py>,
    answers: Vec<(Py<PyAny>, Answer)>,
) -> PyResult<(Sessions<'py>, Times)> {
    let mut sessions: Sessions<'py> = Vec::new();
    let mut places = HashMap::new();
    let mut times: Times = Vec::new();
    for (request, mut answer) in answers {
        let request = request.into_bound(py);
        let session = request.getattr(intern!(py, "session"))?;
        answer.0 = request.getattr(intern!(py, "number"))?.extract()?;
        let began: f64 = request.getattr(intern!(py, "began"))?.extract()?;
        match times.last_mut() {
            #[expect(clippy::float_cmp, reason = "those that came together have the same")]
            Some((time, count)) if *time == began => *count += 1,
            _ => times.push((began, 1)),
        }
        let place = *places.entry(session.as_ptr()).or_insert(sessions.len());
        match sessions.get_mut(place) {
            Some((_, rows)) => rows.push(answer),
            None => sessions.push((session, vec![answer])),
        }
    }
    Ok((sessions, times))
}
