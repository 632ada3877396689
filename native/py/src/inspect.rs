//! Looking at a node's files without opening the log, verifying them, saving what can be saved.
//!
//! Rows become dictionaries; `braidlog.store.inspect` gives them names. The work is done without the
//! interpreter's lock, which is taken for a moment to report progress.

mod judgements;
mod rows;

use std::path::PathBuf;
use std::sync::Arc;

use braidlog_core::vfs::{RealVfs, Vfs};
use braidlog_core::wal::inspect;
use braidlog_core::wal::salvage::{self, Keep, Plan};
use braidlog_core::wal::verify;
use braidlog_core::{Error, Result as CoreResult};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::to_py;
use crate::exit::detach;
use judgements::{PlanRow, RepairRow, ReportRow, StateRow};
use rows::{EditRow, FrameRow, IndexRow, SampleRow, SegmentRow};

/// Add what this file has to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<FrameIterator>()?;
    m.add_function(wrap_pyfunction!(inspect_segments, m)?)?;
    m.add_function(wrap_pyfunction!(inspect_frames, m)?)?;
    m.add_function(wrap_pyfunction!(inspect_index, m)?)?;
    m.add_function(wrap_pyfunction!(inspect_samples, m)?)?;
    m.add_function(wrap_pyfunction!(inspect_manifest, m)?)?;
    m.add_function(wrap_pyfunction!(lost_side, m)?)?;
    m.add_function(wrap_pyfunction!(inspect_state, m)?)?;
    m.add_function(wrap_pyfunction!(verify_files, m)?)?;
    m.add_function(wrap_pyfunction!(repair_plan, m)?)?;
    m.add_function(wrap_pyfunction!(repair_files, m)?)?;
    Ok(())
}

fn disk() -> Arc<dyn Vfs> {
    Arc::new(RealVfs)
}

/// Do something with the files, without the interpreter's lock.
fn look<R: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Arc<dyn Vfs>) -> CoreResult<R> + Send,
) -> PyResult<R> {
    detach(py, || work(&disk())).map_err(to_py)
}

#[pyfunction]
fn inspect_segments(py: Python<'_>, data: PathBuf) -> PyResult<Vec<SegmentRow>> {
    let rows = look(py, |vfs| inspect::segments(vfs, &data))?;
    Ok(rows.into_iter().map(SegmentRow::from).collect())
}

#[pyfunction]
#[pyo3(signature = (data, segment, log=None, offset=0))]
fn inspect_frames(
    py: Python<'_>,
    data: PathBuf,
    segment: u64,
    log: Option<String>,
    offset: u32,
) -> PyResult<FrameIterator> {
    let frames = look(py, |vfs| {
        inspect::Frames::open(vfs, &data, segment, log.as_deref(), offset)
    })?;
    let frames = Mutex::new(frames);
    Ok(FrameIterator { frames })
}

/// The frames of one segment, as they are read.
#[pyclass(frozen, module = "braidlog._native")]
struct FrameIterator {
    frames: Mutex<inspect::Frames>,
}

#[pymethods]
impl FrameIterator {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> Option<FrameRow> {
        detach(py, || self.frames.lock().next()).map(FrameRow::from)
    }
}

#[pyfunction]
#[pyo3(signature = (data, segment=None, log=None))]
fn inspect_index(
    py: Python<'_>,
    data: PathBuf,
    segment: Option<u64>,
    log: Option<String>,
) -> PyResult<Vec<IndexRow>> {
    let rows = look(py, |vfs| {
        inspect::index(vfs, &data, segment, log.as_deref())
    })?;
    Ok(rows.into_iter().map(IndexRow::from).collect())
}

#[pyfunction]
#[pyo3(signature = (data, segment=None, log=None))]
fn inspect_samples(
    py: Python<'_>,
    data: PathBuf,
    segment: Option<u64>,
    log: Option<String>,
) -> PyResult<Vec<SampleRow>> {
    let rows = look(py, |vfs| {
        inspect::samples(vfs, &data, segment, log.as_deref())
    })?;
    Ok(rows.into_iter().map(SampleRow::from).collect())
}

