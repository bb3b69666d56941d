//! Client and server in processes and namespaces of their own: search, call, kill, exhaustion of descriptors.
//!
//! The other process is this test program again, with the helper's name and a role in its environment. The
//! two exchange lines that begin with `@`, over standard input and output, in place of the NFS connection.

mod common;

use common::{LONG, World, by_name, content, root};
use lane::nonce::{hex, parse_instance, random_instance};
use lane::{LaneOptions, LaneServer, LaneState, Nonce, OpenError, Reason, Rendezvous, RendezvousOptions};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use samehost_lane as lane;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The other process.
struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Other {
    /// Starts this program in a role, inside `wrapper` (such as `unshare --net`), with a directory as its
    /// argument.
    fn start(wrapper: &[&str], role: &str, dir: &Path) -> Self {
        let exe = std::env::current_exe().unwrap();
        let mut words: Vec<_> = wrapper.iter().map(std::ffi::OsString::from).collect();
        words.push(exe.into());
        words.extend(["--exact", "helper", "--nocapture", "--test-threads=1"].map(Into::into));
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .env("SAMEHOST_TEST_ROLE", role)
            .env("SAMEHOST_TEST_DIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    fn write_line(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    /// Its next line.
    fn read_line(&mut self) -> String {
        let mut line = String::new();
        while self.from.read_line(&mut line).unwrap() > 0 {
            // The test harness prints lines of its own, even before this process's on one line.
            if let Some((_, said)) = line.split_once('@') {
                return said.trim_end().into();
            }
            line.clear();
        }
        panic!("the other process ended without a word");
    }

    /// Waits for its successful exit.
    fn ends(mut self) {
        drop(self.to);
        assert!(self.child.wait().unwrap().success());
    }

    /// Kills it with SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn write_line(line: impl std::fmt::Display) {
    println!("@{line}");
    std::io::stdout().flush().unwrap();
}

fn read_line() -> Option<String> {
    let mut line = String::new();
    (std::io::stdin().read_line(&mut line).unwrap() > 0).then(|| line.trim_end().into())
}

/// Not a test by itself: the body of the other process.
#[test]
fn helper() {
    let Ok(role) = std::env::var("SAMEHOST_TEST_ROLE") else { return };
    let dir = PathBuf::from(std::env::var_os("SAMEHOST_TEST_DIR").unwrap());
    match role.as_str() {
        "server" => server(&dir),
        "client" => client(RendezvousOptions::new(dir.join("run")), Duration::ZERO),
        "client without capabilities" => {
            give_up_capabilities();
            client(RendezvousOptions::new(dir.join("nothing-shared")), LONG);
        }
        "client who trusts the unmapped" => {
            let mut options = RendezvousOptions::new(dir.join("run"));
            options.trusted_uids.push(sys::peer::overflow_uid());
            client(options, Duration::ZERO);
        }
        "client without descriptors" => client_without_descriptors(&dir),
        "rounds" => rounds(&dir),
        "crowd" => crowd(&dir),
        other => panic!("no role {other}"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn give_up_capabilities() {
    let mut sets = capabilities(None).unwrap();
    sets.effective = CapabilitySet::empty();
    sets.permitted = CapabilitySet::empty();
    set_capabilities(None, sets).unwrap();
}

/// Serves until its input ends. Each line is a nonce that came over the wire.
fn server(dir: &Path) {
    let files = common::Files::new(dir);
    let options = LaneOptions::new(dir.join("run"), random_instance().unwrap());
    let server = LaneServer::start(options, Arc::new(files)).unwrap();
    write_line("ready");
    while let Some(nonce) = read_line() {
        let nonce = Nonce(parse_instance(&nonce).unwrap());
        write_line(server.uuid_is_local(nonce, common::nfs_connection(1)));
    }
}

/// One handshake and one file. Holds the file until its input ends.
fn client(options: RendezvousOptions, wait: Duration) {
    runtime().block_on(async {
        let candidates = Rendezvous::register(options).await.unwrap();
        write_line(hex(&candidates.nonce()));
        read_line();
        match candidates.finish(wait).await {
            Ok(lane) => {
                let opened = lane.open(by_name(b"hello", &root())).await.unwrap();
                write_line(format!("{} through {}", content(&opened.grant), lane.through()));
                read_line();
            }
            Err(error) => write_line(error),
        }
    });
}

fn client_without_descriptors(dir: &Path) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    runtime().block_on(async {
        let mut options = RendezvousOptions::new(dir.join("run"));
        options.search_namespaces = false;
        let candidates = Rendezvous::register(options).await.unwrap();
        write_line(hex(&candidates.nonce()));
        read_line();
        let lane = candidates.finish(Duration::ZERO).await.unwrap();
        let enough = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..enough }).unwrap();
        let who = root();
        for _ in 0..100 {
            assert_eq!(lane.open(by_name(b"hello", &who)).await.unwrap_err(), OpenError::NoDescriptor);
        }
        setrlimit(Resource::Nofile, enough).unwrap();
        assert_eq!(lane.state(), LaneState::Live);
        let opened = lane.open(by_name(b"hello", &who)).await.unwrap();
        write_line(content(&opened.grant));
        read_line();
    });
}

/// Another user has filled the searched places with sockets that have servers' names.
fn crowd(dir: &Path) {
    const CROWD: usize = 1500;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let run_dir = dir.join("run");
    std::fs::create_dir(&run_dir).unwrap();
    std::fs::set_permissions(&run_dir, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let crowded = run_dir.clone();
    let fakes = common::as_user(4711, 4711, &[], move || {
        let fake = |_| {
            let instance = random_instance().unwrap();
            let named = lane::run_dir::seqpacket().unwrap();
            let name = lane::run_dir::abstract_name(&instance);
            let name = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
            rustix::net::bind(&named, &name).unwrap();
            rustix::net::listen(&named, 8).unwrap();
            let path = crowded.join(lane::run_dir::lane_name(&instance));
            (named, lane::run_dir::listen(&path, 8).unwrap())
        };
        (0..CROWD).map(fake).collect::<Vec<_>>()
    });
    assert_eq!(fakes.as_ref().map(Vec::len), Some(CROWD));
    for abstract_socket in [true, false] {
        let files = common::Files::new(dir);
        let mut options = LaneOptions::new(run_dir.clone(), random_instance().unwrap());
        if abstract_socket {
            options.run_dir = None;
        }
        options.abstract_socket = abstract_socket;
        options.search_namespaces = false;
        let server = LaneServer::start(options, Arc::new(files)).unwrap();
        runtime().block_on(async {
            let looked_in = if abstract_socket { dir.join("none") } else { run_dir.clone() };
            let mut options = RendezvousOptions::new(looked_in);
            options.search_namespaces = abstract_socket;
            let candidates = Rendezvous::register(options.clone()).await.unwrap();
            assert!(server.uuid_is_local(Nonce(candidates.nonce()), common::nfs_connection(1)));
            let lane = candidates.finish(Duration::ZERO).await.unwrap();
            assert_eq!(content(lane.open(by_name(b"hello", &root())).await.unwrap().grant), "hello");
            // The report about the others is short.
            let candidates = Rendezvous::register(options).await.unwrap();
            let reasons = candidates.finish(Duration::ZERO).await.unwrap_err().reasons;
            let untrusted = |reason: &&Reason| matches!(reason, Reason::Untrusted { uid: 4711, .. });
            assert_eq!(reasons.iter().filter(untrusted).count(), 1, "{reasons:?}");
            assert!(reasons.len() < 80, "{}", reasons.len());
        });
    }
    write_line("found");
}

/// Start, load, stop, many times: nothing is leaked.
fn rounds(dir: &Path) {
    let count = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let maps = maps.lines().filter(|line| line.contains("samehost-lane")).count();
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        (descriptors, maps, threads)
    };
    // Where another crate enables tokio's signals (the whole workspace is built so), the first runtime
    // creates a pair of sockets that stays for the life of the process.
    drop(runtime());
    let before = count();
    for round in 0..50 {
        let world = World::with(|options| options.run_dir = Some(dir.join("run")));
        let runtime = runtime();
        runtime.block_on(async {
            let lanes = [world.connect().await, world.connect().await];
            let who = root();
            let mut held = Vec::new();
            for number in 0..20 {
                held.push(lanes[number % 2].open(by_name(b"hello", &who)).await.unwrap());
            }
            let under_way = held[0].grant.try_get();
            match round % 3 {
                0 => {
                    drop(under_way);
                    drop((held, lanes, world));
                }
                1 => {
                    drop((under_way, world));
                    assert!(held.iter().all(|opened| !opened.grant.is_live()));
                }
                _ => {
                    drop(under_way);
                    assert!(world.server.drain(LONG));
                }
            }
        });
        drop(runtime);
    }
    let deadline = std::time::Instant::now() + LONG;
    let links = || {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().map_while(Result::ok);
        entries.map(|entry| (entry.file_name(), std::fs::read_link(entry.path()))).collect::<Vec<_>>()
    };
    while count() != before {
        let late = std::time::Instant::now() >= deadline;
        assert!(!late, "{:?} left of {before:?}: {:?}", count(), links());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(std::fs::read_dir(dir.join("run")).unwrap().count(), 0);
    write_line("nothing left");
    read_line();
}

/// Whether namespaces can be created here. Tests that need them report where not.
fn root_only() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        eprintln!("only root can make namespaces: nothing tested");
    }
    may
}

fn shared_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(dir.path().join("hello"), "hello").unwrap();
    dir
}

