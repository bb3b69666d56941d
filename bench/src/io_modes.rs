//! The I/O modes: how much of a large stream stays in the page cache, what it costs, and how it slows down
//! another client.
//!
//! Server, streaming client and bystander share one control group with less memory than the stream is long,
//! as in a container. The stream's export has the mode under test; the bystander's is buffered: it reads
//! random 4 KiB blocks of a small file, which fits into memory if the stream leaves room. The disk is a loop
//! device on preallocated memory: its speed doesn't limit the stream, and the group isn't charged for it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use client::blocking::Session;
use client::{OpenOptions, Options, Url, Version};
use samehost_tests::cgroup::Cgroup;
use samehost_tests::disk::Disk;
use samehost_tests::scratch::pattern;
use samehost_tests::{Serve, run_ok};
use serde_json::{Value, json};

use crate::Effort;
use crate::figure::{Figure, Table, bytes_per_second, microseconds};

/// The control group's memory limit.
const MEMORY_LIMIT: u64 = 256 << 20;
/// Length of the stream: twice the memory.
const STREAM: u64 = 512 << 20;
/// Size of a streaming request.
const REQUEST: usize = 1 << 20;
/// Requests between two COMMITs.
const COMMIT_EVERY: u64 = 32;
/// Size of the bystander's file.
const HOT: u64 = 64 << 20;
/// Size of the bystander's requests.
const SMALL: usize = 4096;
/// How many latencies of the bystander are kept.
const MAX_SAMPLES: usize = 1 << 20;

const MODES: [&str; 3] = ["buffered", "dontcache", "direct"];

/// A child process: the streaming client or the bystander.
#[derive(Debug, Args)]
pub struct Worker {
    url: Url,
    /// stream-read, stream-write or bystander
    work: String,
    #[arg(long)]
    lane: String,
    #[arg(long)]
    run_dir: PathBuf,
}

impl Worker {
    /// Does its work and prints the result as JSON.
    pub fn run(self) -> Result<()> {
        let lane = self.lane.parse().map_err(anyhow::Error::msg)?;
        let session = Session::connect(
            &self.url,
            Options::new().version(Version::V3).lane(lane).run_dir(self.run_dir),
        )?;
        let result = match self.work.as_str() {
            "bystander" => bystander(&session)?,
            work => stream(&session, work == "stream-write")?,
        };
        println!("{result}");
        Ok(())
    }
}

fn stream(session: &Session, write: bool) -> Result<Value> {
    let file = session.open(b"file", &OpenOptions::new().read(true).write(write))?;
    let data = bytes::Bytes::from(pattern(1, REQUEST));
    let mut buffer = Vec::new();
    let start = Instant::now();
    for i in 0..STREAM / REQUEST as u64 {
        let at = i * REQUEST as u64;
        if write {
            session.run(file.file().write_bytes(data.clone(), at))?;
            if i % COMMIT_EVERY == COMMIT_EVERY - 1 {
                file.commit()?;
            }
        } else {
            buffer = file.read_into(buffer, at, REQUEST)?;
            ensure!(buffer.len() == REQUEST, "the file ends at {}", at + buffer.len() as u64);
        }
    }
    file.close()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(json!({ "seconds": seconds, "cpu": own_cpu()? }))
}

/// Reads random blocks until standard input ends.
fn bystander(session: &Session) -> Result<Value> {
    let file = session.open(b"file", &OpenOptions::reading())?;
    let mut buffer = vec![0; SMALL];
    for at in (0..HOT).step_by(SMALL) {
        file.read_at(&mut buffer, at)?;
    }
    let mut out = std::io::stdout();
    writeln!(out, "warm")?;
    out.flush()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stop_at_end = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop_at_end.store(true, Relaxed);
    });
    let mut took = Vec::with_capacity(1 << 16);
    let mut seed = 1_u64;
    while !stop.load(Relaxed) && took.len() < MAX_SAMPLES {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (seed >> 33) % (HOT / SMALL as u64) * SMALL as u64;
        let start = Instant::now();
        file.read_at(&mut buffer, at)?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
        // A client with occasional requests, which doesn't occupy a processor.
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    took.sort_by(f64::total_cmp);
    let percentile = |p: usize| took.get((took.len() * p / 100).min(took.len().saturating_sub(1))).copied();
    Ok(json!({ "p50": percentile(50), "p99": percentile(99), "reads": took.len() }))
}

fn own_cpu() -> Result<f64> {
    samehost_tests::process::cpu_time(std::process::id()).map(|time| time.as_secs_f64()).context("/proc")
}

/// Results of one mode.
#[derive(Default)]
struct Results {
    speed: Figure,
    cpu: Figure,
    left_cached: Figure,
    peak: Figure,
    p99: Figure,
}

