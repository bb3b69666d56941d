//! A quick loop to measure the client with: one file, one kind of request, a number of requests in flight.
//!
//! ```text
//! bench_loop nfs://host:port/export raw:/path/of/the/same/export  OPERATION  BYTES  SECONDS  DEPTH
//! ```
//! OPERATION: `read` or `write`, with BYTES a request at random multiples of it in a file of 64 MiB, or
//! `open`: open, read whole and close the files `small-*` of the export. Every data path is measured in turn,
//! in the async and the blocking face: the raw file, the lane, the wire. Prints requests a second and
//! microseconds of this process's CPU a request.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use samehost_client as client;

use client::{LaneMode, OpenOptions, Options, Session, Url};

const FILE: u64 = 64 << 20;

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `body`, which counts its requests, and prints what it came to.
fn measure(what: &str, body: impl FnOnce() -> u64) {
    let (start, before) = (Instant::now(), cpu());
    let count = body();
    let (took, used) = (start.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
    println!(
        "{what:28} {:>10.0} /s  {:>8.3} us wall  {:>8.3} us CPU each",
        count as f64 / took,
        took * 1e6 / count as f64,
        used * 1e6 / count as f64
    );
}

/// Offsets that jump about.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

struct Job {
    write: bool,
    bytes: usize,
    seconds: f64,
    depth: usize,
}

impl Job {
    fn offset(&self, random: &mut Random) -> u64 {
        random.next(FILE / self.bytes as u64) * self.bytes as u64
    }

    /// Calls `one` until the time is up, in batches; prints the best batch, which other processes disturb
    /// least.
    fn run_blocking(&self, mut one: impl FnMut(&mut [u8], u64)) -> u64 {
        let (mut random, mut buffer, mut count) = (Random(1), vec![7; self.bytes], 0);
        let (start, mut best) = (Instant::now(), f64::MAX);
        while start.elapsed().as_secs_f64() < self.seconds {
            let batch = Instant::now();
            for _ in 0..1000 {
                let offset = self.offset(&mut random);
                one(&mut buffer, offset);
                count += 1;
            }
            best = best.min(batch.elapsed().as_secs_f64() / 1000.0);
        }
        println!("{:28} best batch {:.3} us", "", best * 1e6);
        count
    }

    async fn run(&self, file: &client::File) -> u64 {
        let count = AtomicU64::new(0);
        let start = Instant::now();
        let one = |seed| {
            let count = &count;
            async move {
                let (mut random, mut buffer) = (Random(seed), vec![7; self.bytes]);
                let data = bytes::Bytes::from(vec![8; self.bytes]);
                while start.elapsed().as_secs_f64() < self.seconds {
                    for _ in 0..16 {
                        let offset = self.offset(&mut random);
                        if self.write {
                            file.write_bytes(data.clone(), offset).await.unwrap();
                        } else {
                            buffer = file.read_into(buffer, offset, self.bytes).await.unwrap();
                        }
                        count.fetch_add(1, Relaxed);
                    }
                }
            }
        };
        let tasks: Vec<_> = (0..self.depth as u64).map(one).collect();
        futures_util::future::join_all(tasks).await;
        count.into_inner()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn options(lane: LaneMode) -> Options {
    let run_dir = std::env::var_os("SAMEHOST_RUN_DIR").map_or_else(|| "/run/samehost".into(), PathBuf::from);
    Options::new().lane(lane).run_dir(run_dir)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, url, raw, operation, bytes, seconds, depth] = &args[..] else {
        eprintln!("usage: bench_loop URL RAW_DIRECTORY read|write|open BYTES SECONDS DEPTH");
        std::process::exit(2);
    };
    let url: Url = url.parse().expect("an NFS URL");
    let raw = PathBuf::from(raw);
    let job = Job {
        write: operation == "write",
        bytes: bytes.parse().expect("bytes"),
        seconds: seconds.parse().expect("seconds"),
        depth: depth.parse().expect("a depth"),
    };
    if operation == "open" {
        return small_files(&url, &raw);
    }
    let path = raw.join("bench-file");
    fs::write(&path, vec![5; FILE as usize]).expect("a file in the raw directory");
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).expect("the raw file");
    let both = OpenOptions::new().read(true).write(true);
    for round in 0..2 {
        measure(&format!("raw {round}"), || {
            job.run_blocking(|buffer, offset| {
                if job.write {
                    file.write_all_at(buffer, offset)
                } else {
                    file.read_exact_at(buffer, offset)
                }
                .unwrap();
            })
        });
        for (name, lane) in [("lane", LaneMode::Required), ("wire", LaneMode::Off)] {
            let session = match client::blocking::Session::connect(&url, options(lane)) {
                Ok(session) => session,
                Err(error) => {
                    println!("{name}: {error}");
                    continue;
                }
            };
            let file = session.open(b"bench-file", &both).unwrap();
            measure(&format!("{name} blocking, depth 1, {round}"), || {
                job.run_blocking(|buffer, offset| {
                    if job.write {
                        file.write_at(buffer, offset).unwrap();
                    } else {
                        assert_eq!(file.read_at(buffer, offset).unwrap(), buffer.len());
                    }
                })
            });
            drop((file, session));
            let runtime = runtime();
            runtime.block_on(async {
                let session = Session::connect(&url, options(lane)).await.unwrap();
                let file = session.open(b"bench-file", &both).await.unwrap();
                // The clock of `measure` is outside the runtime; the future is run by hand inside.
                let (start, before) = (Instant::now(), cpu());
                let count = job.run(&file).await;
                let (took, used) = (start.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
                line(&format!("{name} async, depth {}, {round}", job.depth), count, took, used);
            });
        }
    }
}

fn line(what: &str, count: u64, took: f64, used: f64) {
    println!(
        "{what:28} {:>10.0} /s  {:>8.3} us wall  {:>8.3} us CPU each",
        count as f64 / took,
        took * 1e6 / count as f64,
        used * 1e6 / count as f64
    );
}

/// Opens, reads and closes small files.
fn small_files(url: &Url, raw: &std::path::Path) {
    let names: Vec<String> = (0..5000).map(|index| format!("small-{index:05}")).collect();
    for name in &names {
        fs::write(raw.join(name), [6; 4096]).expect("a small file");
    }
    let mut buffer = vec![0; 4096];
    for round in 0..2 {
        measure(&format!("raw {round}"), || {
            for name in &names {
                let file = fs::File::open(raw.join(name)).unwrap();
                file.read_exact_at(&mut buffer, 0).unwrap();
            }
            names.len() as u64
        });
        for (data_path, lane) in [("lane", LaneMode::Required), ("wire", LaneMode::Off)] {
            let session = match client::blocking::Session::connect(url, options(lane)) {
                Ok(session) => session,
                Err(error) => {
                    println!("{data_path}: {error}");
                    continue;
                }
            };
            let root = session.session().root();
            let before = session.session().counters();
            measure(&format!("{data_path} open+read+close {round}"), || {
                for name in &names {
                    let file = session.open_at(&root, name.as_bytes(), &OpenOptions::reading()).unwrap();
                    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 4096);
                    file.close().unwrap();
                }
                names.len() as u64
            });
            let after = session.session().counters();
            let trips = |counters: &client::Counters| counters.wire.round_trips + counters.lane.round_trips;
            println!(
                "    round trips a file: {:.2}",
                (trips(&after) - trips(&before)) as f64 / names.len() as f64
            );
        }
    }
}
