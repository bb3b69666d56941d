//! A server of root, and processes of ordinary users on its own host: over loopback nobody is whoever he claims to be.
//!
//! The tests need root: they are several users of the host at once, each on threads of its own.

mod common;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use common::users::as_user;
use common::v4::Ops;
use common::{Client, Scratch, sys, what};
use proto::nfs3::{self, Lookup3Args, Nfsstat3, Procedure};
use proto::nfs4::{self, Operation};
use rpc::message::{AuthStat, Credential, ReplyStatus};
use samehost_server::Server;
use xdr::Opaque;

/// A user with an entry in every Debian's /etc/passwd, in the group of the same number and in no other.
const DAEMON: u32 = 1;
/// One without.
const NAMELESS: u32 = 34_567;

/// A connection of a process of that user, on which it claims to be itself.
fn client_of(user: u32, server: &Server) -> Client {
    as_user(user, || Client::new(server).with_user(user, user, &[]))
}

/// What a LOOKUP of `name` says.
fn lookup(client: &mut Client, root: &[u8], name: &str) -> u32 {
    client.nfs(Procedure::Lookup, &Lookup3Args { what: what(root, name.as_bytes()) }).status()
}

/// Whether NFSv4 answers at all, with a file handle and without.
fn is_answered(client: &mut Client, root: &[u8]) -> bool {
    let attr_request = nfs4::Bitmap4::of(&[nfs4::attributes::TYPE]);
    let of_a_file = Ops::new()
        .op(Operation::Putfh, &nfs4::Putfh4Args { object: Opaque(root) })
        .op(Operation::Getattr, &nfs4::Getattr4Args { attr_request });
    let of_none = Ops::new().op(Operation::Putrootfh, &());
    let answers = [of_a_file, of_none].map(|ops| {
        let (status, results) = client.raw(nfs4::PROGRAM, 4, nfs4::COMPOUND, &ops.minor(0));
        match status {
            ReplyStatus::Success => assert_eq!(results.status(), 0),
            _ => assert_eq!(status, ReplyStatus::AuthError(AuthStat::TooWeak)),
        }
        status == ReplyStatus::Success
    });
    assert_eq!(answers[0], answers[1]);
    answers[0]
}

#[test]
fn a_process_claims_to_be_its_own_user_or_is_refused() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,insecure,no_root_squash,async)");
    let mut client = client_of(DAEMON, &server);
    let root = client.mnt(&scratch.export()).unwrap();
    client.create(&root, "own").unwrap();
    assert_eq!(std::fs::metadata(scratch.at("own")).unwrap().uid(), DAEMON);
    let refused = Nfsstat3::Acces as u32;
    for (claim, status) in [
        (sys(0, 0, &[]), refused),
        (sys(NAMELESS, DAEMON, &[]), refused),
        (sys(u32::MAX, DAEMON, &[]), refused),
        (sys(DAEMON, 0, &[0, 42]), 0),
        // Who claims nothing is the anonymous user, as ever.
        (Credential::None, 0),
    ] {
        client.credential = claim;
        let claim = &client.credential.clone();
        assert_eq!(lookup(&mut client, &root, "own"), status, "{claim:?}");
        // NFSv4's clients and sessions belong to users, too.
        assert_eq!(is_answered(&mut client, &root), status == 0, "{claim:?}");
        assert_eq!(client.mnt(&scratch.export()).is_ok(), status == 0, "{claim:?}");
    }
    // Root's processes claim anybody, as a client host's kernel does.
    let mut host = Client::new(&server);
    for uid in [0, DAEMON, NAMELESS] {
        host.credential = sys(uid, uid, &[]);
        assert_eq!(lookup(&mut host, &root, "own"), 0);
    }
}

/// sock_diag says nothing of groups: what is claimed counts for nothing, the user database for everything.
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
            // New files are in a group of the user's, too.
            let name = format!("new-{user}-{gid}");
            client.create(&root, &name).unwrap();
            let group = if user == DAEMON { DAEMON } else { 65_534 };
            assert_eq!(std::fs::metadata(scratch.at(&name)).unwrap().gid(), group);
        }
    }
}

/// The kernel shows users whom a namespace doesn't map as nobody, so nobody can't be told from them.
#[test]
fn nobody_is_the_anonymous_user_and_nobody_else() {
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
        assert_eq!(lookup(&mut other, &root, "f"), Nfsstat3::Acces as u32, "{claimed}");
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
    assert!(is_answered(&mut client, &root));
    // Where all are squashed it is all the same who is claimed.
    let mut client = as_user(DAEMON, || Client::from(&server, [127, 0, 0, 2].into(), 0));
    assert_eq!(lookup(&mut client, &root, "roots"), 0);
    assert_eq!(client.read(&file, 0, 4), Err(Nfsstat3::Acces));
    let read = nfs3::Read3Args { file: Opaque(&file), offset: 0, count: 4 };
    client.credential = sys(DAEMON, DAEMON, &[0]);
    assert_eq!(client.nfs(Procedure::Read, &read).status(), Nfsstat3::Acces as u32);
}
