//! The access check on the wire: which client may use an export, how, and as which user. The addresses of
//! 127.0.0.0/8 stand for different clients.

mod common;

use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use common::v4::Ops;
use common::{Client, Scratch, encoded, sys, what};
use proto::localio;
use proto::mount3::{self, Mountstat3};
use proto::nfs3::{
    self, Commit3Args, Createhow3, Mkdir3Args, Nfsstat3, Outcome, Procedure, Rename3Args, Rename3Res, Sattr3,
    Setattr3Args, Setattr3Res, StableHow,
};
use proto::nfs4::{self, ClientOwner4, ExchangeId4Args, Operation, StateProtect4A};
use rpc::message::{AuthStat, Credential, ReplyStatus};
use samehost_server::Server;
use xdr::{Array, Opaque};

fn ip(last: u8) -> IpAddr {
    [127, 0, 0, last].into()
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn each_client_has_its_own_options() {
    let scratch = Scratch::new();
    let server = scratch
        .serve("127.0.0.1(rw,insecure,no_root_squash) 127.0.0.2(ro,insecure) 127.0.0.128/25(rw,insecure)");
    let mut first = Client::new(&server);
    let root = first.mnt(&scratch.export()).unwrap();
    first.create(&root, "f").unwrap();

    let mut second = Client::from(&server, ip(2), 0);
    assert_eq!(second.mnt(&scratch.export()), Ok(root.clone()));
    let file = second.lookup(&root, "f");
    assert_eq!(second.read(&file, 0, 10), Ok((vec![], true)));
    assert_eq!(second.create(&root, "g"), Err(Nfsstat3::Rofs));
    assert!(
        matches!(second.write(&file, 0, b"x"), Outcome::Fail(Nfsstat3::Rofs, wcc) if wcc.after.is_some())
    );
    assert!(matches!(second.remove(&root, "f"), Outcome::Fail(Nfsstat3::Rofs, _)));
    let args = Setattr3Args {
        object: Opaque(&file),
        new_attributes: Sattr3 { mode: Some(0o777), ..Sattr3::default() },
        guard: None,
    };
    assert!(matches!(
        second.nfs(Procedure::Setattr, &args).get::<Setattr3Res>(),
        Outcome::Fail(Nfsstat3::Rofs, _)
    ));
    let access = nfs3::Access3Args { object: Opaque(&root), access: 0x3f };
    let nfs3::Access3Res::Ok(ok) = second.nfs(Procedure::Access, &access).get() else { panic!() };
    assert_eq!(ok.access & (nfs3::ACCESS3_MODIFY | nfs3::ACCESS3_EXTEND | nfs3::ACCESS3_DELETE), 0);

    // Not exported to this client: no mount, and a handle from elsewhere is refused.
    let mut third = Client::from(&server, ip(3), 0);
    assert_eq!(third.mnt(&scratch.export()), Err(Mountstat3::Acces));
    let args = encoded(&nfs3::Getattr3Args { object: Opaque(&root) });
    let (status, _) = third.raw(nfs3::PROGRAM, 3, Procedure::Getattr.number(), &args);
    assert_eq!(status, ReplyStatus::AuthError(AuthStat::BadCred));

    let mut fourth = Client::from(&server, ip(200), 0).with_user(7, 7, &[]);
    fourth.create(&root, "by-network").unwrap();
}

#[test]
fn clients_by_name() {
    // Every Debian's /etc/hosts has this name; no other is looked up.
    let scratch = Scratch::new();
    let server = scratch.serve("localhost(rw,insecure,no_root_squash)");
    Client::new(&server).mnt(&scratch.export()).unwrap();
    assert_eq!(Client::from(&server, ip(9), 0).mnt(&scratch.export()), Err(Mountstat3::Acces));
    let scratch = Scratch::new();
    let server = scratch.serve("local*(rw,insecure) 127.0.0.9(ro,insecure)");
    Client::new(&server).mnt(&scratch.export()).unwrap();
    Client::from(&server, ip(9), 0).mnt(&scratch.export()).unwrap();
}

#[test]
fn reserved_ports() {
    let scratch = Scratch::new();
    let server = scratch.serve("*(rw,no_root_squash)");
    let mut client = Client::new(&server);
    assert_eq!(client.mnt(&scratch.export()), Err(Mountstat3::Acces));
    // Other processes of this host may use some of the ports.
    let mut reserved = (700..720)
        .find_map(|port| Client::try_from(&server, ip(1), port).ok())
        .expect("root binds reserved ports");
    let root = reserved.mnt(&scratch.export()).unwrap();
    let args = nfs3::Getattr3Args { object: Opaque(&root) };
    let (status, _) = client.raw(nfs3::PROGRAM, 3, Procedure::Getattr.number(), &encoded(&args));
    assert_eq!(status, ReplyStatus::AuthError(AuthStat::BadCred), "nothing is exported to this port");
    assert_eq!(reserved.nfs(Procedure::Getattr, &args).status(), 0);
    // If another export admits the client, the export that requires a reserved port returns PERM.
    let mut config = scratch.config("*(rw)");
    let other = scratch.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    config.exports.push(format!("{} *(rw,insecure)", other.display()));
    server.stop();
    let server = Server::start(config).unwrap();
    let mut client = Client::new(&server);
    client.mnt(&other).unwrap();
    assert_eq!(client.nfs(Procedure::Getattr, &args).status(), Nfsstat3::Perm as u32);
}

/// Calls without a file handle belong to no export: they are refused to peers that no export names.
#[test]
fn calls_of_peers_without_an_export_are_refused() {
    let scratch = Scratch::new();
    let list = scratch.dir.path().join("exports");
    let export = |clients: &str| {
        std::fs::write(&list, format!("{} {clients}\n", scratch.export().display())).unwrap();
    };
    export("127.0.0.2(rw,insecure,no_root_squash)");
    let mut config = scratch.config("");
    (config.exports, config.export_files) = (vec![], vec![list.clone()]);
    let server = Server::start(config).unwrap();
    let mut client = Client::from(&server, ip(2), 0);
    let root = client.mnt(&scratch.export()).unwrap();
    let mut stranger = Client::from(&server, ip(3), 0);
    let denied = (ReplyStatus::AuthError(AuthStat::BadCred), 0);
    // EXCHANGE_ID, SETCLIENTID, PUTROOTFH: any COMPOUND. UUID_IS_LOCAL.
    let putrootfh = Ops::new().op(Operation::Putrootfh, &());
    let args = ExchangeId4Args {
        clientowner: ClientOwner4 { verifier: *b"verifier", ownerid: Opaque(b"owner") },
        flags: 0,
        state_protect: StateProtect4A::None,
        client_impl_id: Array(vec![]),
    };
    let exchange_id = Ops::new().op(Operation::ExchangeId, &args).minor(1);
    let calls = [
        (nfs4::PROGRAM, 4, nfs4::COMPOUND, putrootfh.minor(0)),
        (nfs4::PROGRAM, 4, nfs4::COMPOUND, exchange_id),
        (localio::PROGRAM, 1, 1, vec![7; 16]),
        (nfs3::PROGRAM, 3, 1, encoded(&nfs3::Getattr3Args { object: Opaque(&root) })),
    ];
    let raw = |client: &mut Client, (program, version, procedure, args): &(u32, u32, u32, Vec<u8>)| {
        let (status, results) = client.raw(*program, *version, *procedure, args);
        (status, results.0.len())
    };
    for call in &calls {
        assert_eq!(raw(&mut stranger, call), denied, "{call:?}");
        assert_eq!(raw(&mut client, call).0, ReplyStatus::Success, "{call:?}");
    }
    for (program, version) in
        [(nfs3::PROGRAM, 3), (nfs4::PROGRAM, 4), (mount3::PROGRAM, 3), (localio::PROGRAM, 1)]
    {
        assert_eq!(raw(&mut stranger, &(program, version, 0, vec![])), (ReplyStatus::Success, 0), "NULL");
    }
    assert_eq!(stranger.mnt(&scratch.export()), Err(Mountstat3::Acces), "MOUNT answers for itself");
    let exported = stranger.mount(mount3::Procedure::Export, &());
    assert!(!exported.0.is_empty());
    // The new exports apply to both connections from their next call.
    export("127.0.0.3(rw,insecure,no_root_squash)");
    server.reload().unwrap();
    for call in &calls {
        assert_eq!(raw(&mut client, call), denied, "{call:?}");
        assert_eq!(raw(&mut stranger, call).0, ReplyStatus::Success, "{call:?}");
    }
    let status = server.status();
    assert_eq!(status.wire.denied, 2 * calls.len() as u64);
    let admitted: Vec<_> = status.connections.iter().filter(|connection| connection.admitted).collect();
    assert!(matches!(&admitted[..], [one] if one.peer.starts_with("127.0.0.3")), "{admitted:?}");
}

#[test]
fn squashing() {
    for (options, uid, gid, groups, expected) in [
        ("no_root_squash", 0, 0, &[][..], (0, 0)),
        ("root_squash", 0, 0, &[], (65534, 65534)),
        ("root_squash", 1000, 0, &[], (1000, 65534)),
        ("root_squash", 1000, 100, &[5], (1000, 100)),
        ("root_squash,anonuid=42,anongid=43", 0, 0, &[], (42, 43)),
        ("all_squash", 1000, 100, &[], (65534, 65534)),
        ("all_squash,anonuid=42,anongid=43", 0, 0, &[], (42, 43)),
    ] {
        let scratch = Scratch::new();
        let server = scratch.serve(&format!("*(rw,insecure,async,{options})"));
        let mut client = Client::new(&server).with_user(uid, gid, groups);
        let root = client.mnt(&scratch.export()).unwrap();
        client.create(&root, "f").unwrap();
        let made = std::fs::metadata(scratch.at("f")).unwrap();
        assert_eq!((made.uid(), made.gid()), expected, "{options} {uid}:{gid}");
        let anonymous = if options.contains("anonuid=42") { (42, 43) } else { (65534, 65534) };
        client.credential = Credential::None;
        client.create(&root, "g").unwrap();
        let made = std::fs::metadata(scratch.at("g")).unwrap();
        assert_eq!((made.uid(), made.gid()), anonymous, "AUTH_NONE under {options}");
    }
}

#[test]
fn permissions_are_those_of_the_squashed_user() {
    let scratch = Scratch::new();
    let server =
        scratch.serve("127.0.0.1(rw,insecure,async,no_root_squash) 127.0.0.2(rw,insecure,async,root_squash)");
    std::fs::write(scratch.at("secret"), "data").unwrap();
    mode(&scratch.at("secret"), 0o640);
    chown(scratch.at("secret"), Some(1000), Some(77)).unwrap();
    std::fs::create_dir(scratch.at("closed")).unwrap();
    mode(&scratch.at("closed"), 0o700);
    let mut admin = Client::new(&server);
    let root = admin.mnt(&scratch.export()).unwrap();
    let secret = admin.lookup(&root, "secret");
    let closed = admin.lookup(&root, "closed");
    admin.create(&closed, "inside").unwrap();

    let denied = Err(Nfsstat3::Acces);
    let mut user = Client::from(&server, ip(2), 0);
    for (credential, reads, writes) in [
        (sys(0, 0, &[]), false, false),
        (sys(1001, 100, &[]), false, false),
        (sys(1001, 100, &[77]), true, false),
        (sys(1001, 77, &[]), true, false),
        (sys(1000, 100, &[]), true, true),
        (Credential::None, false, false),
    ] {
        user.credential = credential.clone();
        for count in [4, 65_536] {
            let read = user.read(&secret, 0, count);
            assert_eq!(
                read,
                if reads { Ok((b"data".to_vec(), true)) } else { denied.clone() },
                "{credential:?}"
            );
        }
        let written = matches!(user.write(&secret, 0, b"data"), Outcome::Ok(_));
        assert_eq!(written, writes, "{credential:?}");
        let results = user.nfs(Procedure::Lookup, &nfs3::Lookup3Args { what: what(&closed, b"inside") });
        assert_eq!(results.status(), Nfsstat3::Acces as u32);
        assert_eq!(user.create(&closed, "x"), Err(Nfsstat3::Acces));
    }
    // Root of one client isn't root of another, and the worker threads have their own ids again.
    assert_eq!(admin.read(&secret, 0, 4).unwrap().0, b"data");
    // An owner can read and write the file whatever its mode, because the client may have it open (knfsd
    // does the same).
    mode(&scratch.at("secret"), 0);
    user.credential = sys(1000, 100, &[]);
    assert_eq!(user.read(&secret, 0, 4).unwrap().0, b"data");
    assert!(matches!(user.write(&secret, 0, b"DATA"), Outcome::Ok(_)));
    user.credential = sys(1001, 77, &[]);
    assert_eq!(user.read(&secret, 0, 4), Err(Nfsstat3::Acces));
    // Only the owner may change the mode, and no user may change the owner.
    let mut set = |new_attributes| {
        let args = Setattr3Args { object: Opaque(&secret), new_attributes, guard: None };
        user.nfs(Procedure::Setattr, &args).status()
    };
    assert_eq!(set(Sattr3 { mode: Some(0o777), ..Sattr3::default() }), Nfsstat3::Perm as u32);
    assert_eq!(set(Sattr3 { uid: Some(1001), ..Sattr3::default() }), Nfsstat3::Perm as u32);
}

#[test]
fn several_exports_and_directories_inside_them() {
    let scratch = Scratch::new();
    for dir in ["a", "a/inner", "b", "a/private"] {
        std::fs::create_dir(scratch.at(dir)).unwrap();
    }
    mode(&scratch.at("a/private"), 0o700);
    std::fs::create_dir(scratch.at("a/private/below")).unwrap();
    std::fs::write(scratch.at("a/file"), "").unwrap();
    std::os::unix::fs::symlink("/etc", scratch.at("a/link")).unwrap();
    let mut config = scratch.config("");
    let line = |dir: &str, clients: &str| format!("{} {clients}", scratch.at(dir).display());
    config.exports =
        vec![line("a", "*(rw,insecure)"), line("b", "127.0.0.1(rw,insecure) 127.0.0.2(ro,insecure)")];
    let server = Server::start(config).unwrap();
    let mut client = Client::new(&server);
    let (a, b) = (client.mnt(&scratch.at("a")).unwrap(), client.mnt(&scratch.at("b")).unwrap());
    assert_ne!(a, b);
    assert_eq!(client.mnt(&scratch.at("a/inner/")).unwrap(), client.lookup(&a, "inner"));
    assert_eq!(client.lookup(&a, ".."), a, "no way out");
    for (path, expected) in [
        ("", Mountstat3::Acces),
        ("..", Mountstat3::Acces),
        ("ab", Mountstat3::Acces),
        ("a/missing", Mountstat3::Noent),
        ("a/file", Mountstat3::Notdir),
        ("a/file/x", Mountstat3::Notdir),
        ("a/link", Mountstat3::Notdir),
        ("a/link/ssl", Mountstat3::Notdir),
        ("a/../b", Mountstat3::Inval),
        ("a/inner/..", Mountstat3::Inval),
        ("a/private/below", Mountstat3::Acces),
    ] {
        assert_eq!(client.mnt(&scratch.at(path)), Err(expected), "{path}");
    }
    for path in ["relative", ""] {
        assert_eq!(client.mnt(Path::new(path)), Err(Mountstat3::Inval), "{path:?}");
    }
    // Files can't move from one export to the other, even on the same filesystem.
    client.credential = sys(0, 0, &[]);
    mode(&scratch.at("a"), 0o777);
    mode(&scratch.at("b"), 0o777);
    client.create(&a, "f").unwrap();
    let args = Rename3Args { from: what(&a, b"f"), to: what(&b, b"f") };
    assert!(matches!(
        client.nfs(Procedure::Rename, &args).get::<Rename3Res>(),
        Outcome::Fail(Nfsstat3::Xdev, _)
    ));
    let file = client.lookup(&a, "f");
    let args = nfs3::Link3Args { file: Opaque(&file), link: what(&b, b"f") };
    assert_eq!(client.nfs(Procedure::Link, &args).status(), Nfsstat3::Xdev as u32);
    // The second client has the first export read-write and the second read-only.
    let mut second = Client::from(&server, ip(2), 0);
    second.create(&a, "by-second").unwrap();
    assert_eq!(second.create(&b, "by-second"), Err(Nfsstat3::Rofs));
}

#[test]
fn async_and_sync_exports_both_report_stable_writes() {
    let scratch = Scratch::new();
    let server = scratch
        .serve("127.0.0.1(rw,insecure,no_root_squash,sync) 127.0.0.2(rw,insecure,no_root_squash,async)");
    for last in [1, 2] {
        let mut client = Client::from(&server, ip(last), 0);
        let root = client.mnt(&scratch.export()).unwrap();
        let name = format!("f{last}");
        let file = client.create(&root, &name).unwrap();
        let args = nfs3::Write3Args {
            file: Opaque(&file),
            offset: 0,
            count: 1,
            stable: StableHow::FileSync,
            data: Opaque(b"x"),
        };
        let nfs3::Write3Res::Ok(ok) = client.nfs(Procedure::Write, &args).get() else { panic!() };
        assert_eq!(ok.committed, StableHow::FileSync);
        let args = Commit3Args { file: Opaque(&file), offset: 0, count: 0 };
        let nfs3::Commit3Res::Ok(commit) = client.nfs(Procedure::Commit, &args).get() else { panic!() };
        assert_eq!(commit.verf, ok.verf);
        // Every change of metadata works on both.
        let attributes = Sattr3::default();
        let dir = format!("d{last}");
        let args = Mkdir3Args { where_: what(&root, dir.as_bytes()), attributes };
        assert_eq!(client.nfs(Procedure::Mkdir, &args).status(), 0);
        client.create_how(&root, &format!("x{last}"), Createhow3::Exclusive([1; 8])).unwrap();
        let to = format!("g{last}");
        let args = Rename3Args { from: what(&root, name.as_bytes()), to: what(&root, to.as_bytes()) };
        assert_eq!(client.nfs(Procedure::Rename, &args).status(), 0);
        assert!(matches!(client.remove(&root, &to), Outcome::Ok(_)));
    }
}