#[test]
fn a_client_on_the_host_finds_a_server_in_another_network_namespace() {
    if !root_only() {
        return;
    }
    let dir = shared_dir();
    let mut server = Other::start(&["unshare", "--net", "--"], "server", dir.path());
    assert_eq!(server.read_line(), "ready");
    runtime().block_on(async {
        // Nothing is shared: the client searches another run directory.
        let candidates = Rendezvous::register(RendezvousOptions::new(dir.path().join("none"))).await.unwrap();
        server.write_line(&hex(&candidates.nonce()));
        assert_eq!(server.read_line(), "true");
        let lane = candidates.finish(Duration::ZERO).await.unwrap();
        let through = format!("in the network namespace of process {}", server.child.id());
        assert!(lane.through().contains(&through), "{}", lane.through());
        assert_eq!(content(lane.open(by_name(b"hello", &root())).await.unwrap().grant), "hello");
    });
    server.ends();
}

#[test]
fn a_shared_run_directory_works_across_network_namespaces() {
    if !root_only() {
        return;
    }
    let world = World::new();
    let mut client = Other::start(&["unshare", "--net", "--"], "client", world.dir.path());
    let nonce = parse_instance(&client.read_line()).unwrap();
    assert!(world.nonce_arrives(nonce));
    client.write_line("");
    assert_eq!(client.read_line(), format!("hello through {}", world.socket_file().display()));
    client.ends();
}

