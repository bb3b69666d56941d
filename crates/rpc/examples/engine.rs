//! The cost of the server engine: operations a second and server CPU time per operation, with a program that
//! does almost nothing.
//!
//! `cargo run --release -p samehost-rpc --example engine [-- [WORKLOAD] [CONNECTIONS] [DEPTH] [SECONDS]]`
//!
//! The server is a process of its own (this program again, as `serve`), so that its CPU time is separate from
//! the driver's. `SERVER_CPU=1` in the environment pins the server to that processor with taskset(1).

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use samehost_rpc::{
    message::{AuthSys, CallHeader, Credential},
    server::{CallError, Limits, ProgramFn, Reply, Server},
};
use xdr::{Decoder, Encoder};

const PROGRAM: u32 = 400_998;
/// 120 bytes in, 120 bytes out.
const SMALL: u32 = 1;
/// A payload from a file; (offset: u64, length: u32) in.
const READ: u32 = 2;
/// A payload that is decoded and discarded.
const WRITE: u32 = 3;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn call(
    file: &Arc<OwnedFd>,
    procedure: u32,
    args: &mut Decoder<'_>,
    reply: &mut Reply,
) -> Result<(), CallError> {
    match procedure {
        SMALL => reply.encoder().opaque(args.opaque(200)?),
        READ => {
            let (offset, length) = (args.u64()?, args.u32()?);
            reply.encoder().fixed(&[0; 104]); // status, attributes, count, eof
            reply.encoder().u32(length);
            reply.attach_file(Arc::clone(file), offset, length);
        }
        WRITE => {
            let length = args.opaque(2 << 20)?.len();
            reply.encoder().length(length);
            reply.encoder().fixed(&[0; 120]);
        }
        _ => return Err(CallError::ProcedureUnavailable),
    }
    Ok(())
}

/// A call and the length of its reply, marks included.
struct Workload {
    name: &'static str,
    call: Vec<u8>,
    reply: usize,
}

fn workload(name: &'static str, procedure: u32, args: &Encoder, results: usize) -> Workload {
    let credential = Credential::Sys(AuthSys { machine_name: b"bench".to_vec(), ..AuthSys::default() });
    let mut to = Encoder::new();
    to.u32(0);
    CallHeader::encode(&mut to, 1, PROGRAM, 1, procedure, &credential);
    to.raw(args.as_slice());
    let mark = samehost_rpc::record::mark(to.position() - 4).unwrap_or_default();
    to.patch_u32(0, mark);
    Workload { name, call: to.into_vec(), reply: 4 + 24 + results }
}

fn workloads() -> Vec<Workload> {
    let opaque = |length: usize| {
        let mut args = Encoder::new();
        args.opaque(&vec![7; length]);
        args
    };
    let read = |length: u32| {
        let mut args = Encoder::new();
        args.u64(4096);
        args.u32(length);
        args
    };
    vec![
        workload("small", SMALL, &opaque(116), 120),
        workload("read4k", READ, &read(4096), 108 + 4096),
        workload("write4k", WRITE, &opaque(4096), 124),
        workload("read16k", READ, &read(16 << 10), 108 + (16 << 10)),
        workload("read32k", READ, &read(32 << 10), 108 + (32 << 10)),
        workload("read64k", READ, &read(64 << 10), 108 + (64 << 10)),
        workload("read128k", READ, &read(128 << 10), 108 + (128 << 10)),
        workload("write32k", WRITE, &opaque(32 << 10), 124),
        workload("write128k", WRITE, &opaque(128 << 10), 124),
        workload("write1m", WRITE, &opaque(1 << 20), 124),
    ]
}

fn serve() -> Result<(), Failure> {
    let mut file = tempfile::tempfile_in("/dev/shm")?;
    file.write_all(&vec![7; 2 << 20])?;
    let file: Arc<OwnedFd> = Arc::new(file.into());
    let program =
        ProgramFn::new(PROGRAM, 1..=1, move |_, procedure, args, reply| call(&file, procedure, args, reply));
    let server = Server::builder()
        .program(Arc::new(program))
        .limits(Limits::default())
        .bind("127.0.0.1:0".parse()?)
        .start()?;
    println!("{}", server.local_addrs()[0]);
    // Until the other end of standard input is closed.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.shutdown(Duration::from_secs(1));
    Ok(())
}

