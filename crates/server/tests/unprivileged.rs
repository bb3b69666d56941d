//! A server started by an ordinary user: it serves that user's files to that user and root only, unless the
//! export allows more. Handles survive a restart, and the server reports its limitations at start.
//!
//! The tests need root: they are several users of the host at once, each on threads of its own.

mod common;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use common::local::{lane, run, user};
use common::users::as_user;
use common::v4::{NFS_OK, Ops, compound};
use common::{Client, Scratch, encoded, sys, wait_for, what};
use lane::{Access, CreateMode, NewFile, OpenError, OpenRequest, Target};
use proto::mount3::Mountstat3;
use proto::nfs3::{
    self, Createhow3, Getattr3Args, Lookup3Args, Nfsstat3, Outcome, Procedure, Sattr3, Setattr3Args,
};
use proto::nfs4::{self, Operation};
use rpc::message::{Credential, ReplyStatus};
use samehost_server::Server;
use xdr::{Encode, Encoder, Opaque};

/// The user who runs the server.
const OWNER: u32 = 12_345;
/// Another user of the host.
const OTHER: u32 = 23_456;
/// The clients of README's quick start.
const QUICK_START: &str = "127.0.0.1(rw,insecure,no_root_squash)";

/// A scratch directory and a server of the user [`OWNER`].
fn serve(clients: &str) -> (Scratch, Server) {
    assert!(rustix::process::geteuid().is_root(), "these tests need root");
    as_user(OWNER, || {
        let scratch = Scratch::new();
        let server = scratch.serve(clients);
        (scratch, server)
    })
}

/// A connection of a process of that user.
fn client_of(user: u32, server: &Server) -> Client {
    as_user(user, || Client::new(server).with_user(user, user, &[]))
}

#[test]
fn new_files_belong_to_the_servers_user_and_handles_survive_a_restart() {
    let (scratch, server) = serve(QUICK_START);
    let notices = server.notices();
    assert!(
        notices.iter().any(|notice| notice.contains("only the server's own user (12345)")),
        "{notices:?}"
    );
    let mut client = client_of(OWNER, &server);
    let root = client.mnt(&scratch.export()).unwrap();
    let mut made = Vec::new();
    for (name, claimed) in [("a", 0), ("b", OWNER)] {
        client.credential = sys(claimed, claimed, &[]);
        let file = client.create(&root, name).unwrap();
        assert!(matches!(client.write(&file, 0, name.as_bytes()), Outcome::Ok(_)));
        assert_eq!(std::fs::metadata(scratch.at(name)).unwrap().uid(), OWNER);
        made.push((name, file));
    }
    client.credential = sys(0, 0, &[]);
    let set = Sattr3 { uid: Some(0), ..Sattr3::default() };
    assert_eq!(setattr(&mut client, &made[0].1, set), Nfsstat3::Perm as u32, "files can't be given to root");
    server.stop();
    let server = as_user(OWNER, || scratch.serve(QUICK_START));
    let mut client = client_of(OWNER, &server);
    for (name, file) in &made {
        assert_eq!(client.read(file, 0, 10), Ok((name.as_bytes().to_vec(), true)), "{name} after a restart");
    }
    std::fs::remove_file(scratch.at("b")).unwrap();
    assert_eq!(client.read(&made[1].1, 0, 10), Err(Nfsstat3::Stale));
}

fn setattr(client: &mut Client, file: &[u8], new_attributes: Sattr3) -> u32 {
    let args = Setattr3Args { object: Opaque(file), new_attributes, guard: None };
    client.nfs(Procedure::Setattr, &args).status()
}

/// Asserts that a call is refused, whether by the RPC layer or with ACCES.
fn refused(client: &mut Client, procedure: Procedure, args: &impl Encode) {
    let (status, results) = client.raw(nfs3::PROGRAM, 3, procedure.number(), &encoded(args));
    if status == ReplyStatus::Success {
        let claimed = &client.credential;
        assert_eq!(results.status(), Nfsstat3::Acces as u32, "{procedure} with the claim {claimed:?}");
    }
}

