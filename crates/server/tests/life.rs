//! Start, reload, restart, stop: clients keep their files and handles, and nothing is left behind.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use common::{Client, Scratch, wait_for, what};
use proto::mount3::Mountstat3;
use proto::nfs3::{Createhow3, Getattr3Args, Nfsstat3, Outcome, Procedure, Readdir3Args, Readdir3Res};
use samehost_server::{ReloadError, Reloaded, Server, StartError};
use xdr::Opaque;

const OPEN: &str = "*(rw,insecure,no_root_squash,async)";

fn status(client: &mut Client, handle: &[u8]) -> u32 {
    client.nfs(Procedure::Getattr, &Getattr3Args { object: Opaque(handle) }).status()
}

#[test]
fn handles_cookies_and_exclusive_creates_survive_a_restart() {
    let scratch = Scratch::new();
    let server = scratch.serve(OPEN);
    let mut client = Client::new(&server);
    let root = client.mnt(&scratch.export()).unwrap();
    let file = client.create(&root, "f").unwrap();
    client.write(&file, 0, b"kept");
    let exclusive = client.create_how(&root, "x", Createhow3::Exclusive([7; 8])).unwrap();
    for number in 0..200 {
        client.create(&root, &format!("entry-{number}")).unwrap();
    }
    let page = |client: &mut Client, cookie, cookieverf| {
        let args = Readdir3Args { dir: Opaque(&root), cookie, cookieverf, count: 4096 };
        let results = client.nfs(Procedure::Readdir, &args);
        let Outcome::Ok(ok) = results.get::<Readdir3Res<'_>>() else { panic!("{:?}", results.0) };
        let names: Vec<_> = ok.reply.entries.0.iter().map(|entry| entry.name.0.to_vec()).collect();
        (names, ok.reply.entries.0.last().unwrap().cookie, ok.head.cookieverf)
    };
    let (mut names, cookie, verifier) = page(&mut client, 0, [0; 8]);
    let verf = |client: &mut Client| match client.write(&file, 0, b"k") {
        Outcome::Ok(ok) => ok.verf,
        Outcome::Fail(status, _) => panic!("{status:?}"),
    };
    let before = verf(&mut client);
    server.stop();

    let server = scratch.serve(OPEN);
    let mut client = Client::new(&server);
    assert_eq!(client.read(&file, 0, 100), Ok((b"kept".to_vec(), true)));
    assert_eq!(client.mnt(&scratch.export()), Ok(root.clone()));
    assert_eq!(client.create_how(&root, "x", Createhow3::Exclusive([7; 8])), Ok(exclusive));
    assert_ne!(verf(&mut client), before, "unstable data may be lost: the client must know");
    // ext4, xfs and btrfs keep their cookies; tmpfs can't, and the verifier says so.
    let args = Readdir3Args { dir: Opaque(&root), cookie, cookieverf: verifier, count: 8192 };
    let results = client.nfs(Procedure::Readdir, &args);
    if results.status() == 0 {
        let mut seen: BTreeSet<_> = names.drain(..).collect();
        let (mut cookie, mut verifier) = (cookie, verifier);
        while seen.len() < 204 {
            let (more, next, now) = page(&mut client, cookie, verifier);
            assert!(more.into_iter().all(|name| seen.insert(name)), "an entry twice");
            (cookie, verifier) = (next, now);
        }
    } else {
        assert_eq!(results.status(), Nfsstat3::BadCookie as u32);
    }
}

