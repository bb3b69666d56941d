//! One of two servers is killed while its clients hold locks, and is started again at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use proto::nfs4::{Nfsstat4, OpenClaim4};

use super::server::{ClusterServer, LEASE, Program};
use super::{Ceph, SHARE};
use crate::Effort;
use crate::figure::{Figure, Table, ratio};
use crate::nfs4::session::{FailedStatus, Session};
use crate::nfs4::wire::Wire;

/// The clients of the server that is killed.
const CLIENTS: u64 = 10;
/// The names of the servers, and of the files that their clients lock: of two Samehosts and two nfs-ganeshas.
const NAMES: [[&str; 2]; 2] = [["alpha", "beta"], ["gamma", "delta"]];
/// The longest that a step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
/// The time between two attempts.
const RETRY: Duration = Duration::from_millis(2);

/// Times in milliseconds since the server was killed.
#[derive(Debug, Default)]
struct Times {
    /// Until the last client has reclaimed.
    last_reclaim: Figure,
    /// Until the other server gives new locks again.
    first_lock: Figure,
    /// How long it gave none.
    pause: Figure,
}

/// One table.
pub fn measure(effort: &Effort, ceph: &Ceph) -> Result<Table> {
    let mut all: [[Times; 2]; 2] = Default::default();
    let files = ceph.mount("files");
    for name in NAMES.as_flattened() {
        std::fs::write(files.path().join(format!("locked-{name}")), [])?;
    }
    for (number, (program, namespace)) in
        [(Program::Samehost, "failover"), (Program::Ganesha, "failover-ganesha")].into_iter().enumerate()
    {
        let mounts = match program {
            Program::Samehost => ["a", "b"].map(|name| Some(ceph.mount(name))),
            Program::Ganesha => [None, None],
        };
        let [first, second] = [(NAMES[number][0], 20511, &mounts[0]), (NAMES[number][1], 20512, &mounts[1])]
            .map(|(name, port, mount)| {
                ClusterServer::start(ceph, program, name, port, Some(namespace), mount.as_ref())
            });
        let (mut first, second) = (first?, second?);
        for _ in 0..effort.runs {
            for (returning, times) in [CLIENTS, CLIENTS - 1].into_iter().zip(&mut all) {
                run(&mut first, &second, returning, &mut times[number])?;
            }
        }
    }
    let time = |ms: f64| if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1e3) };
    let shown = |figure: &Figure| figure.show(time);
    let mut rows = Vec::new();
    for (title, [ours, ganesha]) in ["all clients come back", "one doesn't"].iter().zip(&all) {
        for (what, ours, ganesha) in [
            ("last reclaim", &ours.last_reclaim, &ganesha.last_reclaim),
            ("first new lock at the other server", &ours.first_lock, &ganesha.first_lock),
            ("pause of new locks there", &ours.pause, &ganesha.pause),
        ] {
            let title = format!("{title}: {what}");
            rows.push(vec![title, shown(ours), shown(ganesha), ratio(ours, ganesha)]);
        }
    }
    Ok(Table {
        title: "Cluster: a server is killed".to_owned(),
        description: format!(
            "Two servers of one CephFS with a lease of {LEASE} s. One, with {CLIENTS} clients that hold a \
             lock each, is killed (SIGKILL) and started again at once; its clients reclaim as soon as it \
             permits. A client of the other server asks for new locks all the time, of bytes that no client \
             has. Times since the kill."
        ),
        head: vec!["", "Samehost", "ganesha", "ratio"],
        rows,
    })
}

/// Repeats an attempt while the server asks for that.
fn until_decided<T>(attempt: impl FnMut() -> Result<T>) -> Result<T> {
    repeat_while(is_temporary, attempt)
}

/// As [`until_decided`], and while another client has the lock: the servers release that of a client that
/// didn't come back at the end of the grace period, and not in the same instant.
fn until_free<T>(attempt: impl FnMut() -> Result<T>) -> Result<T> {
    repeat_while(|error| is_temporary(error) || has_status(error, Nfsstat4::Denied), attempt)
}

fn repeat_while<T>(
    condition: impl Fn(&anyhow::Error) -> bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if condition(&error) && begun.elapsed() < STEP_TIMEOUT => std::thread::sleep(RETRY),
            other => return other,
        }
    }
}

fn is_temporary(error: &anyhow::Error) -> bool {
    has_status(error, Nfsstat4::Grace) || has_status(error, Nfsstat4::Delay)
}

fn has_status(error: &anyhow::Error, status: Nfsstat4) -> bool {
    error.downcast_ref::<FailedStatus>().is_some_and(|failed| failed.0 == status as u32)
}