/// An attack by another user of the host, with every claim, over NFSv3 and NFSv4. The attacker knows the
/// handles. A former line of the quick start allowed it.
fn attack(scratch: &Scratch, client: &mut Client, root: &[u8], secret: &[u8]) {
    for claim in [Some(OTHER), Some(OWNER), Some(0), Some(65_534), None] {
        client.credential = claim.map_or(Credential::None, |uid| sys(uid, uid, &[OWNER, 0]));
        assert_eq!(client.mnt(&scratch.export()).map(drop), Err(Mountstat3::Acces), "{claim:?}");
        let mode = |mode| Sattr3 { mode: Some(mode), ..Sattr3::default() };
        refused(client, Procedure::Getattr, &Getattr3Args { object: Opaque(root) });
        refused(client, Procedure::Lookup, &Lookup3Args { what: what(root, b"secret") });
        refused(client, Procedure::Read, &nfs3::Read3Args { file: Opaque(secret), offset: 0, count: 10 });
        let data = Opaque(&b"overwritten"[..]);
        let stable = nfs3::StableHow::FileSync;
        let args = nfs3::Write3Args { file: Opaque(secret), offset: 0, count: 11, stable, data };
        refused(client, Procedure::Write, &args);
        let how = Createhow3::Unchecked(mode(0o4755));
        refused(client, Procedure::Create, &nfs3::Create3Args { where_: what(root, b"program"), how });
        let args = Setattr3Args { object: Opaque(secret), new_attributes: mode(0o4755), guard: None };
        refused(client, Procedure::Setattr, &args);
        for ops in [
            Ops::new()
                .op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(secret) })
                .op(Operation::Read, &AnonymousRead),
            Ops::new()
                .op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(root) })
                .op(Operation::Lookup, &nfs4::Name4Args { name: Opaque(b"secret") }),
        ] {
            let (status, results) = client.raw(nfs4::PROGRAM, 4, nfs4::COMPOUND, &ops.minor(0));
            if status == ReplyStatus::Success {
                assert_eq!(results.status(), nfs4::Nfsstat4::Access as u32, "NFSv4, {claim:?}");
            }
        }
    }
}

/// READ's arguments with the anonymous state id.
struct AnonymousRead;

impl Encode for AnonymousRead {
    fn encode(&self, to: &mut Encoder) {
        to.fixed(&[0; 16]);
        to.u64(0);
        to.u32(10);
    }
}