fn start_server() -> Result<(Child, SocketAddr), Failure> {
    let itself = std::env::current_exe()?;
    let mut command = match std::env::var("SERVER_CPU") {
        Ok(cpu) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu]).arg(itself);
            command
        }
        Err(_) => Command::new(itself),
    };
    let mut server = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    Ok((server, line.trim().parse()?))
}

/// CPU time of all threads of a process, in nanoseconds.
fn cpu_time(process: u32) -> Result<u64, Failure> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let schedstat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += schedstat.split(' ').next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(sum)
}

/// Keeps `depth` calls in flight until `stop` is set.
fn drive(
    address: SocketAddr,
    work: &Workload,
    depth: usize,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let calls = work.call.repeat(depth);
    let mut into = vec![0; (work.reply * depth).max(64 << 10)];
    if work.call.len() > 64 << 10 {
        // Both directions are larger than a socket buffer, so a thread of its own sends, with a window of
        // `depth`.
        let mut sender = stream.try_clone()?;
        let (go, gone) = std::sync::mpsc::sync_channel::<()>(depth);
        return std::thread::scope(|scope| {
            let sending = scope.spawn(move || -> Result<(), Failure> {
                while gone.recv().is_ok() {
                    sender.write_all(&work.call)?;
                }
                Ok(())
            });
            (0..depth).try_for_each(|_| go.send(()))?;
            let mut bytes = 0;
            while !stop.load(Ordering::Relaxed) {
                bytes += stream.read(&mut into)?;
                for _ in 0..bytes / work.reply {
                    done.fetch_add(1, Ordering::Relaxed);
                    go.send(())?;
                }
                bytes %= work.reply;
            }
            drop(go);
            stream.shutdown(std::net::Shutdown::Both)?;
            drop(sending.join());
            Ok(())
        });
    }
    stream.write_all(&calls)?;
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        let some = stream.read(&mut into)?;
        if some == 0 {
            return Err("the server has closed the connection".into());
        }
        bytes += some;
        let replies = bytes / work.reply;
        bytes %= work.reply;
        done.fetch_add(replies as u64, Ordering::Relaxed);
        stream.write_all(&calls[..replies * work.call.len()])?;
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "serve") {
        return serve();
    }
    let number = |index: usize, default: usize| args.get(index).map_or(Ok(default), |arg| arg.parse());
    let (connections, depth, seconds) = (number(1, 1)?, number(2, 8)?, number(3, 2)?);
    let wanted = args.first().map_or("all", String::as_str);
    println!(
        "{:<10} {:>5} {:>6} {:>10} {:>9} {:>12}",
        "workload", "conns", "depth", "ops/s", "MiB/s", "server ns/op"
    );
    for work in workloads().iter().filter(|work| wanted == "all" || work.name == wanted) {
        let (mut server, address) = start_server()?;
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| -> Result<(), Failure> {
            let drivers: Vec<_> =
                (0..connections).map(|_| scope.spawn(|| drive(address, work, depth, &done, &stop))).collect();
            std::thread::sleep(Duration::from_millis(300));
            let (start, cpu, before) = (Instant::now(), cpu_time(server.id())?, done.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_secs(seconds as u64));
            let ops = done.load(Ordering::Relaxed) - before;
            let (cpu, elapsed) = (cpu_time(server.id())? - cpu, start.elapsed().as_secs_f64());
            stop.store(true, Ordering::Relaxed);
            #[allow(clippy::cast_precision_loss, reason = "figures to be read")]
            let (rate, size) = (ops as f64 / elapsed, (work.call.len() + work.reply) as f64);
            println!(
                "{:<10} {connections:>5} {depth:>6} {rate:>10.0} {:>9.0} {:>12}",
                work.name,
                rate * size / f64::from(1 << 20),
                cpu.checked_div(ops).unwrap_or(0),
            );
            for driver in drivers {
                driver.join().map_err(|_| "a driver panicked")??;
            }
            Ok(())
        })?;
        drop(server.stdin.take());
        server.wait()?;
    }
    Ok(())
}