#[test]
fn a_reload_ends_service_of_removed_exports_only() {
    let scratch = Scratch::new();
    let list = scratch.dir.path().join("exports");
    for dir in ["a", "b", "c"] {
        std::fs::create_dir(scratch.at(dir)).unwrap();
    }
    let line = |dir: &str, rest: &str| format!("{} {rest}\n", scratch.at(dir).display());
    std::fs::write(&list, line("a", OPEN) + &line("b", OPEN)).unwrap();
    let mut config = scratch.config("");
    (config.exports, config.export_files) = (vec![], vec![list.clone()]);
    let server = Server::start(config).unwrap();
    let mut client = Client::new(&server);
    let (a, b) = (client.mnt(&scratch.at("a")).unwrap(), client.mnt(&scratch.at("b")).unwrap());
    let file = client.create(&a, "f").unwrap();

    std::fs::write(
        &list,
        line("c", OPEN) + &line("a", "*(ro,insecure,no_root_squash) 127.0.0.2(rw,insecure)"),
    )
    .unwrap();
    let reloaded = server.reload().unwrap();
    let paths = |names: &[&str]| names.iter().map(|name| scratch.at(name)).collect::<Vec<_>>();
    let expected = Reloaded {
        added: paths(&["c"]),
        removed: paths(&["b"]),
        changed: paths(&["a"]),
        notices: reloaded.notices.clone(),
        ..Reloaded::default()
    };
    assert_eq!(reloaded, expected);
    assert_eq!(status(&mut client, &file), 0, "the connection and the handle are unaffected");
    assert!(
        matches!(client.write(&file, 0, b"x"), Outcome::Fail(Nfsstat3::Rofs, _)),
        "the new options hold at once"
    );
    assert_eq!(status(&mut client, &b), Nfsstat3::Stale as u32);
    assert_eq!(client.mnt(&scratch.at("b")), Err(Mountstat3::Acces));
    let c = client.mnt(&scratch.at("c")).unwrap();
    client.create(&c, "f").unwrap();

    // A syntax error changes nothing, and the message has its position.
    std::fs::write(&list, line("c", OPEN) + "\n/x *(rw,bogus)\n").unwrap();
    let Err(ReloadError::Exports(errors)) = server.reload() else { panic!() };
    assert_eq!((errors[0].line, errors[0].column, errors.len()), (3, 9, 1));
    assert!(errors[0].to_string().starts_with(&list.display().to_string()));
    std::fs::remove_file(&list).unwrap();
    assert!(matches!(server.reload(), Err(ReloadError::ExportsFile { .. })));
    assert_eq!(status(&mut client, &file), 0);

    // An export that returns has its old handles.
    std::fs::write(&list, line("b", OPEN)).unwrap();
    server.reload().unwrap();
    assert_eq!(status(&mut client, &b), 0);
    assert_eq!(status(&mut client, &file), Nfsstat3::Stale as u32);
}

#[test]
fn reloads_under_load_disturb_no_client() {
    let scratch = Scratch::new();
    let server = scratch.serve(OPEN);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let mut client = Client::new(&server);
                let root = client.mnt(&scratch.export()).unwrap();
                scope.spawn(move || {
                    let file = client.create(&root, &format!("w{worker}")).unwrap();
                    for round in 0..300_u64 {
                        assert!(matches!(
                            client.write(&file, round * 8, &round.to_be_bytes()),
                            Outcome::Ok(_)
                        ));
                        assert_eq!(client.read(&file, round * 8, 8).unwrap().0, round.to_be_bytes());
                    }
                })
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            assert_eq!(server.reload().unwrap().unchanged.len(), 1);
        }
    });
}

#[test]
fn a_missing_export_is_reported_and_the_others_are_served() {
    let scratch = Scratch::new();
    let missing = scratch.dir.path().join("missing");
    let mut config = scratch.config(OPEN);
    config.exports.push(format!("{} *(insecure)", missing.display()));
    let server = Server::start(config).unwrap();
    let notices = server.notices();
    assert!(notices.iter().any(|notice| notice.contains("missing is not served")), "{notices:?}");
    let mut client = Client::new(&server);
    assert_eq!(client.mnt(&missing), Err(Mountstat3::Noent));
    client.mnt(&scratch.export()).unwrap();
    assert!(server.status().exports[1].problem.is_some());
    std::fs::create_dir(&missing).unwrap();
    assert_eq!(server.reload().unwrap().changed, std::slice::from_ref(&missing));
    client.mnt(&missing).unwrap();
}

