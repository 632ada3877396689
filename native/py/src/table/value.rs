//! Values of index fields, from and to Python.

use braidlog_core::table::order::Value;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};

use crate::append::type_name;

/// A value of one field.
fn one(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    // A bool is an int too.
    if let Ok(value) = object.cast::<PyBool>() {
        Ok(Value::Bool(value.is_true()))
    } else if object.is_instance_of::<PyInt>() {
        Ok(match object.extract() {
            Ok(int) => Value::Int(int),
            // What is beyond 128 bits is beyond every number of an index but infinity.
            Err(_) if object.lt(0)? => Value::Float(f64::NEG_INFINITY),
            Err(_) => Value::Float(f64::INFINITY),
        })
    } else if let Ok(value) = object.cast::<PyFloat>() {
        Ok(Value::Float(value.value()))
    } else if let Ok(value) = object.cast::<PyString>() {
        Ok(Value::Text(value.to_str()?.into()))
    } else if let Ok(value) = object.cast::<PyBytes>() {
        Ok(Value::Bytes(value.as_bytes().into()))
    } else {
        Err(PyTypeError::new_err(format!(
            "a field of an index is a bool, int, float, str or bytes, not {}",
            type_name(object)
        )))
    }
}

/// Values of the first fields: a tuple, or the only one by itself.
pub fn values(object: &Bound<'_, PyAny>) -> PyResult<Vec<Value>> {
    match object.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|item| one(&item)).collect(),
        Err(_) => Ok(vec![one(object)?]),
    }
}

/// A value for Python.
pub fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::Float(value) => PyFloat::new(py, *value).into_any(),
        Value::Text(value) => PyString::new(py, value).into_any(),
        Value::Bytes(value) => PyBytes::new(py, value).into_any(),
    })
}
