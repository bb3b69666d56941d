//! Memory is bounded by what the server decides, not by what its clients do: one client, a thousand that are silent,
//! sixty-four that write a mebibyte each at once. The server runs in a process of its own, so that its resident memory
//! is its own.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use common::{Client, Scratch, encoded, wait_for};
use proto::nfs3::{PROGRAM, Procedure, StableHow, Write3Args};
use samehost_server::status;
use xdr::Opaque;

/// What docs and the issue promise for one client, in bytes.
const ONE_CLIENT: u64 = 32 << 20;
/// A thousand silent connections may cost this much more (4 KiB each and some change).
const THOUSAND_IDLE: u64 = 8 << 20;
/// Sixty-four WRITEs of 1 MiB at once: the engine's receive budget (16 MiB) and what its workers hold.
const SIXTY_FOUR_WRITING: u64 = 40 << 20;

/// The server's process; killed when dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve_until_killed() -> ! {
    let scratch = Scratch::new();
    let mut config = scratch.config("*(rw,insecure,no_root_squash,async)");
    config.threads = 16;
    let server = samehost_server::Server::start(config).unwrap();
    println!("\nserving {} {}", common::address(&server), scratch.dir.path().display());
    loop {
        std::thread::park();
    }
}

#[test]
fn resident_memory_is_bounded() {
    if std::env::var_os("SAMEHOST_SERVE").is_some() {
        serve_until_killed();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resident_memory_is_bounded", "--nocapture"])
        .env("SAMEHOST_SERVE", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Serving(child);
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.into_iter().find(|line| line.starts_with("serving")).expect("the server starts");
    let mut words = line.split(' ').skip(1);
    let address: SocketAddr = words.next().unwrap().parse().unwrap();
    let directory = std::path::PathBuf::from(words.next().unwrap());
    let memory = || status::query(&directory.join("run")).unwrap().remove(0).memory.resident;
    let connections = || status::query(&directory.join("run")).unwrap().remove(0).connections.len();

    let mut client = Client::to(address);
    let root = client.mnt(&directory.join("export")).unwrap();
    let file = client.create(&root, "f").unwrap();
    let payload = vec![7; 1 << 20];
    for round in 0..20 {
        assert_eq!(client.write(&file, round << 20, &payload).status(), proto::nfs3::Nfsstat3::Ok);
        assert_eq!(client.read(&file, round << 20, 1 << 20).unwrap().0.len(), 1 << 20);
    }
    let one = memory();
    assert!(one <= ONE_CLIENT, "{one} bytes with one client");

    let idle: Vec<_> = (0..1000).map(|_| TcpStream::connect(address).unwrap()).collect();
    wait_for("a thousand connections", || connections() == 1001);
    let with_idle = memory();
    assert!(
        with_idle <= one + THOUSAND_IDLE,
        "{one} bytes, then {with_idle} with a thousand idle connections"
    );
    client.getattr(&file);
    drop(idle);
    wait_for("them to go", || connections() == 1);

    // All but the last byte of every WRITE, from sixty-four clients: each is in the server's memory or in the kernel's.
    let mut writers: Vec<_> = (0..64).map(|_| Client::to(address)).collect();
    let data = vec![9; 1 << 20];
    let args = |number: usize| {
        let offset = (number as u64) << 20;
        encoded(&Write3Args {
            file: Opaque(&file),
            offset,
            count: 1 << 20,
            stable: StableHow::Unstable,
            data: Opaque(&data),
        })
    };
    std::thread::scope(|scope| {
        for (number, writer) in writers.iter_mut().enumerate() {
            let record = writer.record(PROGRAM, 3, Procedure::Write.number(), &args(number));
            scope.spawn(move || {
                writer.stream.write_all(&record).unwrap();
                let reply = writer.receive().unwrap();
                assert_eq!(reply[24..28], [0; 4], "every WRITE is answered");
            });
        }
    });
    let peak = status::query(&directory.join("run")).unwrap().remove(0).memory.peak;
    assert!(peak <= one + SIXTY_FOUR_WRITING, "{one} bytes, then {peak} with 64 clients writing 1 MiB each");
    drop(child);
    std::fs::remove_dir_all(directory).unwrap();
}
