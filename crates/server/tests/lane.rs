//! The lane and the wire give the same answers: one access check, requested over both for the same files.

mod common;

use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use common::local::{lane, open, run, user};
use common::{Client, Scratch};
use lane::{Access, LaneCredential, OpenStatus, Rendezvous, RendezvousOptions, Target};
use proto::{localio, nfs3};
use rpc::message::{AuthStat, ReplyStatus};
use samehost_server::Server;

fn wire(server: &Server, procedure: &str) -> u64 {
    server.status().counters["wire"][procedure].ops
}

#[test]
fn granted_files_cause_no_calls_on_the_wire() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash)");
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    std::fs::write(scratch.at("f"), "0123456789").unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        assert_eq!(lane.instance(), server.instance());
        let entry = Target::Entry { directory: &root, name: b"f" };
        let opened = open(&lane, entry, Access::ReadWrite, &user(0, 0, &[])).await.unwrap();
        assert_eq!((opened.attributes.file.size, opened.attributes.file.mode & 0o700), (10, 0o600));
        let file = client.lookup(&root, "f");
        assert_eq!(opened.handle, file, "one file has one handle on both data paths");
        assert_eq!(opened.attributes.file.fileid, client.getattr(&file).fileid);
        let proto::nfs3::Outcome::Ok(written) = client.write(&file, 0, b"AB") else { panic!() };
        assert_eq!(opened.verifier, written.verf);
        let granted = std::fs::File::from(opened.grant.as_fd().try_clone_to_owned().unwrap());
        let mut buffer = [0; 10];
        granted.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"AB23456789");
        granted.write_all_at(b"xy", 8).unwrap();
        assert_eq!(client.read(&file, 0, 10).unwrap().0, b"AB234567xy");
        assert_eq!((wire(&server, "READ"), wire(&server, "WRITE")), (1, 1));

        let status = server.status();
        assert_eq!((status.grants.open, status.grants.granted, status.grants.refused), (1, 1, 0));
        assert_eq!((status.lanes.len(), status.lanes[0].grants), (1, 1));
        assert_eq!(status.lanes[0].nfs_peer, Some(client.stream.local_addr().unwrap().to_string()));
        assert_eq!(status.counters["lane"]["OPEN"].ops, 1);
        drop(opened);
        lane.flush();
        common::wait_for("the release", || server.status().grants.open == 0);
    });
}

/// The export's rules for addresses and ports apply to the connection, so a lane can't outlive it.
#[test]
fn a_lane_ends_with_the_nfs_connection_that_it_is_bound_to() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash)");
    let (mut bound, mut other) = (Client::new(&server), Client::new(&server));
    let root = bound.mnt(&scratch.export()).unwrap();
    std::fs::write(scratch.at("f"), "data").unwrap();
    run(async {
        let (ending, staying) = (lane(&scratch, &mut bound).await, lane(&scratch, &mut other).await);
        let entry = Target::Entry { directory: &root, name: b"f" };
        let granted = open(&ending, entry, Access::ReadWrite, &user(0, 0, &[])).await.unwrap().grant;
        drop(bound);
        tokio::time::timeout(Duration::from_secs(60), ending.gone()).await.expect("the lane's end");
        assert!(!granted.is_live());
        common::wait_for("the end of what it held", || {
            let status = server.status();
            (status.lanes.len(), status.grants.open) == (1, 0)
        });
        open(&staying, entry, Access::Read, &user(0, 0, &[])).await.unwrap();
        let mut back = Client::new(&server);
        let again = lane(&scratch, &mut back).await;
        open(&again, entry, Access::Read, &user(0, 0, &[])).await.unwrap();
    });
}

