use arrow_array::builder::{BinaryBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, DictionaryArray, Int64Array, LargeBinaryArray,
    LargeStringArray, MapArray, NullArray, RecordBatch, StringArray, StringViewArray,
    TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
};
use arrow_buffer::NullBuffer;
use braidlog_core::batch::{BatchView, OwnedRecord, Producer, encode_columns};

use super::super::{Checks, Projection, columns_of, export_batch};
use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

fn encode(batch: &RecordBatch) -> Vec<u8> {
    let columns = columns_of(batch, 0, 99).unwrap();
    let mut out = Vec::new();
    let all = 0..columns.len();
    encode_columns(
        &columns.borrow(),
        all,
        Producer::default(),
        Compression::None,
        &mut out,
    )
    .unwrap();
    out
}

fn records(batch: &RecordBatch) -> Vec<OwnedRecord> {
    let encoded = encode(batch);
    BatchView::parse(&encoded)
        .unwrap()
        .iter()
        .map(OwnedRecord::from)
        .collect()
}

fn values(array: ArrayRef) -> Vec<Vec<u8>> {
    records(&batch(vec![("value", array)]))
        .into_iter()
        .map(|record| record.value.unwrap())
        .collect()
}

fn refusal(columns: Vec<(&str, ArrayRef)>) -> String {
    columns_of(&batch(columns), 1000, 0)
        .unwrap_err()
        .to_string()
}

#[test]
fn batch_import_of_an_export_gives_the_same_bytes() {
    let builder = builder();
    let owner = owned(&builder, Compression::None, 0);
    let length = owner.bytes().len();
    let projection = Projection::of(["headers", "value", "key", "timestamp"]).unwrap();
    let exported = export_batch(&owner, 0..length, 1, 0..4, &projection, Checks::All).unwrap();
    assert_eq!(encode(&exported), owner.bytes());
    // Slices carry offsets of bits, offsets and entries.
    let model: Vec<OwnedRecord> = records(&exported);
    for (begin, len) in [(0, 1), (1, 2), (1, 3), (3, 1)] {
        assert_eq!(
            records(&exported.slice(begin, len)),
            model[begin..begin + len]
        );
    }
    let clipped = export_batch(&owner, 0..length, 1, 1..4, &projection, Checks::All).unwrap();
    assert_eq!(records(&clipped), model[1..]);
}

#[test]
fn batch_import_takes_byte_strings_of_all_types() {
    let text = ["one", "", "a longer string than a view holds"];
    let expected: Vec<Vec<u8>> = text.iter().map(|text| text.as_bytes().to_vec()).collect();
    let bytes = || text.iter().map(|text| text.as_bytes());
    let dictionary: DictionaryArray<Int8Type> = text.into_iter().collect();
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(BinaryArray::from_iter_values(bytes())),
        Arc::new(LargeBinaryArray::from_iter_values(bytes())),
        Arc::new(BinaryViewArray::from_iter_values(bytes())),
        Arc::new(StringArray::from_iter_values(text)),
        Arc::new(LargeStringArray::from_iter_values(text)),
        Arc::new(StringViewArray::from_iter_values(text)),
        Arc::new(dictionary),
    ];
    for array in arrays {
        assert_eq!(values(array.slice(1, 2)), expected[1..]);
        assert_eq!(values(array), expected);
    }
}

#[test]
fn batch_import_defaults() {
    let value: ArrayRef = Arc::new(BinaryArray::from_iter_values([b"v"]));
    let plain = records(&batch(vec![("value", value.clone())]));
    let expected = OwnedRecord {
        timestamp: 99,
        key: None,
        value: Some(b"v".to_vec()),
        headers: vec![],
    };
    assert_eq!(plain, vec![expected]);
    let nothing: ArrayRef = Arc::new(NullArray::new(1));
    let columns = vec![
        ("key", nothing.clone()),
        ("headers", nothing),
        ("value", value),
    ];
    assert_eq!(records(&batch(columns)), plain);
    let empty = batch(vec![("value", Arc::new(BinaryArray::new_null(0)))]);
    assert!(columns_of(&empty, 0, 0).unwrap().is_empty());
}

#[test]
fn batch_import_of_timestamps() {
    let value: ArrayRef = Arc::new(BinaryArray::from_iter_values([b"a", b"b"]));
    let timestamps = |array: ArrayRef| -> Vec<i64> {
        let batch = batch(vec![("timestamp", array), ("value", value.clone())]);
        records(&batch)
            .iter()
            .map(|record| record.timestamp)
            .collect()
    };
    assert_eq!(timestamps(Arc::new(Int64Array::from(vec![-3, 4]))), [-3, 4]);
    let seconds = TimestampSecondArray::from(vec![-3, 4]).with_timezone("Asia/Seoul");
    assert_eq!(timestamps(Arc::new(seconds)), [-3_000_000, 4_000_000]);
    let milliseconds = TimestampMillisecondArray::from(vec![-3, 4]);
    assert_eq!(timestamps(Arc::new(milliseconds)), [-3_000, 4_000]);
    let nanoseconds = TimestampNanosecondArray::from(vec![-1, 1999]);
    assert_eq!(timestamps(Arc::new(nanoseconds)), [-1, 1]);
}

