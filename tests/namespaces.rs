//! Namespaces and containers: in each arrangement of client and server the lane comes up, or must not. The
//! server's counters prove it: with a lane they show no READ, WRITE and COMMIT on the wire.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_tests::podman::{Container, Podman};
use samehost_tests::samehost::{Status, binary, reachable_binary};
use samehost_tests::scratch::pattern;
use samehost_tests::{Netns, Scratch, Serve, Server, need_root, run, run_ok, wait_for};

/// The expected data path of the data.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DataPath {
    Lane,
    Wire,
}

/// An unprivileged user.
const USER: u32 = 1000;

/// A directory to export, writable by every user.
fn export(scratch: &Scratch) -> PathBuf {
    let export = scratch.mkdir("export");
    fs::set_permissions(&export, fs::Permissions::from_mode(0o1777)).expect("own directory");
    export
}

/// Copies a file in and out with `samehost cp`, whose command line `start` makes, and checks the counters.
fn assert_data_path(
    data_path: DataPath,
    url: &str,
    local: &Path,
    start: impl Fn(&[&str]) -> Command,
    status: impl Fn() -> Status,
) {
    let data = pattern(42, 1_500_000);
    let (from, back) = (local.join("from"), local.join("back"));
    let _ = fs::remove_file(&back);
    fs::write(&from, &data).expect("own directory");
    let before = status();
    let remote = format!("{url}/copied");
    let path = |p: &Path| p.display().to_string();
    run_ok(&mut start(&["cp", &path(&from), &remote]));
    run_ok(&mut start(&["cp", &remote, &path(&back)]));
    assert!(fs::read(&back).expect("it was copied out") == data, "the copy differs");
    let after = status();
    let moved = after.data_calls() - before.data_calls();
    let granted = after.granted() - before.granted();
    match data_path {
        DataPath::Lane => assert!(
            moved == 0 && granted >= 2,
            "the lane should have carried everything: {moved} READ, WRITE and COMMIT calls, {granted} \
             grants; probe says:\n{}",
            probe(&start, url)
        ),
        DataPath::Wire => assert!(
            moved > 0 && granted == 0,
            "the wire should have carried everything: {moved} READ, WRITE and COMMIT calls, {granted} grants"
        ),
    }
    if data_path == DataPath::Lane {
        // `probe` must agree, in its output and its exit code.
        let probed = run(&mut start(&["probe", url]));
        let said = String::from_utf8_lossy(&probed.stdout).into_owned();
        assert!(probed.status.success() && said.contains("local: yes"), "{said}");
    }
}

fn probe(start: &impl Fn(&[&str]) -> Command, url: &str) -> String {
    let output = run(&mut start(&["probe", url]));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Makes `samehost` commands with a prefix and a run directory.
fn command<'a>(
    scratch: &'a Scratch,
    prefix: &'a [String],
    run_dir: &'a Path,
) -> impl Fn(&[&str]) -> Command + 'a {
    move |arguments| {
        let mut command = match prefix.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(reachable_binary(scratch));
                command
            }
            None => Command::new(binary()),
        };
        command.args(arguments).arg("--run-dir").arg(run_dir);
        command
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Client and server in separate network namespaces, connected by a veth pair.
struct TwoNetworks {
    scratch: Scratch,
    client: Netns,
    server: Server,
    export: PathBuf,
    local: PathBuf,
    empty: PathBuf,
    _server_netns: Netns,
}

impl TwoNetworks {
    fn new() -> Self {
        need_root();
        let scratch = Scratch::new();
        let export = export(&scratch);
        let (local, empty) = (scratch.mkdir("local"), scratch.mkdir("empty"));
        let (client, server_netns) = (Netns::new("cl"), Netns::new("sv"));
        client.add_veth("10.77.1.2", &server_netns, "10.77.1.1", 24);
        let server = Serve::openly(&export).listen("10.77.1.1:0").inside(&server_netns).start();
        Self { scratch, client, server, export, local, empty, _server_netns: server_netns }
    }

    fn url(&self) -> String {
        self.server.url_at("10.77.1.1", &self.export)
    }

    fn inside(&self) -> Vec<String> {
        words(&format!("nsenter --net={} --", self.client.path()))
    }
}