#[test]
fn the_server_knows_which_namespaces_a_client_shares_with_it() {
    if !root_only() {
        return;
    }
    let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
    // None before Linux 6.5.
    let own = lane::SharedNamespaces::of(&here, &lane::PeerCredentials::of(&here).unwrap());
    for (wrapper, shared) in [(&["env", "--"][..], own.mount), (&["unshare", "--mount", "--"], false)] {
        let world = World::new();
        let mut client = Other::start(wrapper, "client", world.dir.path());
        let nonce = parse_instance(&client.read_line()).unwrap();
        assert!(world.nonce_arrives(nonce));
        let bound = &world.server.status()[0].bound;
        let expected = lane::SharedNamespaces { mount: shared, user: own.user };
        assert_eq!(bound.namespaces, expected, "{wrapper:?}");
        client.write_line("");
        client.read_line();
        client.ends();
    }
}

#[test]
fn a_privileged_server_calls_a_client_that_can_t_come() {
    if !root_only() {
        return;
    }
    let world = World::with(|options| options.search_namespaces = true);
    let mut client =
        Other::start(&["unshare", "--net", "--"], "client without capabilities", world.dir.path());
    let nonce = parse_instance(&client.read_line()).unwrap();
    // Not yet: the search continues in the background, and the RPC is answered meanwhile.
    assert!(!world.nonce_arrives(nonce));
    client.write_line("");
    assert_eq!(client.read_line(), "hello through a call of the server's");
    let status = world.server.status();
    assert_eq!(status.len(), 1);
    assert_eq!(status[0].bound.process.pid, Some(client.child.id()));
    assert!(status[0].through.contains("(called)"));
    // The nonce is used up either way.
    assert!(!world.nonce_arrives(nonce));
    assert_eq!(world.server.status().len(), 1);
    client.ends();
}

