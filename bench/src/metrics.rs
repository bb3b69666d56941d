//! What counting calls and serving metrics costs the server, in processor time.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use samehost_tests::scratch::pattern;
use samehost_tests::{Scratch, Serve, Server};

use crate::Effort;
use crate::data_paths::json_of;
use crate::figure::{Figure, Table};

/// Size of the file.
const SIZE: usize = 64 << 20;
/// Client and server run on one processor: no wake-ups of an idle one are in the figures.
const PINNED: [&str; 3] = ["taskset", "-c", "1"];

/// One table. A build of the command that doesn't count is the base of the comparison, if there is one.
pub fn measure(effort: &Effort) -> Result<Table> {
    let scratch = Scratch::in_memory();
    fs::write(scratch.join("file"), pattern(1, SIZE))?;
    let serve = || Serve::openly(scratch.path());
    let counting = serve().through(PINNED).arguments(["--metrics", "127.0.0.1:0"]).start();
    let uncounted = effort.uncounted.as_ref().map(|command| {
        // The harness's own command is the first argument.
        let script = format!("shift; exec {} \"$@\"", command.canonicalize()?.display());
        anyhow::Ok(serve().through(PINNED.into_iter().chain(["sh", "-c", &script, "sh"])).start())
    });
    let uncounted = uncounted.transpose()?;
    let log = counting.daemon().log();
    let (_, address) = log.split_once("metrics at http://").context("an address in the ready line")?;
    let (address, _) = address.split_once("/metrics").context("a path in the ready line")?;

    let [mut cost, mut base, mut scrapes] = <[Figure; 3]>::default();
    for run in 0..effort.runs {
        let read = |server: &Server, cost: &mut Figure| {
            cost.add(nanoseconds_of_a_read(server, effort, scratch.path())?);
            anyhow::Ok(())
        };
        // Each is the first as often as the other.
        if run % 2 == 0 {
            read(&counting, &mut cost)?;
        }
        if let Some(server) = &uncounted {
            read(server, &mut base)?;
        }
        if run % 2 != 0 {
            read(&counting, &mut cost)?;
        }
        let before = nanoseconds_of_threads(counting.daemon().pid())?;
        scrape(address)?;
        scrapes.add((nanoseconds_of_threads(counting.daemon().pid())? - before) as f64);
    }
    let microseconds = |figure: &Figure| figure.show(|time| format!("{:.2} µs", time / 1000.0));
    let plain = |name: &str, figure: &Figure| {
        vec![name.to_owned(), microseconds(figure), String::new(), String::new()]
    };
    let more = cost.ratios_to(&base);
    let percent = |ratio: f64| format!("{:+.2} %", 100.0 * (ratio - 1.0));
    let mut rows = vec![plain("READ", &cost), plain("scrape", &scrapes)];
    if uncounted.is_some() {
        rows[0][2] = percent(more.median());
        rows[0][3] = format!("{} to {}", percent(more.quantile(0.25)), percent(more.quantile(0.75)));
        rows.insert(1, plain("READ without counting", &base));
    }
    Ok(Table {
        title: "Metrics: what recording costs a READ".to_owned(),
        description:
            "Processor time of the server for a READ of 4 KiB (nfsload, one connection, queue depth \
                      8, a file of 64 MiB on tmpfs, client and server on one processor); by how much it \
                      exceeds that of a build in which `BegunCall` and `Counters` \
                      (crates/server/src/status/counters.rs) do nothing (`--uncounted PATH`): the median of \
                      the pairs of runs, and the middle half of them; and processor time for a scrape of the \
                      metrics. Calls are counted whether or not metrics are served. The goal for counting \
                      is less than 1 %."
                .to_owned(),
        head: vec!["", "processor time", "more", "middle half"],
        rows,
    })
}

/// The server's processor time for a READ.
fn nanoseconds_of_a_read(server: &Server, effort: &Effort, directory: &Path) -> Result<f64> {
    let mut command = Command::new(PINNED[0]);
    command.args(&PINNED[1..]).arg(&effort.nfsload).arg(server.libnfs_url(directory.join("file")));
    command.args(["--op", "randread", "--bs", "4096", "--size", &SIZE.to_string(), "--depth", "8"]);
    command.args(["--warmup", "0", "--seconds", &effort.seconds.to_string()]);
    let before = nanoseconds_of_threads(server.daemon().pid())?;
    let run = json_of(&mut command)?;
    let used = nanoseconds_of_threads(server.daemon().pid())? - before;
    Ok(used as f64 / run["ops"].as_f64().context("the number of READs")?)
}

fn scrape(address: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    ensure!(reply.contains("samehost_calls_total"), "no metrics: {reply}");
    Ok(())
}

/// The processor time of all threads of a process (schedstat of proc(5)).
fn nanoseconds_of_threads(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has ended since has no file.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let time = text.split_whitespace().next().context("a time")?;
        sum += time.parse::<u64>()?;
    }
    Ok(sum)
}