#[test]
fn two_networks_one_run_directory() {
    let two = TwoNetworks::new();
    let prefix = two.inside();
    let start = command(&two.scratch, &prefix, two.server.run_dir());
    assert_data_path(DataPath::Lane, &two.url(), &two.local, start, || two.server.status());
}

/// Only the host is shared: a client that may enter the server's network finds the server there.
#[test]
fn two_networks_nothing_shared() {
    let two = TwoNetworks::new();
    let prefix = two.inside();
    assert_data_path(
        DataPath::Lane,
        &two.url(),
        &two.local,
        command(&two.scratch, &prefix, &two.empty),
        || two.server.status(),
    );
}

/// An unprivileged client can't enter the server's network; the privileged server finds the client.
#[test]
fn two_networks_nothing_shared_client_unprivileged() {
    let two = TwoNetworks::new();
    chown(&two.local, Some(USER), Some(USER)).expect("own directory");
    let prefix = words(&format!(
        "nsenter --net={} -- setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps=-all \
         --bounding-set=-all",
        two.client.path()
    ));
    // A session doesn't wait for the server's probe unless a lane is required: the first file may be closed
    // before.
    let without_lane_option = command(&two.scratch, &prefix, &two.empty);
    let start = |arguments: &[&str]| {
        let mut command = without_lane_option(arguments);
        command.args(["--lane", "required"]);
        command
    };
    assert_data_path(DataPath::Lane, &two.url(), &two.local, start, || two.server.status());
}

/// Neither may enter the other's network, and no directory is shared: only the wire is left.
#[test]
fn two_networks_nothing_shared_both_unprivileged() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let (local, empty) = (scratch.mkdir("local"), scratch.mkdir("empty"));
    let (client, server_netns) = (Netns::new("cl"), Netns::new("sv"));
    client.add_veth("10.77.1.2", &server_netns, "10.77.1.1", 24);
    let drop =
        format!("setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps=-all --bounding-set=-all");
    let serve = Serve::openly(&export).listen("10.77.1.1:0");
    for directory in [&export, &local, &serve.scratch().join("run"), &serve.scratch().join("state")] {
        chown(directory, Some(USER), Some(USER)).expect("own directory");
    }
    let server = serve.through(words(&format!("nsenter --net={} -- {drop}", server_netns.path()))).start();
    let prefix = words(&format!("nsenter --net={} -- {drop}", client.path()));
    let url = server.url_at("10.77.1.1", &export);
    assert_data_path(DataPath::Wire, &url, &local, command(&scratch, &prefix, &empty), || server.status());
    // With a shared run directory an ordinary user's server and an ordinary user's client have a lane.
    assert_data_path(DataPath::Lane, &url, &local, command(&scratch, &prefix, server.run_dir()), || {
        server.status()
    });
}

/// The administrator can forbid the lane in several places.
#[test]
fn lane_switched_off() {
    let two = TwoNetworks::new();
    let prefix = two.inside();
    let shared = command(&two.scratch, &prefix, two.server.run_dir());
    let off = |arguments: &[&str]| {
        let mut command = shared(arguments);
        command.args(["--lane", "off"]);
        command
    };
    assert_data_path(DataPath::Wire, &two.url(), &two.local, off, || two.server.status());

    let forbidden =
        Serve::new(format!("{} *(rw,insecure,no_root_squash,no_lane)", two.export.display())).start();
    let start = command(&two.scratch, &[], forbidden.run_dir());
    assert_data_path(DataPath::Wire, &forbidden.url(&two.export), &two.local, &start, || forbidden.status());
    let required = run(&mut start(&["cat", "--lane", "required", &forbidden.url(two.export.join("copied"))]));
    assert_eq!(required.status.code(), Some(3), "--lane required without a lane: {required:?}");

    let without = Serve::openly(&two.export).arguments(["--lane", "off"]).start();
    let start = command(&two.scratch, &[], without.run_dir());
    assert_data_path(DataPath::Wire, &without.url(&two.export), &two.local, &start, || without.status());
}

