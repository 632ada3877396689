//! Replicas of log streams in the steady state: one call for each frame, and one for each turn.
// One file: a lane and the replicas that it drives hand each other what is written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use braidlog_core::lane::stream::{
    Broken, COMMIT, Cut, Part, Placed, REPLICATE, Run, Standing, Stream as CoreStream, Taken,
    Waiter, commits, replicate,
};
use braidlog_core::wal::{self, CommitContext, Verified};
use braidlog_core::wire::Frame;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::error::to_py;
use crate::exit::with_python;
use crate::held::Held;
use crate::replicas::{Context, Replicas};

/// What has more bytes is checked with the interpreter released, which Python does.
const BYTES_MAX: usize = 1 << 20;

/// The state of a replica that runs in its epoch, as reports have it.
const RUNNING: u8 = 2;

/// An answer to an append: request, LLSN, GLSN, records, version.
type Answer = (u32, u64, u64, u64, u64);

/// Who waited, and where the batch is: LLSN, GLSN, records.
type Released = (Py<PyAny>, u64, u64, u64);

/// A report: stream, epoch, version, committed, end, state.
type Report = (u64, u64, u64, u64, u64, u8);

/// Where a stream is on the disk.
#[derive(Clone)]
struct Disk {
    store: Arc<wal::Store>,
    number: u32,
}

impl Disk {
    fn standing(&self) -> braidlog_core::Result<Standing> {
        self.store.with_stream(self.number, |stream, _| Standing {
            low: stream.low,
            committed: stream.committed,
            next: stream.next,
            epoch: stream.epoch,
            context: stream.context,
        })
    }

    /// Where the stream stands, and the ticket with which that is durable, if the store did not fail.
    fn written(&self) -> Option<(Standing, u64)> {
        Some((self.standing().ok()?, self.store.latest().ok()?))
    }

    /// The batches, if they can be written at once.
    fn ready<'a>(&self, batches: &[&'a [u8]]) -> Option<Vec<Verified<'a>>> {
        let bytes: usize = batches.iter().map(|batch| batch.len() + 1024).sum();
        if bytes > BYTES_MAX || self.store.would_wait(self.number, bytes) {
            return None;
        }
        let verified = batches.iter().copied().map(Verified::check);
        verified.collect::<Result<_, _>>().ok()
    }
}

/// A replica of a log stream; `braidlog.logstream.core` has what is decided seldom.
#[pyclass(subclass, module = "braidlog._native")]
pub struct Stream {
    core: CoreStream<Py<PyAny>>,
    disk: Option<Disk>,
    /// Bytes that may wait.
    waiting_bytes_max: u64,
    /// Whether all nodes know null values.
    nulls: bool,
    probe_interval: f64,
    /// Time of the last tick.
    #[pyo3(get, set)]
    now: f64,
    /// When the backups are reminded of how far the primary is.
    #[pyo3(get, set)]
    probe_at: f64,
    /// Whether the lane has something to say of it at the end of the turn.
    advanced: bool,
    unsynced: bool,
}

#[pymethods]
impl Stream {
    #[new]
    fn new(
        number: u64,
        storage: &Bound<'_, PyAny>,
        waiting_bytes_max: u64,
        probe_interval: f64,
    ) -> PyResult<Self> {
        let disk = disk_of(storage)?;
        let (standing, _) = standing_of(disk.as_ref(), storage)?;
        Ok(Self {
            core: CoreStream::new(number, standing),
            disk,
            waiting_bytes_max,
            nulls: false,
            probe_interval,
            now: 0.0,
            probe_at: 0.0,
            advanced: false,
            unsynced: false,
        })
    }

    #[getter]
    fn stream(&self) -> u64 {
        self.core.number()
    }

    #[getter]
    fn low(&self) -> u64 {
        self.core.standing().low
    }

    #[getter]
    fn committed(&self) -> u64 {
        self.core.standing().committed
    }

    #[getter]
    fn next(&self) -> u64 {
        self.core.standing().next
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.core.standing().epoch
    }

    /// The latest commit, as (version, GLSN, LLSN, length, high watermark).
    #[getter]
    fn latest(&self) -> Context {
        let context = &self.core.standing().context;
        (
            context.version,
            context.glsn_begin,
            context.llsn_begin,
            context.length,
            context.high_watermark,
        )
    }

    #[getter]
    fn version(&self) -> u64 {
        self.core.standing().context.version
    }

    #[getter]
    fn high_watermark(&self) -> u64 {
        self.core.standing().context.high_watermark
    }

    /// A GLSN behind that of every committed record.
    #[getter]
    fn glsn_end(&self) -> u64 {
        let context = &self.core.standing().context;
        context.glsn_begin + context.length
    }

    /// First LLSN that is not durable.
    #[getter]
    fn durable_end(&self) -> u64 {
        self.core.durable().end
    }