#[test]
fn refusals_are_those_of_the_wire() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,root_squash)");
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    for (name, mode) in [("open", 0o666), ("closed", 0o600)] {
        std::fs::write(scratch.at(name), "data").unwrap();
        std::fs::set_permissions(scratch.at(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    }
    std::fs::create_dir(scratch.at("d")).unwrap();
    std::os::unix::fs::symlink("open", scratch.at("l")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, scratch.at("p"), rustix::fs::FileType::Fifo, 0o666.into(), 0)
        .unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let admin = user(0, 0, &[]);
        let try_open = async |name: &[u8], access, who: &LaneCredential| {
            open(&lane, Target::Entry { directory: &root, name }, access, who).await.map(|_| ()).err()
        };
        assert_eq!(try_open(b"open", Access::ReadWrite, &admin).await, None);
        assert_eq!(
            try_open(b"closed", Access::Read, &admin).await,
            Some(OpenStatus::Access),
            "root is squashed"
        );
        assert_eq!(
            try_open(b"closed", Access::Write, &user(1000, 1000, &[])).await,
            Some(OpenStatus::Access)
        );
        assert_eq!(try_open(b"d", Access::Read, &admin).await, Some(OpenStatus::IsDirectory));
        assert_eq!(try_open(b"l", Access::Read, &admin).await, Some(OpenStatus::Symlink));
        assert_eq!(try_open(b"p", Access::Read, &admin).await, Some(OpenStatus::NotRegular));
        assert_eq!(try_open(b"missing", Access::Read, &admin).await, Some(OpenStatus::NotFound));
        assert_eq!(try_open(b"../export/open", Access::Read, &admin).await, Some(OpenStatus::TryWire));
        assert_eq!(try_open(b"", Access::Read, &admin).await, Some(OpenStatus::TryWire));
        let bad = open(&lane, Target::Handle(&[7; 32]), Access::Read, &admin).await;
        assert_eq!(bad.map(|_| ()).err(), Some(OpenStatus::BadHandle));
        let file = client.lookup(&root, "open");
        std::fs::remove_file(scratch.at("open")).unwrap();
        let stale = open(&lane, Target::Handle(&file), Access::Read, &admin).await;
        assert_eq!(stale.map(|_| ()).err(), Some(OpenStatus::Stale));
        let grants = server.status().grants;
        assert_eq!((grants.granted, grants.refused, grants.not_found), (1, 9, 1));
    });
}

