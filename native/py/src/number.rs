//! Numbers from Python: what does not fit is the caller's mistake and says so.

use braidlog_core::Error;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;

use crate::error::to_py;

/// A position, count or size.
#[derive(Clone, Copy)]
pub struct Unsigned(pub u64);

/// Microseconds since the Unix epoch.
#[derive(Clone, Copy)]
pub struct Micros(pub i64);

/// How long to wait: not less than nothing, and not longer than the clock can add.
#[derive(Clone, Copy)]
pub struct Seconds(pub std::time::Duration);

/// The longest wait, about thirty years.
const SECONDS_MAX: f64 = 1e9;

fn refuse(object: Borrowed<'_, '_, PyAny>, what: &str) -> PyErr {
    to_py(Error::InvalidArgument(format!("{} is not {what}", *object)))
}

impl<'py> FromPyObject<'_, 'py> for Unsigned {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                Err(refuse(object, "in 0..2**64"))
            }
            found => found.map(Self),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Micros {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<i64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                Err(refuse(object, "a timestamp: microseconds in -2**63..2**63"))
            }
            // Naive times, numbers of seconds: only the caller knows what is meant.
            Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
                Err(PyTypeError::new_err(format!(
                    "a timestamp is an int, microseconds since 1970 (UTC), not {}",
                    object.get_type().name()?
                )))
            }
            found => found.map(Self),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds = object.extract::<f64>()?;
        if seconds.is_nan() {
            return Err(refuse(object, "a number of seconds"));
        }
        let bounded = seconds.clamp(0.0, SECONDS_MAX);
        Ok(Self(std::time::Duration::from_secs_f64(bounded)))
    }
}