/// Every user is root in a user namespace of their own; the lane must not believe it.
#[test]
fn user_namespace_around_the_client() {
    need_root();
    let scratch = Scratch::new();
    let export = export(&scratch);
    let local = scratch.mkdir("local");
    chown(&local, Some(USER), Some(USER)).expect("own directory");
    fs::write(export.join("secret"), "of root's").expect("own directory");
    fs::set_permissions(export.join("secret"), fs::Permissions::from_mode(0o600)).expect("own file");
    // root_squash: uid 0 is anonymous on the wire, so the secret stays protected over either data path.
    let server = Serve::new(format!("{} *(rw,insecure,root_squash)", export.display())).start();
    let url = server.url(&export);
    let prefix = words(&format!(
        "setpriv --reuid {USER} --regid {USER} --clear-groups unshare --user --map-root-user --"
    ));
    let without_trust = command(&scratch, &prefix, server.run_dir());
    // It can't see the server's uid, so it refuses the lane by default.
    let refused = run(&mut without_trust(&["probe", &url]));
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("--trust-uid"), "{refused:?}");
    let start = |arguments: &[&str]| {
        let mut command = without_trust(arguments);
        command.args(["--trust-uid", "65534"]);
        command
    };
    // It claims uid 0 (its own view), the kernel reports 1000: no grant; the wire decides.
    assert_data_path(DataPath::Wire, &url, &local, start, || server.status());
    let secret = run(&mut start(&["cat", &format!("{url}/secret")]));
    assert!(!secret.status.success() && secret.stdout.is_empty(), "root's secret was read: {secret:?}");
    // With its real ids it gets the lane.
    fs::remove_file(export.join("copied")).expect("it was copied");
    let _ = fs::remove_file(local.join("back"));
    let honest = |arguments: &[&str]| {
        let mut command = start(arguments);
        command.args(["--as", "1000:1000"]);
        command
    };
    assert_data_path(DataPath::Lane, &url, &local, honest, || server.status());
}

/// A server in a user namespace sees an outside client's uid as the overflow uid. Such a client is anonymous:
/// it gets no lane, and no access unless the export maps all users to the server's user. A client from inside
/// the namespace is known.
#[test]
fn user_namespace_around_the_server() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let local = scratch.mkdir("local");
    let prefix =
        format!("setpriv --reuid {USER} --regid {USER} --clear-groups unshare --user --map-root-user --");
    let start = |options: &str| {
        let serve = Serve::new(format!("{} *(rw,insecure,no_root_squash{options})", export.display()));
        for directory in [&export, &local, &serve.scratch().join("run"), &serve.scratch().join("state")] {
            chown(directory, Some(USER), Some(USER)).expect("own directory");
        }
        serve.through(words(&prefix)).start()
    };
    let outside = words("setpriv --reuid 1001 --regid 1001 --clear-groups");
    let closed = start("");
    let refused = run(&mut command(&scratch, &outside, closed.run_dir())(&["ls", &closed.url(&export)]));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("permission denied"), "{refused:?}");
    drop(closed);
    let server = start(",all_act_as_server_user");
    let url = server.url(&export);
    let others = scratch.mkdir("others");
    chown(&others, Some(1001), Some(1001)).expect("own directory");
    assert_data_path(DataPath::Wire, &url, &others, command(&scratch, &outside, server.run_dir()), || {
        server.status()
    });
    let pid = server.daemon().pid();
    let inside =
        words(&format!("nsenter --target {pid} --user --preserve-credentials --setuid 0 --setgid 0 --"));
    let inside: Vec<String> = inside.into_iter().filter(|w| w != "--preserve-credentials").collect();
    fs::remove_file(export.join("copied")).expect("it was copied");
    assert_data_path(DataPath::Lane, &url, &local, command(&scratch, &inside, server.run_dir()), || {
        server.status()
    });
}

fn container_status(container: &Container<'_>) -> Status {
    let text = run_ok(&mut container.exec(&["samehost", "status", "--json"]));
    Status::of_command(&text).expect("status --json")
}