/// NFS servers allow READ and WRITE to an owner whatever the mode says, and READ to users with execute
/// permission, because the protocol has no open (RFC 1813 section 4.4). A descriptor is an open.
#[test]
fn an_open_that_the_lane_refuses_is_served_by_the_wire() {
    for options in ["no_root_squash", "root_squash"] {
        let scratch = Scratch::new();
        let server = scratch.serve(&format!("*(rw,insecure,{options})"));
        let mut client = Client::new(&server).with_user(1000, 1000, &[]);
        let root = client.mnt(&scratch.export()).unwrap();
        for (name, owner, mode) in [("program", 0, 0o711), ("own", 1000, 0o000)] {
            std::fs::write(scratch.at(name), "data").unwrap();
            std::os::unix::fs::chown(scratch.at(name), Some(owner), Some(owner)).unwrap();
            std::fs::set_permissions(scratch.at(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
                .unwrap();
        }
        run(async {
            let lane = lane(&scratch, &mut client).await;
            for name in ["program", "own"] {
                let file = client.lookup(&root, name);
                let entry = Target::Entry { directory: &root, name: name.as_bytes() };
                for target in [entry, Target::Handle(&file)] {
                    let refused = open(&lane, target, Access::Read, &user(1000, 1000, &[])).await.err();
                    assert_eq!(refused, Some(OpenStatus::TryWire), "{options}: {name}");
                }
                assert_eq!(client.read(&file, 0, 10).unwrap().0, b"data", "{options}: {name}");
            }
            let own = Target::Entry { directory: &root, name: b"own" };
            let refused = open(&lane, own, Access::Write, &user(1000, 1000, &[])).await.err();
            assert_eq!(refused, Some(OpenStatus::TryWire), "{options}");
        });
    }
}

#[test]
fn read_only_clients_get_no_writable_descriptor() {
    for clients in ["*(ro,insecure,no_root_squash)", "127.0.0.1(ro,insecure,no_root_squash) *(rw)"] {
        let scratch = Scratch::new();
        std::fs::write(scratch.at("f"), "data").unwrap();
        let server = scratch.serve(clients);
        let mut client = Client::new(&server);
        let root = client.mnt(&scratch.export()).unwrap();
        run(async {
            let lane = lane(&scratch, &mut client).await;
            let entry = Target::Entry { directory: &root, name: b"f" };
            let admin = user(0, 0, &[]);
            for access in [Access::Write, Access::ReadWrite] {
                assert_eq!(
                    open(&lane, entry, access, &admin).await.map(|_| ()).err(),
                    Some(OpenStatus::ReadOnly)
                );
            }
            let opened = open(&lane, entry, Access::Read, &admin).await.unwrap();
            let path = format!("/proc/self/fd/{}", opened.grant.as_fd().as_raw_fd());
            let again = std::fs::OpenOptions::new().write(true).open(path).unwrap_err();
            assert_eq!(again.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{clients}");
        });
    }
}

/// Becomes an ordinary user, on this thread alone.
fn become_user(id: u32) {
    use rustix::process::{Gid, Uid};
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_gid(Gid::from_raw(id)).unwrap();
    rustix::thread::set_thread_uid(Uid::from_raw(id)).unwrap();
}

/// Descriptors that were granted to a user and that root has got hold of: in a container without a user
/// namespace root can always get those of the container's users.
fn granted_descriptors(clients: &str, peer: u32, claim: u32) -> Vec<std::os::fd::OwnedFd> {
    let scratch = Scratch::new();
    std::fs::write(scratch.at("f"), "root's").unwrap();
    std::fs::set_permissions(scratch.at("f"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let server = scratch.serve(clients);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.lookup(&root, "f");
    let (scratch, client) = (&scratch, &mut client);
    let ask = move || {
        if peer != 0 {
            become_user(peer);
        }
        let mut got = Vec::new();
        run(async {
            let lane = lane(scratch, client).await;
            let who = user(claim, claim, &[]);
            for target in [Target::Entry { directory: &root, name: b"f" }, Target::Handle(&file)] {
                let written = open(&lane, target, Access::Write, &who).await.map(|_| ()).err();
                let opened = open(&lane, target, Access::Read, &who).await;
                let opened = opened
                    .unwrap_or_else(|status| panic!("{clients}, {peer} as {claim}, {target:?}: {status}"));
                if clients.contains("squash") && !clients.contains("no_root_squash") {
                    assert_eq!(written, Some(OpenStatus::Access), "the export doesn't permit it");
                }
                got.push(opened.grant.as_fd().try_clone_to_owned().unwrap());
            }
        });
        got
    };
    std::thread::scope(|scope| scope.spawn(ask).join().unwrap())
}

#[test]
fn a_squashed_client_cannot_reopen_a_readable_file_for_writing() {
    for (clients, peer, claim) in [
        ("*(rw,insecure,root_squash)", 0, 0),
        // Root claims a uid that isn't squashed.
        ("*(rw,insecure,root_squash)", 0, 1000),
        // Root requests as an ordinary user.
        ("*(rw,insecure,root_squash)", 1000, 1000),
        ("*(rw,insecure,all_squash)", 0, 0),
        ("*(rw,insecure,all_squash)", 1000, 1000),
    ] {
        for file in granted_descriptors(clients, peer, claim) {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let mut options = std::fs::OpenOptions::new();
            for options in [options.write(true), std::fs::OpenOptions::new().read(true).write(true)] {
                let again = options.open(&path).unwrap_err();
                assert_eq!(
                    again.kind(),
                    std::io::ErrorKind::ReadOnlyFilesystem,
                    "{clients}, {peer}, {claim}"
                );
            }
            let chmod = rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o4755));
            assert_eq!(chmod, Err(rustix::io::Errno::ROFS));
        }
    }
    // Without root_squash root may write.
    for file in granted_descriptors("*(rw,insecure,no_root_squash)", 0, 0) {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::OpenOptions::new().write(true).open(path).unwrap();
    }
}

/// The status of a client's connection: whether it is local, and the reason.
fn reason(server: &Server, client: &Client) -> (bool, String) {
    let peer = client.stream.local_addr().unwrap().to_string();
    let status = server.status();
    let connection = status.connections.into_iter().find(|connection| connection.peer == peer).unwrap();
    (connection.local, connection.reason)
}

fn assert_not_local(server: &Server, client: &Client, words: &str) {
    let (local, reason) = reason(server, client);
    assert!(!local && reason.contains(words), "{words:?} in {reason:?}");
}

#[test]
fn the_status_of_every_connection_has_the_reason_for_its_data_path() {
    let scratch = Scratch::new();
    let server =
        scratch.serve("127.0.0.1(rw,insecure) 127.0.0.2(rw,insecure,no_lane) 127.0.0.4(rw,insecure)");
    let mut silent = Client::new(&server);
    silent.mnt(&scratch.export()).unwrap();
    assert_not_local(&server, &silent, "never asked: not a Samehost client");

    let ask = |client: &mut Client, nonce: [u8; 16]| client.raw(localio::PROGRAM, 1, 1, &nonce).0;
    let mut stranger = Client::new(&server);
    assert_eq!(ask(&mut stranger, [7; 16]), ReplyStatus::Success);
    assert_not_local(&server, &stranger, "nothing on this host registered its nonce");
    let mut kernel = Client::new(&server);
    let rpc::message::Credential::Sys(sys) = &mut kernel.credential else { panic!() };
    sys.stamp = 0;
    assert_eq!(ask(&mut kernel, [8; 16]), ReplyStatus::Success);
    assert_not_local(&server, &kernel, "a Linux kernel client asked");
    let mut nobody = Client::new(&server);
    nobody.credential = rpc::message::Credential::None;
    assert_ne!(ask(&mut nobody, [9; 16]), ReplyStatus::Success);
    assert_not_local(&server, &nobody, "without AUTH_SYS");

    run(async {
        let mut client = Client::from(&server, [127, 0, 0, 4].into(), 0);
        let other = Client::from(&server, [127, 0, 0, 4].into(), 0);
        common::wait_for("the other connection", || server.status().connections.len() == 6);
        let lane = lane(&scratch, &mut client).await;
        let (local, how) = reason(&server, &client);
        assert!(local && how.starts_with("over ") && !how.contains("no_lane"), "{how}");
        let peer = client.stream.local_addr().unwrap().to_string();
        assert_not_local(&server, &other, &format!("its address has a lane with {peer}"));
        drop(lane);
        common::wait_for("the end of the lane", || server.status().lanes.is_empty());
        assert_not_local(&server, &client, "had a lane until: the client hung up");
    });

    run(async {
        let mut client = Client::from(&server, [127, 0, 0, 2].into(), 0);
        let lane = lane(&scratch, &mut client).await;
        let (local, reason) = reason(&server, &client);
        assert!(local && reason.ends_with("(no_lane)"), "{reason}");
        drop(lane);
    });
}

#[test]
fn a_nonce_is_valid_for_one_lane() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure)");
    run(async {
        let mut options = RendezvousOptions::new(scratch.run_dir());
        options.search_namespaces = false;
        let candidates = Rendezvous::register(options).await.unwrap();
        let nonce = candidates.nonce();
        let (mut first, mut second) = (Client::new(&server), Client::new(&server));
        for client in [&mut first, &mut second] {
            client.raw(localio::PROGRAM, 1, 1, &nonce);
        }
        let _lane = candidates.finish(Duration::from_secs(5)).await.unwrap();
        assert!(reason(&server, &first).0);
        assert_not_local(&server, &second, "a nonce that was used before");
    });
}

#[test]
fn a_server_without_a_lane_refuses_every_probe() {
    let scratch = Scratch::new();
    let server = Server::start(samehost_server::Config {
        lane: samehost_server::LaneOffer::Off,
        ..scratch.config("*(rw,insecure)")
    })
    .unwrap();
    let mut client = Client::new(&server);
    client.mnt(&scratch.export()).unwrap();
    assert_not_local(&server, &client, "the lane is off on this server");
}

#[test]
fn no_lane_addresses_and_ports() {
    let scratch = Scratch::new();
    std::fs::write(scratch.at("f"), "data").unwrap();
    let server =
        scratch.serve("127.0.0.1(rw,insecure,no_lane,no_root_squash) 127.0.0.2(rw,insecure,no_root_squash)");
    let mut first = Client::new(&server);
    let root = first.mnt(&scratch.export()).unwrap();
    run(async {
        let admin = user(0, 0, &[]);
        let entry = Target::Entry { directory: &root, name: b"f" };
        for (last, expected) in [(1, Some(OpenStatus::NoLane)), (2, None)] {
            let mut client = Client::from(&server, [127, 0, 0, last].into(), 0);
            let lane = lane(&scratch, &mut client).await;
            let opened = open(&lane, entry, Access::Read, &admin).await;
            assert_eq!(opened.map(|_| ()).err(), expected, "127.0.0.{last}");
        }
    });
    // A peer that no export names can't even probe.
    let mut stranger = Client::from(&server, [127, 0, 0, 3].into(), 0);
    let (status, _) = stranger.raw(localio::PROGRAM, 1, 1, &[7; 16]);
    assert_eq!(status, ReplyStatus::AuthError(AuthStat::BadCred));
}

#[test]
fn a_reload_recalls_the_grants_of_affected_clients() {
    let scratch = Scratch::new();
    std::fs::write(scratch.at("f"), "data").unwrap();
    let list = scratch.dir.path().join("exports");
    let export = scratch.export();
    let write = |one: &str| {
        let line = format!("{} 127.0.0.1({one}) 127.0.0.2(rw,insecure,no_root_squash)", export.display());
        std::fs::write(&list, line).unwrap();
    };
    write("rw,insecure,no_root_squash");
    let mut config = scratch.config("");
    (config.exports, config.export_files) = (vec![], vec![list.clone()]);
    let server = Server::start(config).unwrap();
    let (mut first, mut second) = (Client::new(&server), Client::from(&server, [127, 0, 0, 2].into(), 0));
    let root = first.mnt(&scratch.export()).unwrap();
    run(async {
        let admin = user(0, 0, &[]);
        let entry = Target::Entry { directory: &root, name: b"f" };
        let (to_first, to_second) = (lane(&scratch, &mut first).await, lane(&scratch, &mut second).await);
        let touched = open(&to_first, entry, Access::ReadWrite, &admin).await.unwrap();
        let untouched = open(&to_second, entry, Access::ReadWrite, &admin).await.unwrap();
        server.reload().unwrap();
        assert!(touched.grant.try_get().is_some(), "nothing has changed");
        write("ro,insecure,no_root_squash");
        server.reload().unwrap();
        assert!(touched.grant.try_get().is_none());
        assert!(untouched.grant.try_get().is_some());
        let again = open(&to_first, entry, Access::ReadWrite, &admin).await;
        assert_eq!(again.map(|_| ()).err(), Some(OpenStatus::ReadOnly));
        // A stop recalls every grant.
        server.stop();
        assert!(untouched.grant.try_get().is_none());
    });
}

#[test]
fn a_nonce_registered_twice_is_refused() {
    use lane::message::{self, LaneRequest};
    use rustix::net::{SendFlags, SocketAddrUnix, connect, send};

    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure)");
    let nonce = lane::Nonce::random().unwrap();
    let register = LaneRequest::Register {
        lowest: *message::VERSIONS.start(),
        highest: *message::VERSIONS.end(),
        commitment: nonce.commitment(),
    };
    let path = scratch.run_dir().join(lane::run_dir::lane_name(&server.instance()));
    let two = [(); 2].map(|()| {
        let socket = lane::run_dir::seqpacket().unwrap();
        connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        send(&socket, &message::encode(&register), SendFlags::NOSIGNAL).unwrap();
        socket
    });
    let mut client = Client::new(&server);
    client.raw(localio::PROGRAM, 1, 1, &nonce.0);
    assert_not_local(&server, &client, "two had registered its nonce");
    drop(two);
}

