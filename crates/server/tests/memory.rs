//! The server's own limits bound its memory, whatever clients do: one client, a thousand silent ones,
//! sixty-four that write a mebibyte each at once, twenty that send the largest COMPOUND and don't read the
//! reply. The server runs in a process of its own, so that the resident memory is only the server's.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::v4::{NFS_OK, Ops, compound};
use common::{Client, Scratch, encoded, wait_for};
use proto::nfs3::{PROGRAM, Procedure, StableHow, Write3Args};
use proto::nfs4::{COMPOUND, Nfsstat4, Operation, PROGRAM as PROGRAM4, Putfh4Args, Read4Args, Stateid4};
use samehost_server::{Status, status};
use xdr::Opaque;

/// The documented limit for one client, in bytes.
const ONE_CLIENT: u64 = 32 << 20;
/// The limit for a thousand silent connections: somewhat more than 4 KiB each.
const THOUSAND_IDLE: u64 = 8 << 20;
/// The limit for sixty-four WRITEs of 1 MiB at once: the engine's receive budget (16 MiB) and its workers'
/// buffers.
const SIXTY_FOUR_WRITING: u64 = 40 << 20;

/// The limit for twenty unread replies of the maximum size: each is in memory once, and twice while it is
/// encoded.
const TWENTY_UNREAD: u64 = 48 << 20;

/// The server's process; killed when dropped, and its directory removed.
struct Serving {
    process: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Serving {
    /// Runs the test `name` again as the server, in a process of its own.
    fn start(name: &str) -> Self {
        if std::env::var_os("SAMEHOST_SERVE").is_some() {
            serve_until_killed();
        }
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env("SAMEHOST_SERVE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.into_iter().find(|line| line.starts_with("serving")).expect("the server starts");
        let mut words = line.split(' ').skip(1);
        let address = words.next().unwrap().parse().unwrap();
        Self { process, address, directory: words.next().unwrap().into() }
    }

    fn export(&self) -> PathBuf {
        self.directory.join("export")
    }

    fn status(&self) -> Status {
        status::query(&self.directory.join("run")).unwrap().remove(0)
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

/// Without a session only the server bounds a reply. The sum of several clients' unread replies is bounded,
/// too.
#[test]
fn replies_without_a_session_are_bounded() {
    let serving = Serving::start("replies_without_a_session_are_bounded");
    let mut client = Client::to(serving.address);
    let root = client.mnt(&serving.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    client.write(&file, 0, &vec![7; 1 << 20]);
    let stateid = Stateid4 { seqid: 0, other: [0; 12] };
    let reads = |count: u32| {
        let ops = Ops::new().op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) });
        let read = Read4Args { stateid, offset: 0, count };
        (0..127).fold(ops, |ops, _| ops.op(Operation::Read, &read))
    };
    // Several READs fit, as long as their sum isn't above the maximum of one.
    assert_eq!(compound(&mut client, 0, &reads(8 << 10)).status, NFS_OK);
    let done = compound(&mut client, 0, &reads(1 << 20));
    assert_eq!(done.status, Nfsstat4::Resource as u32);
    assert!(done.count() >= 3, "PUTFH, the READs that fit, and one that doesn't");
    assert!(done.bytes.len() > 1 << 20 && done.bytes.len() <= (1 << 20) + (6 << 10));

    let one = serving.status().memory.resident;
    let asked: Vec<_> = (0..20)
        .map(|_| {
            let mut slow = Client::to(serving.address);
            let record = slow.record(PROGRAM4, 4, COMPOUND, &reads(1 << 20).minor(0));
            slow.stream.write_all(&record).unwrap();
            slow
        })
        .collect();
    for slow in &asked {
        assert_eq!(slow.stream.peek(&mut [0]).unwrap(), 1, "its reply is being sent");
    }
    let peak = serving.status().memory.peak;
    println!("{one} bytes, then {peak} with twenty unread replies");
    assert!(peak <= one + TWENTY_UNREAD, "{one} bytes, then {peak} with twenty unread replies");
    client.getattr(&file);
}

#[test]
fn resident_memory_is_bounded() {
    let serving = Serving::start("resident_memory_is_bounded");
    let address = serving.address;
    let memory = || serving.status().memory.resident;
    let connections = || serving.status().connections.len();

    let mut client = Client::to(address);
    let root = client.mnt(&serving.export()).unwrap();
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

    // All but the last byte of every WRITE, from sixty-four clients: each is in the server's memory or in the
    // kernel's.
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
    let peak = serving.status().memory.peak;
    assert!(peak <= one + SIXTY_FOUR_WRITING, "{one} bytes, then {peak} with 64 clients writing 1 MiB each");
}
