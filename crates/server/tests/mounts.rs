//! Exported filesystems that are unmounted, covered and remounted while they are served. They need root.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use common::disk::{Disk, run};
use common::local::user;
use common::v4::Session;
use common::{Client, Scratch, wait_for};
use lane::{Access, OpenStatus, Target};
use proto::nfs3::{Nfsstat3, Outcome};
use proto::nfs4::*;
use samehost_server::{Config, Server};
use xdr::Opaque;

/// A server with an exported disk, and another export that stays unchanged.
fn serve(scratch: &Scratch, disk: &Disk) -> Server {
    fs::set_permissions(disk.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let clients = "*(rw,insecure,no_root_squash)";
    let files = scratch.dir.path().join("exports");
    fs::write(&files, format!("{} {clients}\n", disk.path().display())).unwrap();
    Server::start(Config { export_files: vec![files], ..scratch.config(clients) }).unwrap()
}

fn unmount(path: &Path, options: &[&str]) -> std::process::Output {
    Command::new("umount").args(options).arg(path).output().unwrap()
}

/// The reported reason if the disk isn't served.
fn problem(server: &Server, disk: &Disk) -> Option<String> {
    server.status().exports.into_iter().find(|export| export.path == disk.path()).unwrap().problem
}

fn written(client: &mut Client, file: &[u8]) -> Result<(), Nfsstat3> {
    match client.write(file, 0, b"data") {
        Outcome::Ok(_) => Ok(()),
        Outcome::Fail(status, _) => Err(status),
    }
}

/// Opens and locks `f` until the session is dropped.
fn hold(server: &Server, disk: &Disk) -> (Session, Vec<u8>) {
    let mut session = Session::new(server, 2, b"holder");
    session.reclaim_complete();
    let root = session.walk(disk.path());
    let (id, file) = session.open(&root, OpenClaim4::Null(Opaque(b"f")), false).unwrap();
    session.lock(&file, id, false).unwrap();
    (session, file)
}

#[test]
fn an_exported_filesystem_is_busy_until_its_export_is_removed() {
    let (scratch, disk) = (Scratch::new(), Disk::ext4(&[]));
    let server = serve(&scratch, &disk);
    fs::write(disk.path().join("f"), "").unwrap();
    let mut client = Client::new(&server);
    let root = client.mnt(disk.path()).unwrap();
    let file = client.lookup(&root, "f");
    assert_eq!(written(&mut client, &file), Ok(()));
    let (_session, _) = hold(&server, &disk);
    let refused = unmount(disk.path(), &[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("busy"), "{refused:?}");
    assert!(disk.is_in_use());
    // Clients lose their open files there.
    fs::write(scratch.dir.path().join("exports"), "").unwrap();
    server.reload().unwrap();
    wait_for("the filesystem to be free", || unmount(disk.path(), &[]).status.success());
    wait_for("the device to be free", || !disk.is_in_use());
    assert_eq!(written(&mut client, &file), Err(Nfsstat3::Stale));
}

#[test]
fn a_lazily_unmounted_filesystem_is_released_and_served_again_after_a_mount() {
    let (scratch, disk) = (Scratch::new(), Disk::ext4(&[]));
    let server = serve(&scratch, &disk);
    fs::write(disk.path().join("f"), "before").unwrap();
    let mut client = Client::new(&server);
    let root = client.mnt(disk.path()).unwrap();
    let file = client.lookup(&root, "f");
    let (mut session, _) = hold(&server, &disk);
    common::local::run(async {
        let lane = common::local::lane(&scratch, &mut client).await;
        let granted = common::local::open(&lane, Target::Handle(&file), Access::Read, &user(0, 0, &[])).await;
        let granted = granted.unwrap();
        assert!(unmount(disk.path(), &["--lazy"]).status.success());
        wait_for("the grant to be recalled", || !granted.grant.is_live());
    });
    wait_for("the end of service", || client.read(&file, 0, 10) == Err(Nfsstat3::Stale));
    // Without open files the kernel writes it back and closes the device, which can then be removed.
    wait_for("the device to be free", || !disk.is_in_use());
    assert!(problem(&server, &disk).unwrap().contains("unmounted"));
    let ops = session.sequence(false).op(Operation::Putfh, &Putfh4Args { object: Opaque(&file) });
    assert_eq!(session.run(&ops).status, Nfsstat4::Stale as u32);
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0, "nothing was written below it");

    // Its handles are valid again.
    disk.mount_at(disk.path());
    wait_for("the filesystem to be served again", || client.read(&file, 0, 10).is_ok());
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"before");
    assert_eq!(problem(&server, &disk), None);
}

