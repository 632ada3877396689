use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::{
    Bitmap, BytesRef, ColumnsRef, HeadersRef, NullableRef, Offsets, Producer, Timestamps,
    encode_columns, filter_key, first_at_or_after, parse_head,
};
use super::*;
use crate::error::Error;
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, PAGE_BYTES, RECORD_HEADERS_MAX};

pub(super) fn records(most: usize) -> impl Strategy<Value = Model> {
    let bytes = || vec(any::<u8>(), 0..40);
    let keys = prop_oneof![
        Just(None).boxed(),
        option::of(vec(0u8..3, 0..3)).boxed(),
        vec(any::<u8>(), 0..20).prop_map(Some).boxed(),
    ];
    let timestamps = prop_oneof![Just(7i64), 0..20i64, any::<i64>()];
    let some = |bytes| prop_oneof![9 => bytes, 1 => Just(None)];
    let header_values = some(bytes().prop_map(Some).boxed());
    let headers = prop_oneof![4 => Just(vec![]), 1 => vec(("[a-zé]{0,4}", header_values), 0..4)];
    let values = prop_oneof![9 => bytes().boxed(), 1 => (0..9000usize)
        .prop_map(|len| vec![len as u8; len]).boxed()];
    let values = some(values.prop_map(Some).boxed());
    vec((values, keys, timestamps, headers), 1..most)
}

fn compressions() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::None),
        Just(Compression::Zstd),
        Just(Compression::Lz4)
    ]
}

/// Columns of a model in Arrow's shape: offsets with a base, a bit offset, bytes under nulls.
pub(super) struct Columns<T> {
    values: Column<T>,
    keys: Column<T>,
    timestamps: Vec<i64>,
    entries: Vec<T>,
    names: Column<T>,
    header_values: Column<T>,
}

/// Byte strings, some of which may be null and span bytes all the same.
struct Column<T> {
    offsets: Vec<T>,
    data: Vec<u8>,
    validity: Vec<bool>,
    /// The same as bits.
    bits: Vec<u8>,
    bit_offset: usize,
    null_bytes: usize,
}

impl<T: TryFrom<usize, Error: std::fmt::Debug>> Column<T> {
    fn new(base: usize, bit_offset: usize, null_bytes: usize) -> Self {
        Self {
            offsets: vec![T::try_from(base).unwrap()],
            data: vec![0xaa; base],
            validity: Vec::new(),
            bits: Vec::new(),
            bit_offset,
            null_bytes,
        }
    }

    fn push(&mut self, element: Option<&[u8]>) {
        let hidden = vec![0xbb; self.null_bytes];
        self.data.extend_from_slice(element.unwrap_or(&hidden));
        self.offsets.push(T::try_from(self.data.len()).unwrap());
        let bit = self.bit_offset + self.validity.len();
        self.bits.resize(bit / 8 + 1, 0);
        self.bits[bit / 8] |= u8::from(element.is_some()) << (bit % 8);
        self.validity.push(element.is_some());
    }

    fn bytes<'a>(&'a self, wrap: &impl Fn(&'a [T]) -> Offsets<'a>) -> BytesRef<'a> {
        BytesRef {
            offsets: wrap(&self.offsets),
            data: &self.data,
        }
    }

    /// Without validity if no element is null, as Arrow has it.
    fn borrow<'a>(&'a self, wrap: &impl Fn(&'a [T]) -> Offsets<'a>) -> NullableRef<'a> {
        NullableRef {
            bytes: self.bytes(wrap),
            validity: self.validity.contains(&false).then_some(Bitmap {
                bytes: &self.bits,
                offset: self.bit_offset,
            }),
        }
    }
}

impl<T: TryFrom<usize, Error: std::fmt::Debug>> Columns<T> {
    pub(super) fn new(records: &Model, base: usize, bit_offset: usize, null_bytes: usize) -> Self {
        let column = || Column::new(base, bit_offset, null_bytes);
        let mut columns = Self {
            values: column(),
            keys: column(),
            timestamps: Vec::new(),
            entries: vec![T::try_from(0).unwrap()],
            names: Column::new(base, 0, 0),
            header_values: column(),
        };
        for (value, key, timestamp, headers) in records {
            columns.values.push(value.as_deref());
            columns.keys.push(key.as_deref());
            columns.timestamps.push(*timestamp);
            for (name, value) in headers {
                columns.names.push(Some(name.as_bytes()));
                columns.header_values.push(value.as_deref());
            }
            let entries = columns.names.validity.len();
            columns.entries.push(T::try_from(entries).unwrap());
        }
        columns
    }

