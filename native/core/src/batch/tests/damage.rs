use super::super::parse_head;
use super::*;
use crate::error::Error;

fn batches() -> Vec<Vec<u8>> {
    let kinds = [everything(), nulls()];
    let each = kinds.iter().flat_map(|records| {
        ALL.iter()
            .map(|&compression| encode(&build(records), compression))
    });
    let mut all: Vec<Vec<u8>> = each.collect();
    for (batch, compression) in all.iter().zip(ALL.iter().chain(&ALL)) {
        assert_eq!(
            parse_head(batch).unwrap().compression(),
            *compression,
            "each is really tested"
        );
    }
    all.push(encode(
        &build(&vec![(Some(b"v".to_vec()), None, 0, vec![])]),
        Compression::None,
    ));
    all
}

fn is_malformed<T>(result: &crate::Result<T>) -> bool {
    matches!(result, Err(Error::Malformed { .. }))
}

#[test]
fn batch_every_bit_flip_is_detected() {
    for mut batch in batches() {
        for bit in 0..8 * batch.len() {
            batch[bit / 8] ^= 1 << (bit % 8);
            assert!(is_malformed(&BatchView::parse(&batch)), "bit {bit}");
            batch[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(BatchView::parse(&batch).is_ok());
    }
}

#[test]
fn batch_every_truncation_is_malformed() {
    for batch in batches() {
        let head_len = parse_head(&batch).unwrap().head_len();
        for len in 0..batch.len() {
            assert!(
                is_malformed(&BatchView::parse(&batch[..len])),
                "length {len}"
            );
            assert_eq!(
                parse_head(&batch[..len]).is_ok(),
                len >= head_len,
                "length {len}"
            );
        }
        let mut longer = batch.clone();
        longer.push(0);
        assert!(is_malformed(&BatchView::parse(&longer)));
    }
}

/// Behind the checksums: each byte of the batch replaced by several others, checksums made to
/// match. Whatever the decoder accepts can be read in full.
#[test]
fn batch_forged_bytes_never_panic() {
    for batch in batches() {
        let mut accepted = 0;
        for at in (0..batch.len()).filter(|at| !(76..80).contains(at)) {
            for change in [1, 2, 4, 8, 0x10, 0x40, 0x80, 0xff] {
                let mut forged = batch.clone();
                forged[at] ^= change;
                reseal(&mut forged);
                match BatchView::parse(&forged) {
                    Ok(view) => {
                        accepted += 1;
                        assert_eq!(view.iter().count(), view.count() as usize);
                        for index in 0..view.count() {
                            read_by_pages(&forged, index).unwrap();
                        }
                    }
                    Err(Error::Malformed { .. }) => {
                        for index in 0..4 {
                            let _ = read_by_pages(&forged, index);
                        }
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(accepted > 0, "data bytes and producer fields are free");
    }
}

fn read_by_pages(batch: &[u8], index: u32) -> crate::Result<super::super::OwnedRecord> {
    let head = parse_head(batch)?;
    let body = &batch[head.head_len()..];
    super::super::read_record(&head, index, |range| {
        Ok(body.get(range.clone()).unwrap_or_default().to_vec())
    })
}

/// Recompute the checksums of a batch whose sizes may be nonsense.
fn reseal(batch: &mut [u8]) {
    let stored = u32::from_le_bytes([batch[12], batch[13], batch[14], batch[15]]) as usize;
    let pages = stored.div_ceil(crate::limits::PAGE_BYTES);
    let head_len = 80 + (4 * pages).next_multiple_of(8);
    if head_len + stored <= batch.len() {
        for page in 0..pages {
            let begin = head_len + page * crate::limits::PAGE_BYTES;
            let end = (begin + crate::limits::PAGE_BYTES).min(head_len + stored);
            let checksum = crc32c::crc32c(&batch[begin..end]);
            batch[80 + 4 * page..84 + 4 * page].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let table = batch.get(80..head_len).unwrap_or_default();
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&batch[..76]), table);
    batch[76..80].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn batch_offsets_that_decrease_are_named() {
    let mut batch = encode(&build(&everything()), Compression::None);
    let head_len = parse_head(&batch).unwrap().head_len();
    // Value offsets follow three timestamps; the second one becomes larger than the third.
    let at = head_len + 24 + 4;
    batch[at] = 200;
    reseal(&mut batch);
    let error = BatchView::parse(&batch).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "malformed record batch at byte {}: value offset 2 decreases",
            at + 4
        )
    );
}

#[test]
fn batch_flags_that_contradict_are_refused() {
    // Offset of the version and the flags, and what they become.
    let forged: [(u8, u16); 6] = [
        (1, 32),          // null values in the first version
        (1, 4 | 64),      // null header values in the first version
        (2, 8),           // the second version without a flag of it
        (2, 8 | 64),      // null header values without headers
        (2, 8 | 16 | 32), // a hole with null values
        (2, 8 | 128),     // a flag that nobody knows
    ];
    let batch = encode(
        &build(&vec![(Some(vec![]), None, 0, vec![])]),
        Compression::None,
    );
    for (version, flags) in forged {
        let mut forged = batch.clone();
        forged[4] = version;
        forged[6..8].copy_from_slice(&flags.to_le_bytes());
        reseal(&mut forged);
        assert!(is_malformed(&parse_head(&forged)), "{version} {flags}");
    }
}

#[test]
fn batch_null_values_with_bytes_are_refused() {
    let records = vec![
        (
            Some(b"one".to_vec()),
            None,
            0,
            vec![("h".into(), Some(b"v".to_vec()))],
        ),
        (None, None, 0, vec![("h".into(), None)]),
    ];
    let batch = encode(&build(&records), Compression::None);
    let layout = parse_head(&batch).unwrap().layout();
    for (section, name) in [
        (layout.value_validity, "value 0"),
        (layout.header_value_validity, "header value 0"),
    ] {
        let at = parse_head(&batch).unwrap().head_len() + section.range().start;
        for (bits, reason) in [(0b10, "has bytes"), (0b101, "padding")] {
            let mut forged = batch.clone();
            forged[at] = bits;
            reseal(&mut forged);
            let error = BatchView::parse(&forged).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(reason == "padding" || error.contains(name), "{error}");
        }
    }
}
