//! What counting and serving metrics costs the server: its processor time for READs of 4 KiB, with and
//! without.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use samehost_tests::scratch::pattern;
use samehost_tests::{Scratch, Serve, Server};

use crate::Effort;
use crate::data_paths::json_of;
use crate::figure::{Figure, Table};

/// Size of the file.
const SIZE: usize = 64 << 20;
/// The time between two scrapes. Prometheus's default is a minute.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
/// Client and server run on one processor: no wake-ups of an idle one are in the figures.
const PINNED: [&str; 3] = ["taskset", "-c", "1"];

/// One of the compared servers.
struct Subject {
    name: &'static str,
    server: Server,
    /// The address of its metrics, if they are scraped.
    metrics: Option<String>,
    cost: Figure,
}

/// One table. Its base is the last row: a build of the command that doesn't count, if there is one, and
/// otherwise a server whose metrics aren't served.
pub fn measure(effort: &Effort) -> Result<Table> {
    let scratch = Scratch::in_memory();
    fs::write(scratch.join("file"), pattern(1, SIZE))?;
    let serve = || Serve::openly(scratch.path());
    let scraped = serve().through(PINNED).arguments(["--metrics", "127.0.0.1:0"]).start();
    let log = scraped.daemon().log();
    let (_, address) = log.split_once("metrics at http://").context("an address in the ready line")?;
    let (address, _) = address.split_once("/metrics").context("a path in the ready line")?;
    let metrics = Some(address.to_owned());
    let mut subjects = vec![
        Subject { name: "metrics scraped", server: scraped, metrics, cost: Figure::default() },
        Subject {
            name: "without --metrics",
            server: serve().through(PINNED).start(),
            metrics: None,
            cost: Figure::default(),
        },
    ];
    if let Some(command) = &effort.uncounted {
        // The harness's own command is the first argument.
        let script = format!("shift; exec {} \"$@\"", command.canonicalize()?.display());
        let server = serve().through(PINNED.into_iter().chain(["sh", "-c", &script, "sh"])).start();
        subjects.push(Subject { name: "without counting", server, metrics: None, cost: Figure::default() });
    }
    for run in 0..effort.runs {
        for at in 0..subjects.len() {
            // Each is the first as often as the others.
            let at = (at + run) % subjects.len();
            let cost = subjects[at].measure(effort, scratch.path())?;
            subjects[at].cost.add(cost);
        }
    }
    let base = subjects.last().context("two at least")?.cost.clone();
    Ok(Table {
        title: "Metrics: what recording costs a READ".to_owned(),
        description:
            "Processor time of the server for a READ of 4 KiB (nfsload, one connection, queue depth \
                      8, a file of 64 MiB on tmpfs, client and server on one processor), and by how much it \
                      exceeds that of the last row: the median of the runs, and the middle half of them. \
                      Metrics are scraped once a second. The server without counting is a build in which \
                      `BegunCall` and `Counters` (crates/server/src/status/counters.rs) do nothing. The goal \
                      is less than 1 %."
                .to_owned(),
        head: vec!["", "processor time", "more", "middle half"],
        rows: subjects
            .iter()
            .map(|subject| {
                let more = subject.cost.ratios_to(&base);
                let percent = |ratio: f64| format!("{:+.2} %", 100.0 * (ratio - 1.0));
                let [low, high] = [0.25, 0.75].map(|part| percent(more.quantile(part)));
                vec![
                    subject.name.to_owned(),
                    subject.cost.show(|nanoseconds| format!("{:.3} µs", nanoseconds / 1000.0)),
                    percent(more.median()),
                    format!("{low} to {high}"),
                ]
            })
            .collect(),
    })
}

impl Subject {
    /// The nanoseconds of the server's processor time for a READ.
    fn measure(&self, effort: &Effort, directory: &Path) -> Result<f64> {
        let mut command = std::process::Command::new(PINNED[0]);
        command.args(&PINNED[1..]).arg(&effort.nfsload).arg(self.server.libnfs_url(directory.join("file")));
        command.args(["--op", "randread", "--bs", "4096", "--size", &SIZE.to_string(), "--depth", "8"]);
        command.args(["--warmup", "0", "--seconds", &effort.seconds.to_string()]);
        let (end, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let scrapes = self.metrics.as_ref().map(|address| {
                scope.spawn(move || {
                    while ended.recv_timeout(SCRAPE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                        scrape(address)?;
                    }
                    anyhow::Ok(())
                })
            });
            let before = time_of_threads(self.server.daemon().pid())?;
            let run = json_of(&mut command);
            let used = time_of_threads(self.server.daemon().pid())? - before;
            drop(end);
            scrapes.map_or(Ok(()), |scrapes| scrapes.join().expect("it doesn't panic"))?;
            Ok(used as f64 / run?["ops"].as_f64().context("the number of READs")?)
        })
    }
}

fn scrape(address: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    ensure!(reply.contains("samehost_calls_total"), "no metrics: {reply}");
    Ok(())
}

/// The processor time of all threads of a process in nanoseconds (schedstat of proc(5)).
fn time_of_threads(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has ended since has no file.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let time = text.split_whitespace().next().context("a time")?;
        sum += time.parse::<u64>()?;
    }
    Ok(sum)
}