    pub(super) fn borrow<'a>(&'a self, wrap: impl Fn(&'a [T]) -> Offsets<'a>) -> ColumnsRef<'a> {
        ColumnsRef {
            len: self.timestamps.len(),
            values: self.values.borrow(&wrap),
            keys: Some(self.keys.borrow(&wrap)),
            timestamps: Timestamps::Each(&self.timestamps),
            headers: Some(HeadersRef {
                offsets: wrap(&self.entries),
                names: self.names.bytes(&wrap),
                values: self.header_values.borrow(&wrap),
            }),
        }
    }
}

proptest! {
    #[test]
    fn batch_round_trip(records in records(60), compression in compressions(), id in any::<u64>()) {
        let mut builder = build(&records);
        builder.set_producer(id, 3, 17);
        let mut out = b"before".to_vec();
        builder.encode_into(compression, &mut out).unwrap();
        prop_assert_eq!(&out[..6], b"before");
        let batch = &out[6..];
        prop_assert!(batch.len() <= builder.encoded_len_max());
        if compression == Compression::None {
            prop_assert_eq!(batch.len(), builder.encoded_len_max());
        }
        let view = BatchView::parse(batch).unwrap();
        prop_assert_eq!(view.count() as usize, records.len());
        prop_assert_eq!(records_of(&view), records.clone());
        let head = parse_head(batch).unwrap();
        prop_assert_eq!(head.total_len(), batch.len());
        prop_assert_eq!(head.producer(), Producer { id, epoch: 3, base_sequence: 17 });
        prop_assert_eq!(Some(head.min_timestamp()), records.iter().map(|record| record.2).min());
        prop_assert_eq!(Some(head.max_timestamp()), records.iter().map(|record| record.2).max());
        // A reused builder writes the same bytes.
        builder.clear();
        push_all(&mut builder, &records);
        builder.set_producer(id, 3, 17);
        prop_assert_eq!(encode(&builder, compression), batch);
    }

    #[test]
    fn batch_columns_equal_builder(
        records in records(40),
        base in 0usize..20,
        bits in 0usize..10,
        null_bytes in 0usize..3,
        compression in compressions(),
        cut in 0usize..40,
    ) {
        let narrow = Columns::<i32>::new(&records, base, bits, null_bytes);
        let wide = Columns::<i64>::new(&records, base, bits, null_bytes);
        let cut = cut.min(records.len() - 1);
        for range in [0..records.len(), cut..records.len(), 0..cut + 1] {
            let expected = encode(&build(&records[range.clone()].to_vec()), compression);
            for columns in [narrow.borrow(Offsets::I32), wide.borrow(Offsets::I64)] {
                let mut out = Vec::new();
                let bound = columns.encoded_len_max(&range);
                encode_columns(&columns, range.clone(), Producer::default(), compression, &mut out)
                    .unwrap();
                prop_assert_eq!(&out, &expected);
                prop_assert!(out.len() <= bound);
            }
        }
    }

    #[test]
    fn batch_split_covers_everything(
        records in records(80),
        bytes_max in 0usize..5000,
        records_max in 0usize..30,
    ) {
        let columns = Columns::<i32>::new(&records, 3, 1, 1);
        let columns = columns.borrow(Offsets::I32);
        let mut next = 0;
        for range in columns.split(0..columns.len, bytes_max, records_max) {
            prop_assert_eq!(range.start, next);
            prop_assert!(!range.is_empty() && range.len() <= records_max.max(1));
            next = range.end;
            let mut out = Vec::new();
            encode_columns(&columns, range.clone(), Producer::default(), Compression::None, &mut out)
                .unwrap();
            prop_assert!(out.len() <= bytes_max || range.len() == 1);
            prop_assert_eq!(&records_of(&BatchView::parse(&out).unwrap())[..], &records[range]);
        }
        prop_assert_eq!(next, records.len());
    }

    #[test]
    fn batch_search(records in records(40), key in vec(0u8..3, 0..3), timestamp in 0..22i64) {
        let batch = encode(&build(&records), Compression::None);
        let view = BatchView::parse(&batch).unwrap();
        let with_key: Vec<u32> = (0..records.len() as u32)
            .filter(|&index| records[index as usize].1.as_ref() == Some(&key))
            .collect();
        prop_assert_eq!(filter_key(&view, &key), with_key);
        let first = records.iter().position(|record| record.2 >= timestamp);
        prop_assert_eq!(first_at_or_after(&view, timestamp), first.map(|index| index as u32));
    }

    #[test]
    fn batch_decoders_survive_garbage(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(BatchView::parse(&bytes).is_err());
        let mut magic = b"BRB1\x01\0".to_vec();
        magic.extend_from_slice(&bytes);
        prop_assert!(BatchView::parse(&magic).is_err());
    }

    #[test]
    fn batch_columns_refuse_nonsense(
        offsets in vec(-3i32..20, 0..6),
        key_offsets in vec(-3i64..20, 0..6),
        len in 0usize..6,
    ) {
        let data = [b'a'; 12];
        let columns = ColumnsRef {
            len,
            values: BytesRef { offsets: Offsets::I32(&offsets), data: &data }.into(),
            keys: Some(NullableRef {
                bytes: BytesRef { offsets: Offsets::I64(&key_offsets), data: &data },
                validity: Some(Bitmap { bytes: &[5], offset: 0 }),
            }),
            timestamps: Timestamps::All(1),
            headers: None,
        };
        let mut out = vec![1];
        let producer = Producer::default();
        let result = encode_columns(&columns, 0..len, producer, Compression::None, &mut out);
        if result.is_ok() {
            prop_assert_eq!(BatchView::parse(&out[1..]).unwrap().count() as usize, len);
        } else {
            prop_assert_eq!(out, vec![1]);
        }
    }
}

