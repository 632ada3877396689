//! The codec against a dumb model, against damage, and against itself.

#![allow(clippy::unwrap_used)]

mod damage;
mod model;
mod point_access;
mod speed;

use super::{BatchBuilder, BatchView, Compression};

/// A record as plain data.
type Model = Vec<(
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    i64,
    Vec<(String, Option<Vec<u8>>)>,
)>;

const ALL: [Compression; 3] = [Compression::None, Compression::Zstd, Compression::Lz4];

fn build(records: &Model) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    push_all(&mut builder, records);
    builder
}

fn push_all(builder: &mut BatchBuilder, records: &Model) {
    for (value, key, timestamp, headers) in records {
        let value = value.as_deref();
        let headers: Vec<(&str, Option<&[u8]>)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        assert!(
            builder
                .fits(value, key.as_deref(), *timestamp, &headers)
                .unwrap()
        );
        builder
            .push(value, key.as_deref(), *timestamp, &headers)
            .unwrap();
    }
}

fn encode(builder: &BatchBuilder, compression: Compression) -> Vec<u8> {
    let mut out = Vec::new();
    builder.encode_into(compression, &mut out).unwrap();
    out
}

fn records_of(view: &BatchView<'_>) -> Model {
    let owned = view.iter().map(super::OwnedRecord::from);
    owned
        .map(|record| (record.value, record.key, record.timestamp, record.headers))
        .collect()
}

/// A small batch with every section.
fn everything() -> Model {
    vec![
        (
            Some(b"one".to_vec()),
            Some(b"k".to_vec()),
            5,
            vec![("n\u{e9}".into(), Some(b"v".to_vec()))],
        ),
        (Some(vec![]), None, 3, vec![]),
        (
            Some(vec![b'x'; 90]),
            Some(vec![]),
            9,
            vec![("a".into(), Some(vec![])), ("a".into(), Some(vec![7; 9]))],
        ),
    ]
}

/// The same with null values, which earlier builds do not know.
fn nulls() -> Model {
    let mut records = everything();
    records[0].3.push(("b".into(), None));
    records.push((None, Some(b"k".to_vec()), 5, vec![("c".into(), None)]));
    records
}
