//! What the catalog says of a table, and its options, from Python.

use braidlog_core::Error;
use braidlog_core::table::order::IndexSpec;
use braidlog_core::table::table::{
    Deletes, IndexDefinition, OnRefusal, TableDefinition, TableOptions,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::to_py;
use crate::store::compression;

/// Identity of its tree, name, what it is over, whether it must not be incomplete, base.
pub type IndexTuple = (u128, String, String, bool, u64);

/// Node, table, primary tree, base, indexes.
pub type TableTuple = (u128, u128, u128, u64, Vec<IndexTuple>);

/// Check what an index is over, and write it in full.
#[pyfunction]
pub fn index_spec(text: &str) -> PyResult<String> {
    let spec = IndexSpec::parse(text).map_err(to_py)?;
    Ok(spec.to_string())
}

pub fn index((tree, name, spec, is_strict, base): IndexTuple) -> PyResult<IndexDefinition> {
    Ok(IndexDefinition {
        tree,
        name,
        spec: IndexSpec::parse(&spec).map_err(to_py)?,
        on_refusal: if is_strict {
            OnRefusal::Refuse
        } else {
            OnRefusal::Incomplete
        },
        base,
    })
}

pub fn table((node, id, primary, base, indexes): TableTuple) -> PyResult<TableDefinition> {
    Ok(TableDefinition {
        node,
        id,
        primary,
        base,
        indexes: indexes.into_iter().map(index).collect::<PyResult<_>>()?,
    })
}

/// Check which records delete, as a table is told.
#[pyfunction]
pub fn check_deletes(kind: &str, text: &str) -> PyResult<()> {
    Deletes::parse(kind, text).map(drop).map_err(to_py)
}

/// Options by keyword; the others are the defaults.
pub fn options(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<TableOptions> {
    let mut options = TableOptions::default();
    for (name, value) in keywords.into_iter().flatten() {
        let name: String = name.extract()?;
        match name.as_str() {
            "deletes" => {
                let (kind, text): (String, String) = value.extract()?;
                options.deletes = Deletes::parse(&kind, &text).map_err(to_py)?;
            }
            "history" => options.history = value.extract()?,
            "memory_bytes" => options.memory_bytes = value.extract()?,
            "compression" => {
                options.tree.run.compression = compression(value.extract()?)?;
            }
            "page_bytes" => options.tree.run.page_bytes = value.extract()?,
            "filter_bits_per_key" => {
                options.tree.run.filter_bits_per_key = value.extract()?;
            }
            "range_bytes" => options.tree.shape.range_bytes = value.extract()?,
            _ => {
                return Err(to_py(Error::InvalidArgument(format!(
                    "{name:?} is no option of a table"
                ))));
            }
        }
    }
    Ok(options)
}