#[test]
fn another_filesystem_on_the_path_is_served_only_after_a_reload() {
    let (scratch, disk, other) = (Scratch::new(), Disk::ext4(&[]), Disk::ext4(&[]));
    let server = serve(&scratch, &disk);
    fs::write(disk.path().join("f"), "first").unwrap();
    fs::write(other.path().join("f"), "second").unwrap();
    let mut client = Client::new(&server);
    let root = client.mnt(disk.path()).unwrap();
    let file = client.lookup(&root, "f");
    // Mounted over the first, and unmounted again.
    other.mount_at(disk.path());
    wait_for("the end of service", || client.read(&file, 0, 10) == Err(Nfsstat3::Stale));
    assert!(problem(&server, &disk).unwrap().contains("something else is mounted there"));
    assert!(client.mnt(disk.path()).is_err());
    run(Command::new("umount").arg(disk.path()));
    wait_for("the first to be served again", || client.read(&file, 0, 10).is_ok());
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"first");

    // Mounted in place of the first.
    run(Command::new("umount").arg("--lazy").arg(disk.path()));
    other.mount_at(disk.path());
    wait_for("the end of service", || client.mnt(disk.path()).is_err());
    wait_for("the first to be free", || !disk.is_in_use());
    server.reload().unwrap();
    let root = client.mnt(disk.path()).unwrap();
    let file = client.lookup(&root, "f");
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"second");
    assert_eq!(problem(&server, &disk), None);
}

#[test]
fn changed_mount_options_apply_to_clients_at_once() {
    let (scratch, disk) = (Scratch::new(), Disk::ext4(&[]));
    let server = serve(&scratch, &disk);
    let path = disk.path().join("f");
    fs::write(&path, "before").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let remount = |options: &str| {
        run(Command::new("mount").args(["-o", &format!("remount,bind,{options}")]).arg(disk.path()));
    };
    let mut client = Client::new(&server);
    let root = client.mnt(disk.path()).unwrap();
    let file = client.lookup(&root, "f");
    // Both the server and a client have it open for writing.
    assert_eq!(written(&mut client, &file), Ok(()));
    let (mut session, file4) = hold(&server, &disk);
    let anonymous = Stateid4 { seqid: 0, other: [0; 12] };
    common::local::run(async {
        let lane = common::local::lane(&scratch, &mut client).await;
        let admin = user(0, 0, &[]);
        let open = async |access| common::local::open(&lane, Target::Handle(&file), access, &admin).await;
        let granted = open(Access::Write).await.unwrap();
        remount("ro");
        wait_for("it to be read-only", || written(&mut client, &file) == Err(Nfsstat3::Rofs));
        wait_for("the grant to be recalled", || !granted.grant.is_live());
        drop(granted);
        assert_eq!(open(Access::Write).await.err(), Some(OpenStatus::ReadOnly));
        assert_eq!(open(Access::ReadWrite).await.err(), Some(OpenStatus::ReadOnly));
        assert_eq!(client.create(&root, "g").err(), Some(Nfsstat3::Rofs));
        let mode = session.set(&file4, 33, &0o600_u32);
        assert_eq!(mode, Nfsstat4::Rofs as u32);
        let write =
            Write4Args { stateid: anonymous, offset: 0, stable: StableHow4::Unstable, data: Opaque(b"x") };
        assert_eq!(session.on(&file4, Operation::Write, &write).0, Nfsstat4::Rofs as u32);
        // Not even root can reopen a read grant's file for writing.
        let reading = open(Access::Read).await.unwrap();
        let again = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&reading.grant))
        );
        let refused = fs::File::options().write(true).open(&again).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
        assert!(server.notices().iter().any(|notice| notice.contains("mount is read-only")));

        remount("rw");
        wait_for("it to be writable", || written(&mut client, &file) == Ok(()));
        open(Access::Write).await.unwrap();

        let mut execute = Client::new(&server).with_user(1000, 1000, &[]);
        let mut may = || execute.access(&file, 0x20) == 0x20;
        assert!(may());
        remount("rw,noexec");
        wait_for("programs not to start", || !may());
        remount("rw,exec");
        wait_for("programs to start", may);
    });
}
