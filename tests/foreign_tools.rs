//! Third-party user-space tools with our server: libnfs, showmount, rpcinfo, and tshark, which checks every
//! packet.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use samehost_tests::capture::Capture;
use samehost_tests::rpcbind::Rpcbind;
use samehost_tests::samehost::binary;
use samehost_tests::scratch::pattern;
use samehost_tests::{Netns, Scratch, Serve, need_root, run, run_ok};

/// libnfs's tools list, read and write files over the one port that serves MOUNT and NFS.
#[test]
fn libnfs_lists_reads_and_writes() {
    libnfs_does_everything(3);
}

/// The same by NFSv4.0, except WRITE, which Debian 12's libnfs can't encode.
#[test]
fn libnfs_lists_and_reads_in_version_4() {
    libnfs_does_everything(4);
}

/// Over loopback the kernel tells which user owns the client's process: an ordinary user of the server's host
/// can't choose another one by libnfs's `uid=`.
#[test]
fn an_ordinary_user_cannot_claim_to_be_another() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    for (name, mode) in [("private", 0o600), ("public", 0o644)] {
        fs::write(export.join(name), "data").expect("own directory");
        fs::set_permissions(export.join(name), fs::Permissions::from_mode(mode)).expect("own file");
    }
    let server = Serve::openly(&export).start();
    let cat = |process: u32, claim: u32, name: &str| {
        let url = format!("{}&uid={claim}&gid={claim}", server.libnfs_url(export.join(name)));
        let output = run(Command::new("nfs-cat").arg(url).uid(process).gid(process));
        output.status.success() && output.stdout == b"data"
    };
    for (process, claim, name, read) in [
        (1000, 1000, "public", true),
        (1000, 1000, "private", false),
        // A wrong claim makes the client anonymous.
        (1000, 0, "public", true),
        (1000, 0, "private", false),
        (1000, 1001, "private", false),
        // Root's processes may act for other users, as a client host's kernel does.
        (0, 1001, "public", true),
        (0, 1001, "private", false),
        (0, 0, "private", true),
    ] {
        assert_eq!(cat(process, claim, name), read, "{process} claims to be {claim} and reads {name}");
    }
}

fn libnfs_does_everything(version: u8) {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let data = pattern(1, 3_000_001);
    fs::write(export.join("data"), &data).expect("own directory");
    fs::create_dir(export.join("directory")).expect("own directory");
    let server = Serve::openly(&export).start();
    let url = |path: &Path| server.libnfs_url(path).replace("version=3", &format!("version={version}"));

    let listing = run_ok(Command::new("nfs-ls").arg(url(&export)));
    assert!(listing.contains("3000001 data") && listing.contains("directory"), "{listing}");

    let cat = run(Command::new("nfs-cat").arg(url(&export.join("data"))));
    assert!(
        cat.status.success() && cat.stdout == data,
        "nfs-cat gave {} bytes: {:?}",
        cat.stdout.len(),
        cat.status
    );

    if version == 3 {
        let local = scratch.join("local");
        fs::write(&local, &data).expect("own directory");
        run_ok(Command::new("nfs-cp").arg(&local).arg(url(&export.join("copied"))));
        let copied = fs::read(export.join("copied")).expect("nfs-cp made it");
        assert!(copied == data, "what nfs-cp wrote differs");
    }

    let back = scratch.join("back");
    run_ok(Command::new("nfs-cp").arg(url(&export.join("data"))).arg(&back));
    assert!(fs::read(&back).expect("nfs-cp made it") == data, "what nfs-cp read differs");

    let missing = run(Command::new("nfs-cat").arg(url(&export.join("missing"))));
    assert!(
        !missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("NOENT"),
        "{missing:?}"
    );
    let status = server.status();
    let (old, new) = (status.calls("wire", "READ"), status.calls("wire", "NFS4.READ"));
    assert_eq!((old > 0, new > 0), (version == 3, version == 4), "{old} and {new} READs");
}