/// A session of a client that may have something to reclaim, once the server gives one.
fn connect(port: u16, number: u64, verifier: u64) -> Result<Session> {
    let name = format!("client {number}");
    let begun = Instant::now();
    loop {
        match Wire::connect(port)
            .and_then(|wire| Session::before_reclaims(wire, name.as_bytes(), verifier, 1))
        {
            Err(error) if begun.elapsed() >= STEP_TIMEOUT => return Err(error),
            Err(_) => std::thread::sleep(RETRY),
            session => return session,
        }
    }
}

/// The file that a server's clients lock; each server has its own.
fn file(session: &mut Session, server: &ClusterServer) -> Result<Vec<u8>> {
    session.walk(&format!("{}/locked-{}", server.export(), server.name))
}

/// Kills `first`, of whose clients `returning` come back.
fn run(first: &mut ClusterServer, second: &ClusterServer, returning: u64, times: &mut Times) -> Result<()> {
    // Each run is a restart of all clients, which have nothing left of the run before.
    let verifier = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let mut sessions = Vec::new();
    let mut handle = Vec::new();
    for number in 0..CLIENTS {
        let mut session = connect(first.port, number, verifier)?;
        session.reclaim_complete()?;
        handle = file(&mut session, first)?;
        let opened = until_decided(|| session.open_by(&handle, OpenClaim4::Fh, b"opener", SHARE))?;
        until_free(|| session.lock(&opened, b"locker", 2 * number, false))?;
        sessions.push(session);
    }
    let (ends, granted) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| -> Result<()> {
        let other = scope.spawn(|| {
            let result = ask_for_locks(second, &ends, &granted);
            ends.store(true, Ordering::Release);
            result
        });
        let grants = || granted.lock().map(|all| all.len()).unwrap_or_default();
        let is_asking = |than| wait_for_more(&grants, &ends, than);
        let killed = is_asking(10).and_then(|()| {
            let killed = Instant::now();
            first.kill();
            sessions.clear();
            first.restart()?;
            for number in 0..returning {
                let mut session = connect(first.port, number, verifier)?;
                let previous = OpenClaim4::Previous(0);
                let opened = until_decided(|| session.open_by(&handle, previous, b"opener", SHARE))?;
                until_decided(|| session.lock(&opened, b"locker", 2 * number, true))?;
                session.reclaim_complete()?;
                sessions.push(session);
            }
            times.last_reclaim.add(killed.elapsed().as_secs_f64() * 1e3);
            is_asking(grants() + 10)?;
            Ok(killed)
        });
        ends.store(true, Ordering::Release);
        match other.join() {
            Ok(result) => result?,
            Err(_) => bail!("the other client panicked"),
        }
        let (killed, granted) = (killed?, granted.lock().map(|all| all.clone()).unwrap_or_default());
        let gap = granted.windows(2).filter(|pair| pair[1] > killed).max_by_key(|pair| pair[1] - pair[0]);
        let gap = gap.context("no lock was given")?;
        times.pause.add((gap[1] - gap[0]).as_secs_f64() * 1e3);
        times.first_lock.add((gap[1] - killed).as_secs_f64() * 1e3);
        Ok(())
    })
}

fn wait_for_more(grants: &impl Fn() -> usize, ends: &AtomicBool, than: usize) -> Result<()> {
    let begun = Instant::now();
    while grants() <= than {
        if ends.load(Ordering::Acquire) || begun.elapsed() >= STEP_TIMEOUT {
            bail!("the other server gives no locks");
        }
        std::thread::sleep(RETRY);
    }
    Ok(())
}

/// Locks a byte again and again until `ends`; `granted` gets the times at which it was given.
fn ask_for_locks(server: &ClusterServer, ends: &AtomicBool, granted: &Mutex<Vec<Instant>>) -> Result<()> {
    let mut session = Session::new(Wire::connect(server.port)?, b"other", 1)?;
    let handle = file(&mut session, server)?;
    let opened = until_decided(|| session.open_by(&handle, OpenClaim4::Fh, b"opener", SHARE))?;
    let mut number = 0_u64;
    while !ends.load(Ordering::Acquire) {
        number += 1;
        match session.lock(&opened, format!("locker {number}").as_bytes(), 0, false) {
            Ok(lock) => {
                if let Ok(mut all) = granted.lock() {
                    all.push(Instant::now());
                }
                session.unlock(&opened, lock, 0)?;
            }
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(RETRY);
    }
    Ok(())
}
