//! Malformed input: each call gets the protocol's error, and the next call is answered normally.

mod common;

use std::io::Write as _;

use common::{Client, Scratch, encoded, open_server, what};
use proto::nfs3::{
    self, Create3Res, Createhow3, Getattr3Args, Getattr3Res, Link3Args, Link3Res, Lookup3Args, Lookup3Res,
    Mkdir3Args, Mkdir3Res, Nfsstat3, Outcome, Procedure, Read3Args, Read3Res, Rename3Args, Rename3Res,
    Rmdir3Args, Rmdir3Res, Sattr3, Symlink3Args, Symlink3Res, Symlinkdata3,
};
use proto::{localio, mount3, nfsacl};
use rpc::message::{AuthStat, Credential, ReplyStatus};
use samehost_server::Server;
use xdr::Opaque;

fn status_of(client: &mut Client, handle: &[u8]) -> u32 {
    client.nfs(Procedure::Getattr, &Getattr3Args { object: Opaque(handle) }).status()
}

#[test]
fn unknown_programs_versions_and_procedures() {
    let (_scratch, _server, mut client) = open_server();
    for (program, versions, high, procedures) in [
        (nfs3::PROGRAM, 3, 4, 22),
        (mount3::PROGRAM, 3, 3, 6),
        (nfsacl::PROGRAM, 3, 3, 3),
        (localio::PROGRAM, 1, 1, 2),
    ] {
        for version in [0, versions - 1, high + 1, u32::MAX] {
            let (status, _) = client.raw(program, version, 1, &[]);
            assert_eq!(status, ReplyStatus::ProgMismatch { low: versions, high }, "{program}/{version}");
        }
        for procedure in [procedures, 1000, u32::MAX] {
            assert_eq!(client.raw(program, high, procedure, &[]).0, ReplyStatus::ProcUnavail);
            assert_eq!(client.raw(program, versions, procedure, &[]).0, ReplyStatus::ProcUnavail);
        }
    }
    for program in [0, 100_000, 100_021, u32::MAX] {
        assert_eq!(client.raw(program, 1, 0, &[]).0, ReplyStatus::ProgUnavail);
    }
}

#[test]
fn garbage_arguments_of_every_procedure() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    for procedure in Procedure::ALL.iter().filter(|procedure| **procedure != Procedure::Null) {
        // No bytes, a handle that is longer than 64 bytes, one that ends early, and one without the arguments
        // behind it.
        let mut long = vec![0, 0, 0, 65];
        long.extend([7; 68]);
        for args in [vec![], vec![0, 0], long, vec![0, 0, 0, 32, 1, 2], vec![0xff; 4]] {
            let (status, _) = client.raw(nfs3::PROGRAM, 3, procedure.number(), &args);
            assert_eq!(status, ReplyStatus::GarbageArgs, "{procedure} {args:?}");
        }
    }
    // A declared payload of 4 GiB, an unknown stable_how, an unknown createhow.
    let mut write = encoded(&Read3Args { file: Opaque(&root), offset: 0, count: 4 });
    write.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(client.raw(nfs3::PROGRAM, 3, 7, &write).0, ReplyStatus::GarbageArgs);
    let at = write.len() - 8;
    write[at + 3] = 3;
    assert_eq!(client.raw(nfs3::PROGRAM, 3, 7, &write).0, ReplyStatus::GarbageArgs);
    let mut create = encoded(&what(&root, b"f"));
    create.extend([0, 0, 0, 9]);
    assert_eq!(client.raw(nfs3::PROGRAM, 3, 8, &create).0, ReplyStatus::GarbageArgs);
    for procedure in [1, 3] {
        assert_eq!(client.raw(mount3::PROGRAM, 3, procedure, &[0, 0, 4, 1]).0, ReplyStatus::GarbageArgs);
    }
    assert_eq!(client.raw(localio::PROGRAM, 1, 1, &[1; 15]).0, ReplyStatus::GarbageArgs);
    assert_eq!(status_of(&mut client, &root), 0);
}