/// In a network namespace of its own, so that other searches don't see its sockets.
#[test]
fn sockets_of_other_users_do_not_hide_a_server() {
    if !root_only() {
        return;
    }
    let dir = shared_dir();
    let mut crowd = Other::start(&["unshare", "--net", "--"], "crowd", dir.path());
    assert_eq!(crowd.read_line(), "found");
    crowd.ends();
}

#[test]
fn trust_follows_the_clients_user_namespace() {
    if !root_only() {
        return;
    }
    let world = World::new();
    let wrapper = ["unshare", "--user", "--net", "--"];
    let mut client = Other::start(&wrapper, "client", world.dir.path());
    let nonce = parse_instance(&client.read_line()).unwrap();
    assert!(!world.nonce_arrives(nonce));
    client.write_line("");
    let why = client.read_line();
    assert!(why.contains("doesn't map") && why.contains("--trust-uid 65534"), "{why}");
    client.ends();

    let mut client = Other::start(&wrapper, "client who trusts the unmapped", world.dir.path());
    let nonce = parse_instance(&client.read_line()).unwrap();
    assert!(world.nonce_arrives(nonce));
    client.write_line("");
    assert!(client.read_line().starts_with("hello through"));
    client.ends();
}

#[test]
fn a_client_that_is_killed_releases_everything() {
    let world = World::new();
    let mut client = Other::start(&[], "client", world.dir.path());
    assert!(world.nonce_arrives(parse_instance(&client.read_line()).unwrap()));
    client.write_line("");
    assert!(client.read_line().starts_with("hello"));
    assert_eq!(world.open_grants(), 1);
    client.kill();
    world.wait_for("the grant's end", |world| world.open_grants() == 0 && world.server.status().is_empty());
}

#[test]
fn a_server_that_is_killed_is_noticed_and_the_next_one_found() {
    let dir = shared_dir();
    let mut options = RendezvousOptions::new(dir.path().join("run"));
    options.search_namespaces = false;
    runtime().block_on(async {
        let mut instances = Vec::new();
        for _ in 0..3 {
            let mut server = Other::start(&[], "server", dir.path());
            assert_eq!(server.read_line(), "ready");
            let candidates = Rendezvous::register(options.clone()).await.unwrap();
            server.write_line(&hex(&candidates.nonce()));
            assert_eq!(server.read_line(), "true");
            let lane = candidates.finish(Duration::ZERO).await.unwrap();
            let opened = lane.open(by_name(b"hello", &root())).await.unwrap();
            let under_way = opened.grant.try_get().unwrap();
            server.kill();
            tokio::time::timeout(LONG, lane.gone()).await.unwrap();
            assert!(opened.grant.try_get().is_none());
            assert_eq!(content(&under_way), "hello");
            instances.push(lane.instance());
        }
        instances.dedup();
        assert_eq!(instances.len(), 3);
    });
    // Each start removed the previous server's socket.
    assert_eq!(std::fs::read_dir(dir.path().join("run")).unwrap().count(), 1);
}

#[test]
fn a_client_without_room_for_a_descriptor_keeps_its_lane() {
    let world = World::new();
    let mut client = Other::start(&[], "client without descriptors", world.dir.path());
    assert!(world.nonce_arrives(parse_instance(&client.read_line()).unwrap()));
    client.write_line("");
    assert_eq!(client.read_line(), "hello");
    world.wait_for("the releases of what never arrived", |world| world.open_grants() == 1);
    client.ends();
}

#[test]
fn starts_and_stops_leave_nothing_behind() {
    let dir = shared_dir();
    let mut other = Other::start(&[], "rounds", dir.path());
    assert_eq!(other.read_line(), "nothing left");
    other.ends();
}
