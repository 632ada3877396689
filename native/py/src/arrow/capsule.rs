//! The `PyCapsule` protocol, outwards: what `__arrow_c_*__` methods return.
//!
//! The protocol's `requested_schema` is best effort by its definition and is not looked at.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow_schema::Schema;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

pub(super) const SCHEMA: &std::ffi::CStr = c"arrow_schema";
pub(super) const ARRAY: &std::ffi::CStr = c"arrow_array";
pub(super) const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// What `__arrow_c_schema__` returns.
///
/// Each capsule frees what it holds unless a consumer has taken it, which is marked in the structure.
pub fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let exported = FFI_ArrowSchema::try_from(schema)
        .map_err(|reason| PyValueError::new_err(format!("arrow schema: {reason}")))?;
    PyCapsule::new_with_value(py, exported, SCHEMA)
}

/// What `__arrow_c_array__` of one record batch returns: schema and array.
pub fn array_capsules<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let schema = schema_capsule(py, &batch.schema())?;
    let array = FFI_ArrowArray::new(&StructArray::from(batch.clone()).to_data());
    Ok((schema, PyCapsule::new_with_value(py, array, ARRAY)?))
}

/// What `__arrow_c_stream__` returns. The consumer calls the reader with or without the interpreter.
pub fn stream_capsule(
    py: Python<'_>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}
