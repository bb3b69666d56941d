//! A restart with damaged records of NFSv4 clients, or unexpected entries, in the state directory. The server
//! starts, reports them, and grants no new state before a whole grace period has passed.

mod common;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use common::Scratch;
use common::v4::{ANYBODY, Session};
use proto::nfs4::{Nfsstat4, OpenClaim4};
use samehost_server::{Config, Server};
use xdr::Opaque;

const F: OpenClaim4<'_> = OpenClaim4::Null(Opaque(b"f"));

/// Damages a directory of records.
type Damage<'a> = &'a dyn Fn(&Path);

/// The directory with the records of the only server that has run.
fn records(scratch: &Scratch) -> PathBuf {
    let all = scratch.dir.path().join("state/nfs4-clients");
    std::fs::read_dir(all).unwrap().next().unwrap().unwrap().path()
}

/// The record of the only client.
fn record(at: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| !path.ends_with("lease")).unwrap()
}

/// Kills a server while `one` has a file open and locked; the configuration to start it again, and the file's
/// handle.
fn killed(scratch: &Scratch) -> (Config, Vec<u8>) {
    let mut config = scratch.config(ANYBODY);
    let server = Server::start(config.clone()).unwrap();
    config.listen = server.local_addrs();
    drop(server);
    let server = Server::start(config.clone()).unwrap();
    let mut one = Session::new(&server, 1, b"one");
    one.reclaim_complete();
    let root = one.walk(&scratch.export());
    let (open, file) = one.open(&root, F, true).unwrap();
    one.lock(&file, open, false).unwrap();
    (config, file)
}

#[test]
fn damaged_records_cost_a_grace_period_and_no_more() {
    let scratch = Scratch::new();
    let fifo = |at: &Path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at.join("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    // The damage, and whether the record of `one` survives.
    let damage: [(&str, bool, Damage<'_>); 7] = [
        ("empty", false, &|at| std::fs::write(record(at), "").unwrap()),
        ("garbled", false, &|at| std::fs::write(record(at), "\u{0}ne").unwrap()),
        ("lost+found", true, &|at| std::fs::create_dir(at.join("lost+found")).unwrap()),
        ("dangling", true, &|at| symlink("nowhere", at.join("link")).unwrap()),
        ("fifo", true, &fifo),
        ("foreign", true, &|at| std::fs::write(at.join("README"), "what is this?").unwrap()),
        ("file", false, &|at| {
            std::fs::remove_dir_all(at).unwrap();
            std::fs::write(at, "").unwrap();
        }),
    ];
    for (what, is_known, damage) in damage {
        let (config, file) = killed(&scratch);
        damage(&records(&scratch));
        let server = Server::start(config).unwrap();
        let notices = server.notices().join("\n");
        assert!(notices.contains("can't reclaim") && notices.contains("nfs4-clients"), "{what}: {notices}");
        let mut one = Session::new(&server, 1, b"one");
        let reclaimed = one.open(&file, OpenClaim4::Previous(0), false);
        if is_known {
            let (open, _) = reclaimed.unwrap_or_else(|status| panic!("{what}: {status}"));
            one.lock(&file, open, true).unwrap();
            one.reclaim_complete();
        } else {
            assert_eq!(reclaimed, Err(Nfsstat4::NoGrace as u32), "{what}");
        }
        let mut other = Session::new(&server, 1, b"other");
        other.reclaim_complete();
        let root = other.walk(&scratch.export());
        assert_eq!(other.open(&root, F, false), Err(Nfsstat4::Grace as u32), "{what}");
        drop(server);
        std::fs::remove_file(scratch.at("f")).unwrap();
        let state = scratch.dir.path().join("state/nfs4-clients");
        std::fs::remove_dir_all(state).unwrap();
    }
}

#[test]
fn a_state_directory_that_others_can_write_to_is_refused() {
    let scratch = Scratch::new();
    let state = scratch.dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = Server::start(scratch.config(ANYBODY)).unwrap_err().to_string();
    assert!(error.contains(state.to_str().unwrap()) && error.contains("chmod go-w"), "{error}");
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut config = scratch.config(ANYBODY);
    for _ in 0..2 {
        // The second time with the port of the first: on port 0 there are no records.
        let server = Server::start(config.clone()).unwrap();
        config.listen = server.local_addrs();
    }
    // So is a records' directory: no client can reclaim then, and the server reports that.
    let clients = state.join("nfs4-clients");
    for entry in std::fs::read_dir(&clients).unwrap() {
        std::fs::set_permissions(entry.unwrap().path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let server = Server::start(config).unwrap();
    let notices = server.notices().join("\n");
    assert!(notices.contains("chmod go-w") && notices.contains("no client can reclaim"), "{notices}");
}