/// A client that makes its calls on the lane's call socket instead of its connection.
async fn on_call_socket(lane: &lane::Lane, client: &Client) -> Client {
    let stream = std::net::TcpStream::from(lane.call_socket().await.unwrap());
    stream.set_read_timeout(Some(common::TIMEOUT)).unwrap();
    Client { stream, credential: client.credential.clone(), xid: 5000 }
}

#[test]
fn calls_on_the_call_socket_are_calls_of_the_connection() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash)");
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let mut local = on_call_socket(&lane, &client).await;
        let file = local.create(&root, "f").unwrap();
        assert_eq!(client.lookup(&root, "f"), file);
        assert_eq!(local.getattr(&file), client.getattr(&file));
        let (written, read) = (local.write(&file, 0, b"data"), client.read(&file, 0, 10).unwrap().0);
        assert!(matches!(written, proto::nfs3::Outcome::Ok(_)));
        assert_eq!(read, b"data");
        assert_eq!((wire(&server, "CREATE"), wire(&server, "GETATTR")), (1, 2));
        let status = server.status();
        assert_eq!((status.connections.len(), status.wire.accepted), (1, 1));
        assert!(status.connections[0].calls >= 8, "{:?}", status.connections);

        // Programs other than NFSv3 and NFSv4 aren't served there: no further lane.
        for (program, version) in [(localio::PROGRAM, 1), (proto::mount3::PROGRAM, 3), (nfs3::PROGRAM, 2)] {
            let (answer, _) = local.raw(program, version, 1, &[7; 16]);
            assert_eq!(answer, ReplyStatus::ProgUnavail, "{program}");
        }

        // Another one takes its place.
        let mut next = on_call_socket(&lane, &client).await;
        assert!(local.receive().is_err(), "closed");
        assert_eq!(next.getattr(&file), client.getattr(&file));
        // It ends with the connection and its lane.
        drop(client);
        assert!(next.receive().is_err(), "closed");
        common::wait_for("the end of the lane", || server.status().lanes.is_empty());
    });
}