#[pyfunction]
fn inspect_manifest(py: Python<'_>, data: PathBuf) -> PyResult<Vec<EditRow>> {
    let edits = look(py, |vfs| inspect::edits(&**vfs, &data))?;
    Ok(edits.rows.into_iter().map(EditRow::from).collect())
}

#[pyfunction]
fn lost_side(
    py: Python<'_>,
    data: PathBuf,
    segment: u64,
) -> PyResult<Option<(PathBuf, Bound<'_, PyBytes>)>> {
    let found = look(py, |vfs| inspect::lost_side(vfs, &data, segment))?;
    Ok(found.map(|(path, bytes)| (path, PyBytes::new(py, &bytes))))
}

#[pyfunction]
fn inspect_state(py: Python<'_>, data: PathBuf) -> PyResult<StateRow> {
    let seen = look(py, |vfs| inspect::condition(vfs, &data))?;
    Ok(StateRow::from(seen))
}

#[pyfunction]
#[pyo3(name = "verify", signature = (data, progress=None))]
fn verify_files(py: Python<'_>, data: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<ReportRow> {
    let caller = Caller::new(progress);
    let report = caller.run(py, |vfs, tell| verify::verify(vfs, &data, tell))?;
    Ok(ReportRow::from(report))
}

fn choice(keep: &str) -> PyResult<Keep> {
    Keep::named(keep).ok_or_else(|| {
        to_py(Error::InvalidArgument(format!(
            "keep must be all, most, newest or oldest, got {keep:?}"
        )))
    })
}

#[pyfunction]
#[pyo3(signature = (data, keep="all", progress=None))]
fn repair_plan(
    py: Python<'_>,
    data: PathBuf,
    keep: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<PlanRow> {
    let keep = choice(keep)?;
    let caller = Caller::new(progress);
    let plan = caller.run(py, |vfs, tell| salvage::plan(vfs, &data, keep, tell))?;
    Ok(PlanRow::from(&plan))
}

/// `note` is called with the plan and returns what the file `SALVAGED` shall hold.
#[pyfunction]
#[pyo3(name = "repair", signature = (data, target, keep, entropy, holder, note, progress=None))]
fn repair_files(
    py: Python<'_>,
    data: PathBuf,
    target: PathBuf,
    keep: &str,
    entropy: u64,
    holder: String,
    note: Py<PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<RepairRow> {
    let options = salvage::Options {
        keep: choice(keep)?,
        entropy,
        holder,
    };
    let caller = Caller::new(progress);
    let write_note = |plan: &Plan| {
        let bytes = Python::attach(|py| note.call1(py, (PlanRow::from(plan),))?.extract(py));
        bytes.map_err(|error: PyErr| caller.stop(error))
    };
    let done = caller.run(py, |vfs, tell| {
        salvage::salvage(vfs, &data, &target, &options, &write_note, tell)
    })?;
    Ok(RepairRow {
        plan: PlanRow::from(&done.plan),
        report: ReportRow::from(done.report),
    })
}

/// A Python callable that is told the progress, and what it or a signal raised.
struct Caller {
    progress: Option<Py<PyAny>>,
    raised: Mutex<Option<PyErr>>,
}

impl Caller {
    fn new(progress: Option<Py<PyAny>>) -> Self {
        let raised = Mutex::new(None);
        Self { progress, raised }
    }

    /// Remember what was raised; the error ends the work.
    fn stop(&self, error: PyErr) -> Error {
        *self.raised.lock() = Some(error);
        verify::cancelled()
    }

    fn tell(&self, done: u64, total: u64) -> bool {
        let told = Python::attach(|py| {
            py.check_signals()?;
            match &self.progress {
                Some(progress) => progress.call1(py, (done, total)).map(|_| ()),
                None => Ok(()),
            }
        });
        told.map_err(|error| self.stop(error)).is_ok()
    }

    fn run<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Arc<dyn Vfs>, verify::Progress<'_>) -> CoreResult<R> + Send,
    ) -> PyResult<R> {
        let result = detach(py, || {
            work(&disk(), &mut |done, total| self.tell(done, total))
        });
        match self.raised.lock().take() {
            Some(error) => Err(error),
            None => result.map_err(to_py),
        }
    }
}