    #[getter]
    fn durable_version(&self) -> u64 {
        self.core.durable().version
    }

    #[getter]
    fn durable_epoch(&self) -> u64 {
        self.core.durable().epoch
    }

    /// Whether something was written that is not known to be durable.
    #[getter]
    fn is_unsynced(&self) -> bool {
        self.core.is_unsynced()
    }

    /// How many wait.
    #[getter]
    fn waiting(&self) -> usize {
        self.core.waiting()
    }

    /// Bytes of what they wait for.
    #[getter]
    fn waiting_bytes(&self) -> u64 {
        self.core.waiting_bytes()
    }

    // --- the disk

    /// Take over where the storage stands now.
    fn take_over(&mut self, py: Python<'_>, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        self.disk = disk_of(storage)?;
        let (standing, ticket) = standing_of(self.disk.as_ref(), storage)?;
        kept(py, self.core.wrote(standing, ticket))
    }

    /// Take back what was said of `llsn` and everything behind it.
    fn take_back(&mut self, llsn: u64) {
        self.core.take_back(llsn);
    }

    /// Note that every write up to `ticket` is durable.
    fn note_synced(&mut self, ticket: u64) {
        self.core.synced(ticket);
    }

    /// The commit context of a run that continues what is committed, as (version, GLSN, LLSN, length, high watermark).
    fn context_of(
        &self,
        py: Python<'_>,
        llsn: u64,
        glsn: u64,
        length: u64,
        version: u64,
        high_watermark: u64,
    ) -> PyResult<Context> {
        let run = run_of(llsn, glsn, length);
        let context = kept(py, self.core.context_of(&run, version, high_watermark))?;
        Ok((
            context.version,
            context.glsn_begin,
            context.llsn_begin,
            context.length,
            context.high_watermark,
        ))
    }

    // --- reports

    /// Whether what is durable, or the state, is another one than was said last.
    fn is_unsaid(&self, state: u8) -> bool {
        self.core.is_unsaid(state)
    }

    /// Note that it is said now.
    fn say(&mut self, py: Python<'_>, state: u8) -> PyResult<()> {
        kept(py, self.core.say(state)).map(|_| ())
    }

    // --- who waits

    /// Let a request wait for a batch.
    fn wait(&mut self, request: Py<PyAny>, llsn: u64, count: u64, size: u64) {
        self.put(request, llsn, count, size);
    }

    /// Those who wait for what a run committed: (request, LLSN, GLSN, records).
    fn release(
        &mut self,
        py: Python<'_>,
        llsn: u64,
        glsn: u64,
        length: u64,
    ) -> PyResult<Vec<Released>> {
        let placed = kept(py, self.core.release(&run_of(llsn, glsn, length)))?;
        if !placed.is_empty() {
            self.probe_at = self.now + self.probe_interval;
        }
        let row = |each: Placed<Py<PyAny>>| (each.request, each.llsn, each.glsn, each.count);
        Ok(placed.into_iter().map(row).collect())
    }

    /// Those who wait for batches from `llsn` on; they wait no more.
    fn give_up(&mut self, llsn: u64) -> Vec<Py<PyAny>> {
        self.core.give_up(llsn)
    }

    // --- what is hot

    /// Say that nothing but appends happens to a primary, or to a backup; `nulls`: all nodes know null values.
    fn settle(&mut self, primary: bool, nulls: bool) {
        let part = if primary { Part::Primary } else { Part::Backup };
        self.nulls = nulls;
        self.core.settle(Some(part));
    }

    /// Say that Python looks at everything.
    fn unsettle(&mut self) {
        self.core.settle(None);
    }

    /// Whether nothing but appends happens.
    #[getter]
    fn is_settled(&self) -> bool {
        self.core.part().is_some()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for waiter in self.core.waiters() {
            visit.call(&waiter.request)?;
        }
        Ok(())
    }

    fn __clear__(&mut self) {
        self.core.clear();
    }
}

impl Stream {
    fn put(&mut self, request: Py<PyAny>, llsn: u64, count: u64, size: u64) {
        if self.core.waiting() == 0 {
            self.probe_at = self.now + self.probe_interval;
        }
        self.core.wait(Waiter {
            request,
            llsn,
            count,
            size,
        });
    }
}

/// The replicas of a node, and what frames of peers and appends did to them in this turn.
#[pyclass(module = "braidlog._native")]
pub struct Lane {
    replicas: Py<Replicas>,
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
    broken: Option<Broken>,
}