#[test]
fn a_call_is_executed_once_on_call_socket_and_connection_together() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash)");
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let mut local = on_call_socket(&lane, &client).await;
        let attributes = nfs3::Sattr3::default();
        for (number, local_first) in [(0, true), (1, false)] {
            let name = format!("d{number}");
            let where_ = common::what(&root, name.as_bytes());
            client.xid += 1;
            let args = common::encoded(&nfs3::Mkdir3Args { where_, attributes });
            let record = client.record(nfs3::PROGRAM, 3, nfs3::Procedure::Mkdir.number(), &args);
            let mut both = [&mut client, &mut local];
            if local_first {
                both.reverse();
            }
            let replies = both.map(|end| {
                end.stream.write_all(&record).unwrap();
                end.receive().unwrap()
            });
            assert_eq!(replies[0][24..28], [0; 4], "it succeeds");
            assert_eq!(replies[0], replies[1]);
        }
        assert_eq!(wire(&server, "MKDIR"), 4);

        // The reply is for its own user only.
        let where_ = common::what(&root, b"d0");
        let args = common::encoded(&nfs3::Mkdir3Args { where_, attributes });
        local.credential = common::sys(0, 0, &[5]);
        let (_, results) = local.raw(nfs3::PROGRAM, 3, nfs3::Procedure::Mkdir.number(), &args);
        assert_eq!(results.status(), nfs3::Nfsstat3::Exist as u32);
    });
}