#[test]
fn batch_limits() {
    let mut builder = BatchBuilder::new();
    assert!(matches!(
        builder.encode_into(Compression::None, &mut Vec::new()),
        Err(Error::InvalidArgument(_))
    ));
    let large = vec![1; BATCH_BYTES_MAX];
    assert!(matches!(
        builder.fits(Some(&large), None, 0, &[]),
        Err(Error::TooLarge { .. })
    ));
    assert!(matches!(
        builder.push(Some(&large), None, 0, &[]),
        Err(Error::TooLarge { .. })
    ));
    assert!(builder.is_empty());
    let many: Vec<(&str, Option<&[u8]>)> = vec![("n", Some(b"")); RECORD_HEADERS_MAX + 1];
    assert!(matches!(
        builder.push(Some(b""), None, 0, &many),
        Err(Error::TooLarge { .. })
    ));
    builder.push(Some(b""), None, 0, &many[1..]).unwrap();
    assert_eq!(
        BatchView::parse(&encode(&builder, Compression::None))
            .unwrap()
            .count(),
        1
    );

    // The largest value there is room for: exactly the limit.
    builder.clear();
    let fits = |room: &usize| builder.fits(Some(&large[..*room]), None, 0, &[]).is_ok();
    let room = (0..=BATCH_BYTES_MAX).rev().find(fits).unwrap();
    assert!(room > BATCH_BYTES_MAX - 80 - 4 * BATCH_BYTES_MAX / PAGE_BYTES - 24);
    assert!(builder.fits(Some(&large[..room]), None, 0, &[]).unwrap());
    builder.push(Some(&large[..room]), None, 0, &[]).unwrap();
    assert!(!builder.fits(Some(b"x"), None, 0, &[]).unwrap());
    assert!(matches!(
        builder.push(Some(b"x"), None, 0, &[]),
        Err(Error::TooLarge { .. })
    ));
    assert_eq!(builder.len(), 1);
    let batch = encode(&builder, Compression::None);
    assert_eq!(batch.len(), builder.encoded_len_max());
    assert!(batch.len() <= BATCH_BYTES_MAX);
    assert!(BatchView::parse(&batch).is_ok());

    builder.clear();
    for _ in 0..BATCH_RECORDS_MAX {
        builder.push(Some(b""), None, 0, &[]).unwrap();
    }
    assert!(!builder.fits(Some(b""), None, 0, &[]).unwrap());
    for compression in ALL {
        let batch = encode(&builder, compression);
        assert_eq!(
            BatchView::parse(&batch).unwrap().count() as usize,
            BATCH_RECORDS_MAX
        );
    }
}

