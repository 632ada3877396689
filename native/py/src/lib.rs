//! Python bindings of the storage core: one file per topic, one error map.

pub mod arrow;

use pyo3::prelude::*;

#[pymodule]
fn _native(_m: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
