//! Two hundred servers, one after another, in one process, each stopped while clients use both data paths:
//! descriptors, threads and memory of the process don't grow. The only test of its program, because it counts
//! the resources of the whole process.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::blocking::Session;
use client::{LaneMode, OpenOptions, Options, Url};
use samehost_tests::{Scratch, need_root, wait_for};
use server::{Config, Server};

const ROUNDS: u64 = 200;

#[derive(Debug, Clone, Copy)]
struct Resources {
    descriptors: usize,
    threads: usize,
    resident_kib: u64,
}

fn resources() -> Resources {
    let count = |path| fs::read_dir(path).expect("/proc").count();
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let resident = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("VmRSS");
    Resources {
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
        resident_kib: resident.trim().trim_end_matches(" kB").parse().expect("a number"),
    }
}

/// Writes and reads until `stop` is set or a call fails. A soft client gets an error when the server is gone,
/// or when the machine is busy.
fn run_client(url: &Url, lane: LaneMode, run_dir: &Path, name: &str, stop: &AtomicBool, done: &AtomicU64) {
    let timeo = Duration::from_millis(200);
    // The next server doesn't wait for what this client had from the last one.
    let options = Options::new().unique_id(name.to_owned());
    let options = options.lane(lane).run_dir(run_dir).hard(false).timeo(timeo).retrans(0);
    let Ok(session) = Session::connect(url, options) else { return };
    let inner = session.session();
    session.run(async {
        if lane != LaneMode::Off {
            let found = inner.probe().await;
            if !found.local {
                return eprintln!("{:?}", found.reasons);
            }
        }
        let path = [inner.target(), b"/", name.as_bytes()].concat();
        let open = OpenOptions::new().read(true).write(true).create(true);
        let Ok(file) = inner.open(&path, &open).await else { return };
        let data = [7; 16 << 10];
        let mut buffer = [0; 16 << 10];
        while !stop.load(Ordering::Relaxed) {
            if file.write_at(&data, 0).await.is_err() || file.read_at(&mut buffer, 0).await.is_err() {
                return;
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
}

#[test]
fn two_hundred_servers_in_one_process() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let (run_dir, state_dir) = (scratch.mkdir("run"), scratch.mkdir("state"));
    let mut base = None;
    for round in 0..ROUNDS {
        let server = Server::start(Config {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            exports: vec![format!("{} *(rw,insecure,no_root_squash)", export.display())],
            run_dir: run_dir.clone(),
            state_dir: Some(state_dir.clone()),
            rpcbind: false,
            grace: Duration::from_millis(500),
            ..Config::default()
        })
        .expect("the server starts");
        let address = server.local_addrs()[0];
        let url: Url = format!("nfs://{address}{}", export.display()).parse().expect("a URL");
        let stop = AtomicBool::new(false);
        let done = [const { AtomicU64::new(0) }; 2];
        std::thread::scope(|scope| {
            for (i, lane) in [LaneMode::Auto, LaneMode::Off].into_iter().enumerate() {
                let (url, run_dir, stop, done) = (&url, &run_dir, &stop, &done[i]);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        run_client(url, lane, run_dir, &format!("file{i}"), stop, done);
                    }
                });
            }
            wait_for("both clients to work", || {
                done.iter().all(|d| d.load(Ordering::Relaxed) > 2).then_some(())
            });
            server.stop();
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(
            fs::read_dir(&run_dir).map_or(0, Iterator::count),
            0,
            "socket files left in round {round}"
        );
        if round == 20 {
            base = Some(resources());
        }
    }
    let base = base.expect("there were more than twenty rounds");
    // The last round's threads may stay in /proc for a moment.
    let after = wait_for("threads and descriptors to return to the base", || {
        let now = resources();
        (now.descriptors <= base.descriptors + 2 && now.threads <= base.threads + 1).then_some(now)
    });
    println!("after 20 rounds {base:?}, after {ROUNDS} {after:?}");
    assert!(after.resident_kib < base.resident_kib + (12 << 10), "memory grew: {base:?}, {after:?}");
}
