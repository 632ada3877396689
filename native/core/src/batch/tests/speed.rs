//! Prints the codec's speed: `cargo test --release -- --ignored --nocapture batch_speed`.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_wrap)]

use std::hint::black_box;
use std::time::Instant;

use super::super::{Producer, encode_columns, parse_head, read_record};
use super::*;

const BATCH_BYTES: usize = 1 << 20;

fn gigabytes_per_second(bytes: usize, mut run: impl FnMut()) -> f64 {
    run();
    let mut best = f64::MAX;
    for _ in 0..20 {
        let begin = Instant::now();
        for _ in 0..10 {
            run();
        }
        best = best.min(begin.elapsed().as_secs_f64() / 10.0);
    }
    bytes as f64 / best / 1e9
}

#[test]
#[ignore = "prints speeds; run in release"]
fn batch_speed() {
    for value_len in [32, 128, 1024, 16 << 10] {
        for (name, key_len, headers) in
            [("values", 0, false), ("keys", 16, false), ("all", 16, true)]
        {
            let count = BATCH_BYTES / value_len;
            let value: Vec<u8> = (0..value_len).map(|at| (at * 31 % 251) as u8).collect();
            let pairs: &[(&str, Option<&[u8]>)] = if headers {
                &[("trace", Some(b"0123456789"))]
            } else {
                &[]
            };
            let mut builder = BatchBuilder::new();
            let fill = |builder: &mut BatchBuilder| {
                builder.clear();
                for index in 0..count {
                    let key = (key_len > 0).then_some(&value[..key_len]);
                    builder
                        .push(Some(&value), key, index as i64, pairs)
                        .unwrap();
                }
            };
            fill(&mut builder);
            let mut out = Vec::new();
            builder.encode_into(Compression::None, &mut out).unwrap();
            let batch = out.clone();
            let bytes = batch.len();
            let push = gigabytes_per_second(bytes, || fill(&mut builder));
            let columns = builder.columns();
            let encode = gigabytes_per_second(bytes, || {
                out.clear();
                let producer = Producer::default();
                encode_columns(&columns, 0..count, producer, Compression::None, &mut out).unwrap();
            });
            let verify = gigabytes_per_second(bytes, || {
                black_box(BatchView::parse(black_box(&batch)).unwrap());
            });
            let structure = gigabytes_per_second(bytes, || {
                black_box(BatchView::parse_verified(black_box(&batch)).unwrap());
            });
            let view = BatchView::parse(&batch).unwrap();
            let iterate = gigabytes_per_second(bytes, || {
                black_box(
                    view.iter()
                        .map(|record| record.value.map_or(0, <[u8]>::len))
                        .sum::<usize>(),
                );
            });
            let head = parse_head(&batch).unwrap();
            let point = gigabytes_per_second(1, || {
                let body = &batch[head.head_len()..];
                black_box(read_record(&head, count as u32 / 2, |range| Ok(&body[range])).unwrap());
            });
            println!(
                "{value_len:>6} B {name:>6}: push {push:5.1}  encode {encode:5.1}  verify {verify:5.1}  \
                 structure {structure:6.1}  iterate {:5.1} ns/record  point {:6.0} ns",
                bytes as f64 / iterate / count as f64,
                1.0 / point
            );
        }
    }
}
