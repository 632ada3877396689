use proptest::prelude::*;

use super::super::{OwnedRecord, PointPlan, parse_head, read_record};
use super::*;
use crate::error::Error;
use crate::limits::PAGE_BYTES;

/// A batch of many pages.
fn large() -> Model {
    (0..3000u32)
        .map(|index| {
            let value = index.to_le_bytes().repeat(index as usize % 90);
            let key = (index % 7 != 0).then(|| format!("key {index}").into_bytes());
            let headers = (index % 5 == 0).then(|| {
                let value = vec![index as u8; index as usize % 50];
                (format!("name {index}"), (index % 15 != 0).then_some(value))
            });
            (
                (index % 11 != 0).then_some(value),
                key,
                i64::from(index * 7919 % 1000),
                headers.into_iter().collect(),
            )
        })
        .collect()
}

fn model_of(record: OwnedRecord) -> <Model as IntoIterator>::Item {
    (record.value, record.key, record.timestamp, record.headers)
}

#[test]
fn batch_point_access_equals_full_decode() {
    let records = large();
    for compression in ALL {
        let batch = encode(&build(&records), compression);
        let head = parse_head(&batch).unwrap();
        let body = &batch[head.head_len()..];
        for (index, expected) in records.iter().enumerate() {
            let (mut fetches, mut bytes) = (0, 0);
            let record = read_record(&head, index as u32, |range| {
                fetches += 1;
                bytes += range.len();
                assert_eq!(range.start % PAGE_BYTES, 0);
                Ok(&body[range])
            });
            assert_eq!(&model_of(record.unwrap()), expected);
            if compression == Compression::None {
                let headers: usize = expected
                    .3
                    .iter()
                    .map(|(n, v)| n.len() + v.as_ref().map_or(0, Vec::len))
                    .sum();
                let own = expected.0.as_ref().map_or(0, Vec::len)
                    + expected.1.as_ref().map_or(0, Vec::len)
                    + headers;
                assert!(
                    fetches <= 8 && bytes <= 32 * PAGE_BYTES + own,
                    "{fetches} of {bytes}"
                );
            } else {
                assert_eq!((fetches, bytes), (1, body.len()));
            }
        }
    }
}

#[test]
fn batch_point_access_reads_a_few_pages_of_a_large_batch() {
    let records: Model = (0..1000)
        .map(|index| (Some(vec![3; 1024]), None, index, vec![]))
        .collect();
    let batch = encode(&build(&records), Compression::None);
    let head = parse_head(&batch).unwrap();
    let mut ranges = Vec::new();
    read_record(&head, 700, |range| {
        ranges.push(range.clone());
        Ok(&batch[head.head_len()..][range])
    })
    .unwrap();
    assert_eq!(ranges.len(), 2);
    assert!(ranges[0].len() <= 2 * PAGE_BYTES);
    assert!(ranges[1].len() <= 2 * PAGE_BYTES);
}

#[test]
fn batch_point_access_goes_on_with_offsets_of_another_plan() {
    let records = large();
    for compression in [Compression::None, Compression::Zstd] {
        let batch = encode(&build(&records), compression);
        let head = parse_head(&batch).unwrap();
        let body = &batch[head.head_len()..];
        let mut first = PointPlan::new(&head, 1).unwrap();
        while let Some(range) = first.need().unwrap() {
            first.supply(range.start, &body[range]).unwrap();
        }
        let mut second = PointPlan::new(&head, 2).unwrap();
        let mut given = 0;
        for page in second.offset_pages() {
            let offsets = first.offsets_in(page).unwrap();
            assert!(body[page * PAGE_BYTES..].starts_with(offsets));
            second.supply_offsets(page, offsets);
            given += 1;
        }
        assert_eq!(given > 0, compression == Compression::None);
        let offsets = head.layout().header_offsets.range();
        let mut fetched = Vec::new();
        while let Some(range) = second.need().unwrap() {
            fetched.push(range.clone());
            second.supply(range.start, &body[range]).unwrap();
        }
        if compression == Compression::None {
            assert!(fetched.iter().all(|range| range.end > offsets.end));
        }
        let found: OwnedRecord = second.record().unwrap().unwrap().into();
        let whole = read_record(&head, 2, |range| Ok(&body[range])).unwrap();
        assert_eq!(found, whole);
    }
}

#[test]
fn batch_point_access_uses_pages_supplied_early() {
    let batch = encode(&build(&large()), Compression::None);
    let head = parse_head(&batch).unwrap();
    let body = &batch[head.head_len()..];
    let mut plan = PointPlan::new(&head, 1).unwrap();
    assert!(plan.record().unwrap().is_none());
    plan.supply(0, body).unwrap();
    assert_eq!(plan.need().unwrap(), None);
    let record = plan.record().unwrap().unwrap();
    assert_eq!(record.value, Some(&1u32.to_le_bytes()[..]));
}

#[test]
fn batch_point_access_detects_damage_in_what_it_reads() {
    let batch = encode(&build(&large()), Compression::None);
    let head = parse_head(&batch).unwrap();
    let mut damaged = batch.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let damaged = &damaged[head.head_len()..];
    let first = read_record(&head, 0, |range| Ok(&damaged[range]));
    assert!(first.is_ok(), "the damage is in another page");
    let last = read_record(&head, 2999, |range| Ok(&damaged[range]));
    assert!(matches!(last, Err(Error::Malformed { .. })));
    let short = read_record(&head, 0, |range| Ok(&damaged[range.start..range.end - 1]));
    assert!(matches!(short, Err(Error::Malformed { .. })));
    let beyond = read_record(&head, 3000, |range| Ok(&damaged[range]));
    assert!(matches!(beyond, Err(Error::InvalidArgument(_))));
}

proptest! {
    #[test]
    fn batch_point_access_equals_model(records in super::model::records(40)) {
        for compression in ALL {
            let batch = encode(&build(&records), compression);
            let head = parse_head(&batch).unwrap();
            let body = &batch[head.head_len()..];
            for (index, expected) in records.iter().enumerate() {
                let record = read_record(&head, index as u32, |range| Ok(&body[range])).unwrap();
                prop_assert_eq!(&model_of(record), expected);
            }
        }
    }
}
