//! What a client appends: entries that wait for their batch, and the room that they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use braidlog_core::lane::{Budget as CoreBudget, Extent, Limits, Line as CoreLine};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::encode::bytes_of;
use crate::store::now;

/// Bytes that a record is counted with beyond its key, value and headers.
const RECORD_COST: u64 = 64;

/// What an entry holds.
pub enum Records {
    /// One record without headers.
    One {
        /// Its value.
        value: Py<PyBytes>,
        /// Its key.
        key: Option<Py<PyBytes>>,
        /// Microseconds since the Unix epoch.
        timestamp: i64,
    },
    /// Records without keys and headers.
    Values {
        /// Their values, each of them `bytes`.
        values: Py<PyList>,
        /// Microseconds since the Unix epoch.
        timestamp: i64,
    },
    /// Columns, or a batch that is encoded already.
    Many(Py<PyAny>),
}

/// Records that are appended together; they are never in different batches.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Entry {
    #[pyo3(get)]
    waiter: Py<PyAny>,
    pub records: Records,
    #[pyo3(get)]
    count: u64,
    #[pyo3(get)]
    size: u64,
    #[pyo3(get)]
    deadline: f64,
    #[pyo3(get)]
    producer: Option<Py<PyAny>>,
    #[pyo3(get)]
    sequence: u64,
    expired: AtomicBool,
    /// Its number in the line in which it waits.
    number: AtomicU64,
}

#[pymethods]
impl Entry {
    #[new]
    #[pyo3(signature = (waiter, records, count, size, deadline, producer=None, sequence=0))]
    fn new(
        waiter: Py<PyAny>,
        records: Py<PyAny>,
        count: u64,
        size: u64,
        deadline: f64,
        producer: Option<Py<PyAny>>,
        sequence: u64,
    ) -> Self {
        Self {
            waiter,
            records: Records::Many(records),
            count,
            size,
            deadline,
            producer,
            sequence,
            expired: AtomicBool::new(false),
            number: AtomicU64::new(0),
        }
    }

    /// Its records by columns, or the batch that they are.
    #[getter]
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.records {
            Records::Many(records) => Ok(records.bind(py).clone()),
            Records::One {
                value,
                key,
                timestamp,
            } => {
                let values = PyList::new(py, [value])?;
                let keys = key.as_ref().map(|key| PyList::new(py, [key])).transpose()?;
                let columns = (values, keys, timestamp, py.None());
                Ok(columns.into_pyobject(py)?.into_any())
            }
            Records::Values { values, timestamp } => {
                let columns = (values, py.None(), timestamp, py.None());
                Ok(columns.into_pyobject(py)?.into_any())
            }
        }
    }

    /// Whether nobody waits any more.
    #[getter]
    fn get_expired(&self) -> bool {
        self.is_expired()
    }

    #[setter]
    fn set_expired(&self, expired: bool) {
        self.expired.store(expired, Ordering::Relaxed);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.waiter)?;
        match &self.records {
            // Bytes are part of no cycle.
            Records::One { .. } => Ok(()),
            Records::Values { values, .. } => visit.call(values),
            Records::Many(records) => visit.call(records),
        }
    }
}

impl Entry {
    fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Relaxed)
    }

    fn extent(&self) -> Extent {
        Extent {
            records: self.count,
            bytes: self.size,
            alone: self.producer.is_some(),
        }
    }
}

/// Tell those who wait where their records are, the first of them at `glsn`, and give back their room.
///
/// Whoever waits no more is passed over.
#[pyfunction]
pub fn settle(
    entries: Vec<Bound<'_, Entry>>,
    glsn: u64,
    budget: &Bound<'_, Budget>,
) -> PyResult<()> {
    let mut next = glsn;
    for entry in &entries {
        let (py, entry) = (entry.py(), entry.get());
        budget.borrow_mut().core.give(entry.size);
        let waiter = entry.waiter.bind(py);
        if let Err(error) = waiter.call_method1(intern!(py, "set_result"), (next,)) {
            let done: bool = waiter.call_method0(intern!(py, "done"))?.extract()?;
            if !done {
                return Err(error);
            }
        }
        next += entry.count;
    }
    Ok(())
}

/// Microseconds since the Unix epoch.
#[pyfunction]
pub fn now_us() -> i64 {
    now()
}