#[test]
fn batch_import_drops_what_null_maps_span() {
    let names = MapFieldNames {
        entry: "entries".into(),
        key: "key".into(),
        value: "value".into(),
    };
    let mut builder = MapBuilder::new(Some(names), StringBuilder::new(), BinaryBuilder::new());
    for name in ["a", "b", "c"] {
        builder.keys().append_value(name);
        builder.values().append_value(b"x");
        builder.append(true).unwrap();
    }
    let (field, offsets, entries, _, ordered) = builder.finish().into_parts();
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    let map = MapArray::try_new(field, offsets, entries, nulls, ordered).unwrap();
    let value = Arc::new(BinaryArray::from_iter_values([b"1", b"2", b"3"]));
    let records = records(&batch(vec![("headers", Arc::new(map)), ("value", value)]));
    let names: Vec<Vec<&str>> = records
        .iter()
        .map(|record| {
            record
                .headers
                .iter()
                .map(|(name, _)| name.as_str())
                .collect()
        })
        .collect();
    assert_eq!(names, [vec!["a"], vec![], vec!["c"]]);
}

#[test]
fn batch_import_refusals_name_column_and_row() {
    let value: ArrayRef = Arc::new(BinaryArray::from_iter_values([b"a", b"b"]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    assert_eq!(
        refusal(vec![("key", value.clone())]),
        "column `value` is missing"
    );
    assert_eq!(
        refusal(vec![
            ("value", value.clone()),
            ("position", numbers.clone())
        ]),
        "column `position` is assigned by the log; drop it"
    );
    assert_eq!(
        refusal(vec![("value", value.clone()), ("Key", value.clone())]),
        "column `Key` is not one of value, key, timestamp, headers"
    );
    assert_eq!(
        refusal(vec![("value", value.clone()), ("value", value.clone())]),
        "column `value` is there twice"
    );
    assert!(refusal(vec![("value", numbers)]).starts_with("column `value` has type Int64"));
    let null: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    assert_eq!(
        refusal(vec![("value", value.clone()), ("timestamp", null)]),
        "column `timestamp`, row 1001: null timestamp"
    );
    let late: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX, 0]));
    assert_eq!(
        refusal(vec![("value", value.clone()), ("timestamp", late)]),
        "column `timestamp`, row 1000: timestamp does not fit into microseconds"
    );
}

#[test]
fn batch_import_and_export_of_null_values() {
    let mut builder = BatchBuilder::new();
    for index in 0..40_usize {
        let value = (index % 3 != 0).then_some(&b"value"[..index % 5]);
        let headers = [("n", None), ("m", Some(&b"v"[..]))];
        let headers = &headers[..index % 3];
        builder
            .push(value, Some(b"k"), index as i64, headers)
            .unwrap();
    }
    for compression in [Compression::None, Compression::Zstd] {
        let owner = owned(&builder, compression, 0);
        let length = owner.bytes().len();
        let projection = Projection::of(["headers", "value", "key", "timestamp"]).unwrap();
        let whole = export_batch(&owner, 0..length, 1, 0..40, &projection, Checks::All).unwrap();
        let model: Vec<OwnedRecord> = records(&whole);
        assert_eq!(model[4].value.as_deref(), Some(&b"valu"[..]));
        assert_eq!((&model[3].value, &model[5].value), (&None, &Some(vec![])));
        assert_eq!(model[4].headers, [("n".to_owned(), None)]);
        assert_eq!(model[5].headers[1], ("m".to_owned(), Some(b"v".to_vec())));
        let values = whole.column_by_name("value").unwrap();
        assert_eq!(values.null_count(), 14);
        for (begin, end) in [(0, 1), (1, 2), (3, 20), (7, 40), (17, 18)] {
            let (first, after) = (begin as usize, end as usize);
            let sliced = whole.slice(first, after - first);
            assert_eq!(records(&sliced), model[first..after]);
            let clipped =
                export_batch(&owner, 0..length, 1, begin..end, &projection, Checks::All).unwrap();
            assert_eq!(records(&clipped), model[first..after]);
        }
    }
    let untyped: ArrayRef = Arc::new(NullArray::new(2));
    let found = records(&batch(vec![("value", untyped)]));
    assert!(found.len() == 2 && found.iter().all(|record| record.value.is_none()));
}
