//! The physical floor: what this machine can do at best, without a log in between.
//!
//! ```text
//! floor FILE TASK...        one JSON line per task on standard output
//!   sync:METHOD:BYTES:COUNT   COUNT synchronous block writes, one after another, wrapping round
//!                             METHOD is fdatasync, rwf_dsync or direct (O_DIRECT|O_DSYNC)
//!   read                      read FILE from the page cache, in pieces of the best size
//!   memcpy                    copy 64 MiB; fastest of several passes, as the two around it
//!   crc32c                    checksum 64 MiB
//! ```
//!
//! FILE is created once, 64 MiB of zeros really written and synced, and reused when it is there:
//! a synchronous write into it changes no metadata, as in a recycled log segment.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark of the system itself: its clock and its files"
)]
// Counts and sizes stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

const FILE_BYTES: usize = 64 << 20;
const BLOCK_BYTES: usize = 4096;
const FILL_BYTES: usize = 1 << 20;
/// Reading in small pieces keeps the buffer in the nearer caches; which size wins differs.
const READ_BYTES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
const PASSES: usize = 5;
const WARM_WRITES: usize = 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, tasks) = arguments
        .split_first()
        .ok_or("usage: floor FILE TASK... (sync:METHOD:BYTES:COUNT, read, memcpy, crc32c)")?;
    let path = Path::new(path);
    zero_fill_once(path)?;
    let mut out = std::io::stdout().lock();
    for task in tasks {
        writeln!(out, "{}", run(path, task)?)?;
    }
    Ok(())
}

fn zero_fill_once(path: &Path) -> Outcome<()> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() == FILE_BYTES as u64) {
        return Ok(());
    }
    let mut file = File::create(path)?;
    let zeros = vec![0; FILL_BYTES];
    for _ in 0..FILE_BYTES / FILL_BYTES {
        file.write_all(&zeros)?;
    }
    Ok(file.sync_all()?)
}

fn run(path: &Path, task: &str) -> Outcome<String> {
    let parts: Vec<&str> = task.split(':').collect();
    match parts[..] {
        ["sync", method, bytes, count] => Ok(sync(path, method, bytes.parse()?, count.parse()?)),
        ["read"] => read(path),
        ["memcpy"] => memcpy(),
        ["crc32c"] => checksum(),
        _ => Err(format!("unknown task {task:?}").into()),
    }
}

/// One way to make a write durable before going on.
enum Method {
    Fdatasync(File),
    RwfDsync(File),
    Direct(File),
}

impl Method {
    fn open(path: &Path, name: &str) -> Outcome<Self> {
        let mut options = OpenOptions::new();
        options.write(true);
        match name {
            "fdatasync" => Ok(Self::Fdatasync(options.open(path)?)),
            "rwf_dsync" => Ok(Self::RwfDsync(options.open(path)?)),
            "direct" => {
                let flags = (OFlags::DIRECT | OFlags::DSYNC).bits();
                Ok(Self::Direct(
                    options.custom_flags(flags.cast_signed()).open(path)?,
                ))
            }
            _ => Err(format!("unknown method {name:?}").into()),
        }
    }

    /// Bytes that really go to the device for a write of `bytes`.
    fn rounded(&self, bytes: usize) -> usize {
        match self {
            Self::Direct(_) => bytes.next_multiple_of(BLOCK_BYTES),
            _ => bytes,
        }
    }

    fn write(&self, data: &[u8], offset: u64) -> std::io::Result<()> {
        match self {
            Self::Fdatasync(file) => {
                file.write_all_at(data, offset)?;
                file.sync_data()
            }
            Self::RwfDsync(file) => write_dsync(file, data, offset),
            Self::Direct(file) => file.write_all_at(data, offset),
        }
    }
}

fn write_dsync(file: &File, data: &[u8], offset: u64) -> std::io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        let rest = [IoSlice::new(&data[done..])];
        match pwritev2(file, &rest, offset + done as u64, ReadWriteFlags::DSYNC) {
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn sync(path: &Path, name: &str, bytes: usize, count: usize) -> String {
    let head = format!(r#""task":"sync","method":"{name}","bytes":{bytes},"count":{count}"#);
    match sync_latencies(path, name, bytes, count) {
        Ok((latencies, seconds)) => format!(
            r#"{{{head},"p50_us":{:.2},"p99_us":{:.2},"per_second":{:.1}}}"#,
            percentile(&latencies, 50),
            percentile(&latencies, 99),
            count as f64 / seconds,
        ),
        Err(error) => format!(r#"{{{head},"refused":{:?}}}"#, error.to_string()),
    }
}

/// Sorted latencies in microseconds, and the seconds all writes took together.
fn sync_latencies(path: &Path, name: &str, bytes: usize, count: usize) -> Outcome<(Vec<f64>, f64)> {
    let method = Method::open(path, name)?;
    let step = method.rounded(bytes);
    let mut memory = vec![0x5a; step + BLOCK_BYTES];
    let aligned = memory.as_ptr().align_offset(BLOCK_BYTES);
    let data = &mut memory[aligned..aligned + step];
    let slots = FILE_BYTES / step;
    let mut latencies = Vec::with_capacity(count);
    let mut begin = Instant::now();
    for turn in 0..WARM_WRITES + count {
        if turn == WARM_WRITES {
            begin = Instant::now();
        }
        data[..8].copy_from_slice(&(turn as u64).to_le_bytes());
        let started = Instant::now();
        method.write(data, ((turn % slots) * step) as u64)?;
        if turn >= WARM_WRITES {
            latencies.push(started.elapsed().as_secs_f64() * 1e6);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    latencies.sort_by(f64::total_cmp);
    Ok((latencies, seconds))
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// The fastest of several passes: what is slower than that is the neighbours, not the machine.
fn best(mut pass: impl FnMut() -> std::io::Result<()>) -> std::io::Result<f64> {
    pass()?;
    let mut shortest = f64::INFINITY;
    for _ in 0..PASSES {
        let started = Instant::now();
        pass()?;
        shortest = shortest.min(started.elapsed().as_secs_f64());
    }
    Ok(shortest)
}

fn read(path: &Path) -> Outcome<String> {
    let file = File::open(path)?;
    let mut shortest = f64::INFINITY;
    for bytes in READ_BYTES {
        let mut buffer = vec![0; bytes];
        shortest = shortest.min(best(|| {
            for offset in (0..FILE_BYTES).step_by(bytes) {
                file.read_exact_at(&mut buffer, offset as u64)?;
                std::hint::black_box(&buffer);
            }
            Ok(())
        })?);
    }
    Ok(rate("read", shortest))
}

fn memcpy() -> Outcome<String> {
    let source = vec![0x5a_u8; FILE_BYTES];
    let mut target = vec![0_u8; FILE_BYTES];
    let shortest = best(|| {
        target.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&target);
        Ok(())
    })?;
    Ok(rate("memcpy", shortest))
}

fn checksum() -> Outcome<String> {
    let source = vec![0x5a_u8; FILE_BYTES];
    let shortest = best(|| {
        std::hint::black_box(crc32c::crc32c(std::hint::black_box(&source)));
        Ok(())
    })?;
    Ok(rate("crc32c", shortest))
}

fn rate(task: &str, seconds: f64) -> String {
    let megabytes = FILE_BYTES as f64 / 1e6 / seconds;
    format!(r#"{{"task":"{task}","mb_per_second":{megabytes:.1}}}"#)
}