/// So many bytes, of which appends take some until they are settled.
#[pyclass(module = "braidlog._native")]
pub struct Budget {
    core: CoreBudget,
}

#[pymethods]
impl Budget {
    #[new]
    fn new(size: u64) -> Self {
        Self {
            core: CoreBudget::new(size),
        }
    }

    /// Whether nobody gets anything at once, because others came before.
    #[getter]
    fn shut(&self) -> bool {
        self.core.is_shut()
    }

    #[setter]
    fn set_shut(&mut self, shut: bool) {
        self.core.set_shut(shut);
    }

    /// Take bytes if so many are free, whoever came before.
    fn take(&mut self, size: u64) -> bool {
        self.core.take(size)
    }

    /// Take bytes if so many are free and nobody came before.
    fn take_now(&mut self, size: u64) -> bool {
        !self.core.is_shut() && self.core.take(size)
    }

    /// Give back what was taken for so many bytes.
    fn give(&mut self, size: u64) {
        self.core.give(size);
    }
}

impl Line {
    /// Append records, if there is room for them.
    fn take<'py>(
        slf: &Bound<'py, Self>,
        service: &Service,
        count: u64,
        size: u64,
        records: impl FnOnce(i64) -> Records,
    ) -> PyResult<Option<Bound<'py, Entry>>> {
        let py = slf.py();
        // What Python is asked for is asked before anything is taken, for it may fail.
        let now: f64 = service.time.call0(py)?.extract(py)?;
        let timestamp = service.clock.call0(py)?.extract(py)?;
        let entry = Entry {
            waiter: service.waiter.call0(py)?,
            records: records(timestamp),
            count,
            size,
            deadline: now + service.timeout_s,
            producer: None,
            sequence: 0,
            expired: AtomicBool::new(false),
            number: AtomicU64::new(0),
        };
        let entry = Bound::new(py, entry)?;
        if !service.budget.bind(py).borrow_mut().take_now(size) {
            return Ok(None);
        }
        Self::add(slf, &entry, now)?;
        Ok(Some(entry))
    }
}

/// What a line needs to take records by itself.
struct Service {
    budget: Py<Budget>,
    clock: Py<PyAny>,
    time: Py<PyAny>,
    waiter: Py<PyAny>,
    record_bytes_max: u64,
    timeout_s: f64,
    schedule: Py<PyAny>,
    expire_at: Py<PyAny>,
}

/// The entries of a stream that wait to become part of a batch, in the order in which they were appended.
#[pyclass(module = "braidlog._native")]
pub struct Line {
    core: CoreLine<Py<Entry>>,
    /// When the first of them came.
    #[pyo3(get)]
    oldest: f64,
    /// Whether what waits will be looked at without another call.
    #[pyo3(get, set)]
    scheduled: bool,
    /// When what is late will be looked for.
    #[pyo3(get, set)]
    expires: f64,
    /// Shared, so that nothing of the line is borrowed while Python code runs.
    service: Option<Arc<Service>>,
}

#[pymethods]
impl Line {
    #[new]
    fn new(bytes_max: u64, records_max: u64) -> Self {
        let limits = Limits {
            bytes_max,
            records_max,
        };
        Self {
            core: CoreLine::new(limits),
            oldest: 0.0,
            scheduled: false,
            expires: f64::INFINITY,
            service: None,
        }
    }

    /// Take records by `append`.
    ///
    /// `clock` gives their timestamps, `time` that of the event loop, `waiter` a new future, `budget` the room;
    /// `schedule` and `expire_at` are called when somebody has to look at the line, or later at what is late.
    #[pyo3(signature = (*, budget, clock, time, waiter, record_bytes_max, timeout_s, schedule, expire_at))]
    fn serve(
        &mut self,
        budget: Py<Budget>,
        clock: Py<PyAny>,
        time: Py<PyAny>,
        waiter: Py<PyAny>,
        record_bytes_max: u64,
        timeout_s: f64,
        schedule: Py<PyAny>,
        expire_at: Py<PyAny>,
    ) {
        self.service = Some(Arc::new(Service {
            budget,
            clock,
            time,
            waiter,
            record_bytes_max,
            timeout_s,
            schedule,
            expire_at,
        }));
    }

    fn __len__(&self) -> usize {
        self.core.len()
    }