#[test]
fn another_user_of_the_host_is_refused() {
    let (scratch, server) = serve(QUICK_START);
    std::fs::write(scratch.at("secret"), "private").unwrap();
    std::fs::set_permissions(scratch.at("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(scratch.at("secret"), Some(OWNER), Some(OWNER)).unwrap();
    let mut owner = client_of(OWNER, &server);
    let root = owner.mnt(&scratch.export()).unwrap();
    let secret = owner.lookup(&root, "secret");
    attack(&scratch, &mut client_of(OTHER, &server), &root, &secret);
    // Root's client host may act for the owner, and other users are reported truthfully.
    let mut host = Client::new(&server).with_user(OTHER, OTHER, &[]);
    refused(&mut host, Procedure::Lookup, &Lookup3Args { what: what(&root, b"secret") });
    for claimed in [0, OWNER] {
        host.credential = sys(claimed, claimed, &[]);
        assert_eq!(host.read(&secret, 0, 10).unwrap().0, b"private", "{claimed}");
    }
    // The owner's own client may also be used by other users (a mount with allow_other).
    owner.credential = sys(OTHER, OTHER, &[]);
    refused(&mut owner, Procedure::Lookup, &Lookup3Args { what: what(&root, b"secret") });
    let files: Vec<_> =
        std::fs::read_dir(scratch.export()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["secret"], "nothing was created");
    assert_eq!(std::fs::read(scratch.at("secret")).unwrap(), b"private");
    assert_eq!(std::fs::metadata(scratch.at("secret")).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn a_process_that_has_closed_its_socket_is_anonymous() {
    let (scratch, server) = serve(QUICK_START);
    // Calls on a socket that is closed at once are treated as anonymous, or not read at all.
    let mut owner = client_of(OWNER, &server);
    let root = owner.mnt(&scratch.export()).unwrap();
    as_user(OTHER, || {
        use std::io::Write as _;
        for number in 0..20 {
            let mut client = Client::new(&server).with_user(OWNER, OWNER, &[]);
            let name = format!("f{number}");
            let how = Createhow3::Guarded(Sattr3::default());
            let args = nfs3::Create3Args { where_: what(&root, name.as_bytes()), how };
            let record = client.record(nfs3::PROGRAM, 3, Procedure::Create.number(), &encoded(&args));
            client.stream.write_all(&record).unwrap();
        }
    });
    // Connections are accepted in their order.
    let mut last = client_of(OWNER, &server);
    last.create(&root, "last").unwrap();
    wait_for("the others' end", || server.status().connections.len() <= 2);
    assert_eq!(std::fs::read_dir(scratch.export()).unwrap().count(), 1);
}

/// Tries every kind of Open over the lane as the user `process` with a claim. `Err` if all are refused.
fn granted(scratch: &Scratch, server: &Server, process: u32, claim: u32, root: &[u8]) -> Result<(), String> {
    as_user(process, || {
        let mut client = Client::new(server).with_user(claim, claim, &[]);
        let mut all = Vec::new();
        run(async {
            // A user who isn't served may be refused a lane altogether.
            let lane = lane(scratch, &mut client).await;
            let new = |name| {
                Target::New(NewFile { directory: root, name, mode: 0o644, how: CreateMode::Unchecked })
            };
            let there = Target::Entry { directory: root, name: b"secret" };
            for (target, access) in [
                (there, Access::Read),
                (there, Access::Write),
                (there, Access::ReadWrite),
                (new(b"new"), Access::Write),
                (new(b"new"), Access::ReadWrite),
            ] {
                let who = user(claim, claim, &[]);
                let opened = lane.open(OpenRequest { target, access, credential: &who }).await;
                all.push(match opened {
                    Ok(_) => Ok(()),
                    Err(OpenError::Refused(status)) => Err(format!("{status:?}")),
                    Err(error) => panic!("{error:?}"),
                });
            }
        });
        let first = all[1].clone();
        assert!(all[1..].iter().all(|one| *one == first), "{all:?}");
        assert!(first.is_ok() || all[0].is_err(), "{all:?}");
        first
    })
}

#[test]
fn the_lane_refuses_other_users_even_where_all_are_served() {
    for word in ["", ",all_act_as_server_user"] {
        let (scratch, server) = serve(&format!("127.0.0.1(rw,insecure,no_root_squash{word})"));
        std::fs::write(scratch.at("secret"), "private").unwrap();
        std::os::unix::fs::chown(scratch.at("secret"), Some(OWNER), Some(OWNER)).unwrap();
        let root = client_of(OWNER, &server).mnt(&scratch.export()).unwrap();
        granted(&scratch, &server, OWNER, OWNER, &root).unwrap();
        granted(&scratch, &server, 0, OWNER, &root).unwrap();
        std::fs::remove_file(scratch.at("new")).unwrap();
        if !word.is_empty() {
            // Without the option other users get no lane.
            for claim in [OTHER, OWNER, 0] {
                granted(&scratch, &server, OTHER, claim, &root).unwrap_err();
            }
        }
        assert!(!scratch.at("new").exists());
    }
}

#[test]
fn with_all_act_as_server_user_all_are_served_without_set_id_bits() {
    let (scratch, server) = serve("127.0.0.1(rw,insecure,all_act_as_server_user)");
    let notices = server.notices();
    let said = "all users at 127.0.0.1 act as user 12345";
    assert!(notices.iter().any(|notice| notice.contains(said)), "{notices:?}");
    let clients = &server.status().exports[0].clients;
    assert!(clients[0].contains("all_act_as_server_user"), "{clients:?}");
    let mut client = client_of(OTHER, &server);
    let root = client.mnt(&scratch.export()).unwrap();
    let mut made = Vec::new();
    for (name, credential) in [("a", sys(0, 0, &[])), ("b", sys(77, 77, &[])), ("c", Credential::None)] {
        client.credential = credential;
        made.push(client.create(&root, name).unwrap());
        assert_eq!(std::fs::metadata(scratch.at(name)).unwrap().uid(), OWNER);
    }
    client.credential = sys(OTHER, OTHER, &[]);
    for bits in [0o4755, 0o2755] {
        let mode = Sattr3 { mode: Some(bits), ..Sattr3::default() };
        assert_eq!(setattr(&mut client, &made[0], mode), Nfsstat3::Perm as u32);
        assert_eq!(client.create_how(&root, "d", Createhow3::Guarded(mode)), Err(Nfsstat3::Perm));
        let what = nfs3::Mknoddata3::Fifo(mode);
        let args = nfs3::Mknod3Args { where_: common::what(&root, b"d"), what };
        assert_eq!(client.nfs(Procedure::Mknod, &args).status(), Nfsstat3::Perm as u32);
        let bits = bits.to_be_bytes();
        let attributes = || nfs4::Fattr4 {
            attrmask: nfs4::Bitmap4::of(&[nfs4::attributes::MODE]),
            attr_vals: Opaque(&bits),
        };
        let set = nfs4::Setattr4Args { stateid: nfs4::Stateid4::default(), obj_attributes: attributes() };
        let ops = Ops::new()
            .op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(&made[0]) })
            .op(Operation::Setattr, &set);
        assert_eq!(compound(&mut client, 0, &ops).status, nfs4::Nfsstat4::Perm as u32);
        let objtype = nfs4::Createtype4::Other(nfs4::NfsFtype4::Fifo as u32);
        let new = nfs4::Create4Args { objtype, objname: Opaque(b"d"), createattrs: attributes() };
        let ops = Ops::new()
            .op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(&root) })
            .op(Operation::Create, &new);
        assert_eq!(compound(&mut client, 0, &ops).status, nfs4::Nfsstat4::Perm as u32);
    }
    // Allowed as before: on a directory the bit determines the group of new files.
    let mode = Sattr3 { mode: Some(0o2755), ..Sattr3::default() };
    let args = nfs3::Mkdir3Args { where_: what(&root, b"d"), attributes: mode };
    assert_eq!(client.nfs(Procedure::Mkdir, &args).status(), NFS_OK);
}