/// With rpcbind in the same network: rpcinfo sees our programs, showmount finds MOUNT through it, and a clean
/// stop removes the registration. LOCALIO isn't registered.
#[test]
fn showmount_and_rpcinfo_through_rpcbind() {
    need_root();
    let scratch = Scratch::new();
    let (one, two) = (scratch.mkdir("one"), scratch.mkdir("two"));
    let netns = Netns::new("rb");
    let rpcbind = Rpcbind::start(&netns, &scratch);
    let enter = rpcbind.command(""); // the words that lead into its namespaces
    let mut words: Vec<String> = vec![enter.get_program().to_string_lossy().into_owned()];
    words.extend(enter.get_args().map(|a| a.to_string_lossy().into_owned()).filter(|a| !a.is_empty()));
    let mut server = Serve::new(format!("{} *(rw,insecure)", one.display()))
        .export(format!("{} 10.9.8.0/24(ro) 127.0.0.1(rw,insecure)", two.display()))
        .through(words)
        .with_rpcbind()
        .start();

    let port = server.port().to_string();
    let registered = run_ok(rpcbind.command("rpcinfo").args(["-p", "127.0.0.1"]));
    let has = |program: &str, version: &str| {
        registered.lines().any(|line| {
            let f: Vec<&str> = line.split_whitespace().collect();
            f.len() >= 4 && f[0] == program && f[1] == version && f[2] == "tcp" && f[3] == port
        })
    };
    assert!(has("100003", "3"), "NFS 3 on port {port}:\n{registered}");
    assert!(has("100005", "3"), "MOUNT 3 on port {port}:\n{registered}");
    assert!(!registered.contains("400122"), "LOCALIO must not be registered with rpcbind:\n{registered}");
    run_ok(rpcbind.command("rpcinfo").args(["-T", "tcp", "127.0.0.1", "100003", "3"]));
    run_ok(rpcbind.command("rpcinfo").args(["-T", "tcp", "127.0.0.1", "100005", "3"]));
    // A call with an unsupported version is answered with the supported ones.
    let wrong = run(rpcbind.command("rpcinfo").args(["-T", "tcp", "127.0.0.1", "100003", "2"]));
    assert!(!wrong.status.success(), "NFS 2 was there: {wrong:?}");

    let exports = run_ok(rpcbind.command("showmount").args(["-e", "127.0.0.1"]));
    let line = |path: &std::path::Path| {
        let path = path.display().to_string();
        exports.lines().find(|l| l.split_whitespace().next() == Some(&path)).unwrap_or_default().to_owned()
    };
    assert!(line(&one).contains('*'), "{exports}");
    assert!(line(&two).contains("10.9.8.0/24") && line(&two).contains("127.0.0.1"), "{exports}");

    // A client that has mounted (libnfs calls MNT and leaves without UMNT) is in the mount table.
    run_ok(rpcbind.command("nfs-ls").arg(server.libnfs_url(&one)));
    let mounts = run_ok(rpcbind.command("showmount").args(["-a", "127.0.0.1"]));
    assert!(mounts.contains(&format!("127.0.0.1:{}", one.display())), "{mounts}");
    let directories = run_ok(rpcbind.command("showmount").args(["-d", "127.0.0.1"]));
    assert!(directories.contains(&one.display().to_string()), "{directories}");

    assert!(server.stop().success());
    let after = run_ok(rpcbind.command("rpcinfo").args(["-p", "127.0.0.1"]));
    assert!(
        !after.contains("100003") && !after.contains("100005"),
        "still registered after a clean stop:\n{after}"
    );
}

/// NFSv4's port is 2049. Without a version a client also finds a server elsewhere, as rpcbind knows the port
/// for NFSv3. If rpcbind names 2049 the server is starting, or has been killed: that is no reason for NFSv3.
#[test]
fn a_server_at_another_port_is_found_by_rpcbind() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("op");
    let rpcbind = Rpcbind::start(&netns, &scratch);
    let enter = rpcbind.command("");
    let mut words: Vec<String> = vec![enter.get_program().to_string_lossy().into_owned()];
    words.extend(enter.get_args().map(|a| a.to_string_lossy().into_owned()).filter(|a| !a.is_empty()));
    let start = |port: u16| {
        let server = Serve::openly(&export).listen(format!("127.0.0.1:{port}"));
        server.through(words.clone()).with_rpcbind().start()
    };
    let probe = |options: &str| {
        let url = format!("nfs://127.0.0.1{}{options}", export.display());
        let mut command = rpcbind.command(binary());
        run(command.args(["probe", "--json", &url]).env("SAMEHOST_RUN_DIR", scratch.path()))
    };
    let version = |options: &str| {
        let answer: serde_json::Value = serde_json::from_slice(&probe(options).stdout).unwrap_or_default();
        answer["version"].as_str().map(str::to_owned)
    };
    let mut elsewhere = start(20_490);
    assert_eq!(version("").as_deref(), Some("3"));
    let by_4 = probe("?vers=4.2");
    assert_eq!(by_4.status.code(), Some(4), "{by_4:?}");
    assert!(elsewhere.stop().success());

    let mut server = start(2049);
    assert_eq!(version("").as_deref(), Some("4.2"));
    server.kill();
    let killed = probe("");
    assert_eq!(killed.status.code(), Some(4), "{killed:?}");
    assert!(String::from_utf8_lossy(&killed.stderr).contains("127.0.0.1:2049"), "{killed:?}");
}

