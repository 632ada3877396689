use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use super::super::{Checks, Projection, export_batch, schema};
use super::*;

fn export(owner: &Arc<dyn Owner>, padding: usize, clip: std::ops::Range<u32>) -> RecordBatch {
    let range = padding..owner.bytes().len();
    export_batch(owner, range, 100, clip, &Projection::all(), Checks::All).unwrap()
}

#[test]
fn batch_schema_is_as_documented() {
    let shown: Vec<String> = schema()
        .fields()
        .iter()
        .map(|field| {
            assert!(field.is_nullable());
            format!("{} {}", field.name(), field.data_type())
        })
        .collect();
    assert_eq!(
        shown[..4],
        [
            "position Int64",
            "timestamp Timestamp(µs, \"UTC\")",
            "key Binary",
            "value Binary"
        ]
    );
    let DataType::Map(entries, false) = schema().field(4).data_type().clone() else {
        panic!("headers are a map")
    };
    assert_eq!(
        (entries.name().as_str(), entries.is_nullable()),
        ("entries", false)
    );
    let DataType::Struct(fields) = entries.data_type() else {
        panic!("entries are structs")
    };
    let key_value: Vec<_> = fields
        .iter()
        .map(|f| (f.name().as_str(), f.data_type().clone(), f.is_nullable()))
        .collect();
    assert_eq!(
        key_value,
        [
            ("key", DataType::Utf8, false),
            ("value", DataType::Binary, true)
        ]
    );
}

#[test]
fn batch_export_equals_records() {
    let builder = builder();
    for compression in [Compression::None, Compression::Zstd, Compression::Lz4] {
        for padding in [0, 8, 1, 4] {
            let owner = owned(&builder, compression, padding);
            for (begin, end) in [(0, 4), (1, 3), (3, 4), (2, 2)] {
                let batch = export(&owner, padding, begin..end);
                batch.column(2).to_data().validate_full().unwrap();
                batch.column(3).to_data().validate_full().unwrap();
                batch.column(4).to_data().validate_full().unwrap();
                let positions: Vec<i64> =
                    (begin..end).map(|index| 100 + i64::from(index)).collect();
                assert_eq!(
                    batch.column(0).as_primitive::<Int64Type>().values(),
                    &positions[..]
                );
                let timestamps = &[10, 30, 20, 40][begin as usize..end as usize];
                assert_eq!(
                    batch
                        .column(1)
                        .as_primitive::<TimestampMicrosecondType>()
                        .values(),
                    timestamps
                );
                let keys: Vec<Option<&[u8]>> = batch.column(2).as_binary::<i32>().iter().collect();
                let all: [Option<&[u8]>; 4] = [Some(b"k1"), None, Some(b""), Some(b"k4")];
                assert_eq!(keys, all[begin as usize..end as usize]);
                let values = batch.column(3).as_binary::<i32>();
                let all: [&[u8]; 4] = [b"one", b"", b"three", &[7; 200]];
                let values: Vec<&[u8]> = values.iter().flatten().collect();
                assert_eq!(values, all[begin as usize..end as usize]);
                let headers = batch.column(4).as_map();
                for (row, index) in (begin..end).enumerate() {
                    let entries = headers.value(row);
                    let names: Vec<_> = entries.column(0).as_string::<i32>().iter().collect();
                    let expected: &[Option<&str>] = match index {
                        0 => &[Some("a"), Some("b")],
                        2 => &[Some("c")],
                        _ => &[],
                    };
                    assert_eq!(names, expected);
                }
            }
        }
    }
}