#[test]
fn reloads_with_host_names_in_the_exports_revoke_nothing() {
    let scratch = Scratch::new();
    let server = scratch.serve("localhost(rw,insecure,no_root_squash,async)");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let mut client = Client::new(&server);
                let root = client.mnt(&scratch.export()).unwrap();
                scope.spawn(move || {
                    for _ in 0..500 {
                        assert_eq!(status(&mut client, &root), 0);
                    }
                })
            })
            .collect();
        let reloads = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                server.reload().unwrap();
            }
        });
        let outcomes: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reloads.join().unwrap();
        assert!(outcomes.iter().all(Result::is_ok));
    });
}

#[test]
fn start_errors_name_their_cause() {
    let scratch = Scratch::new();
    let start = |change: &dyn Fn(&mut samehost_server::Config)| {
        let mut config = samehost_server::Config { takeover: Duration::ZERO, ..scratch.config(OPEN) };
        change(&mut config);
        let checked: Vec<_> = config.check().iter().map(ToString::to_string).collect();
        let error = Server::start(config).err().map(|error| error.to_string()).unwrap_or_default();
        // A server that runs may have the address.
        let is_in_use = error.contains("Address already in use");
        assert!(is_in_use || checked == [error.as_str()], "a check says the same: {checked:?}, {error}");
        error
    };
    let none = start(&|config| config.exports.clear());
    assert!(none.contains("--export"), "{none}");
    let gone = start(&|config| config.exports = vec!["/no/such/a *".into(), "/no/such/b *".into()]);
    assert!(gone.contains("/no/such/a is not served") && gone.contains("/no/such/b is not served"), "{gone}");
    let wrong = start(&|config| config.exports = vec!["/a *(rw,krb5)".into()]);
    assert!(wrong.starts_with("--export:1:9: option krb5 is not known"), "{wrong}");
    let second = start(&|config| config.exports.push("/b *(bogus)".into()));
    assert!(second.starts_with("--export#2:1:6: "), "{second}");
    let no_file = start(&|config| config.export_files = vec!["/no/such/file".into()]);
    assert!(no_file.contains("/no/such/file"), "{no_file}");
    let file = scratch.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let state = start(&|config| config.state_dir = Some(path.clone()));
        assert!(state.contains("--state-dir"), "{state}");
    }
    let elsewhere = start(&|config| config.listen = vec!["192.0.2.1:0".parse().unwrap()]);
    assert!(elsewhere.contains("192.0.2.1:0"), "{elsewhere}");
    let missing = scratch.dir.path().join("missing/socket");
    for path in [missing, file.join("socket"), Path::new("/").join("long".repeat(40))] {
        let address = samehost_server::MetricsAddress::Unix(path.clone());
        let metrics = start(&|config| config.metrics = Some(address.clone()));
        assert!(metrics.contains(path.to_str().unwrap()), "{metrics}");
    }
    let metrics = start(&|config| config.metrics = Some("192.0.2.1:0".parse().unwrap()));
    assert!(metrics.contains("http://192.0.2.1:0"), "{metrics}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let listen = start(&|config| config.listen = vec![address]);
    assert!(listen.contains(&address.to_string()), "{listen}");
    let twice = start(&|config| config.exports.push(config.exports[0].clone()));
    assert!(twice.contains("already"), "{twice}");
    let Err(StartError::Exports(_)) = Server::start(scratch.config("gss/krb5(rw)")) else { panic!() };
    assert!(!scratch.run_dir().exists() || std::fs::read_dir(scratch.run_dir()).unwrap().next().is_none());
}

#[test]
fn a_check_finds_all_that_a_start_would_refuse_and_changes_nothing() {
    let scratch = Scratch::new();
    let mut config = scratch.config(OPEN);
    config.metrics = Some(samehost_server::MetricsAddress::Unix(scratch.dir.path().join("metrics")));
    assert!(config.check().is_empty());
    assert_eq!(std::fs::read_dir(scratch.dir.path()).unwrap().count(), 1, "the exported directory");
    // A server of this configuration runs.
    let server = Server::start(config.clone()).unwrap();
    config.listen = server.local_addrs();
    assert!(config.check().is_empty());
    Client::new(&server).mnt(&scratch.export()).unwrap();
    server.stop();
    config.exports = vec!["/no/such *".into()];
    config.listen = vec!["192.0.2.1:0".parse().unwrap()];
    config.state_dir = Some(scratch.dir.path().join("export/../export"));
    let found: Vec<_> = config.check().iter().map(ToString::to_string).collect();
    let [exports, state, listen] = &found[..] else { panic!("{found:?}") };
    assert!(exports.contains("/no/such is not served"), "{exports}");
    assert!(state.contains("chmod go-w"), "{state}");
    assert!(listen.contains("192.0.2.1"), "{listen}");
}

