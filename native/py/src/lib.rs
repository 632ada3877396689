//! Python bindings of the storage core: one file per topic, one error map.

#![allow(
    clippy::needless_pass_by_value,
    clippy::too_many_arguments,
    reason = "arguments are Python's: owned, and as many as the call has keywords"
)]

mod append;
mod appender;
pub mod arrow;
mod backup;
mod bulk;
mod closing;
mod columns;
mod conn;
mod ddl;
mod disk;
mod encode;
mod entry;
mod error;
mod exit;
mod follower;
mod gate;
mod group;
mod held;
mod inspect;
mod lane;
mod leader;
mod leads;
mod line;
mod links;
mod listing;
mod log;
mod notify;
mod number;
mod options;
mod pending;
mod poll;
mod record;
mod replay;
mod replicas;
mod round;
mod scan;
mod served;
mod socket;
mod split;
mod store;
mod stream;
mod table;
mod tail;
mod windows;

use pyo3::prelude::*;

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<appender::Appender>()?;
    m.add_class::<store::Store>()?;
    m.add_class::<disk::MemoryDisk>()?;
    m.add_class::<encode::Batch>()?;
    m.add_class::<encode::BatchRecords>()?;
    m.add_class::<pending::Pending>()?;
    m.add_class::<windows::ProducerWindows>()?;
    m.add_class::<follower::CopiedRun>()?;
    m.add_class::<follower::Follower>()?;
    m.add_class::<listing::Listing>()?;
    m.add_class::<log::LogView>()?;
    m.add_class::<record::Record>()?;
    m.add_class::<record::RecordIterator>()?;
    m.add_class::<replay::RawDirectory>()?;
    m.add_class::<replay::RawMerge>()?;
    m.add_class::<replicas::Replicas>()?;
    m.add_class::<scan::ArrowBatch>()?;
    m.add_class::<scan::BatchIterator>()?;
    m.add_class::<conn::Conn>()?;
    m.add_class::<lane::Lane>()?;
    m.add_class::<poll::Poll>()?;
    m.add_class::<stream::Stream>()?;
    m.add_class::<leader::Leader>()?;
    m.add_class::<leader::NodeReport>()?;
    m.add_class::<line::Budget>()?;
    m.add_class::<line::Entry>()?;
    m.add_class::<line::Line>()?;
    m.add_function(wrap_pyfunction!(line::now_us, m)?)?;
    m.add_function(wrap_pyfunction!(line::settle, m)?)?;
    m.add("REQUEST_COST_MIN", braidlog_core::lane::REQUEST_COST_MIN)?;
    m.add_class::<tail::Frame>()?;
    m.add_class::<tail::Tail>()?;
    backup::register(m)?;
    inspect::register(m)?;
    table::register(m)?;
    m.add_function(wrap_pyfunction!(exit::exiting, m)?)?;
    m.add_function(wrap_pyfunction!(log_schema, m)?)?;
    m.add_function(wrap_pyfunction!(encode::batch_header, m)?)?;
    m.add_function(wrap_pyfunction!(encode::bytes_of, m)?)?;
    m.add_function(wrap_pyfunction!(encode::encode_batch, m)?)?;
    m.add_function(wrap_pyfunction!(encode::encode_pieces, m)?)?;
    m.add_function(wrap_pyfunction!(encode::encode_arrow, m)?)?;
    m.add_function(wrap_pyfunction!(split::digest_records, m)?)?;
    m.add_function(wrap_pyfunction!(split::latest_by_key, m)?)?;
    m.add_function(wrap_pyfunction!(split::split_by_key, m)?)?;
    m.add_function(wrap_pyfunction!(encode::route_arrow, m)?)?;
    Ok(())
}

/// The Arrow schema of a log, as a capsule.
#[pyfunction]
fn log_schema(py: Python<'_>) -> PyResult<Bound<'_, pyo3::types::PyCapsule>> {
    arrow::schema_capsule(py, &arrow::schema())
}
