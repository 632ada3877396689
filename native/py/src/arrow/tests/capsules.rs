use arrow_array::{BinaryArray, RecordBatch, RecordBatchIterator};
use arrow_data::ArrayData;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::super::{
    Checks, Projection, array_capsules, export_batch, import_stream, schema, schema_capsule,
    stream_capsule,
};
use super::*;

fn exported() -> RecordBatch {
    let owner = owned(&builder(), Compression::None, 0);
    let length = owner.bytes().len();
    export_batch(&owner, 0..length, 1, 0..4, &Projection::all(), Checks::All).unwrap()
}

/// An object of which the method returns `result`.
fn object<'py>(method: &str, result: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    let py = result.py();
    let result = result.clone().unbind();
    let call = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        result.clone_ref(arguments.py())
    };
    let call = PyCFunction::new_closure(py, None, None, call).unwrap();
    let fields = PyDict::new(py);
    fields.set_item(method, call).unwrap();
    let namespace = py
        .import("types")
        .unwrap()
        .getattr("SimpleNamespace")
        .unwrap();
    namespace.call((), Some(&fields)).unwrap()
}

fn taken(object: &Bound<'_, PyAny>) -> Vec<RecordBatch> {
    let batches = import_stream(object).unwrap();
    batches.collect::<braidlog_core::Result<_>>().unwrap()
}

#[test]
fn batch_capsules_move_their_contents() {
    Python::initialize();
    Python::attach(|py| {
        let batch = exported();
        let batches = [batch.clone(), batch.slice(1, 2)];

        let reader = RecordBatchIterator::new(batches.clone().map(Ok), schema());
        let capsule = stream_capsule(py, Box::new(reader)).unwrap();
        let source = object("__arrow_c_stream__", capsule.as_any());
        assert_eq!(taken(&source), batches);
        let again = import_stream(&source).err().unwrap().to_string();
        assert!(again.contains("already released"), "{again}");

        let pair = array_capsules(py, &batches[1])
            .unwrap()
            .into_pyobject(py)
            .unwrap();
        let source = object("__arrow_c_array__", pair.as_any());
        assert_eq!(taken(&source), batches[1..]);
        let again = import_stream(&source).err().unwrap().to_string();
        assert!(again.contains("already consumed"), "{again}");

        // Capsules that nobody takes free what they hold.
        drop(array_capsules(py, &batch).unwrap());
        drop(schema_capsule(py, &schema()).unwrap());
        drop(
            stream_capsule(
                py,
                Box::new(RecordBatchIterator::new([Ok(batch)], schema())),
            )
            .unwrap(),
        );
    });
}

#[test]
fn batch_import_refuses_what_is_no_record_batch() {
    Python::initialize();
    Python::attach(|py| {
        let refusal = |object: &Bound<'_, PyAny>| import_stream(object).err().unwrap().to_string();
        let nothing = py.None().into_bound(py);
        assert!(refusal(&nothing).contains("neither __arrow_c_stream__ nor __arrow_c_array__"));
        let array = ArrayData::from(BinaryArray::from_iter_values([b"v"]));
        let array = arrow_array::ffi::FFI_ArrowArray::new(&array);
        let type_ =
            arrow_array::ffi::FFI_ArrowSchema::try_from(&arrow_schema::DataType::Binary).unwrap();
        let pair = (
            pyo3::types::PyCapsule::new_with_value(py, type_, c"arrow_schema").unwrap(),
            pyo3::types::PyCapsule::new_with_value(py, array, c"arrow_array").unwrap(),
        );
        let pair = pair.into_pyobject(py).unwrap();
        let source = object("__arrow_c_array__", pair.as_any());
        assert!(refusal(&source).contains("got an array of Binary"));
        let swapped = schema_capsule(py, &schema()).unwrap();
        let source = object("__arrow_c_stream__", swapped.as_any());
        assert!(refusal(&source).contains("incorrect name"));
    });
}