#[pymethods]
impl Lane {
    #[new]
    fn new(replicas: Py<Replicas>) -> Self {
        Self {
            replicas,
            streams: BTreeMap::new(),
            by_log: BTreeMap::new(),
            advanced: Vec::new(),
            unsynced: Vec::new(),
            due: Vec::new(),
            answers: Vec::new(),
            broken: None,
        }
    }

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
        let idle = self.advanced.is_empty() && self.due.is_empty() && self.answers.is_empty();
        !idle || self.broken.is_some()
    }

    /// Append batches that came together: where the first of those is that are new, these, and the repeats as
    /// (request, LLSN, records); `None` if Python has to look at them.
    fn append<'py>(
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
        Ok(Some((standing.next, fresh, repeats)))
    }

    /// Apply the cuts of a `Commit` that is of this node, given its head; false if Python has to look at them.
    fn commit(&mut self, py: Python<'_>, head: &[u8]) -> bool {
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
    fn synced(&mut self, py: Python<'_>, ticket: u64) {
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
    }

    /// What there is to do at the end of the turn: the fields of reports, streams of
    /// which something can be read, answers as (session, rows) and when those who get them came, as (time, how many).
    fn turn<'py>(&mut self, py: Python<'py>) -> PyResult<Turn<'py>> {
        if let Some(broken) = self.broken.take() {
            return Err(broke(py, broken));
        }
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
        let advanced = std::mem::take(&mut self.advanced);
        for number in &advanced {
            if let Some(held) = self.streams.get(number) {
                held.bind(py).borrow_mut().advanced = false;
            }
        }
        let answers = std::mem::take(&mut self.answers);
        let (sessions, times) = by_session(py, answers)?;
        Ok((reports, advanced, sessions, times))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for stream in self.streams.values() {
            visit.call(stream)?;
        }
        for (request, _) in &self.answers {
            visit.call(request)?;
        }
        Ok(())
    }

    fn __clear__(&mut self) {
        self.streams.clear();
        self.answers.clear();
    }
}

type Appended<'py> = (u64, Bound<'py, PyList>, Vec<(Py<PyAny>, u64, u64)>);
type Sessions<'py> = Vec<(Bound<'py, PyAny>, Vec<Answer>)>;
type Times = Vec<(f64, usize)>;
type Turn<'py> = (Vec<Report>, Vec<u64>, Sessions<'py>, Times);

impl Lane {
    /// Take a frame of a peer, if it is exactly what is next.
    pub fn take(&mut self, py: Python<'_>, frame: &Frame<'_>) -> bool {
        let taken = match frame.kind {
            REPLICATE => self.replicate(py, frame),
            COMMIT => self.apply_all(py, frame),
            _ => Ok(Some(false)),
        };
        match taken {
            // Nothing was written, or the store failed: Python does it again, and says what is wrong.
            Ok(taken) => taken.unwrap_or(false),
            Err(broken) => {
                self.broken = Some(broken);
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
            stream.probe_at = stream.now + stream.probe_interval;
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
fn by_session<'py>(
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

fn run_of(llsn: u64, glsn: u64, length: u64) -> Run {
    Run {
        stream: 0,
        llsn,
        glsn,
        length,
        epoch: 0,
    }
}

/// Where a storage is on the disk; `None` if it is one of its own.
fn disk_of(storage: &Bound<'_, PyAny>) -> PyResult<Option<Disk>> {
    let py = storage.py();
    let Some(replicas) = storage.getattr_opt(intern!(py, "replicas"))? else {
        return Ok(None);
    };
    Ok(Some(Disk {
        store: replicas.cast::<Replicas>()?.get().store(),
        number: storage.getattr(intern!(py, "stored_as"))?.extract()?,
    }))
}

/// Where a storage stands, and the ticket with which that is durable.
fn standing_of(disk: Option<&Disk>, storage: &Bound<'_, PyAny>) -> PyResult<(Standing, u64)> {
    if let Some(disk) = disk {
        let standing = disk.standing().map_err(to_py)?;
        let ticket = disk.store.latest().map_err(to_py)?;
        return Ok((standing, ticket));
    }
    let state = storage.call_method0("state")?;
    let field = |name: &str| -> PyResult<u64> { state.getattr(name)?.extract() };
    let context = state.getattr("context")?;
    let of_context = |name: &str| -> PyResult<u64> { context.getattr(name)?.extract() };
    let standing = Standing {
        low: field("low")?,
        committed: field("committed")?,
        next: field("next")?,
        epoch: field("epoch")?,
        context: CommitContext {
            version: of_context("version")?,
            glsn_begin: of_context("glsn_begin")?,
            llsn_begin: of_context("llsn_begin")?,
            length: of_context("length")?,
            high_watermark: of_context("high_watermark")?,
        },
    };
    Ok((standing, storage.call_method0("ticket")?.extract()?))
}

fn kept<T>(py: Python<'_>, result: Result<T, Broken>) -> PyResult<T> {
    result.map_err(|broken| broke(py, broken))
}

fn broke(py: Python<'_>, Broken(reason): Broken) -> PyErr {
    let build = || {
        let class = py
            .import("braidlog.logstream.errors")?
            .getattr("ReplicaInvariantError")?;
        class.call1((reason,))
    };
    with_python(py, build).map_or_else(|failure| failure, PyErr::from_value)
}
