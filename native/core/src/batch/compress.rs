//! Compression of a whole body: zstd or lz4 frames, with the size known on both sides.
//!
//! # Invariants
//!
//! - Compressing succeeds only into fewer bytes than the input; otherwise the caller keeps the input.
//! - Decompressing yields exactly the stated number of bytes or an error, and never holds more than
//!   those and the codec's own window: for lz4 under 1 MiB, because blocks are at most 256 KiB.

use std::cell::RefCell;
use std::io::{Read, Write};

use lz4_flex::block::{self, CompressTable};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use zstd::bulk::{Compressor, Decompressor};

/// Level of zstd: a log is written once at device speed, so the fast end; decoding does not depend
/// on it.
const ZSTD_LEVEL: i32 = 1;

/// Scratch that a thread keeps between batches. More is freed after use.
const SCRATCH_BYTES_KEPT: usize = 2 << 20;

/// Largest block of an lz4 frame as its descriptor says it: 256 KiB, the largest the encoder uses.
const LZ4_BLOCK_MAX: u8 = 5;

/// How the body of a batch is stored. The codes are part of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As it is: read in place, record by record.
    #[default]
    None,
    /// One zstd frame: smallest.
    Zstd,
    /// One lz4 frame: cheapest to write and read.
    Lz4,
}

impl Compression {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Zstd => 1,
            Self::Lz4 => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 => Some(Self::Zstd),
            2 => Some(Self::Lz4),
            _ => None,
        }
    }
}

/// What a thread reuses: a zstd context costs far more to make than a small batch to compress.
#[derive(Default)]
struct Scratch {
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
    table: CompressTable,
    bytes: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Compress `batch[raw_begin..]` and hand batch and result to `take`, unless it does not shrink.
/// A codec's failure counts as not shrinking: the batch is then stored as it is.
pub(super) fn compress(
    compression: Compression,
    batch: &mut [u8],
    raw_begin: usize,
    take: impl FnOnce(&mut [u8], &[u8]),
) {
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch {
            compressor, bytes, ..
        } = scratch;
        let raw = &batch[raw_begin..];
        let len = match compression {
            Compression::None => None,
            Compression::Zstd => compress_zstd(compressor, raw, bytes),
            Compression::Lz4 => compress_lz4(raw, bytes),
        };
        if let Some(len) = len.filter(|&len| len < raw.len()) {
            take(batch, &bytes[..len]);
        }
        bytes.clear();
        bytes.shrink_to(SCRATCH_BYTES_KEPT);
    });
}

fn compress_zstd(
    compressor: &mut Option<Compressor<'static>>,
    raw: &[u8],
    out: &mut Vec<u8>,
) -> Option<usize> {
    if compressor.is_none() {
        *compressor = Some(Compressor::new(ZSTD_LEVEL).ok()?);
    }
    // Room for one byte less than the input: zstd gives up by itself when it does not shrink.
    out.resize(raw.len().saturating_sub(1), 0);
    compressor
        .as_mut()?
        .compress_to_buffer(raw, out.as_mut_slice())
        .ok()
}

fn compress_lz4(raw: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let block = if raw.len() <= 64 << 10 {
        BlockSize::Max64KB
    } else {
        BlockSize::Max256KB
    };
    let info = FrameInfo::new()
        .block_size(block)
        .block_mode(BlockMode::Linked);
    out.clear();
    let mut encoder = FrameEncoder::with_frame_info(info, &mut *out);
    encoder.write_all(raw).ok()?;
    encoder.finish().ok()?;
    Some(out.len())
}

/// Decompress `stored` into exactly `raw_len` bytes, or say why not. The caller bounds `raw_len`.
pub(super) fn decompress(
    compression: Compression,
    stored: &[u8],
    raw_len: usize,
) -> Result<Vec<u8>, String> {
    let mut raw = vec![0; raw_len];
    match compression {
        Compression::None => return Err("not compressed".into()),
        Compression::Zstd => decompress_zstd(stored, &mut raw)?,
        Compression::Lz4 => decompress_lz4(stored, &mut raw)?,
    }
    Ok(raw)
}

