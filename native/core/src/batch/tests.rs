//! The codec against a dumb model, against damage, and against itself.

#![allow(clippy::unwrap_used)]

mod damage;
mod model;
mod point_access;
mod speed;

use super::{BatchBuilder, BatchView, Compression};

/// A record as plain data.
type Model = Vec<(Vec<u8>, Option<Vec<u8>>, i64, Vec<(String, Vec<u8>)>)>;

const ALL: [Compression; 3] = [Compression::None, Compression::Zstd, Compression::Lz4];

fn build(records: &Model) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    push_all(&mut builder, records);
    builder
}

fn push_all(builder: &mut BatchBuilder, records: &Model) {
    for (value, key, timestamp, headers) in records {
        let headers: Vec<(&str, &[u8])> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
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
            b"one".to_vec(),
            Some(b"k".to_vec()),
            5,
            vec![("n\u{e9}".into(), b"v".to_vec())],
        ),
        (vec![], None, 3, vec![]),
        (
            vec![b'x'; 90],
            Some(vec![]),
            9,
            vec![("a".into(), vec![]), ("a".into(), vec![7; 9])],
        ),
    ]
}
