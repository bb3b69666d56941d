//! A server that runs as root, and ordinary users' processes on its host: over loopback AUTH_SYS claims are
//! verified.
//!
//! The tests need root: they are several users of the host at once, each on threads of its own.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use common::users::as_user;
use common::v4::{Ops, Session, compound, get};
use common::{Client, Scratch, sys, what};
use proto::nfs3::{self, Lookup3Args, Nfsstat3, Procedure, Sattr3};
use proto::nfs4::{self, OpenClaim4, Operation};
use rpc::message::Credential;
use samehost_server::Server;
use xdr::{Array, Encode, Encoder, Opaque};

/// A user with an entry in every Debian's /etc/passwd, in the group of the same number and in no other.
const DAEMON: u32 = 1;
/// A user without an entry.
const NAMELESS: u32 = 34_567;

/// A connection of a process of that user, whose credential is its own.
fn client_of(user: u32, server: &Server) -> Client {
    as_user(user, || Client::new(server).with_user(user, user, &[]))
}

/// The status of a LOOKUP of `name`.
fn lookup(client: &mut Client, root: &[u8], name: &str) -> u32 {
    client.nfs(Procedure::Lookup, &Lookup3Args { what: what(root, name.as_bytes()) }).status()
}

/// Owner and group of a file that the client creates.
fn made_by(scratch: &Scratch, client: &mut Client, root: &[u8], name: &str) -> (u32, u32) {
    client.create(root, name).unwrap();
    let made = std::fs::metadata(scratch.at(name)).unwrap();
    (made.uid(), made.gid())
}

#[test]
fn a_local_process_acts_as_its_own_user_or_anonymous() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash,async)");
    for (name, uid) in [("roots", 0), ("namelesss", NAMELESS), ("daemons", DAEMON)] {
        std::fs::write(scratch.at(name), "data").unwrap();
        std::fs::set_permissions(scratch.at(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(scratch.at(name), Some(uid), Some(uid)).unwrap();
    }
    let mut client = client_of(DAEMON, &server);
    let root = client.mnt(&scratch.export()).unwrap();
    assert_eq!(made_by(&scratch, &mut client, &root, "own"), (DAEMON, DAEMON));
    let file = client.lookup(&root, "daemons");
    assert_eq!(client.read(&file, 0, 4).unwrap().0, b"data");
    for (number, claim) in
        [sys(0, 0, &[]), sys(NAMELESS, 0, &[DAEMON]), sys(u32::MAX, 0, &[]), Credential::None]
            .into_iter()
            .enumerate()
    {
        client.credential = claim.clone();
        let name = format!("claimed{number}");
        assert_eq!(made_by(&scratch, &mut client, &root, &name), (65_534, 65_534), "{claim:?}");
        for name in ["roots", "namelesss", "daemons"] {
            let file = client.lookup(&root, name);
            assert_eq!(client.read(&file, 0, 4), Err(Nfsstat3::Acces), "{name}, {claim:?}");
            let mode = Sattr3 { mode: Some(0o777), ..Sattr3::default() };
            let args = nfs3::Setattr3Args { object: Opaque(&file), new_attributes: mode, guard: None };
            assert_eq!(client.nfs(Procedure::Setattr, &args).status(), Nfsstat3::Perm as u32);
            let ops = Ops::new()
                .op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(&file) })
                .op(Operation::Read, &AnonymousRead);
            assert_eq!(compound(&mut client, 0, &ops).status, nfs4::Nfsstat4::Access as u32);
        }
    }
    // Root's processes may claim any user, as a client host's kernel does.
    let mut host = Client::new(&server);
    for (name, uid) in [("roots", 0), ("namelesss", NAMELESS), ("daemons", DAEMON)] {
        host.credential = sys(uid, uid, &[]);
        let file = host.lookup(&root, name);
        assert_eq!(host.read(&file, 0, 4).unwrap().0, b"data");
    }
}

/// READ's arguments with the anonymous state id.
struct AnonymousRead;

impl Encode for AnonymousRead {
    fn encode(&self, to: &mut Encoder) {
        to.fixed(&[0; 16]);
        to.u64(0);
        to.u32(4);
    }
}

#[test]
fn processes_are_known_by_every_address_of_the_host() {
    let scratch = Scratch::new();
    let mut config = scratch.config("*(rw,insecure,no_root_squash,async)");
    config.listen = vec!["[::]:0".parse().unwrap()];
    let server = Server::start(config).unwrap();
    let port = server.local_addrs()[0].port();
    for (number, address) in ["127.0.0.1", "127.9.8.7", "::1"].into_iter().enumerate() {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        // A host may have no IPv6: then the server listens on the other family alone.
        if TcpStream::connect(address).is_err() && address.is_ipv6() {
            continue;
        }
        let mut client = as_user(DAEMON, || Client::to(address));
        let root = client.mnt(&scratch.export()).unwrap();
        let name = format!("false{number}");
        assert_eq!(made_by(&scratch, &mut client, &root, &name), (65_534, 65_534), "{address}");
        client.credential = sys(DAEMON, DAEMON, &[]);
        let name = format!("true{number}");
        assert_eq!(made_by(&scratch, &mut client, &root, &name), (DAEMON, DAEMON), "{address}");
    }
}