#[test]
fn an_unusable_run_directory_is_reported_and_the_wire_is_served() {
    let scratch = Scratch::new();
    let mut config = scratch.config(OPEN);
    config.run_dir = Path::new("/proc/no").to_owned();
    let server = Server::start(config).unwrap();
    assert!(server.notices().iter().any(|notice| notice.contains("--run-dir")), "{:?}", server.notices());
    Client::new(&server).mnt(&scratch.export()).unwrap();
}

#[test]
fn starting_and_stopping_under_load_leaves_nothing() {
    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }
    // Tests beside this one come and go, so the numbers are taken in a process of its own.
    if std::env::var_os("SAMEHOST_ALONE").is_none() {
        let own = std::env::current_exe().unwrap();
        let status = std::process::Command::new(own)
            .args(["--exact", "starting_and_stopping_under_load_leaves_nothing", "--nocapture"])
            .env("SAMEHOST_ALONE", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let scratch = Scratch::new();
    let round = |number: u32| {
        let server = scratch.serve(OPEN);
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(&server)).collect();
        let root = clients[0].mnt(&scratch.export()).unwrap();
        for client in &mut clients {
            let file = client.create(&root, "f").unwrap();
            client.write(&file, 0, &[1; 50_000]);
            client.read(&file, 0, 50_000).unwrap();
            // One more call is in flight when the server stops.
            use std::io::Write as _;
            client
                .stream
                .write_all(&client.record(
                    proto::nfs3::PROGRAM,
                    3,
                    1,
                    &common::encoded(&Getattr3Args { object: Opaque(&file) }),
                ))
                .unwrap();
        }
        assert_eq!(clients[0].lookup_status(&root, "missing"), Nfsstat3::Noent as u32);
        if number.is_multiple_of(2) {
            server.stop()
        } else {
            drop(server)
        }
        assert_eq!(std::fs::read_dir(scratch.run_dir()).unwrap().count(), 0, "no socket file is left");
    };
    round(0);
    round(1);
    wait_for("threads of the first rounds to go", || threads() <= 3);
    let before = (descriptors(), threads());
    (0..20).for_each(round);
    wait_for("descriptors to be closed", || descriptors() <= before.0);
    wait_for("threads to end", || threads() <= before.1);
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

trait Status {
    fn lookup_status(&mut self, dir: &[u8], name: &str) -> u32;
}

impl Status for Client {
    fn lookup_status(&mut self, dir: &[u8], name: &str) -> u32 {
        // The reply to the call in flight comes first.
        let _ = self.receive().unwrap();
        self.nfs(Procedure::Lookup, &proto::nfs3::Lookup3Args { what: what(dir, name.as_bytes()) }).status()
    }
}

/// Another program may have them, or a server with another state directory.
#[test]
fn a_server_waits_for_addresses_in_use() {
    let scratch = Scratch::new();
    let old = scratch.serve(OPEN);
    let mut config = scratch.config(OPEN);
    config.state_dir = Some(scratch.dir.path().join("other"));
    config.listen = old.local_addrs();
    config.takeover = Duration::ZERO;
    let refused = Server::start(config.clone()).unwrap_err();
    assert!(matches!(refused, StartError::Listen { .. }), "{refused}");
    config.takeover = common::TIMEOUT;
    let addresses = config.listen.clone();
    let new = std::thread::spawn(move || Server::start(config).unwrap());
    // Its wait may begin before or after that.
    old.stop();
    assert_eq!(new.join().unwrap().local_addrs(), addresses);
}