fn decompress_zstd(stored: &[u8], raw: &mut [u8]) -> Result<(), String> {
    let len = SCRATCH.with_borrow_mut(|scratch| {
        if scratch.decompressor.is_none() {
            scratch.decompressor = Some(Decompressor::new()?);
        }
        match scratch.decompressor.as_mut() {
            Some(decompressor) => decompressor.decompress_to_buffer(stored, &mut *raw),
            None => Ok(0),
        }
    });
    match len {
        Ok(len) if len == raw.len() => Ok(()),
        Ok(len) => Err(format!(
            "zstd frame holds {len} bytes instead of {}",
            raw.len()
        )),
        Err(reason) => Err(format!("zstd: {reason}")),
    }
}

/// Append `raw`, compressed, to `out` and say whether it shrank; otherwise `out` is as before. Lz4 is a bare
/// block here: a frame costs more than it saves where the sizes are stored beside it.
pub(crate) fn compress_block(compression: Compression, raw: &[u8], out: &mut Vec<u8>) -> bool {
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch {
            compressor,
            table,
            bytes,
            ..
        } = scratch;
        let len = match compression {
            Compression::None => None,
            Compression::Zstd => compress_zstd(compressor, raw, bytes),
            Compression::Lz4 => {
                bytes.resize(block::get_maximum_output_size(raw.len()), 0);
                block::compress_into_with_table(raw, bytes, table).ok()
            }
        };
        let len = len.filter(|&len| len < raw.len());
        if let Some(len) = len {
            out.extend_from_slice(&bytes[..len]);
        }
        if bytes.len() > SCRATCH_BYTES_KEPT {
            bytes.clear();
            bytes.shrink_to(SCRATCH_BYTES_KEPT);
        }
        len.is_some()
    })
}

/// Decompress what [`compress_block`] gave into exactly `raw_len` bytes, or say why not. The caller
/// bounds `raw_len`, and gives memory that may be used for it, whatever is there.
pub(crate) fn decompress_block(
    compression: Compression,
    stored: &[u8],
    raw_len: usize,
    mut raw: Vec<u8>,
) -> Result<Vec<u8>, String> {
    if compression != Compression::Lz4 {
        return decompress(compression, stored, raw_len);
    }
    raw.resize(raw_len, 0);
    match block::decompress_into(stored, &mut raw) {
        Ok(len) if len == raw_len => Ok(raw),
        Ok(len) => Err(format!("lz4 block holds {len} bytes instead of {raw_len}")),
        Err(reason) => Err(format!("lz4: {reason}")),
    }
}

/// Refuse what would take buffers of several MiB whatever the size of the body: large blocks, and
/// the legacy format, whose blocks are larger still.
fn check_lz4_blocks(stored: &[u8]) -> Result<(), String> {
    match stored {
        [0x04, 0x22, 0x4d, 0x18, _, descriptor, ..] if descriptor >> 4 & 7 <= LZ4_BLOCK_MAX => {
            Ok(())
        }
        _ => Err("not an lz4 frame of blocks of at most 256 KiB".into()),
    }
}

fn decompress_lz4(mut stored: &[u8], raw: &mut [u8]) -> Result<(), String> {
    check_lz4_blocks(stored)?;
    let mut decoder = FrameDecoder::new(&mut stored);
    decoder
        .read_exact(raw)
        .map_err(|reason| format!("lz4: {reason}"))?;
    // The end mark, and nothing after it.
    let rest = decoder
        .read(&mut [0])
        .map_err(|reason| format!("lz4: {reason}"))?;
    if rest != 0 || !stored.is_empty() {
        return Err(format!("lz4 frame goes on after {} bytes", raw.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(info: FrameInfo, raw: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(raw).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn lz4_frames_of_large_blocks_are_refused() {
        let raw = vec![7; 300 << 10];
        let info = FrameInfo::new;
        for (info, fits) in [
            (info().block_size(BlockSize::Max64KB), true),
            (info().block_size(BlockSize::Max256KB), true),
            (info().block_size(BlockSize::Max1MB), false),
            (info().block_size(BlockSize::Max4MB), false),
            (info().legacy_frame(true), false),
        ] {
            let stored = frame(info.clone(), &raw);
            let found = decompress(Compression::Lz4, &stored, raw.len());
            assert_eq!(found.ok().as_ref() == Some(&raw), fits, "{info:?}");
        }
    }
}
