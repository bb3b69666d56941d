//! The cost of one Open over the lane, compared with the open(2) within it and the socket round trip below
//! it.
//!
//! `cargo run --release -p samehost-lane --example open_latency`, and the same under `taskset -c 1`.
//! The server is a process of its own; its service does nothing but open(2).

use lane::nonce::random_instance;
use lane::{
    Access, Bound, GrantAttributes, GrantService, Lane, LaneCredential, LaneOptions, LaneServer, Nonce,
    OpenGrant, OpenRequest, OpenStatus, Rendezvous, RendezvousOptions, Target,
};
use rustix::fs::{Mode, OFlags};
use samehost_lane as lane;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const OPENS: u32 = 20_000;

struct Trivial(PathBuf);

impl GrantService for Trivial {
    fn open(&self, _: &Bound, _: &OpenRequest<'_>) -> Result<OpenGrant, OpenStatus> {
        let file = open(&self.0).map_err(|_| OpenStatus::Io)?;
        Ok(OpenGrant {
            file,
            handle: vec![7; 32],
            attributes: GrantAttributes::default(),
            lasts: true,
            directory: None,
            held: None,
        })
    }

    fn verifier(&self) -> [u8; 8] {
        [1; 8]
    }
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let [word, dir] = &arguments[..]
        && word == "server"
    {
        return server(dir.as_ref());
    }
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("file"), "content")?;
    let mut server = Command::new(std::env::current_exe()?)
        .arg("server")
        .arg(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(mut to), Some(mut from)) = (server.stdin.take(), server.stdout.take()) else {
        return Err(std::io::Error::other("no pipes"));
    };
    from.read_exact(&mut [0])?;

    let file = dir.path().join("file");
    report("open(2) + close(2)", || (0..OPENS).try_for_each(|_| open(&file).map(drop).map_err(Into::into)))?;
    ping_pong()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lane = runtime.block_on(async {
        let candidates = Rendezvous::register(RendezvousOptions::new(dir.path().join("run"))).await?;
        to.write_all(&candidates.nonce())?;
        from.read_exact(&mut [0])?;
        candidates.finish(Duration::ZERO).await.map_err(std::io::Error::other)
    })?;
    report("lane open + drop, one at a time", || runtime.block_on(opens(&lane, OPENS)))?;
    report("lane open + drop, eight at a time", || {
        runtime.block_on(async {
            let each = || {
                tokio::spawn({
                    let lane = lane.clone();
                    async move { opens(&lane, OPENS / 8).await }
                })
            };
            let tasks: Vec<_> = (0..8).map(|_| each()).collect();
            for task in tasks {
                task.await??;
            }
            Ok(())
        })
    })?;
    let grant = runtime
        .block_on(lane.open(request(&LaneCredential::default())))
        .map_err(std::io::Error::other)?
        .grant;
    let begin = Instant::now();
    for _ in 0..10_000_000 {
        std::hint::black_box(grant.try_get());
    }
    println!("{:40} {:8.1} ns", "interlock try_get + put", begin.elapsed().as_secs_f64() * 1e9 / 1e7);
    drop((grant, lane, to));
    server.wait().map(drop)
}

fn request(credential: &LaneCredential) -> OpenRequest<'_> {
    OpenRequest {
        target: Target::Entry { directory: &[7; 32], name: b"file" },
        access: Access::Read,
        credential,
    }
}

async fn opens(lane: &Lane, many: u32) -> std::io::Result<()> {
    let who = LaneCredential::default();
    for _ in 0..many {
        lane.open(request(&who)).await.map_err(std::io::Error::other)?;
    }
    Ok(())
}

/// The lower bound: the same number of datagrams of the same size between two threads, without contents.
fn ping_pong() -> std::io::Result<()> {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
    let (here, there) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let echo = std::thread::spawn(move || {
        let mut bytes = [0_u8; 256];
        while rustix::net::recv(&there, &mut bytes, RecvFlags::empty()).is_ok_and(|(length, _)| length > 0) {
            let _ = rustix::net::send(&there, &bytes, SendFlags::NOSIGNAL);
        }
    });
    report("seqpacket round trip, two threads", || {
        let mut bytes = [0_u8; 256];
        for _ in 0..OPENS {
            rustix::net::send(&here, &bytes, SendFlags::NOSIGNAL)?;
            rustix::net::recv(&here, &mut bytes, RecvFlags::empty())?;
        }
        Ok(())
    })?;
    drop(here);
    echo.join().map_err(|_| std::io::Error::other("the echo panicked"))
}

/// Median and spread of some rounds, in microseconds a piece.
fn report(what: &str, mut round: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    let mut each = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        round()?;
        each.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(OPENS));
    }
    each.sort_by(f64::total_cmp);
    println!("{what:40} {:8.2} us  ({:.2} to {:.2})", each[ROUNDS / 2], each[0], each[ROUNDS - 1]);
    Ok(())
}

fn server(dir: &Path) -> std::io::Result<()> {
    let options = LaneOptions::new(dir.join("run"), random_instance()?);
    let server =
        LaneServer::start(options, Arc::new(Trivial(dir.join("file")))).map_err(std::io::Error::other)?;
    let (mut input, mut output) = (std::io::stdin(), std::io::stdout());
    output.write_all(&[1])?;
    output.flush()?;
    let mut nonce = [0; 16];
    while input.read_exact(&mut nonce).is_ok() {
        let share = fairness::Peer::Local(0);
        let nfs = lane::NfsConnection { number: 1, peer: ([127, 0, 0, 1], 1).into(), share };
        server.uuid_is_local(Nonce(nonce), nfs);
        output.write_all(&[1])?;
        output.flush()?;
    }
    Ok(())
}