    /// Append a record of a value and maybe a key, if they are `bytes` and there is room for it.
    #[pyo3(signature = (value, key=None))]
    fn append<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, Entry>>> {
        let Ok(value) = value.cast_exact::<PyBytes>() else {
            return Ok(None);
        };
        let key = match key.map(|key| key.cast_exact::<PyBytes>()) {
            None => None,
            Some(Ok(key)) => Some(key),
            Some(Err(_)) => return Ok(None),
        };
        let key_bytes = key.map_or(0, |key| key.as_bytes().len());
        let size = RECORD_COST + (value.as_bytes().len() + key_bytes) as u64;
        let Some(service) = slf.borrow().service.clone() else {
            return Ok(None);
        };
        if size > service.record_bytes_max {
            return Ok(None);
        }
        let value = value.clone().unbind();
        let key = key.map(|key| key.clone().unbind());
        let one = |timestamp| Records::One {
            value,
            key,
            timestamp,
        };
        Self::take(slf, &service, 1, size, one)
    }

    /// Append records that are values alone, if they fit a batch, as `append` does.
    fn append_many<'py>(
        slf: &Bound<'py, Self>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, Entry>>> {
        let Ok(values) = values.cast_exact::<PyList>() else {
            return Ok(None);
        };
        let (service, limits) = {
            let line = slf.borrow();
            (line.service.clone(), *line.core.limits())
        };
        let (Some(service), Some((bytes, longest))) = (service, bytes_of(values)) else {
            return Ok(None);
        };
        let count = values.len() as u64;
        let size = RECORD_COST * count + bytes as u64;
        let longest = RECORD_COST + longest as u64;
        let fits = size <= limits.bytes_max && count <= limits.records_max;
        if count == 0 || !fits || longest > service.record_bytes_max {
            return Ok(None);
        }
        // A list of its own: the caller may change the other one.
        let values = values.get_slice(0, values.len()).unbind();
        let all = |timestamp| Records::Values { values, timestamp };
        Self::take(slf, &service, count, size, all)
    }

    /// Put an entry behind the others.
    fn add(slf: &Bound<'_, Self>, entry: &Bound<'_, Entry>, now: f64) -> PyResult<()> {
        let py = slf.py();
        let deadline = entry.get().deadline;
        let mut line = slf.borrow_mut();
        if line.core.is_empty() {
            line.oldest = now;
        }
        let extent = entry.get().extent();
        let number = line.core.next();
        entry.get().number.store(number, Ordering::Relaxed);
        line.core.push(extent, entry.clone().unbind());
        let (late, idle) = (deadline < line.expires, !line.scheduled);
        let Some(service) = line.service.clone() else {
            return Ok(());
        };
        drop(line);
        if late {
            service.expire_at.call1(py, (deadline,))?;
        }
        if idle {
            service.schedule.call0(py)?;
        }
        Ok(())
    }

    /// Whether the next batch has to be closed, whatever else may come.
    #[getter]
    fn full(&self) -> bool {
        self.core.is_full()
    }

    /// Take what goes together next, and its number of records.
    fn close(&mut self) -> (Vec<Py<Entry>>, u64) {
        self.core.close()
    }

    /// Take an entry back; whether it was there.
    fn remove(&mut self, entry: &Bound<'_, Entry>) -> bool {
        let number = entry.get().number.load(Ordering::Relaxed);
        self.core.take_out(number, |each| each.is(entry)).is_some()
    }

    /// Take all.
    fn clear(&mut self) -> Vec<Py<Entry>> {
        self.core.remove(|_| true)
    }

    /// Take what is late.
    fn expire(&mut self, now: f64) -> Vec<Py<Entry>> {
        self.core.remove(|each| each.get().deadline <= now)
    }

    /// The first deadline of all.
    #[getter]
    fn deadline(&self) -> Option<f64> {
        let deadlines = self.core.iter().map(|each| each.get().deadline);
        deadlines.min_by(f64::total_cmp)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for entry in self.core.iter() {
            visit.call(entry)?;
        }
        let Some(service) = &self.service else {
            return Ok(());
        };
        visit.call(&service.budget)?;
        for callable in [
            &service.clock,
            &service.time,
            &service.waiter,
            &service.schedule,
            &service.expire_at,
        ] {
            visit.call(callable)?;
        }
        Ok(())
    }

    fn __clear__(&mut self) {
        self.service = None;
        self.core.remove(|_| true);
    }
}
