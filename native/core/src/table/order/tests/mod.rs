//! Encodings against the order of values, specs against their text, records against a plain reader.

mod extraction;
mod ordering;
mod specs;

use super::*;
use crate::batch::{Headers, RecordRef};
use crate::error::{Error, Result};

fn record(value: &[u8]) -> RecordRef<'_> {
    RecordRef {
        timestamp: 0,
        key: Some(b"k"),
        value: Some(value),
        headers: Headers::none(),
    }
}

fn spec(text: &str) -> IndexSpec {
    IndexSpec::parse(text).unwrap()
}

fn encoded(value: &Value, kind: Kind) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    encode(value, kind, &mut out).map(|()| out)
}

fn refused(result: Result<impl std::fmt::Debug>) -> String {
    match result.unwrap_err() {
        Error::InvalidArgument(reason) => reason,
        error => panic!("{error}"),
    }
}