#[test]
fn batch_is_stored_plain_when_compression_does_not_shrink_it() {
    let records = vec![(Some(b"4f\x91\x07".to_vec()), None, 1, vec![])];
    for compression in ALL {
        let batch = encode(&build(&records), compression);
        assert_eq!(parse_head(&batch).unwrap().compression(), Compression::None);
        assert_eq!(batch, encode(&build(&records), Compression::None));
    }
}

/// The bytes of one batch, written out, so that a change of format cannot pass unnoticed.
#[test]
fn batch_bytes_are_as_documented() {
    let mut builder = BatchBuilder::new();
    builder.push(Some(b"ab"), Some(b"k"), 3, &[]).unwrap();
    builder.push(Some(b"c"), None, 4, &[]).unwrap();
    builder.set_producer(9, 8, 7);
    let batch = encode(&builder, Compression::None);
    let mut expected = b"BRB1\x01\x00\x03\x00".to_vec();
    for field in [2u32, 67, 67, 1, 3, 0, 0, 0] {
        expected.extend_from_slice(&field.to_le_bytes());
    }
    for field in [3u64, 4, 9, 7] {
        expected.extend_from_slice(&field.to_le_bytes());
    }
    expected.extend_from_slice(&8u32.to_le_bytes());
    let mut body = Vec::new();
    for timestamp in [3u64, 4] {
        body.extend_from_slice(&timestamp.to_le_bytes());
    }
    body.extend_from_slice(b"\0\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0"); // value offsets
    body.extend_from_slice(b"\x01\0\0\0\0\0\0\0"); // validity
    body.extend_from_slice(b"\0\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0"); // key offsets
    body.extend_from_slice(b"k\0\0\0\0\0\0\0abc");
    let mut table = crc32c::crc32c(&body).to_le_bytes().to_vec();
    table.extend_from_slice(&[0; 4]);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&expected), &table);
    expected.extend_from_slice(&checksum.to_le_bytes());
    expected.extend_from_slice(&table);
    expected.extend_from_slice(&body);
    assert_eq!(batch, expected);
}

/// The same of a batch with null values.
#[test]
fn batch_bytes_with_nulls_are_as_documented() {
    let mut builder = BatchBuilder::new();
    builder
        .push(
            Some(b"ab"),
            Some(b"k"),
            3,
            &[("n", None), ("m", Some(b"v"))],
        )
        .unwrap();
    builder.push(None, Some(b"k"), 3, &[]).unwrap();
    builder
        .push(Some(b""), Some(b"k"), 3, &[("n", None)])
        .unwrap();
    let batch = encode(&builder, Compression::None);
    let mut body = b"\x05\0\0\0\0\0\0\0".to_vec(); // value validity
    body.extend_from_slice(b"\0\0\0\0\x02\0\0\0\x02\0\0\0\x02\0\0\0"); // value offsets
    body.extend_from_slice(b"\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0"); // key offsets
    body.extend_from_slice(b"\0\0\0\0\x02\0\0\0\x02\0\0\0\x03\0\0\0"); // header offsets
    body.extend_from_slice(b"\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0"); // name offsets
    body.extend_from_slice(b"\x02\0\0\0\0\0\0\0"); // header value validity
    body.extend_from_slice(b"\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0"); // header value offsets
    body.extend_from_slice(b"nmn\0\0\0\0\0v\0\0\0\0\0\0\0kkk\0\0\0\0\0ab");
    assert_eq!(&batch[..8], b"BRB1\x02\0\x6d\0");
    assert_eq!(&batch[parse_head(&batch).unwrap().head_len()..], body);
}

/// A build that knows declared holes alone expects version 1 of a batch without that flag, so it refuses null
/// values; and records without any are as they were before there were some.
#[test]
fn batch_version_is_2_with_nulls_alone() {
    let mut with = build(&nulls());
    assert_eq!(encode(&with, Compression::None)[4], 2);
    with.clear();
    push_all(&mut with, &everything());
    let without = encode(&with, Compression::None);
    assert_eq!(without[4], 1);
    let all_null = build(&vec![(None, None, 1, vec![]); 9]);
    let batch = encode(&all_null, Compression::None);
    assert_eq!((batch[4], batch[6]), (2, 32 | 8));
    assert_eq!(records_of(&BatchView::parse(&batch).unwrap()).len(), 9);
}