#[test]
fn batch_export_points_into_its_owner_and_keeps_it() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Flagged(Vec<u8>);
    impl Drop for Flagged {
        fn drop(&mut self) {
            DROPPED.store(true, Ordering::SeqCst);
        }
    }
    // SAFETY: a vector that nobody changes.
    unsafe impl Owner for Flagged {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }
    let mut bytes = Vec::new();
    builder()
        .encode_into(Compression::None, &mut bytes)
        .unwrap();
    let inside = bytes.as_ptr_range();
    let owner: Arc<dyn Owner> = Arc::new(Flagged(bytes));
    let batch = export(&owner, 0, 1..4);
    drop(owner);
    let key = batch.column(2).to_data();
    let value = batch.column(3).to_data();
    let entries = batch.column(4).as_map().entries().to_data();
    let mut buffers = vec![
        key.nulls().unwrap().buffer(),
        batch
            .column(1)
            .as_primitive::<TimestampMicrosecondType>()
            .values()
            .inner(),
    ];
    for data in [
        &key,
        &value,
        &entries.child_data()[0],
        &entries.child_data()[1],
    ] {
        buffers.extend(data.buffers());
    }
    for buffer in &buffers {
        assert!(inside.contains(&buffer.as_ptr()) || buffer.is_empty());
    }
    let last = batch.column(3).slice(2, 1);
    drop((batch, key, value, entries));
    assert!(!DROPPED.load(Ordering::SeqCst));
    assert_eq!(last.as_binary::<i32>().value(0), [7; 200]);
    drop(last);
    assert!(DROPPED.load(Ordering::SeqCst));
}

#[test]
fn batch_export_without_optional_columns() {
    let mut builder = BatchBuilder::new();
    builder.push(Some(b"a"), None, 5, &[]).unwrap();
    builder.push(Some(b"b"), None, 5, &[]).unwrap();
    let owner = owned(&builder, Compression::None, 0);
    let batch = export(&owner, 0, 0..2);
    assert_eq!(batch.column(2).null_count(), 2);
    assert_eq!(
        batch
            .column(1)
            .as_primitive::<TimestampMicrosecondType>()
            .values(),
        &[5, 5]
    );
    assert_eq!(batch.column(4).as_map().value_length(1), 0);
    assert_eq!(batch.column(4).null_count(), 0);
    for column in batch.columns() {
        column.to_data().validate_full().unwrap();
    }
}

#[test]
fn batch_export_projects_in_the_order_given() {
    let owner = owned(&builder(), Compression::None, 0);
    let names = |batch: &RecordBatch| -> Vec<String> {
        batch
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    };
    let length = owner.bytes().len();
    for wanted in [vec!["value", "position"], vec!["headers"], vec![]] {
        let projection = Projection::of(wanted.iter().copied()).unwrap();
        let batch =
            export_batch(&owner, 0..length, 0, 0..4, &projection, Checks::Verified).unwrap();
        assert_eq!(names(&batch), wanted);
        assert_eq!(batch.num_rows(), 4);
    }
    for wrong in [vec!["Value"], vec!["key", "key"]] {
        assert!(Projection::of(wrong).is_err());
    }
}

#[test]
fn batch_export_refuses_damage_and_bad_ranges() {
    let owner = owned(&builder(), Compression::None, 0);
    let length = owner.bytes().len();
    let try_export = |owner: &Arc<dyn Owner>, range, first, clip, checks| {
        export_batch(owner, range, first, clip, &Projection::all(), checks).is_ok()
    };
    assert!(try_export(&owner, 0..length, 0, 0..4, Checks::All));
    assert!(!try_export(&owner, 0..length, 0, 0..5, Checks::All));
    assert!(!try_export(&owner, 0..length - 1, 0, 0..4, Checks::All));
    assert!(!try_export(&owner, 0..length + 1, 0, 0..4, Checks::All));
    assert!(!try_export(
        &owner,
        0..length,
        i64::MAX.cast_unsigned(),
        0..4,
        Checks::All
    ));
    let mut damaged = owner.bytes().to_vec();
    damaged[length - 1] ^= 1;
    let damaged: Arc<dyn Owner> = Arc::new(damaged);
    assert!(!try_export(&damaged, 0..length, 0, 0..4, Checks::All));
    assert!(try_export(&damaged, 0..length, 0, 0..4, Checks::Verified));
}