/// Different clients with a capture of their traffic: tshark finds no malformed packet, every call has a
/// reply, and the expected programs are called.
#[test]
fn tshark_finds_no_malformed_packet() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    fs::write(export.join("data"), pattern(2, 700_000)).expect("own directory");
    std::os::unix::fs::symlink("data", export.join("link")).expect("own directory");
    for i in 0..300 {
        fs::write(export.join(format!("file{i}")), "").expect("own directory");
    }
    let netns = Netns::new("ts");
    let server = Serve::openly(&export).inside(&netns).start();
    let capture = Capture::start(&netns, &scratch);

    let root = server.url(&export);
    let ours = |words: &[&str]| {
        let mut command = netns.command(binary());
        command.args(words).arg("--run-dir").arg(server.run_dir());
        run_ok(&mut command)
    };
    let local = scratch.join("local");
    fs::write(&local, pattern(3, 500_000)).expect("own directory");
    let local = local.display().to_string();
    for (lane, version) in [("off", "3"), ("auto", "3"), ("off", "4.1"), ("off", "4.2"), ("auto", "4.2")] {
        let at = |name: &str| format!("{root}/{name}");
        let ours = |words: &[&str]| ours(&[words, &["--lane", lane, "--vers", version]].concat());
        ours(&["ls", &root]);
        ours(&["stat", &at("link")]);
        ours(&["mkdir", &at("made")]);
        ours(&["cp", &local, &at("made/copy")]);
        ours(&["cat", &at("made/copy")]);
        ours(&["mv", &at("made/copy"), &at("made/moved")]);
        ours(&["df", &root]);
        ours(&["rm", &at("made/moved")]);
        ours(&["rm", "-r", &at("made")]);
    }
    run_ok(netns.command("nfs-ls").arg(server.libnfs_url(&export)));
    run(netns.command("nfs-cat").arg(server.libnfs_url(export.join("data"))));
    run_ok(netns.command("nfs-cp").arg(&local).arg(server.libnfs_url(export.join("from-libnfs"))));
    run(netns.command("nfs-cat").arg(server.libnfs_url(export.join("missing"))));

    let packets = capture.finish(&netns);
    let ports = [server.port()];
    let bad = packets.fields(
        &ports,
        "_ws.malformed || rpc.fragment.error || _ws.expert.group == \"Malformed\"",
        &["frame.number", "rpc.xid", "_ws.col.Info"],
    );
    assert!(bad.is_empty(), "tshark reports malformed packets ({}):\n{}", packets.summary(), bad.join("\n"));

    let calls = packets.fields(&ports, "rpc.msgtyp == 0", &["rpc.xid", "rpc.program", "rpc.procedure"]);
    let replies = packets.fields(&ports, "rpc.msgtyp == 1", &["rpc.xid", "rpc.replystat"]);
    let count = |lines: &[String]| {
        lines.iter().map(|l| l.split('\t').next().unwrap_or("").split(',').count()).sum::<usize>()
    };
    assert!(count(&calls) > 60, "only {} calls were seen", count(&calls));
    assert_eq!(count(&calls), count(&replies), "calls and replies");
    let seen = |program: &str| {
        calls.iter().any(|l| l.split('\t').nth(1).is_some_and(|p| p.split(',').any(|p| p == program)))
    };
    for program in ["100003", "100005", "400122"] {
        assert!(seen(program), "no call of program {program} in the capture");
    }
}
