//! Help, usage errors, exit codes, completions and manual pages, all without a server.

mod common;

use std::io::Read;
use std::process::{Command, Stdio};

use common::{run, samehost, wait};

const COMMANDS: [&str; 19] = [
    "serve",
    "ls",
    "stat",
    "cat",
    "cp",
    "rm",
    "mkdir",
    "mv",
    "df",
    "status",
    "cluster",
    "probe",
    "doctor",
    "exports",
    "top",
    "bench",
    "demo",
    "completions",
    "man",
];

#[test]
fn every_command_has_help_with_exit_codes() {
    let all = run(&mut samehost(["--help"])).exits(0);
    for command in COMMANDS {
        assert!(all.text().contains(&format!("\n  {command} ")), "{command} is not in --help");
        let help = run(&mut samehost([command, "--help"])).exits(0);
        assert!(help.text().contains("SAMEHOST_RUN_DIR"), "{command}");
        if !matches!(command, "completions" | "man") {
            assert!(help.text().contains("Exit codes:"), "{command}");
        }
    }
    assert!(all.text().contains("Exit codes:"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = run(&mut samehost(["--version"])).exits(0);
    assert_eq!(version.text(), concat!("samehost ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn usage_errors_exit_with_2() {
    let wrong: [&[&str]; 11] = [
        &[],
        &["frobnicate"],
        &["ls"],
        &["ls", "/not/a/url"],
        &["cat", "nfs:///no-host"],
        &["cat", "nfs://host/x", "--lane", "perhaps"],
        &["cat", "nfs://host/x", "--timeo", "0"],
        &["cp", "only-one"],
        &["cp", "local", "other-local"],
        &["mkdir", "--mode", "999", "nfs://host/x"],
        &["probe", "nfs://host/x", "--lane", "off"],
    ];
    for args in wrong {
        let ran = run(&mut samehost(args));
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}");
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn an_unreachable_server_exits_with_4_and_a_next_step() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("nfs://127.0.0.1:{port}/srv");
    for command in ["ls", "probe", "cat"] {
        run(&mut samehost([command, "--soft", "--timeo", "5", "--retrans", "0", &url]))
            .exits(4)
            .complains(&[&url, "next:"]);
        // nfs(5): the first failure is final.
        run(&mut samehost([command, &format!("{url}?retry=0")])).exits(4).complains(&[&url, "next:"]);
    }
}

#[test]
fn status_without_a_server_exits_with_4() {
    let empty = tempfile::tempdir().unwrap();
    let missing = empty.path().join("missing");
    for dir in [empty.path(), &missing] {
        run(samehost(["status", "--run-dir"]).arg(dir))
            .exits(4)
            .complains(&["no server is running", "next:"]);
    }
    let json = run(samehost(["status", "--json", "--run-dir"]).arg(empty.path())).exits(4);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap()["servers"],
        serde_json::json!([])
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["completions", "bash"][..], &["man"], &["--help"]] {
        let mut child = samehost(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(wait(&mut child), Some(0), "{args:?}");
        let mut complaints = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert_eq!(complaints, "", "{args:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = samehost(["completions", "bash"]).stdout(full).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(wait(&mut child), Some(1));
}

#[test]
fn completions_are_shell_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&mut samehost(["completions", shell])).exits(0);
        assert!(COMMANDS.iter().all(|command| script.text().contains(command)), "{shell}");
    }
    let script = run(&mut samehost(["completions", "bash"])).exits(0);
    for words in ["auto off required", "buffered dontcache direct", "lookupcache=pos", "timeo="] {
        assert!(script.text().contains(words), "{words}");
    }
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("completions"), &script.stdout).unwrap();
    run(Command::new("bash").arg("-n").arg(scratch.path().join("completions"))).exits(0);
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("man1");
    run(samehost(["man"]).arg(&dir)).exits(0);
    for command in COMMANDS {
        let page = std::fs::read_to_string(dir.join(format!("samehost-{command}.1"))).unwrap();
        assert!(page.contains(".TH "), "{command}");
    }
    let page = run(&mut samehost(["man"])).exits(0);
    assert_eq!(page.text(), std::fs::read_to_string(dir.join("samehost.1")).unwrap());
    assert!(page.text().contains("Exit codes"));
    // The tables of options and of the status's numbers.
    let urls = page.text().replace("\\-", "-");
    assert!(urls.contains(".TP\n\\fBretrans=N\\fR\n"), "{urls}");
    for (command, entry) in [
        ("mount", "acregmin=N\\fR\nShortest time for which attributes of a file are cached (seconds, 0 to "),
        ("mount", "timeo=N\\fR\nTime to wait for a reply before a call is repeated; more than 6000 means "),
        ("status", "retransmits\\fR\nRPC calls that were sent again after a reconnect (counter)"),
    ] {
        let page = std::fs::read_to_string(dir.join(format!("samehost-{command}.1"))).unwrap();
        assert!(page.replace("\\-", "-").contains(&format!(".TP\n\\fB{entry}")), "{command}: {page}");
    }
}

#[test]
fn invalid_log_filters_are_reported() {
    run(samehost(["man"]).env("SAMEHOST_LOG", "=")).exits(2).complains(&["SAMEHOST_LOG"]);
}

#[test]
fn doctor_says_which_data_paths_this_host_can_have() {
    let scratch = tempfile::tempdir().unwrap();
    let doctor =
        |arguments: &[&str]| run(samehost(["doctor", "--run-dir"]).arg(scratch.path()).args(arguments));
    // Whether this host has problems is its own affair.
    let ran = doctor(&["--json"]);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let paths = json["data_paths"].as_array().unwrap();
    assert_eq!(paths.len(), 8, "{json}");
    for path in paths {
        assert_eq!(path["available"], path["obstacles"].as_array().unwrap().is_empty(), "{path}");
    }
    let findings = json["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["subject"] == "servers of this host"), "{json}");
    for finding in findings {
        for part in ["level", "side", "subject", "what", "why", "next"] {
            assert!(finding[part].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
        }
    }
    let mount = doctor(&["mount"]);
    assert!(mount.text().contains("a mount started like this uses"), "{}", mount.text());
    assert!(!mount.text().contains("a server started like this"), "{}", mount.text());
    let missing = doctor(&["server", "--export-dir", "/nowhere/at/all"]).exits(1);
    assert!(missing.text().contains("problem: /nowhere/at/all: it can't be opened"), "{}", missing.text());
    assert!(missing.text().contains("next: create the directory"), "{}", missing.text());
}

#[test]
fn the_help_of_serve_has_its_ready_line_and_notes() {
    let help = run(&mut samehost(["serve", "--help"])).exits(0);
    assert!(help.text().contains("`ready:`") && help.text().contains("`note:`"), "{}", help.text());
}

#[test]
fn exports_files_are_shown_and_checked() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("exports");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "/a -sync,rw @group(wdelay) *(ro)\n").unwrap();
    let shown = run(&mut samehost(["exports", path])).exits(0);
    let expected = "/a @group(rw,root_squash,secure,sync,no_subtree_check,wdelay) \
                    *(ro,root_squash,secure,sync,no_subtree_check)\n\
                    # note: option wdelay has no effect: each write is handled when it arrives\n";
    assert_eq!(shown.text(), expected);
    // What is printed is valid itself.
    std::fs::write(&file, shown.text()).unwrap();
    assert_eq!(run(&mut samehost(["exports", "--check", path])).exits(0).text(), "");
    std::fs::write(&file, "/a *(rw,bogus)\n/b *(\n").unwrap();
    run(&mut samehost(["exports", "--check", path])).exits(1).complains(&[":1:9: option bogus", ":2:"]);
}

#[test]
fn exports_that_are_not_served_as_meant_are_warnings() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("exports");
    let (path, dir) = (file.to_str().unwrap(), scratch.path().display());
    let text = format!("{dir} localhost(rw) nosuchhost.invalid(rw)\n{path} *(ro)\n/no/where (ro)\n");
    std::fs::write(&file, text).unwrap();
    for args in [&["exports", path][..], &["exports", "--check", path]] {
        let ran = run(&mut samehost(args)).exits(0).complains(&[
            &format!("warning: {dir}: its client nosuchhost.invalid isn't found"),
            &format!("warning: {path}: it can't be served: it isn't a directory"),
            "warning: /no/where: it can't be served: it doesn't exist\n  next: create the directory",
            "warning: /no/where: its line names no client, so it is exported to everybody\n  next: write *(",
        ]);
        assert_eq!(ran.stderr.lines().count(), 8, "{}", ran.stderr);
    }
    // Symbolic links on the way.
    let base = scratch.path().canonicalize().unwrap().display().to_string();
    std::fs::create_dir(scratch.path().join("a")).unwrap();
    std::os::unix::fs::symlink("a", scratch.path().join("b")).unwrap();
    std::fs::write(&file, format!("{dir}/a *(rw)\n{dir}/b *(ro)\n")).unwrap();
    run(&mut samehost(["exports", "--check", path])).exits(0).complains(&[&format!(
        "warning: {dir}/b: it can't be served: it is the same directory as {dir}/a\n  next: write the clients"
    )]);
    std::fs::write(&file, format!("{dir}/b *(ro)\n{dir} *(rw)\n{dir}/a *(ro)\n")).unwrap();
    let ran = run(&mut samehost(["exports", "--check", path])).exits(0).complains(&[&format!(
        "warning: {dir}/b: it can't be served: clients of {dir} may change the symbolic link {base}/b on its \
         path, and so what is exported\n  next: write {base}/a in the exports instead"
    )]);
    assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
    std::fs::write(&file, format!("{dir} localhost(rw) *(ro)\n")).unwrap();
    assert_eq!(run(&mut samehost(["exports", "--check", path])).exits(0).stderr, "");
}
