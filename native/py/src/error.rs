//! The one place where an error of the core becomes a Python exception.

use braidlog_core::Error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::exit::with_python;

/// The Python exception for an error of the core.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it is the argument of `map_err`"
)]
pub fn to_py(error: Error) -> PyErr {
    Python::attach(|py| with_python(py, || build(py, &error).unwrap_or_else(|failure| failure)))
}

/// The Python exception for a position that no log has.
pub fn no_position(py: Python<'_>, given: &str) -> PyErr {
    let raised = || -> PyResult<PyErr> {
        let class = py.import("braidlog.errors")?.getattr("PositionError")?;
        let text = format!("there is no position {given}");
        Ok(PyErr::from_value(class.call1((text,))?))
    };
    with_python(py, raised).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    let text = |path: &std::path::Path| path.display().to_string();
    let name = match error {
        Error::Io { path, .. } => {
            fields.set_item("path", text(path))?;
            "UnavailableError"
        }
        Error::Corruption { path, offset, .. } | Error::Differs { path, offset, .. } => {
            fields.set_item("path", text(path))?;
            fields.set_item("offset", offset)?;
            "CorruptionError"
        }
        Error::Malformed { offset, .. } => {
            fields.set_item("offset", offset)?;
            "CorruptionError"
        }
        Error::Foreign { path, .. } | Error::WrongIdentity { path, .. } => {
            fields.set_item("path", text(path))?;
            "ForeignFormatError"
        }
        Error::Newer {
            path,
            found,
            supported,
            ..
        } => {
            fields.set_item("path", text(path))?;
            fields.set_item("found", found)?;
            fields.set_item("supported", supported)?;
            "NewerFormatError"
        }
        Error::Missing { path, .. } => {
            fields.set_item("path", text(path))?;
            "MissingFileError"
        }
        Error::Locked { path, .. } => {
            fields.set_item("path", text(path))?;
            "LockedError"
        }
        Error::ReadOnly { .. } => "ReadOnlyError",
        Error::LogFull { used, max } => {
            fields.set_item("used", used)?;
            fields.set_item("limit", max)?;
            "LogFullError"
        }
        Error::Failed { .. } => "StoreFailedError",
        Error::Closed => "ClosedError",
        Error::TooLarge { size, max, .. } | Error::StateFull { size, max } => {
            fields.set_item("size", size)?;
            fields.set_item("limit", max)?;
            "TooLargeError"
        }
        Error::Trimmed { first, .. } => {
            fields.set_item("first", first)?;
            "TrimmedError"
        }
        Error::Lost { first, end } => {
            fields.set_item("first", first)?;
            fields.set_item("end", end)?;
            "LostRecordsError"
        }
        Error::BeyondEnd { next, .. } => {
            fields.set_item("next", next)?;
            "BeyondEndError"
        }
        Error::NotFound { .. } => "NotFoundError",
        Error::AlreadyExists { .. } => "AlreadyExistsError",
        Error::StaleEpoch { given, current } => {
            fields.set_item("given", given)?;
            fields.set_item("current", current)?;
            "FencedError"
        }
        Error::NotDense { expected, .. } => {
            fields.set_item("expected", expected)?;
            "SequenceGapError"
        }
        Error::UnknownProducer { .. } => {
            fields.set_item("expected", 1)?;
            "UnknownProducerError"
        }
        Error::OverBudget {
            pending, budget, ..
        } => {
            fields.set_item("size", pending)?;
            fields.set_item("limit", budget)?;
            "TooLargeError"
        }
        Error::Hole { .. } => "CorruptionError",
        Error::SequenceExpired { first, .. } => {
            fields.set_item("first", first)?;
            "SequenceExpiredError"
        }
        other => of_table(other, &fields)?,
    };
    let class = py.import("braidlog.errors")?.getattr(name)?;
    let value = class.call((error.to_string(),), Some(&fields))?;
    hint(error, &value)?;
    Ok(PyErr::from_value(value))
}

/// The class of an error that tables are the reason of, or else that of a call that makes no sense.
fn of_table(error: &Error, fields: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    Ok(match error {
        Error::LogInUse { tables, .. } => {
            fields.set_item("tables", PyTuple::new(fields.py(), tables)?)?;
            "LogInUseError"
        }
        Error::TableCursor { table, .. } => {
            fields.set_item("table", table)?;
            "TableCursorError"
        }
        Error::TablePin {
            table, position, ..
        } => {
            fields.set_item("table", table)?;
            fields.set_item("position", position)?;
            "TablePinError"
        }
        Error::Overtaken { first, .. } => {
            fields.set_item("first", first)?;
            "TrimmedError"
        }
        Error::Unflushed { .. } => "NotReadyError",
        _ => "InvalidArgumentError",
    })
}

/// What to do where it is not what the class says.
fn hint(error: &Error, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if error.is_exhausted() {
        let hint = "Close files, or raise the limit of open files (ulimit -n), then retry";
        value.setattr("hint", hint)?;
    }
    if matches!(error, Error::Overtaken { .. }) {
        let hint =
            "Read again; a larger `history` of the table keeps positions readable for longer";
        value.setattr("hint", hint)?;
    }
    if matches!(error, Error::Unflushed { .. }) {
        let hint = "Retry in a moment; if nobody writes the directory, open it for writing once";
        value.setattr("hint", hint)?;
    }
    if matches!(error, Error::StateFull { .. }) {
        // That of the class is for records.
        let hint = "Delete logs, tables or cursors, or make a directory with larger segments";
        value.setattr("hint", hint)?;
    }
    Ok(())
}
