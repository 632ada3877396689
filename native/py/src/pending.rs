//! Appends on their way to the disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braidlog_core::wal::{self, Ticket};
use pyo3::prelude::*;

use crate::error::to_py;
use crate::exit::{detach, with_python};
use crate::gate::Gate;
use crate::number::Seconds;

/// Waiting threads look for signals this often.
pub const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// An append that may not be durable yet.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Pending {
    store: Arc<wal::Store>,
    gate: Arc<Gate>,
    ticket: Ticket,
    /// Whether the result is a range of positions.
    many: bool,
}

impl Pending {
    /// What `ticket` promises.
    pub fn new(store: &Arc<wal::Store>, gate: &Arc<Gate>, ticket: Ticket, many: bool) -> Self {
        let (store, gate) = (Arc::clone(store), Arc::clone(gate));
        Self {
            store,
            gate,
            ticket,
            many,
        }
    }
}

/// Wait for a group with the GIL released, minding signals. False when the time is up.
pub fn wait_group(
    py: Python<'_>,
    store: &wal::Store,
    group: u64,
    timeout: Option<Seconds>,
) -> PyResult<bool> {
    // Leading a sync may take longer than a slice.
    let deadline = timeout.map(|Seconds(time)| Instant::now() + time);
    loop {
        let slice = deadline.map_or(SIGNAL_INTERVAL, |deadline| {
            SIGNAL_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))
        });
        // With the GIL held again, the baton lets the next waiting thread wake up to take it.
        let (durable, _baton) = detach(py, || store.wait_turn(group, slice)).map_err(to_py)?;
        if durable {
            return Ok(true);
        }
        py.check_signals()?;
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(false);
        }
    }
}

/// A `DeadlineError` that says what is late.
pub fn timed_out(py: Python<'_>, what: &str) -> PyResult<PyErr> {
    let class = py.import("braidlog.errors")?.getattr("DeadlineError")?;
    let error = with_python(py, || class.call1((what,)))?;
    Ok(PyErr::from_value(error))
}

#[pymethods]
impl Pending {
    /// Position of the first record.
    #[getter]
    fn position(&self) -> u64 {
        self.ticket.llsn
    }

    /// Number of records.
    #[getter]
    fn count(&self) -> u64 {
        self.ticket.count
    }

    /// Sync group that makes the records durable.
    #[getter]
    fn group(&self) -> u64 {
        self.ticket.group
    }

    /// The position, or for many records the range of positions, once they are durable.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Py<PyAny>> {
        if !self.wait(py, timeout)? {
            return Err(timed_out(
                py,
                "the records were not durable in time; they may still become so",
            )?);
        }
        let Ticket { llsn, count, .. } = self.ticket;
        if self.many {
            let range = py.import("builtins")?.getattr("range")?;
            return Ok(range.call1((llsn, llsn + count))?.unbind());
        }
        Ok(llsn.into_pyobject(py)?.into_any().unbind())
    }

    /// Whether the records are durable.
    fn done(&self) -> PyResult<bool> {
        self.gate.check_forked().map_err(to_py)?;
        self.store.is_durable(self.ticket.group).map_err(to_py)
    }

    /// Wait until the records are durable; False if `timeout` seconds pass first.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<bool> {
        self.gate.check_forked().map_err(to_py)?;
        wait_group(py, &self.store, self.ticket.group, timeout)
    }

    fn __repr__(&self) -> String {
        let Ticket { llsn, count, .. } = self.ticket;
        format!("<Pending {llsn}..{}>", llsn + count)
    }
}