/// Over TCP, `insecure` exports believe the claims of clients in other network namespaces. On the call socket
/// the kernel's report of the process counts, whoever the TCP connection belongs to.
#[test]
fn a_process_makes_calls_on_the_call_socket_only_as_itself() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash)");
    // The connection is root's.
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    common::users::as_user(4711, || {
        run(async {
            let lane = lane(&scratch, &mut client).await;
            let mut local = on_call_socket(&lane, &client).await;
            let args = common::encoded(&nfs3::Getattr3Args { object: xdr::Opaque(&root) });
            for (credential, may) in [
                (common::sys(4711, 4711, &[]), true),
                (common::sys(4711, 4711, &[4711]), true),
                (common::sys(0, 0, &[]), false),
                (common::sys(4711, 0, &[]), false),
                (common::sys(4711, 4711, &[0]), false),
                (common::sys(1000, 4711, &[]), false),
                (rpc::message::Credential::None, false),
            ] {
                local.credential = credential.clone();
                let (answer, _) = local.raw(nfs3::PROGRAM, 3, 1, &args);
                let expected =
                    if may { ReplyStatus::Success } else { ReplyStatus::AuthError(AuthStat::TooWeak) };
                assert_eq!(answer, expected, "{credential:?}");
                client.credential = credential;
                assert_eq!(client.raw(nfs3::PROGRAM, 3, 1, &args).0, ReplyStatus::Success, "over TCP");
            }
        });
    });
}

#[test]
fn the_export_is_checked_for_each_call_on_the_call_socket() {
    let scratch = Scratch::new();
    let exports = scratch.dir.path().join("exports");
    let export = |options: &str| {
        std::fs::write(&exports, format!("{} *({options})\n", scratch.export().display())).unwrap();
    };
    export("rw,insecure,no_root_squash");
    let config = samehost_server::Config {
        exports: vec![],
        export_files: vec![exports.clone()],
        ..scratch.config("")
    };
    let server = Server::start(config).unwrap();
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    run(async {
        let lane = lane(&scratch, &mut client).await;
        let mut local = on_call_socket(&lane, &client).await;
        local.create(&root, "before").unwrap();
        export("ro,insecure,no_root_squash");
        server.reload().unwrap();
        assert_eq!(local.create(&root, "after").unwrap_err(), nfs3::Nfsstat3::Rofs);
        export("rw,secure,no_root_squash");
        server.reload().unwrap();
        // The connection's port counts.
        let args = common::encoded(&nfs3::Getattr3Args { object: xdr::Opaque(&root) });
        for end in [&mut local, &mut client] {
            let (answer, _) = end.raw(nfs3::PROGRAM, 3, 1, &args);
            assert_eq!(answer, ReplyStatus::AuthError(AuthStat::BadCred));
        }
    });
}
