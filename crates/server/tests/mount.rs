//! The MOUNT program's other procedures, and the status that shows their records.

mod common;

use common::{Client, Scratch, encoded, wait_for};
use proto::mount3::{self, Exports, Mountlist, Procedure};
use rpc::message::Credential;
use samehost_server::{Server, status};
use std::os::unix::ffi::OsStrExt as _;
use xdr::Opaque;

fn dump(client: &mut Client) -> Vec<(String, String)> {
    let results = client.mount(Procedure::Dump, &());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    results
        .get::<Mountlist<'_>>()
        .0
        .iter()
        .map(|body| (text(body.hostname.0), text(body.directory.0)))
        .collect()
}

#[test]
fn mounts_are_listed_until_they_are_unmounted() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.at("d")).unwrap();
    let server = scratch.serve("*(rw,insecure)");
    let mut first = Client::new(&server);
    let mut second = Client::from(&server, [127, 0, 0, 2].into(), 0);
    let (root, inner) = (scratch.export(), scratch.at("d"));
    let shown = |path: &std::path::Path| path.display().to_string();
    for path in [&root, &inner, &root] {
        first.mnt(path).unwrap();
    }
    second.mnt(&root).unwrap();
    assert!(second.mnt(std::path::Path::new("/nowhere")).is_err());
    let expected = [("127.0.0.1", &inner), ("127.0.0.1", &root), ("127.0.0.2", &root)];
    let expected: Vec<_> = expected.iter().map(|(host, path)| ((*host).to_owned(), shown(path))).collect();
    assert_eq!(dump(&mut first), expected);
    let umnt: mount3::Dirpath<'_> = Opaque(root.as_os_str().as_bytes());
    assert!(first.mount(Procedure::Umnt, &umnt).0.is_empty());
    assert_eq!(dump(&mut second).len(), 2, "each host unmounts its own");
    second.mount(Procedure::Umntall, &());
    first.credential = Credential::None;
    first.mount(Procedure::Umntall, &());
    assert!(dump(&mut first).is_empty());
    // NULL is answered, too.
    assert_eq!(first.raw(mount3::PROGRAM, 3, 0, &[]).1.0, encoded(&()));
}

#[test]
fn exports_are_listed_with_their_clients() {
    let scratch = Scratch::new();
    let mut config = scratch.config("10.0.0.0/8(rw) *.example.org ::1(ro)");
    std::fs::create_dir(scratch.at("e e")).unwrap();
    config.exports.push(format!("\"{}\" *(ro)", scratch.at("e e").display()));
    let server = Server::start(config).unwrap();
    let results = Client::new(&server).mount(Procedure::Export, &());
    let exports: Vec<(Vec<u8>, Vec<Vec<u8>>)> = results
        .get::<Exports<'_>>()
        .0
        .iter()
        .map(|node| (node.dir.0.to_vec(), node.groups.0.iter().map(|name| name.0.to_vec()).collect()))
        .collect();
    let path = |name: &str| scratch.at(name).as_os_str().as_bytes().to_vec();
    let names = [&b"10.0.0.0/8"[..], b"*.example.org", b"::1"].map(<[u8]>::to_vec).to_vec();
    let root = scratch.export().as_os_str().as_bytes().to_vec();
    assert_eq!(exports, [(root, names), (path("e e"), vec![b"*".to_vec()])]);
}

#[test]
fn the_status_socket_returns_correct_values() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash)");
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    client.write(&file, 0, &[0; 1000]);
    client.read(&file, 0, 500).unwrap();
    assert!(client.read(&[1; 32], 0, 500).is_err());
    let found = status::query(&scratch.run_dir()).unwrap();
    let [found] = &found[..] else { panic!("{found:?}") };
    let counted = |name: &str| {
        let procedure = found.counters["wire"][name];
        (procedure.ops, procedure.errors, procedure.bytes)
    };
    assert_eq!(counted("READ"), (2, 1, 500));
    assert_eq!(counted("WRITE"), (1, 0, 1000));
    assert_eq!(counted("MOUNT.MNT"), (1, 0, 0));
    assert_eq!(counted("COMMIT"), (0, 0, 0));
    let export = scratch.export().display().to_string();
    let [none, here] = &found.export_calls[..] else { panic!("{:?}", found.export_calls) };
    assert_eq!((&*none.export, none.errors, none.bytes_read), ("none", 1, 0), "the bad handle");
    assert_eq!((&here.export, &*here.data_path, here.errors), (&export, "wire", 0));
    assert_eq!((here.bytes_read, here.bytes_written), (500, 1000));
    assert!(here.times.iter().map(|bucket| bucket.calls).sum::<u64>() <= here.calls);
    assert!(here.times.last().is_some_and(|bucket| bucket.at_most_ns.is_none()), "{here:?}");
    assert_eq!(found.connections.len(), 1);
    assert_eq!(found.connections[0].peer, client.stream.local_addr().unwrap().to_string());
    assert_eq!(found.connections[0].calls, 5);
    assert_eq!(found.exports[0].clients, ["*(rw,no_root_squash,insecure,sync,no_subtree_check)"]);
    assert_eq!(found.mounts.len(), 1);
    assert!(found.memory.resident > 0 && found.pid == std::process::id());
    assert_eq!(found.listen, [common::address(&server).to_string()]);
    drop(client);
    wait_for("the connection to go", || server.status().connections.is_empty());

    // Both of two servers in one run directory answer. The socket of a dead server is skipped, and the next
    // server removes it.
    let mut config = scratch.config("*(ro,insecure)");
    config.state_dir = Some(scratch.dir.path().join("other-state"));
    let second = Server::start(config.clone()).unwrap();
    assert_eq!(status::query(&scratch.run_dir()).unwrap().len(), 2);
    let dead = scratch.run_dir().join("00112233445566778899aabbccddeeff.status");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    assert_eq!(status::query(&scratch.run_dir()).unwrap().len(), 2);
    drop(second);
    let third = Server::start(config).unwrap();
    assert!(!dead.exists());
    server.stop();
    assert_eq!(status::query(&scratch.run_dir()).unwrap().len(), 1);
    drop(third);
    assert!(status::query(&scratch.run_dir()).unwrap().is_empty());
    assert!(status::query(&scratch.dir.path().join("none")).is_err());
}

#[test]
fn a_client_that_never_reads_its_status_delays_others_briefly() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure)");
    let path = std::fs::read_dir(scratch.run_dir())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "status"))
        .unwrap();
    let silent: Vec<_> = (0..5).map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap()).collect();
    assert_eq!(status::query(&scratch.run_dir()).unwrap().len(), 1);
    drop(silent);
    server.stop();
}
