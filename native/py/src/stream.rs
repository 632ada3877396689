//! A replica of a log stream: where it stands, and what of it is written.

use std::sync::Arc;

use braidlog_core::lane::stream::{
    Broken, Part, Placed, Run, Standing, Stream as CoreStream, Waiter,
};
use braidlog_core::wal::{self, CommitContext, Verified};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use crate::error::to_py;
use crate::exit::with_python;
use crate::replicas::{Context, Replicas};

/// What has more bytes is checked with the interpreter released, which Python does.
const BYTES_MAX: usize = 1 << 20;

/// The state of a replica that runs in its epoch, as reports have it.
pub const RUNNING: u8 = 2;

/// Who waited, and where the batch is: LLSN, GLSN, records.
type Released = (Py<PyAny>, u64, u64, u64);

/// Where a stream is on the disk.
#[derive(Clone)]
pub struct Disk {
    pub store: Arc<wal::Store>,
    pub number: u32,
}

impl Disk {
    pub fn standing(&self) -> braidlog_core::Result<Standing> {
        self.store.with_stream(self.number, |stream, _| Standing {
            low: stream.low,
            committed: stream.committed,
            next: stream.next,
            epoch: stream.epoch,
            context: stream.context,
        })
    }

    /// Where the stream stands, and the ticket with which that is durable, if the store did not fail.
    pub fn written(&self) -> Option<(Standing, u64)> {
        Some((self.standing().ok()?, self.store.latest().ok()?))
    }

    /// The batches, if they can be written at once.
    pub fn ready<'a>(&self, batches: &[&'a [u8]]) -> Option<Vec<Verified<'a>>> {
        let bytes: usize = batches.iter().map(|batch| batch.len() + 1024).sum();
        if bytes > BYTES_MAX || self.store.would_wait(self.number, bytes) {
            return None;
        }
        let verified = batches.iter().copied().map(Verified::check);
        verified.collect::<Result<_, _>>().ok()
    }
}

/// A replica of a log stream; `braidlog.logstream.core` has what is decided seldom.
#[expect(
    clippy::struct_excessive_bools,
    reason = "marks of three readers: the lane, its lists, and Python"
)]
#[pyclass(subclass, module = "braidlog._native")]
pub struct Stream {
    pub core: CoreStream<Py<PyAny>>,
    pub disk: Option<Disk>,
    /// Bytes that may wait.
    pub waiting_bytes_max: u64,
    /// Whether all nodes know null values.
    pub nulls: bool,
    /// The nodes that a settled primary sends its batches to.
    pub backups: Vec<u64>,
    probe_interval: f64,
    /// Time of the last tick.
    #[pyo3(get, set)]
    now: f64,
    /// When the backups are reminded of how far the primary is.
    #[pyo3(get, set)]
    probe_at: f64,
    /// Whether the lane has something to say of it at the end of the turn.
    pub advanced: bool,
    pub unsynced: bool,
    /// Whether somebody waits who reads.
    #[pyo3(get, set)]
    pub watched: bool,
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
            backups: Vec::new(),
            probe_interval,
            now: 0.0,
            probe_at: 0.0,
            advanced: false,
            unsynced: false,
            watched: false,
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
            self.put_off();
        }
        let row = |each: Placed<Py<PyAny>>| (each.request, each.llsn, each.glsn, each.count);
        Ok(placed.into_iter().map(row).collect())
    }

    /// Those who wait for batches from `llsn` on; they wait no more.
    fn give_up(&mut self, llsn: u64) -> Vec<Py<PyAny>> {
        self.core.give_up(llsn)
    }

    // --- what is hot

    /// Say that nothing but appends happens to a primary of these backups, or to a backup; `nulls`: all nodes know
    /// null values.
    fn settle(&mut self, primary: bool, nulls: bool, backups: Vec<u64>) {
        let part = if primary { Part::Primary } else { Part::Backup };
        (self.nulls, self.backups) = (nulls, backups);
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
    /// Remind the backups no earlier than that long after this.
    pub fn put_off(&mut self) {
        self.probe_at = self.now + self.probe_interval;
    }

    /// Let a request wait.
    pub fn put(&mut self, request: Py<PyAny>, llsn: u64, count: u64, size: u64) {
        if self.core.waiting() == 0 {
            self.put_off();
        }
        self.core.wait(Waiter {
            request,
            llsn,
            count,
            size,
        });
    }
}

/// A run of one stream.
pub fn run_of(llsn: u64, glsn: u64, length: u64) -> Run {
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

/// A result, with a broken rule as the error that stops the node.
pub fn kept<T>(py: Python<'_>, result: Result<T, Broken>) -> PyResult<T> {
    result.map_err(|broken| broke(py, broken))
}

/// The error for a broken rule.
pub fn broke(py: Python<'_>, Broken(reason): Broken) -> PyErr {
    let build = || {
        let class = py
            .import("braidlog.logstream.errors")?
            .getattr("ReplicaInvariantError")?;
        class.call1((reason,))
    };
    with_python(py, build).map_or_else(|failure| failure, PyErr::from_value)
}
