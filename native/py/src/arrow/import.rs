//! The `PyCapsule` protocol, inwards: record batches of anything that speaks it.

use std::ffi::CStr;
use std::ptr::NonNull;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use braidlog_core::Error;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use super::capsule;
use super::columns::columns_of;
use crate::error::to_py;

/// Record batches of one schema. Reading may call into the producer, so it is best done without the
/// interpreter attached.
pub struct RecordBatches {
    schema: SchemaRef,
    source: Source,
}

enum Source {
    Stream(RecordBatchStreamReader),
    One(Option<RecordBatch>),
}

impl RecordBatches {
    /// A single batch.
    pub fn one(batch: RecordBatch) -> Self {
        Self {
            schema: batch.schema(),
            source: Source::One(Some(batch)),
        }
    }

    /// Their schema.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Iterator for RecordBatches {
    type Item = braidlog_core::Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Stream(reader) => Some(reader.next()?.map_err(|reason| refusal(&reason))),
            Source::One(batch) => batch.take().map(Ok),
        }
    }
}

/// Record batches of an object that has `__arrow_c_stream__` (tables, readers) or
/// `__arrow_c_array__` (record batches). Anything else is a `TypeError`.
pub fn import_stream(object: &Bound<'_, PyAny>) -> PyResult<RecordBatches> {
    if object.hasattr("__arrow_c_stream__")? {
        return from_stream(&object.call_method0("__arrow_c_stream__")?);
    }
    if object.hasattr("__arrow_c_array__")? {
        return from_array(&object.call_method0("__arrow_c_array__")?);
    }
    let type_name = object.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "{type_name} has neither __arrow_c_stream__ nor __arrow_c_array__"
    )))
}

/// Record batches of which the schema can be appended, also where there are no rows.
pub fn import_records(object: &Bound<'_, PyAny>) -> PyResult<RecordBatches> {
    let batches = import_stream(object)?;
    columns_of(&RecordBatch::new_empty(batches.schema()), 0, 0).map_err(to_py)?;
    Ok(batches)
}

fn from_stream(capsule: &Bound<'_, PyAny>) -> PyResult<RecordBatches> {
    let stream = pointer::<FFI_ArrowArrayStream>(capsule, capsule::STREAM)?;
    // SAFETY: a capsule of that name holds such a structure. This marks it there as released.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    let reader = RecordBatchStreamReader::try_new(stream).map_err(|reason| invalid(&reason))?;
    Ok(RecordBatches {
        schema: reader.schema(),
        source: Source::Stream(reader),
    })
}

fn from_array(pair: &Bound<'_, PyAny>) -> PyResult<RecordBatches> {
    let pair = pair.cast::<PyTuple>()?;
    let (schema, array) = (pair.get_item(0)?, pair.get_item(1)?);
    let schema = pointer::<FFI_ArrowSchema>(&schema, capsule::SCHEMA)?;
    let array = pointer::<FFI_ArrowArray>(&array, capsule::ARRAY)?;
    // SAFETY: capsules of these names hold such structures. This marks them there as released.
    let (schema, array) = unsafe {
        (
            FFI_ArrowSchema::from_raw(schema.as_ptr()),
            FFI_ArrowArray::from_raw(array.as_ptr()),
        )
    };
    if schema.release().is_none() || array.is_released() {
        return Err(PyValueError::new_err("arrow array was already consumed"));
    }
    batch_of(array, &schema)
        .map(RecordBatches::one)
        .map_err(|reason| invalid(&reason))
}

/// The record batch that a struct array is.
fn batch_of(array: FFI_ArrowArray, schema: &FFI_ArrowSchema) -> Result<RecordBatch, ArrowError> {
    let type_ = DataType::try_from(schema)?;
    if !matches!(type_, DataType::Struct(_)) {
        let reason = format!("expected a record batch, got an array of {type_}");
        return Err(ArrowError::InvalidArgumentError(reason));
    }
    // SAFETY: the producer vouches for a structure that follows the C data interface.
    let data = unsafe { from_ffi(array, schema) }?;
    let batch = StructArray::from(data);
    if batch.null_count() != 0 {
        return Err(ArrowError::InvalidArgumentError(
            "a struct of the array is null".into(),
        ));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
    let schema = Schema::try_from(schema)?;
    RecordBatch::try_new_with_options(schema.into(), batch.into_parts().1, &options)
}

fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> PyResult<NonNull<T>> {
    let capsule = capsule.cast::<PyCapsule>()?;
    Ok(capsule.pointer_checked(Some(name))?.cast())
}

fn refusal(reason: &ArrowError) -> Error {
    Error::InvalidArgument(format!("arrow: {reason}"))
}

fn invalid(reason: &ArrowError) -> PyErr {
    PyValueError::new_err(format!("arrow: {reason}"))
}
