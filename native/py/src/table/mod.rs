//! Tables: keyed state that follows a log, its snapshots, scans and indexes.

mod batches;
mod definition;
mod follower;
mod hosted;
mod records;
mod rows;
mod snapshot;
#[allow(clippy::module_inception, reason = "the type that the folder is about")]
mod table;
mod value;

use pyo3::prelude::*;

/// Add what Python sees of tables.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<table::TableCache>()?;
    m.add_class::<table::Table>()?;
    m.add_class::<follower::TableFollower>()?;
    m.add_class::<snapshot::TableSnapshot>()?;
    m.add_class::<records::TableRecords>()?;
    m.add_class::<batches::TableBatches>()?;
    m.add_class::<hosted::HostedTable>()?;
    m.add_class::<hosted::TableLease>()?;
    m.add_class::<hosted::PinnedTable>()?;
    m.add_function(wrap_pyfunction!(definition::index_spec, m)?)?;
    m.add_function(wrap_pyfunction!(definition::check_deletes, m)?)?;
    m.add_function(wrap_pyfunction!(table::create_table_files, m)?)?;
    m.add_function(wrap_pyfunction!(rows::rows_records, m)?)?;
    m.add_function(wrap_pyfunction!(rows::rows_arrow, m)?)?;
    m.add_function(wrap_pyfunction!(rows::index_bounds, m)?)?;
    Ok(())
}
