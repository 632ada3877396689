//! Numbers from Python: what does not fit is the caller's mistake and says so.

use braidlog_core::Error;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;

use crate::append::type_name;
use crate::error::{no_position, to_py};
use crate::exit::with_python;

/// A position, count or size.
#[derive(Clone, Copy)]
pub struct Unsigned(pub u64);

/// A position of a log, from 1.
#[derive(Clone, Copy)]
pub struct Place(pub u64);

/// Microseconds since the Unix epoch.
#[derive(Clone, Copy)]
pub struct Micros(pub i64);

/// How long to wait: not less than nothing, and not longer than the clock can add.
#[derive(Clone, Copy)]
pub struct Seconds(pub std::time::Duration);

/// The longest wait, about thirty years.
const SECONDS_MAX: f64 = 1e9;

fn refuse(object: Borrowed<'_, '_, PyAny>, what: &str) -> PyErr {
    to_py(Error::InvalidArgument(format!(
        "expected {what}, got {}",
        *object
    )))
}

impl<'py> FromPyObject<'_, 'py> for Unsigned {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                Err(refuse(object, "a number from 0 to 2**64 - 1"))
            }
            found => found.map(Self),
        }
    }
}

/// An argument of a public call that is no int.
fn not_an_int(object: &Bound<'_, PyAny>, name: &str) -> PyErr {
    PyTypeError::new_err(format!("{name} must be an int, not {}", type_name(object)))
}

impl Unsigned {
    /// The argument `name` of a public call.
    pub fn named(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        match object.extract::<u64>() {
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                Err(not_an_int(object, name))
            }
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                let text = format!("{name} must be from 0 to 2**64 - 1, got {object}");
                Err(to_py(Error::InvalidArgument(text)))
            }
            found => found.map(Self),
        }
    }

    /// The argument `name` of a public call, if it was given.
    pub fn optional(object: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Option<Self>> {
        object.map(|given| Self::named(given, name)).transpose()
    }
}

impl Place {
    /// The argument `name` of a public call.
    pub fn named(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(position) if position > 0 => Ok(Self(position)),
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                Err(not_an_int(object, name))
            }
            Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => Err(error),
            _ => Err(no_position(object.py(), &object.to_string())),
        }
    }
}

/// What `braidlog.store.arguments` makes of an argument; it raises what a caller can understand.
fn checked<'py>(object: Borrowed<'_, 'py, PyAny>, check: &str) -> PyResult<Bound<'py, PyAny>> {
    let arguments = object.py().import("braidlog.store.arguments")?;
    let check = arguments.getattr(check)?;
    with_python(object.py(), || check.call1((object,)))
}

impl<'py> FromPyObject<'_, 'py> for Micros {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<i64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => Err(refuse(
                object,
                "a timestamp in microseconds from -2**63 to 2**63 - 1",
            )),
            // A datetime, or nothing that is a time: one place says.
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                checked(object, "checked_time")?.extract().map(Self)
            }
            found => found.map(Self),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds = match object.extract::<f64>() {
            // A timedelta, or nothing that is a time: one place says.
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                checked(object, "checked_timeout")?.extract()?
            }
            found => found?,
        };
        if seconds.is_nan() {
            return Err(refuse(object, "a number of seconds"));
        }
        let bounded = seconds.clamp(0.0, SECONDS_MAX);
        Ok(Self(std::time::Duration::from_secs_f64(bounded)))
    }
}
