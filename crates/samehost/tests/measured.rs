//! `bench` and `demo` work. Their measured results aren't tested.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::{Server, run, samehost};

const SHORT: [&str; 6] = ["--runs", "2", "--time", "20", "--size", "4"];

#[test]
fn bench_measures_every_data_path() {
    let server = Server::start();
    let raw = server.beside("raw");
    fs::create_dir(&raw).unwrap();
    let args = ["bench", "{}", "--json", "--raw", raw.to_str().unwrap()];
    let json = server.run(&[&args[..], &SHORT].concat()).exits(0);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["local"], true);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        for data_path in ["raw", "lane", "wire"] {
            assert!(row[data_path]["operations_per_second"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(row[data_path]["runs"].as_array().unwrap().len(), 2);
        }
    }
    // No scratch file is left.
    assert_eq!(fs::read_dir(&raw).unwrap().count() + fs::read_dir(server.export()).unwrap().count(), 0);
}

#[test]
fn bench_without_a_lane_reports_it() {
    let server = Server::with(&["--lane", "off"], "127.0.0.1(rw,no_root_squash,insecure)");
    let text = server.run(&[&["bench", "{}"][..], &SHORT].concat()).exits(0);
    assert!(text.text().contains("wire") && text.text().contains("local: no"), "{}", text.text());
    server.run(&[&["bench", "{}", "--lane", "required"][..], &SHORT].concat()).exits(3);
}

#[test]
fn the_demo_runs_and_cleans_up() {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = samehost(["demo", "--scratch", scratch.path().to_str().unwrap()]);
    let demo = run(command.args(SHORT)).exits(0);
    let text = demo.text();
    for words in [
        "local: yes, lane through ",
        ", instance ",
        "no difference",
        "saw READ 0, WRITE 0, COMMIT 0",
        "lane/raw",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "something stays behind");
}

#[test]
fn the_demo_copies_the_tree_it_is_given() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/c"), b"c").unwrap();
    let mut command = samehost(["demo", "--tree", tree.to_str().unwrap()]);
    let demo = run(command.args(SHORT)).exits(0);
    assert!(demo.text().contains("copied in   1 file, 3 directories"), "{}", demo.text());
}

#[test]
fn the_demo_needs_no_privileges() {
    if !rustix::process::geteuid().is_root() {
        return; // the other tests run without privileges already
    }
    // An ordinary user needn't be able to read the directory that the command was built in.
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("samehost");
    // By cp(1): a child that another test forks could have a descriptor of this process open for writing, and
    // the kernel executes no such file.
    run(Command::new("cp").arg(env!("CARGO_BIN_EXE_samehost")).arg(&program)).exits(0);
    let home = scratch.path().join("home");
    fs::create_dir(&home).unwrap();
    for (path, mode) in [(scratch.path(), 0o755), (&program, 0o755), (&home, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(&program);
    command.arg("demo").args(SHORT).arg("--scratch").arg(&home).current_dir(&home).uid(4711).gid(4711);
    command
        .env_remove("SAMEHOST_RUN_DIR")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", &home)
        .stdin(Stdio::null());
    let demo = run(&mut command).exits(0);
    for words in ["not started as root", "local: yes", "no difference", "saw READ 0, WRITE 0, COMMIT 0"] {
        assert!(demo.text().contains(words), "no {words:?} in {}", demo.text());
    }
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "something stays behind");
}