#[test]
fn forged_stale_and_foreign_handles() {
    let (scratch, server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    let (bad, stale) = (Nfsstat3::Badhandle as u32, Nfsstat3::Stale as u32);
    for length in [0, 1, 4, 8, 16] {
        assert_eq!(status_of(&mut client, &file[..length]), bad, "{length} bytes");
    }
    assert_eq!(status_of(&mut client, &file[..file.len() - 1]), stale);
    let mut longer = file.clone();
    longer.push(0);
    assert_eq!(status_of(&mut client, &longer), stale);
    for byte in 0..file.len() {
        for bit in [1, 0x80] {
            let mut forged = file.clone();
            forged[byte] ^= bit;
            let status = status_of(&mut client, &forged);
            assert!(status == bad || status == stale, "byte {byte}: {status}");
        }
    }
    assert_eq!(status_of(&mut client, &[0xff; 64]), bad);

    // Another server, with another key, exporting the same directory under the same number.
    // Servers in this process have cleared its file mode mask.
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let other_state = tempfile::Builder::new().permissions(private).tempdir().unwrap();
    let mut config = scratch.config("*(rw,insecure,no_root_squash)");
    config.state_dir = Some(other_state.path().to_owned());
    let other = Server::start(config).unwrap();
    let mut to_other = Client::new(&other);
    assert_ne!(to_other.mnt(&scratch.export()).unwrap(), root);
    // As after the loss of the state directory: clients know what to do about a stale handle.
    assert_eq!(status_of(&mut to_other, &file), stale, "a foreign handle");

    assert!(matches!(client.remove(&root, "f"), Outcome::Ok(_)));
    assert_eq!(status_of(&mut client, &file), Nfsstat3::Stale as u32);
    let mut second = Client::new(&server);
    assert_eq!(status_of(&mut second, &file), Nfsstat3::Stale as u32);
    // A file that comes back under the same name is another file.
    let again = client.create(&root, "f").unwrap();
    assert_ne!(again, file);
    assert_eq!(status_of(&mut client, &file), Nfsstat3::Stale as u32);
    assert_eq!(status_of(&mut client, &again), 0);
}

#[test]
fn invalid_names_are_refused() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    std::fs::write(scratch.at("f"), "").unwrap();
    std::fs::create_dir(scratch.at("d")).unwrap();
    let file = client.lookup(&root, "f");
    let long = [b'x'; 256];
    let very_long = [b'x'; 4096];
    let set = Sattr3::default();
    for (name, expected) in [
        (&b""[..], Nfsstat3::Acces),
        (b"a/b", Nfsstat3::Acces),
        (b"/", Nfsstat3::Acces),
        (b"/etc/passwd", Nfsstat3::Acces),
        (b"../..", Nfsstat3::Acces),
        (b"a\0b", Nfsstat3::Acces),
        (&long, Nfsstat3::Nametoolong),
        (&very_long, Nfsstat3::Nametoolong),
    ] {
        let shown = String::from_utf8_lossy(&name[..name.len().min(12)]).into_owned();
        let place = what(&root, name);
        let mut failed = Vec::new();
        failed.push(client.nfs(Procedure::Lookup, &Lookup3Args { what: place }).status());
        let how = Createhow3::Guarded(set);
        failed.push(client.nfs(Procedure::Create, &nfs3::Create3Args { where_: place, how }).status());
        failed.push(client.nfs(Procedure::Mkdir, &Mkdir3Args { where_: place, attributes: set }).status());
        let data = Symlinkdata3 { attributes: set, data: Opaque(b"x") };
        failed.push(client.nfs(Procedure::Symlink, &Symlink3Args { where_: place, symlink: data }).status());
        let fifo = nfs3::Mknoddata3::Fifo(set);
        failed.push(client.nfs(Procedure::Mknod, &nfs3::Mknod3Args { where_: place, what: fifo }).status());
        failed.push(client.nfs(Procedure::Remove, &nfs3::Remove3Args { object: place }).status());
        failed.push(client.nfs(Procedure::Rmdir, &Rmdir3Args { object: place }).status());
        failed.push(
            client.nfs(Procedure::Rename, &Rename3Args { from: place, to: what(&root, b"z") }).status(),
        );
        failed.push(
            client.nfs(Procedure::Rename, &Rename3Args { from: what(&root, b"f"), to: place }).status(),
        );
        failed.push(client.nfs(Procedure::Link, &Link3Args { file: Opaque(&file), link: place }).status());
        assert!(failed.iter().all(|status| *status == expected as u32), "{shown}: {failed:?}");
    }
    for dots in [&b"."[..], b".."] {
        let place = what(&root, dots);
        assert_eq!(
            client.create_how(&root, std::str::from_utf8(dots).unwrap(), Createhow3::Guarded(set)),
            Err(Nfsstat3::Exist)
        );
        let mkdir = client.nfs(Procedure::Mkdir, &Mkdir3Args { where_: place, attributes: set });
        assert!(matches!(mkdir.get::<Mkdir3Res<'_>>(), Outcome::Fail(Nfsstat3::Exist, _)));
        let link: Link3Res =
            client.nfs(Procedure::Link, &Link3Args { file: Opaque(&file), link: place }).get();
        assert!(matches!(link, Outcome::Fail(Nfsstat3::Exist, _)), "{link:?}");
        for (from, to) in [(dots, &b"z"[..]), (b"d", dots)] {
            let rename: Rename3Res = client
                .nfs(Procedure::Rename, &Rename3Args { from: what(&root, from), to: what(&root, to) })
                .get();
            assert!(matches!(rename, Outcome::Fail(Nfsstat3::Inval, _)), "{rename:?}");
        }
        assert!(matches!(client.remove(&root, std::str::from_utf8(dots).unwrap()), Outcome::Fail(_, _)));
    }
    // A name of 4,097 bytes is above the type's maximum, so the arguments can't be decoded.
    let args = encoded(&Opaque::<64>(&root))
        .into_iter()
        .chain(encoded(&Opaque::<5000>(&[b'x'; 4097])))
        .collect::<Vec<_>>();
    assert_eq!(client.raw(nfs3::PROGRAM, 3, 3, &args).0, ReplyStatus::GarbageArgs);
    assert_eq!(std::fs::read_dir(scratch.export()).unwrap().count(), 2, "nothing was made");
}

#[test]
fn unusual_names_are_accepted() {
    use std::os::unix::ffi::OsStrExt as _;
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let long = [b'y'; 255];
    for name in [&b"\xff\xfe"[..], b" ", b"...", b"-rf", b"a\nb", b"\x01", b"*", &long] {
        let args =
            nfs3::Create3Args { where_: what(&root, name), how: Createhow3::Guarded(Sattr3::default()) };
        let results = client.nfs(Procedure::Create, &args);
        assert!(matches!(results.get::<Create3Res<'_>>(), Outcome::Ok(_)), "{name:?}");
        assert!(scratch.export().join(std::ffi::OsStr::from_bytes(name)).exists());
        let results = client.nfs(Procedure::Lookup, &Lookup3Args { what: what(&root, name) });
        assert!(matches!(results.get::<Lookup3Res<'_>>(), Outcome::Ok(_)), "{name:?}");
    }
}

#[test]
fn objects_of_the_wrong_kind() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    let data = Symlinkdata3 { attributes: Sattr3::default(), data: Opaque(b"/etc") };
    let results = client.nfs(Procedure::Symlink, &Symlink3Args { where_: what(&root, b"l"), symlink: data });
    let Outcome::Ok(ok) = results.get::<Symlink3Res<'_>>() else { panic!() };
    let link = ok.obj.unwrap().0.to_vec();
    for not_dir in [&file, &link] {
        let results = client.nfs(Procedure::Lookup, &Lookup3Args { what: what(not_dir, b"x") });
        assert!(matches!(results.get::<Lookup3Res<'_>>(), Outcome::Fail(Nfsstat3::Notdir, Some(_))));
        assert_eq!(client.create(not_dir, "x"), Err(Nfsstat3::Notdir));
        let args = nfs3::Readdir3Args { dir: Opaque(not_dir), cookie: 0, cookieverf: [0; 8], count: 4096 };
        assert_eq!(client.nfs(Procedure::Readdir, &args).status(), Nfsstat3::Notdir as u32);
    }
    for count in [10, 65_536] {
        let results = client.nfs(Procedure::Read, &Read3Args { file: Opaque(&root), offset: 0, count });
        assert!(matches!(results.get::<Read3Res<'_>>(), Outcome::Fail(Nfsstat3::Isdir, Some(_))));
        let results = client.nfs(Procedure::Read, &Read3Args { file: Opaque(&link), offset: 0, count });
        assert!(matches!(results.get::<Read3Res<'_>>(), Outcome::Fail(Nfsstat3::Inval, Some(_))));
    }
    assert!(matches!(client.write(&root, 0, b"x"), Outcome::Fail(Nfsstat3::Isdir, _)));
    let args = Rmdir3Args { object: what(&root, b"f") };
    assert!(matches!(
        client.nfs(Procedure::Rmdir, &args).get::<Rmdir3Res>(),
        Outcome::Fail(Nfsstat3::Notdir, _)
    ));
}

#[test]
fn the_length_of_a_symbolic_links_target_is_bounded() {
    let (scratch, _server, mut client) = open_server();
    let root = client.mnt(&scratch.export()).unwrap();
    let mut link = |name: &str, target: &[u8]| {
        let data = Symlinkdata3 { attributes: Sattr3::default(), data: Opaque(target) };
        client
            .nfs(Procedure::Symlink, &Symlink3Args { where_: what(&root, name.as_bytes()), symlink: data })
            .status()
    };
    assert_eq!(link("a", &[b'x'; 4095]), 0);
    assert_eq!(link("b", &[b'x'; 4096]), Nfsstat3::Nametoolong as u32);
    assert_eq!(link("c", &[b'x'; 65_536]), Nfsstat3::Nametoolong as u32);
    assert_eq!(link("d", b""), Nfsstat3::Inval as u32);
    assert_eq!(link("e", b"a\0b"), Nfsstat3::Inval as u32);
}

#[test]
fn localio_answers_void_to_every_auth_sys_caller() {
    let (_scratch, _server, mut client) = open_server();
    let (status, results) = client.raw(localio::PROGRAM, 1, 1, &[0x5a; 16]);
    assert_eq!(
        (status, results.0),
        (ReplyStatus::Success, vec![]),
        "an unknown nonce, as a kernel client sends it"
    );
    client.credential = Credential::None;
    let (status, _) = client.raw(localio::PROGRAM, 1, 1, &[0x5a; 16]);
    assert_eq!(status, ReplyStatus::AuthError(AuthStat::TooWeak));
}

#[test]
fn a_server_without_a_lane_has_no_localio() {
    let scratch = Scratch::new();
    let mut config = scratch.config("*(insecure)");
    config.lane = samehost_server::LaneOffer::Off;
    let server = Server::start(config).unwrap();
    assert_eq!(Client::new(&server).raw(localio::PROGRAM, 1, 1, &[1; 16]).0, ReplyStatus::ProgUnavail);
}

#[test]
fn a_record_that_is_too_long_closes_its_connection_only() {
    let (scratch, server, mut client) = open_server();
    let mut hostile = Client::new(&server);
    hostile.stream.write_all(&0xffff_ffff_u32.to_be_bytes()).unwrap();
    assert!(hostile.receive().is_err(), "closed");
    client.mnt(&scratch.export()).unwrap();
}

#[test]
fn results_are_the_same_without_attributes_of_getattr() {
    // GETATTR is the one procedure whose failure has no body at all.
    let (_scratch, _server, mut client) = open_server();
    let results = client.nfs(Procedure::Getattr, &Getattr3Args { object: Opaque(&[1; 32]) });
    assert_eq!(results.0.len(), 4);
    assert!(matches!(results.get::<Getattr3Res>(), Outcome::Fail(_, ())));
}
