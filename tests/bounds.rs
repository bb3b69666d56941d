//! The server's memory, descriptors and start time stay within fixed bounds. The bounds leave room for slow
//! machines; the measured values are printed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use samehost_tests::scratch::pattern;
use samehost_tests::{Scratch, Serve, Server, need_root, wait_for};

/// The most resident memory with one client.
const ONE_CLIENT_KIB: u64 = 32 << 10;
/// The same with a thousand idle connections.
const IDLE_KIB: u64 = 48 << 10;
/// The same while 64 connections write 1 MiB each: received data has a budget, so far less than 64 MiB.
const WRITING_KIB: u64 = 64 << 10;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// An RPC call as one record, with AUTH_SYS credentials of root.
fn call(xid: u32, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let credential: [u32; 5] = [0, 0, 0, 0, 0]; // stamp, no machine name, uid, gid, no further groups
    let mut words: Vec<u32> = vec![xid, 0, 2, program, 3, procedure, 1, 20];
    words.extend(credential);
    words.extend([0, 0]); // verifier: AUTH_NONE
    let mut body: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    body.extend_from_slice(arguments);
    let length = u32::try_from(body.len()).expect("small") | 1 << 31;
    let mut record = length.to_be_bytes().to_vec();
    record.append(&mut body);
    record
}

fn reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).expect("the server answers");
    let length = u32::from_be_bytes(head) & 0x7fff_ffff;
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).expect("the server answers");
    // xid, REPLY, MSG_ACCEPTED, an empty AUTH_NONE verifier, SUCCESS
    assert_eq!(
        body[4..24],
        [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "an accepted reply"
    );
    body.split_off(24)
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut coded = u32::try_from(bytes.len()).expect("small").to_be_bytes().to_vec();
    coded.extend_from_slice(bytes);
    coded.resize(coded.len().next_multiple_of(4), 0);
    coded
}

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// The handle of the export's root.
fn mount(stream: &mut TcpStream, path: &std::path::Path) -> Vec<u8> {
    stream.write_all(&call(1, MOUNT, 1, &opaque(path.as_os_str().as_encoded_bytes()))).expect("sent");
    let results = reply(stream);
    assert_eq!(results[..4], [0; 4], "MNT3_OK");
    let length = u32::from_be_bytes(results[4..8].try_into().expect("four bytes")) as usize;
    results[8..8 + length].to_vec()
}

/// LOOKUP.
fn lookup(stream: &mut TcpStream, directory: &[u8], name: &str) -> Vec<u8> {
    let arguments = [opaque(directory), opaque(name.as_bytes())].concat();
    stream.write_all(&call(2, NFS, 3, &arguments)).expect("sent");
    let results = reply(stream);
    assert_eq!(results[..4], [0; 4], "NFS3_OK for {name}");
    let length = u32::from_be_bytes(results[4..8].try_into().expect("four bytes")) as usize;
    results[8..8 + length].to_vec()
}

#[test]
fn start_and_one_client() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let mut times = Vec::new();
    for _ in 0..5 {
        let mut server = Serve::openly(&export).start();
        let _ = server.stop(); // the first start chose the port; the second one is timed
        let start = Instant::now();
        let restarted = std::thread::scope(|scope| {
            let port = server.port();
            let client = scope.spawn(move || {
                let mut stream =
                    wait_for("the port to accept", || TcpStream::connect(("127.0.0.1", port)).ok());
                stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
                stream.write_all(&call(1, NFS, 0, &[])).expect("sent");
                reply(&mut stream);
                start.elapsed()
            });
            server.restart();
            client.join().expect("the client's thread")
        });
        times.push(restarted);
        let mut stream = connect(&server);
        mount(&mut stream, &export);
        let resident = server.daemon().resident_kib().expect("it runs");
        assert!(resident < ONE_CLIENT_KIB, "{resident} KiB resident with one client");
        println!("resident with one client: {resident} KiB");
    }
    times.sort();
    println!("start to first reply: median {:?}, from {:?} to {:?}", times[2], times[0], times[4]);
}

#[test]
fn a_thousand_idle_connections() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let before = server.daemon().resident_kib().expect("it runs");
    let mut streams: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = connect(&server);
            mount(&mut stream, &export);
            stream
        })
        .collect();
    wait_for("the server to have all thousand", || (server.status().connections() >= 1000).then_some(()));
    let after = server.daemon().resident_kib().expect("it runs");
    println!("resident: {before} KiB at first, {after} KiB with 1,000 idle connections");
    assert!(after < IDLE_KIB, "{after} KiB resident with 1,000 idle connections");
    // All of them still work, and a new one too.
    for stream in &mut streams {
        stream.write_all(&call(7, NFS, 0, &[])).expect("sent");
        reply(stream);
    }
    mount(&mut connect(&server), &export);
    let descriptors = server.daemon().descriptors().expect("it runs");
    drop(streams);
    wait_for("the connections to be closed", || {
        (server.daemon().descriptors().expect("it runs") <= descriptors - 1000).then_some(())
    });
}

#[test]
fn sixty_four_connections_write_a_mebibyte_at_once() {
    need_root();
    const CONNECTIONS: usize = 64;
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(export.join("file"))
        .expect("own directory");
    file.set_len((CONNECTIONS as u64) << 20).expect("own file");
    let server = Serve::openly(&export).start();
    let data: Vec<Vec<u8>> = (0..CONNECTIONS).map(|i| pattern(i as u64, 1 << 20)).collect();
    std::thread::scope(|scope| {
        for (i, data) in data.iter().enumerate() {
            let (server, export) = (&server, &export);
            scope.spawn(move || {
                let mut stream = connect(server);
                let root = mount(&mut stream, export);
                let handle = lookup(&mut stream, &root, "file");
                let mut arguments = opaque(&handle);
                arguments.extend_from_slice(&((i as u64) << 20).to_be_bytes());
                arguments.extend_from_slice(&(1_u32 << 20).to_be_bytes());
                arguments.extend_from_slice(&2_u32.to_be_bytes()); // FILE_SYNC
                arguments.extend_from_slice(&opaque(data));
                // In pieces, so that many requests are partly received at the same time.
                let record = call(9, NFS, 7, &arguments);
                for piece in record.chunks(64 << 10) {
                    stream.write_all(piece).expect("sent");
                    std::thread::yield_now();
                }
                let results = reply(&mut stream);
                assert_eq!(results[..4], [0; 4], "NFS3_OK");
            });
        }
    });
    let peak = server.daemon().peak_kib().expect("it runs");
    println!("peak with {CONNECTIONS} connections writing 1 MiB each at once: {peak} KiB");
    assert!(peak < WRITING_KIB, "{peak} KiB at the peak");
    for (i, data) in data.iter().enumerate() {
        let mut found = vec![0; data.len()];
        file.read_exact_at(&mut found, (i as u64) << 20).expect("own file");
        // The file was opened here before the server wrote: both use one page cache.
        assert!(found == *data, "what connection {i} wrote differs");
    }
}