/// The server in a container, the client on the host; only the kernel is shared.
#[test]
fn server_in_a_container() {
    need_root();
    let podman = Podman::new(&[]);
    let scratch = Scratch::new();
    let (local, empty) = (scratch.mkdir("local"), scratch.mkdir("empty"));
    let netns = Netns::new("pods");
    netns.add_veth_to_host("198.18.71.2", "198.18.71.1", 24);
    let serve = ["samehost", "serve", "--listen", "198.18.71.2:2049", "--no-rpcbind"];
    let export = ["--export", "/srv *(rw,insecure,no_root_squash)"];
    let container = podman.start(&netns, &[], &[&serve[..], &export[..]].concat());
    wait_for("the server in the container", || container.log().contains("ready: ").then_some(()));
    let url = "nfs://198.18.71.2:2049/srv";
    assert_data_path(DataPath::Lane, url, &local, command(&scratch, &[], &empty), || {
        container_status(&container)
    });
}

/// The client in an unprivileged container, the server on the host.
#[test]
fn client_in_a_container() {
    need_root();
    let podman = Podman::new(&[]);
    let scratch = Scratch::new();
    let export = export(&scratch);
    let local = scratch.mkdir("local");
    let netns = Netns::new("podc");
    netns.add_veth_to_host("198.18.72.2", "198.18.72.1", 24);
    let server = Serve::openly(&export).listen("198.18.72.1:0").start();
    // The files to copy must be visible to both; the run directory isn't shared.
    let volume = format!("{0}:{0}", local.display());
    let start = |arguments: &[&str]| {
        let words = [&["samehost"], arguments, &["--lane", "required"]].concat();
        podman.once(&netns, &["--volume", &volume], &words)
    };
    let url = server.url_at("198.18.72.1", &export);
    assert_data_path(DataPath::Lane, &url, &local, start, || server.status());
}

/// Client and server in two containers that share only the run directory, read-only for the client, as two
/// pods with a volume do.
#[test]
fn two_containers_one_run_directory() {
    need_root();
    let podman = Podman::new(&[]);
    let scratch = Scratch::new();
    let (local, shared) = (scratch.mkdir("local"), scratch.mkdir("shared"));
    let (client, server) = (Netns::new("pc"), Netns::new("ps"));
    client.add_veth("10.77.2.2", &server, "10.77.2.1", 24);
    let run_dir = format!("{}:/run/samehost", shared.display());
    let serve = ["samehost", "serve", "--listen", "10.77.2.1:2049", "--no-rpcbind"];
    let export = ["--export", "/srv *(rw,insecure,no_root_squash)"];
    let container = podman.start(&server, &["--volume", &run_dir], &[&serve[..], &export[..]].concat());
    wait_for("the server in the container", || container.log().contains("ready: ").then_some(()));
    let volume = format!("{0}:{0}", local.display());
    // Connecting to a socket needs no write permission on its directory.
    let read_only = format!("{run_dir}:ro");
    let start = |arguments: &[&str]| {
        podman.once(
            &client,
            &["--volume", &volume, "--volume", &read_only],
            &[&["samehost"], arguments].concat(),
        )
    };
    assert_data_path(DataPath::Lane, "nfs://10.77.2.1:2049/srv", &local, start, || {
        container_status(&container)
    });
}

/// Commands that need /proc report that it isn't mounted; the others work without it.
#[test]
fn without_proc_commands_work_or_report_it() {
    need_root();
    let scratch = Scratch::new();
    let export = export(&scratch);
    let server = Serve::openly(&export).start();
    let (url, mountpoint) = (server.url(&export), scratch.mkdir("mnt").display().to_string());
    let (line, state_dir) = (format!("{} *(ro)", export.display()), scratch.join("state"));
    let serve = ["serve", "--listen", "127.0.0.1:0", "--no-rpcbind", "--export", &line, "--state-dir"];
    let without_proc = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "umount --lazy /proc && exec \"$@\"", "sh"]);
        run(command.arg(binary()).args(words).env("SAMEHOST_RUN_DIR", server.run_dir()))
    };
    for words in [
        &["mount", &url, &mountpoint][..],
        &["mount", "--foreground", &url, &mountpoint],
        &["umount", &mountpoint],
        &[&serve[..], &[state_dir.to_str().expect("plain")]].concat(),
    ] {
        let output = without_proc(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("/proc isn't mounted (mount -t proc proc /proc)"), "{words:?}: {said}");
    }
    for words in [&["ls", "--lane", "required", &url][..], &["probe", &url], &["status"]] {
        let output = without_proc(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
