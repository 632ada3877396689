//! Options of an open from Python keywords, and what the open found.

use braidlog_core::Error;
use braidlog_core::vfs::SyncMethod;
use braidlog_core::wal::{self, OpenReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::to_py;
use crate::number::Unsigned;

/// Core options from keyword arguments.
pub fn options(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<wal::Options> {
    let mut options = wal::Options::default();
    let Some(keywords) = keywords else {
        return Ok(options);
    };
    for (name, value) in keywords {
        match name.extract::<String>()?.as_str() {
            "segment_bytes" => options.segment_bytes = value.extract::<Unsigned>()?.0,
            "wal_bytes_max" => {
                options.wal_bytes_max = value.extract::<Option<Unsigned>>()?.map(|bytes| bytes.0);
            }
            "sync_method" => options.sync_method = sync_method(&value.extract::<String>()?)?,
            "sync_depth" => options.sync_depth = value.extract()?,
            "gather_bytes" => options.gather_bytes = value.extract()?,
            "unsynced_bytes_max" => options.unsynced_bytes_max = size(&value)?,
            "recent_bytes_max" => options.recent_bytes_max = size(&value)?,
            "index_bytes_max" => options.index_bytes_max = size(&value)?,
            "order_bytes_max" => options.order_bytes_max = value.extract::<Unsigned>()?.0,
            "entropy" => options.entropy = value.extract()?,
            "holder" => options.holder = value.extract()?,
            other => {
                return Err(to_py(Error::InvalidArgument(format!(
                    "unknown option {other}"
                ))));
            }
        }
    }
    Ok(options)
}

fn size(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let Unsigned(bytes) = value.extract()?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn sync_method(name: &str) -> PyResult<SyncMethod> {
    Ok(match name {
        "direct" => SyncMethod::Direct,
        "dsync" => SyncMethod::Dsync,
        "fdatasync" => SyncMethod::Fdatasync,
        _ => {
            return Err(to_py(Error::InvalidArgument(format!(
                "sync_method must be direct, dsync or fdatasync, got {name:?}"
            ))));
        }
    })
}

pub fn report_dict<'py>(py: Python<'py>, report: &OpenReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("created", report.created)?;
    dict.set_item("clean", report.clean)?;
    dict.set_item("segment", report.segment)?;
    dict.set_item("scanned_bytes", report.scanned_bytes)?;
    dict.set_item("frames", report.frames)?;
    let torn = report.torn.as_ref().map(|torn| {
        (
            torn.path.display().to_string(),
            torn.offset,
            torn.reason.clone(),
            torn.erased,
        )
    });
    dict.set_item("torn", torn)?;
    dict.set_item("manifest_torn", report.manifest_torn)?;
    let names = |paths: &[std::path::PathBuf]| -> Vec<String> {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    };
    dict.set_item("orphans", names(&report.orphans))?;
    dict.set_item("foreign", names(&report.foreign))?;
    Ok(dict)
}
