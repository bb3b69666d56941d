//! `status` and `probe`: whether the server is local, and if not, why.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::thread;

use common::{Server, samehost, wait, wait_for};

#[test]
fn probe_reports_a_lane() {
    let server = Server::start();
    let yes = server.run(&["probe", "{}"]).exits(0);
    let instance = server.status()["instance"].as_str().unwrap().to_owned();
    assert!(yes.text().starts_with("local: yes, lane through "), "{}", yes.text());
    assert!(yes.text().contains(&instance), "{}", yes.text());
    let json = server.run(&["probe", "--json", "{}"]).exits(0);
    let answer: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["local"], true);
    assert_eq!(answer["instance"], instance);
}

#[test]
fn probe_tells_the_version_of_nfs() {
    let server = Server::start();
    for (options, version) in [("", "4.2"), ("?vers=4", "4.2"), ("?vers=4.1", "4.1"), ("?vers=3", "3")] {
        let url = format!("{}{options}", server.url(""));
        let probed = server.run(&["probe", &url]).exits(0);
        let text = probed.text();
        assert_eq!(text.lines().last(), Some(&*format!("version over the wire: NFSv{version}")), "{text}");
        let json = server.run(&["probe", "--json", &url]).exits(0);
        let answer: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(answer["version"], version);
    }
}

#[test]
fn probe_reports_why_there_is_no_lane() {
    let server = Server::with(&["--lane", "off"], "127.0.0.1(rw,insecure)");
    let no = server.run(&["probe", "{}"]).exits(3);
    assert!(no.text().starts_with("local: no\n  "), "{}", no.text());
    let json = server.run(&["probe", "--json", "{}"]).exits(3);
    let answer: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["local"], false);
    assert!(!answer["reasons"].as_array().unwrap().is_empty());
    // So does every command with --lane required.
    server.run(&["ls", "--lane", "required", "{}"]).exits(3).complains(&["no lane", "--lane auto"]);
    server.run(&["ls", "{}"]).exits(0);
}

#[test]
fn status_names_exports_clients_lanes_and_counters() {
    let server = Server::start();
    fs::write(server.export().join("file"), vec![b'x'; 8 << 20]).unwrap();
    // A client that is blocked in the middle of a file stays connected.
    let mut client = samehost(["cat", &server.url("file")])
        .env("SAMEHOST_RUN_DIR", server.run_dir())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = client.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    let status = server.status();
    assert_eq!(status["exports"][0]["path"], server.export().to_str().unwrap());
    assert_eq!(status["connections"].as_array().unwrap().len(), 1);
    assert_eq!(status["lanes"][0]["nfs_peer"], status["connections"][0]["peer"]);
    assert_eq!(status["lanes"][0]["pid"], client.id());
    assert_eq!(status["grants"]["open"], 1);
    let text = server.run(&["status", "--procedures"]).exits(0);
    let text = text.text();
    assert!(text.contains(server.export().to_str().unwrap()), "{text}");
    assert!(text.contains(status["instance"].as_str().unwrap()), "{text}");
    let line =
        text.lines().find(|line| line.contains(status["connections"][0]["peer"].as_str().unwrap())).unwrap();
    assert!(line.contains("  yes  "), "{text}");
    assert!(line.contains(", over "), "{text}");
    assert_eq!(status["connections"][0]["local"], true);
    assert!(status["connections"][0]["reason"].as_str().unwrap().starts_with("over "), "{status}");
    // A client without LOCALIO.
    let silent = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let peer = silent.local_addr().unwrap().to_string();
    let mut row = String::new();
    wait_for("the connection in the status", || {
        let text = server.run(&["status"]).exits(0).text().to_string();
        row = text.lines().find(|line| line.contains(&peer)).unwrap_or_default().to_owned();
        !row.is_empty()
    });
    assert!(row.contains("  no  ") && row.contains("never asked"), "{row}");
    drop(stdout);
    assert_eq!(wait(&mut client), Some(0));
}

#[test]
fn two_servers_in_one_run_directory_are_both_shown() {
    let one = Server::start();
    let other = Server::with(&["--run-dir", one.run_dir().to_str().unwrap()], "127.0.0.1(rw,insecure)");
    let json = one.run(&["status", "--json"]).exits(0);
    let all: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(all["servers"].as_array().unwrap().len(), 2);
    // Each client finds its own server.
    one.run(&["probe", "{}"]).exits(0);
    one.run(&["probe", &other.url("")]).exits(0);
}