/// Measures on one filesystem: one table.
pub fn measure(effort: &Effort, kind: &str) -> Result<Table> {
    let disk = Disk::in_memory(kind, 1024);
    for export in ["streams", "hot"] {
        std::fs::create_dir(disk.path().join(export))?;
    }
    std::fs::write(disk.path().join("hot/file"), pattern(2, HOT as usize))?;
    let mut rows = Vec::new();
    for lane in ["off", "required"] {
        for work in ["stream-write", "stream-read"] {
            let mut results: [Results; 3] = std::array::from_fn(|_| Results::default());
            for _ in 0..effort.runs {
                for (mode, results) in MODES.iter().zip(&mut results) {
                    measure_run(disk.path(), mode, lane, work, results)
                        .with_context(|| format!("{work} {mode} lane {lane} on {kind}"))?;
                }
            }
            for (mode, results) in MODES.iter().zip(results) {
                let data_path = if lane == "off" { "wire" } else { "lane" };
                let direction = work.trim_start_matches("stream-");
                rows.push(vec![
                    format!("{data_path}, {direction}, {mode}"),
                    results.speed.show(bytes_per_second),
                    format!("{:.2} s", results.cpu.median()),
                    format!("{:.0} MiB", results.left_cached.median()),
                    format!("{:.0} MiB", results.peak.median()),
                    results.p99.show(microseconds),
                ]);
            }
        }
    }
    Ok(Table {
        title: format!("I/O modes on {kind}"),
        description: format!(
            "A stream of {} MiB in requests of 1 MiB (writes with a COMMIT every {COMMIT_EVERY}), server and \
             clients together in a control group of {} MiB, the disk a loop device on memory. Speed of the \
             stream; processor time of server and streaming client (not of the kernel's own threads); what \
             of the stream is in the page cache at its end (fincore); the group's peak memory; and the 99th \
             percentile of a second client's 4 KiB reads of a file of {} MiB that was cached before, through \
             an export that is buffered.",
            STREAM >> 20,
            MEMORY_LIMIT >> 20,
            HOT >> 20
        ),
        head: vec!["", "stream", "CPU", "left cached", "peak memory", "bystander's 99 %"],
        rows,
    })
}

fn measure_run(disk: &Path, mode: &str, lane: &str, work: &str, results: &mut Results) -> Result<()> {
    let (streams, hot) = (disk.join("streams"), disk.join("hot"));
    let file = streams.join("file");
    if work == "stream-write" {
        std::fs::write(&file, b"")?;
    } else if std::fs::metadata(&file).map_or(0, |m| m.len()) != STREAM {
        let mut to = std::fs::File::create(&file)?;
        (0..STREAM / REQUEST as u64).try_for_each(|i| to.write_all(&pattern(i, REQUEST)))?;
    }
    drop_from_page_cache(&file)?;
    drop_from_page_cache(&hot.join("file"))?;
    let group = Cgroup::limited(MEMORY_LIMIT)?;
    let options = "rw,insecure,no_root_squash";
    let server = Serve::new(format!("{} *({options},read_io={mode},write_io={mode})", streams.display()))
        .export(format!("{} *({options})", hot.display()))
        .through(group.prefix())
        .start();
    let child = |work: &str, export: &Path| -> Result<Child> {
        let prefix = group.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(std::env::current_exe()?);
        command.args(["io-worker", &server.url(export), work, "--lane", lane]);
        command.arg("--run-dir").arg(server.run_dir()).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command.spawn()?)
    };
    let mut bystander = child("bystander", &hot)?;
    let mut output = BufReader::new(bystander.stdout.take().context("piped")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(line == "warm\n", "the bystander printed {line:?}");
    let before = server.daemon().cpu_time().context("the server runs")?;
    let streamed: Value = json_from(child(work, &streams)?)?;
    let cpu = server.daemon().cpu_time().context("the server runs")? - before;
    let left_cached = resident(&file)?;
    drop(bystander.stdin.take());
    line.clear();
    output.read_line(&mut line)?;
    ensure!(bystander.wait()?.success(), "the bystander failed");
    let latencies: Value = serde_json::from_str(&line)?;
    let number = |value: &Value| value.as_f64().context("a number");
    results.speed.add(STREAM as f64 / number(&streamed["seconds"])?);
    results.cpu.add(number(&streamed["cpu"])? + cpu.as_secs_f64());
    results.left_cached.add(left_cached as f64 / f64::from(1 << 20));
    results.peak.add(group.peak()? as f64 / f64::from(1 << 20));
    results.p99.add(number(&latencies["p99"])?);
    drop(server);
    drop(group);
    Ok(())
}

fn json_from(child: Child) -> Result<Value> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the client failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Bytes of a file that are in the page cache.
fn resident(file: &Path) -> Result<u64> {
    let text = run_ok(Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(file));
    text.trim().parse().with_context(|| format!("fincore printed {text:?}"))
}

/// Writes a file back and drops it from the page cache.
fn drop_from_page_cache(file: &Path) -> Result<()> {
    let opened = std::fs::File::open(file)?;
    opened.sync_all()?;
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}
