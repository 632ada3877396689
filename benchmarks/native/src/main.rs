//! The core's own append beside TiKV's log store, called from Rust threads.
//!
//! ```text
//! contest STORE DIRECTORY TASK...        one JSON line per task on standard output
//!   STORE is braidlog or raft-engine
//!   threads:THREADS:BYTES:COUNT   THREADS callers append COUNT records of BYTES each, one at a time
//!   batches:RECORDS:BYTES:COUNT   one caller appends COUNT batches of RECORDS records
//! ```
//!
//! Every append is on the device before it returns. The directory is kept from task to task. A tenth as many appends go
//! before, and do not count.

mod ours;
mod raft_engine;

use std::error::Error;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A log that is measured.
pub trait Log: Sync {
    /// Append one record for `caller`; durable on return.
    fn append(&self, caller: usize, value: &[u8]) -> Outcome<()>;

    /// Append `records` records that lie one behind the other in `values`; durable on return.
    fn append_batch(&self, values: &[u8], records: usize) -> Outcome<()>;
}

const USAGE: &str = "usage: contest braidlog|raft-engine DIRECTORY TASK...";

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, directory, tasks @ ..] = &arguments[..] else {
        return Err(USAGE.into());
    };
    let log: Box<dyn Log> = match store.as_str() {
        "braidlog" => Box::new(ours::Braidlog::open(Path::new(directory))?),
        "raft-engine" => Box::new(raft_engine::RaftEngine::open(Path::new(directory))?),
        _ => return Err(USAGE.into()),
    };
    for task in tasks {
        println!("{}", run(&*log, task)?);
    }
    Ok(())
}

fn run(log: &dyn Log, task: &str) -> Outcome<String> {
    let parts: Vec<&str> = task.split(':').collect();
    let [kind, numbers @ ..] = &parts[..] else {
        return Err(USAGE.into());
    };
    let numbers: Vec<usize> = numbers
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let (measured, records, bytes) = match (*kind, &numbers[..]) {
        ("threads", &[callers, bytes, count]) => (threads(log, callers, bytes, count)?, 1, bytes),
        ("batches", &[records, bytes, count]) => {
            (batches(log, records, bytes, count)?, records, bytes)
        }
        _ => return Err(format!("unknown task {task:?}").into()),
    };
    Ok(measured.describe(task, records, bytes))
}

/// What the appends behind the warm-up took.
struct Measured {
    took: Vec<Duration>,
    elapsed: Duration,
    processor: Duration,
}

impl Measured {
    fn describe(mut self, task: &str, records: usize, bytes: usize) -> String {
        self.took.sort_unstable();
        let at = |share: f64| {
            let index = ((self.took.len() - 1) as f64 * share).round() as usize;
            self.took[index].as_secs_f64() * 1e6
        };
        let appended = (self.took.len() * records) as f64;
        let per_second = appended / self.elapsed.as_secs_f64();
        format!(
            r#"{{"task":"{task}","p50_us":{:.1},"p99_us":{:.1},"max_us":{:.1},"per_second":{per_second:.1},"mb_per_second":{:.2},"cpu_us":{:.3}}}"#,
            at(0.5),
            at(0.99),
            at(1.0),
            per_second * bytes as f64 / 1e6,
            self.processor.as_secs_f64() * 1e6 / appended,
        )
    }
}

fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn threads(log: &dyn Log, callers: usize, bytes: usize, count: usize) -> Outcome<Measured> {
    let warm = count / 10;
    let (ready, begun) = (Barrier::new(callers + 1), Barrier::new(callers + 1));
    let caller = |number: usize| -> Outcome<Vec<Duration>> {
        let value = value(bytes, number);
        for _ in 0..warm {
            log.append(number, &value)?;
        }
        ready.wait();
        begun.wait();
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            log.append(number, &value)?;
            took.push(start.elapsed());
        }
        Ok(took)
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..callers)
            .map(|number| scope.spawn(move || caller(number)))
            .collect();
        ready.wait();
        let (start, before) = (Instant::now(), processor());
        begun.wait();
        let mut took = Vec::new();
        for caller in callers {
            took.extend(caller.join().map_err(|_| "a caller panicked")??);
        }
        Ok(Measured {
            took,
            elapsed: start.elapsed(),
            processor: processor() - before,
        })
    })
}

fn batches(log: &dyn Log, records: usize, bytes: usize, count: usize) -> Outcome<Measured> {
    let values = value(records * bytes, 0);
    for _ in 0..count / 10 {
        log.append_batch(&values, records)?;
    }
    let (begin, before) = (Instant::now(), processor());
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        log.append_batch(&values, records)?;
        took.push(start.elapsed());
    }
    Ok(Measured {
        took,
        elapsed: begin.elapsed(),
        processor: processor() - before,
    })
}

/// Bytes that no compression makes smaller.
fn value(bytes: usize, number: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ number as u64;
    (0..bytes)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}