#[test]
fn status_names_hanging_servers_and_shows_the_others() {
    use rustix::process::Signal;
    let server = Server::start();
    let pid = server.status()["pid"].as_u64().unwrap();
    let _other = Server::with(&["--run-dir", server.run_dir().to_str().unwrap()], "127.0.0.1(rw,insecure)");
    let all = server.run(&["status", "--json"]).exits(0);
    let all: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    let pids = all["servers"].as_array().unwrap().iter().filter_map(|server| server["pid"].as_u64());
    let others: Vec<u64> = pids.filter(|other| *other != pid).collect();
    let [other] = others[..] else { panic!("{all}") };
    server.signal(Signal::STOP);
    let (text, json) = (server.run(&["status"]), server.run(&["status", "--json"]));
    server.signal(Signal::CONT);
    let reason = format!("process {pid} does not answer within 2s");
    let text = text.exits(1).complains(&[&*reason, "next:"]);
    assert!(text.text().contains(&format!("process {other}), up")), "{}", text.text());
    let all: serde_json::Value = serde_json::from_slice(&json.exits(1).stdout).unwrap();
    assert_eq!(all["servers"][0]["pid"], other);
    assert_eq!((&all["silent"][0]["what"], &all["silent"][0]["reason"]), (&"server".into(), &reason.into()));
    let help = server.run(&["status", "--help"]).exits(0);
    assert!(
        help.text().contains(r#"{"servers": [...], "mounts": [...], "silent": [...]}"#),
        "{}",
        help.text()
    );
}

/// A mount's process of a hostile user: its answers would rename the terminal, erase it and look like other
/// lines, if a terminal obeyed them.
#[test]
fn a_terminal_does_not_obey_what_another_process_says() {
    const EVIL: &str = "\u{1b}]0;root\u{7}\u{1b}[2J\u{9b}1A\r\nnext: \u{202e}x";
    let run_dir = tempfile::tempdir().unwrap();
    let counters = serde_json::json!({
        "opens": 0, "reads": 0, "bytes_read": 0, "writes": 0, "bytes_written": 0, "commits": 0,
        "round_trips": 0
    });
    let status = serde_json::json!({
        "version": EVIL, "source": EVIL, "mountpoint": format!("/{EVIL}"), "server": EVIL, "pid": 1,
        "uptime_seconds": 1, "road": EVIL, "local": false, "since_seconds": 1, "reasons": [EVIL],
        "tree_refusal": EVIL, "transport": EVIL, "transport_reason": EVIL, "mount_refusal": EVIL,
        "instance": EVIL, "open_files": 0, "opens_passed_through": 0, "opens_refused": 0, "inodes": 0,
        "requests": 0, "requests_under_way": 0, "lane": counters, "wire": counters, "reconnects": 0,
        "retransmits": 0, "bytes_resent": 0, "lane_calls": 0, "probes": 0, "road_changes": 0,
        "changes": [
            { "age_seconds": 1, "local": false, "reasons": [EVIL] },
            { "age_seconds": 1, "local": true, "reasons": [] }
        ]
    });
    let refused = serde_json::json!({ "error": { "reason": EVIL, "next": EVIL } });
    let listener = UnixListener::bind(run_dir.path().join(format!("{}.mount", "0".repeat(32)))).unwrap();
    let hostile = thread::spawn(move || {
        let mut count = 0;
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            stream.read_to_end(&mut request).unwrap();
            let answer = if request.is_empty() { status.to_string() } else { refused.to_string() };
            stream.write_all(answer.as_bytes()).unwrap();
            count += 1;
            if request.starts_with(b"{") {
                return count;
            }
        }
    });
    let command = |args: &[&str]| {
        let ran = common::run(samehost(args).env("SAMEHOST_RUN_DIR", run_dir.path()));
        let all = [ran.text(), &ran.stderr].concat();
        let obeyed: Vec<char> =
            all.chars().filter(|one| *one == '\u{202e}' || one.is_control() && *one != '\n').collect();
        assert!(obeyed.is_empty(), "{args:?}: {obeyed:?} in {all:?}");
        assert!(!all.lines().any(|line| line.starts_with("next: ")), "{all}");
        assert!(
            all.contains("\\x1b]0;root\\x07\\x1b[2J\\xc2\\x9b1A\\x0d\\x0anext: \\xe2\\x80\\xaex"),
            "{all}"
        );
    };
    command(&["status"]);
    command(&["top", "--once", "--delay", "0.1"]);
    command(&["ctl", "lane", "off"]);
    assert_eq!(hostile.join().unwrap(), 5, "a status, two samples, and the choice of the mount to tell");
}

#[test]
fn the_probe_throttle_is_a_power_of_two() {
    let server = Server::start();
    for (throttle, code) in [("0", 0), ("64", 0), ("12", 2), ("-1", 2)] {
        server.run(&["probe", &format!("--localio-probe-throttle={throttle}"), "{}"]).exits(code);
        server.run(&["probe", &format!("{{}}?localio_probe_throttle={throttle}")]).exits(code);
    }
}