/// An NFSv4 client's state belongs to the user who owns the process, whatever the process claims.
#[test]
fn a_false_claim_cannot_end_another_users_client() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash,async)");
    std::fs::write(scratch.at("f"), "data").unwrap();
    let mut roots = Session::new(&server, 2, b"the client");
    roots.reclaim_complete();
    let at = roots.walk(&scratch.export());
    roots.open(&at, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    let mut attacker = client_of(DAEMON, &server).with_user(0, 0, &[]);
    let args = nfs4::ExchangeId4Args {
        clientowner: nfs4::ClientOwner4 { verifier: *b"another!", ownerid: Opaque(b"the client") },
        flags: nfs4::EXCHGID_USE_NON_PNFS,
        state_protect: nfs4::StateProtect4A::None,
        client_impl_id: Array(vec![]),
    };
    let ops = Ops::new().op(Operation::ExchangeId, &args);
    let done = compound(&mut attacker, 2, &ops);
    let (status, body) = done.after(&[]);
    assert_eq!(status, 0);
    let another: nfs4::ExchangeId4ResOk<'_> = get(body);
    assert_ne!(another.clientid, roots.clientid, "the same name, but another client");
    assert_eq!(another.flags & nfs4::EXCHGID_CONFIRMED_R, 0);
    let args = nfs4::DestroySession4Args { sessionid: roots.id };
    let ops = Ops::new().op(Operation::DestroySession, &args);
    assert_ne!(compound(&mut attacker, 2, &ops).status, 0);
    let ops = roots.sequence(false);
    assert_eq!(roots.run(&ops).status, 0, "it is unaffected");
}

/// sock_diag has no groups, so they come from the user database; the claimed groups are ignored.
#[test]
fn a_process_has_the_groups_of_its_users_entry_and_no_others() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash,async)");
    for (name, group) in [("roots", 0), ("daemons", DAEMON), ("nogroups", 65_534), ("namelesss", NAMELESS)] {
        std::fs::write(scratch.at(name), "data").unwrap();
        std::fs::set_permissions(scratch.at(name), std::fs::Permissions::from_mode(0o040)).unwrap();
        chown(scratch.at(name), Some(0), Some(group)).unwrap();
    }
    let mut host = Client::new(&server);
    let root = host.mnt(&scratch.export()).unwrap();
    for (user, readable) in [(DAEMON, "daemons"), (NAMELESS, "nogroups")] {
        let mut client = client_of(user, &server);
        for gid in [user, 0] {
            client.credential = sys(user, gid, &[0, DAEMON, 65_534, NAMELESS]);
            for name in ["roots", "daemons", "nogroups", "namelesss"] {
                let file = host.lookup(&root, name);
                let read = client.read(&file, 0, 4).map(|(data, _)| data);
                let expected = if name == readable { Ok(b"data".to_vec()) } else { Err(Nfsstat3::Acces) };
                assert_eq!(read, expected, "{name} by {user}");
            }
            // New files get one of the user's groups, too.
            let name = format!("new-{user}-{gid}");
            client.create(&root, &name).unwrap();
            let group = if user == DAEMON { DAEMON } else { 65_534 };
            assert_eq!(std::fs::metadata(scratch.at(&name)).unwrap().gid(), group);
        }
    }
}

/// The kernel reports unmapped users of a namespace as the overflow uid, so that uid is ambiguous.
#[test]
fn a_process_with_unknown_owner_is_the_anonymous_user() {
    let scratch = Scratch::new();
    let server = scratch.serve("127.0.0.1(rw,insecure,async) *(rw,insecure,async,anonuid=77,anongid=78)");
    let mut client = client_of(65_534, &server);
    let root = client.mnt(&scratch.export()).unwrap();
    client.create(&root, "f").unwrap();
    assert_eq!(std::fs::metadata(scratch.at("f")).unwrap().uid(), 65_534);
    let mut other = as_user(65_534, || Client::from(&server, [127, 0, 0, 2].into(), 0));
    other.credential = sys(77, 0, &[0]);
    other.create(&root, "g").unwrap();
    let made = std::fs::metadata(scratch.at("g")).unwrap();
    assert_eq!((made.uid(), made.gid()), (77, 78));
    for claimed in [0, 65_534, 1000] {
        other.credential = sys(claimed, claimed, &[]);
        assert_eq!(made_by(&scratch, &mut other, &root, &claimed.to_string()), (77, 78));
    }
}

#[test]
fn claims_are_believed_where_the_export_trusts_them() {
    let scratch = Scratch::new();
    let server =
        scratch.serve("127.0.0.1(rw,insecure,no_root_squash,local_peers=trust) *(rw,insecure,all_squash)");
    std::fs::write(scratch.at("roots"), "data").unwrap();
    std::fs::set_permissions(scratch.at("roots"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut client = client_of(DAEMON, &server).with_user(0, 0, &[]);
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.lookup(&root, "roots");
    assert_eq!(client.read(&file, 0, 4).unwrap().0, b"data");
    // With all_squash the claimed user has no effect.
    let mut client = as_user(DAEMON, || Client::from(&server, [127, 0, 0, 2].into(), 0));
    assert_eq!(lookup(&mut client, &root, "roots"), 0);
    assert_eq!(client.read(&file, 0, 4), Err(Nfsstat3::Acces));
    let read = nfs3::Read3Args { file: Opaque(&file), offset: 0, count: 4 };
    client.credential = sys(DAEMON, DAEMON, &[0]);
    assert_eq!(client.nfs(Procedure::Read, &read).status(), Nfsstat3::Acces as u32);
}
