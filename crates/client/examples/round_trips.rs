//! The time of one small operation of a session: a GETATTR and a failing LOOKUP over TCP and on the lane's
//! call socket, and an open of a missing name over the lane.
//!
//! `cargo run --release -p samehost-client --example round_trips [threads]`, and the same under
//! `taskset -c 1`. With `threads` the session is used in a runtime with two threads. The server is a process
//! of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use client::{LaneMode, OpenOptions, Options, Session, Url};
use samehost_client as client;

const ROUNDS: usize = 7;
const OPERATIONS: u32 = 3000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [word, base] = &arguments[..]
        && word == "server"
    {
        return server(base.as_ref());
    }
    let base = tempfile::tempdir_in("/dev/shm")?;
    std::fs::create_dir(base.path().join("export"))?;
    let mut server = Command::new(std::env::current_exe()?)
        .arg("server")
        .arg(base.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut port = String::new();
    BufReader::new(server.stdout.take().ok_or("no pipe")?).read_line(&mut port)?;
    let export = base.path().join("export");
    let url = Url::new("127.0.0.1", Some(port.trim().parse()?), export.as_os_str().as_encoded_bytes());
    let mut builder = match arguments.first() {
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
        None => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = builder.worker_threads(2).enable_all().build()?;
    let options = Options::new().run_dir(base.path().join("run")).search_namespaces(false);
    // A task, because the runtime's own thread isn't one of its workers.
    let measured = runtime.block_on(async { tokio::spawn(measure(url, options)).await });
    drop(server.stdin.take());
    server.wait()?;
    measured?
}

async fn measure(url: Url, options: Options) -> Result<(), Failure> {
    let wire = Session::connect(&url, options.clone().lane(LaneMode::Off)).await?;
    let lane = Session::connect(&url, options.lane(LaneMode::Required)).await?;
    for (session, path) in [(&wire, "TCP"), (&lane, "call socket")] {
        let root = session.root();
        report(&format!("GETATTR, {path}"), || async { session.attributes(&root).await.is_ok() }).await?;
        report(&format!("LOOKUP, {path}"), || async { session.lookup(&root, b"none").await.is_err() })
            .await?;
    }
    let (root, read) = (lane.root(), OpenOptions::new().read(true));
    report("open, lane", || async { lane.open_at(&root, b"none", &read).await.is_err() }).await?;
    let counters = lane.counters();
    println!(
        "round trips: {} over TCP, {} over the lane",
        counters.wire.round_trips, counters.lane.round_trips
    );
    Ok(())
}

/// Median, least and greatest of some rounds, in microseconds an operation.
async fn report<F: Future<Output = bool>>(what: &str, operation: impl Fn() -> F) -> Result<(), Failure> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for _ in 0..OPERATIONS {
            if !operation().await {
                return Err(format!("{what} has another result").into());
            }
        }
        rounds.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(OPERATIONS));
    }
    rounds.sort_by(f64::total_cmp);
    println!("{what:24} {:6.2} us ({:.2} to {:.2})", rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
    Ok(())
}

/// Serves until standard input is closed.
fn server(base: &Path) -> Result<(), Failure> {
    let export = base.join("export");
    let server = server::Server::start(server::Config {
        listen: vec!["127.0.0.1:0".parse()?],
        exports: vec![format!("{} *(rw,no_root_squash,insecure,fsid=7)", export.display())],
        run_dir: base.join("run"),
        state_dir: Some(base.join("state")),
        rpcbind: false,
        ..server::Config::default()
    })?;
    println!("{}", server.local_addrs()[0].port());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    Ok(())
}
