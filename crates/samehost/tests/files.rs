//! Commands on files, each over both data paths.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use common::{Server, run, samehost, tree, wait};

const LANE_OPTIONS: [&str; 2] = ["--lane=required", "--lane=off"];

/// Makes a small tree with difficult cases for a copy.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::create_dir(root.join("empty directory")).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("small"), b"small\n").unwrap();
    fs::write(root.join("large"), (0..3_000_000u32).map(|n| (n * 7 % 251) as u8).collect::<Vec<_>>())
        .unwrap();
    fs::write(root.join("deep/er/still/%41 \u{fc}?#"), b"odd name").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"no UTF-8 \xff")), b"bytes").unwrap();
    for number in 0..300 {
        fs::write(root.join(format!("deep/{number}")), number.to_string()).unwrap();
    }
    symlink("small", root.join("link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    for (name, mode) in [("read-only", 0o444), ("program", 0o755), ("secret", 0o600)] {
        fs::write(root.join(name), name).unwrap();
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(root.join("deep/er"), fs::Permissions::from_mode(0o500)).unwrap();
}

/// Makes every directory writable again, so that an ordinary user can remove the scratch directory.
fn unlock(root: &Path) {
    let _ = fs::set_permissions(root.join("deep/er"), fs::Permissions::from_mode(0o700));
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_tree_is_unchanged_after_copies_in_and_out() {
    let server = Server::start();
    let source = server.beside("source");
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    for (number, lane) in LANE_OPTIONS.iter().enumerate() {
        let there = format!("{{}}copy-{number}");
        let back = server.beside(&format!("back-{number}"));
        server.run(&["cp", "-r", lane, path(&source), &there]).exits(0);
        assert_eq!(tree(&server.export().join(format!("copy-{number}"))), tree(&source), "{lane}");
        server.run(&["cp", "-r", lane, &there, path(&back)]).exits(0);
        assert_eq!(tree(&back), tree(&source), "{lane}");
        unlock(&back);
        unlock(&server.export().join(format!("copy-{number}")));
    }
    unlock(&source);
}

#[test]
fn data_over_the_lane_takes_no_reads_or_writes_on_the_wire() {
    let server = Server::start();
    let source = server.beside("source");
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    server.run(&["cp", "-r", "--lane=required", path(&source), "{}copy"]).exits(0);
    server.run(&["cp", "-r", "--lane=required", "{}copy", path(&server.beside("back"))]).exits(0);
    server.run(&["cat", "--lane=required", "{}copy/large"]).exits(0);
    for procedure in ["READ", "WRITE", "COMMIT"] {
        assert_eq!(server.wire_calls(procedure), 0, "{procedure}");
    }
    server.run(&["cat", "--lane=off", "{}copy/large"]).exits(0);
    assert!(server.wire_calls("READ") > 0);
    for root in [&source, &server.export().join("copy"), &server.beside("back")] {
        unlock(root);
    }
}

/// All calls that the server has answered, over wire and lane, and the files that it has granted.
fn server_calls(server: &Server) -> u64 {
    let status = server.status();
    let paths = ["wire", "lane"].map(|path| status["counters"][path].as_object().expect("counters").clone());
    let calls = paths.iter().flat_map(|path| path.values()).map(|one| one["ops"].as_u64().expect("a count"));
    calls.sum::<u64>() + status["grants"]["granted"].as_u64().expect("a count")
}

/// What each command costs the server, for a number of files in four directories: calls and grants.
fn costs_of_commands(server: &Server, files: u64) -> [(&'static str, u64); 4] {
    let source = server.beside(&format!("source-{files}"));
    let back = server.beside(&format!("back-{files}"));
    for number in 0..files {
        let directory = source.join((number % 4).to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), vec![b'x'; 4096]).unwrap();
    }
    let there = format!("{{}}copy-{files}");
    let cost = |arguments: &[&str]| {
        let before = server_calls(server);
        let ran = server.run(arguments).exits(0);
        (server_calls(server) - before, ran)
    };
    let (copied, _) = cost(&["cp", "-r", path(&source), &there]);
    let (listed, ran) = cost(&["ls", "-lR", &there]);
    assert!(ran.text().lines().count() as u64 > files);
    let (read, _) = cost(&["cp", "-r", &there, path(&back)]);
    assert_eq!(tree(&back), tree(&source));
    let (removed, _) = cost(&["rm", "-r", &there]);
    assert!(!server.export().join(format!("copy-{files}")).exists());
    [("cp -r to the server", copied), ("ls -lR", listed), ("cp -r from it", read), ("rm -r", removed)]
}

/// Whoever has a tree works on its files by system calls of its own.
#[test]
fn commands_with_a_tree_make_no_call_for_a_file() {
    const FILES: u64 = 400;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only a server of root gives trees");
    }
    // What a command does besides, such as connecting, is the same for twice the files.
    let server = Server::start();
    let (few, many) = (costs_of_commands(&server, FILES), costs_of_commands(&server, 2 * FILES));
    assert_eq!(many, few, "calls for {FILES} files more");
    // Without a tree each file would be counted.
    let server = Server::with(&[], "127.0.0.1(rw,no_root_squash,insecure,no_subtree_check,no_tree)");
    let (few, many) = (costs_of_commands(&server, FILES), costs_of_commands(&server, 2 * FILES));
    for ((command, few), (_, many)) in few.into_iter().zip(many) {
        // A reply to READDIRPLUS has the attributes of some hundred files.
        let least = if command == "ls -lR" { 0 } else { FILES };
        assert!(many >= few + least, "{command}: {few}, then {many}");
    }
}

#[test]
fn a_tree_is_copied_between_servers() {
    let (one, other) = (Server::start(), Server::start());
    fs::create_dir(one.export().join("a")).unwrap();
    make_tree(&one.export().join("a"));
    one.run(&["cp", "-r", "{}a", &other.url("b")]).exits(0);
    assert_eq!(tree(&one.export().join("a")), tree(&other.export().join("b")));
    unlock(&one.export().join("a"));
    unlock(&other.export().join("b"));
}

#[test]
fn cp_copies_into_a_directory_and_over_a_file() {
    let server = Server::start();
    for name in ["one", "two"] {
        fs::write(server.beside(name), name).unwrap();
    }
    let (one, two) = (server.beside("one"), server.beside("two"));
    let (one, two) = (path(&one), path(&two));
    // Into the export itself, into a directory in it, to a new name, over a file.
    server.run(&["cp", one, two, "{}"]).exits(0);
    fs::create_dir(server.export().join("d")).unwrap();
    server.run(&["cp", one, two, "{}d"]).exits(0);
    server.run(&["cp", one, "{}d/new"]).exits(0);
    server.run(&["cp", two, "{}d/new"]).exits(0);
    let read = |name: &str| fs::read_to_string(server.export().join(name)).unwrap();
    assert_eq!([read("one"), read("two"), read("d/one"), read("d/two")], ["one", "two", "one", "two"]);
    assert_eq!(read("d/new"), "two");
    // Several files can't have one name, and directories aren't copied without -r.
    server.run(&["cp", one, two, "{}d/new"]).exits(2);
    server.run(&["cp", "{}d", path(&server.beside("out"))]).exits(1).complains(&["is a directory", "cp -r"]);
    server.run(&["cp", "{}missing", path(&server.beside("out"))]).exits(1).complains(&["no such file"]);
    // A failure doesn't stop the rest.
    fs::create_dir(server.beside("out")).unwrap();
    server.run(&["cp", "{}missing", "{}one", path(&server.beside("out"))]).exits(1);
    assert_eq!(fs::read_to_string(server.beside("out/one")).unwrap(), "one");
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let server = Server::start();
    fs::write(server.export().join("file"), b"precious").unwrap();
    let local = server.export().join("file");
    for (from, to) in [("{}file", "{}file"), (path(&local), "{}file"), ("{}file", path(&local))] {
        server.run(&["cp", from, to]).exits(1).complains(&["same file"]);
        assert_eq!(fs::read(&local).unwrap(), b"precious");
    }
}

/// Sources with one name would overwrite each other at the destination, at the same time even.
#[test]
fn what_a_command_has_made_is_not_replaced_by_it() {
    let server = Server::start();
    for (directory, byte) in [("a", b'A'), ("b", b'B')] {
        fs::create_dir_all(server.beside(directory).join("sub")).unwrap();
        fs::write(server.beside(directory).join("sub/file"), vec![byte; 3_000_000]).unwrap();
    }
    let (a, b) = (server.beside("a/sub"), server.beside("b/sub"));
    let said = ["/sub/file", "was just made by this command"];
    for (number, lane) in LANE_OPTIONS.into_iter().enumerate() {
        let name = format!("one-{number}");
        let made = server.export().join(&name);
        let whole = |file: &str| fs::read(made.join(file)).unwrap() == vec![b'A'; 3_000_000];
        fs::create_dir(&made).unwrap();
        let to = format!("{{}}{name}");
        server.run(&["cp", "-r", lane, path(&a), path(&b), &to]).exits(1).complains(&said);
        assert!(whole("sub/file"));
        let (a, b) = (a.join("file"), b.join("file"));
        server.run(&["cp", lane, path(&a), path(&b), &to]).exits(1).complains(&said[1..]);
        assert!(whole("file"));
        // The contents of directories without a name.
        let (a, b) = (server.beside("a/sub/."), server.beside("b/sub/."));
        let to = format!("{{}}{name}/sub");
        server.run(&["cp", "-r", lane, path(&a), path(&b), &to]).exits(1).complains(&said);
        assert!(whole("sub/file") && !made.join("sub/sub").exists());
    }
    for directory in ["p", "q", "into"] {
        fs::create_dir(server.export().join(directory)).unwrap();
        fs::write(server.export().join(directory).join("x"), directory).unwrap();
    }
    let said = ["into/x", "was just made by this command", "next:"];
    server.run(&["mv", "{}p/x", "{}q/x", "{}into"]).exits(1).complains(&said);
    let read = |name: &str| fs::read_to_string(server.export().join(name)).unwrap();
    assert_eq!([read("into/x"), read("q/x")], ["p", "q"]);
}

/// Two names at the destination are those of one file, which can't get the contents of both sources.
#[test]
fn hard_links_at_the_destination_get_the_contents_of_one_source() {
    const NAMES: u8 = 8;
    let server = Server::start();
    let local = server.beside("local");
    for directory in [&local, &server.export().join("source"), &server.export().join("linked")] {
        fs::create_dir(directory).unwrap();
    }
    let contents = |n: u8| vec![b'a' + n; 3_000_000 + 100_000 * usize::from(n)];
    for n in 0..NAMES {
        fs::write(local.join(n.to_string()), contents(n)).unwrap();
        fs::write(server.export().join("source").join(n.to_string()), contents(n)).unwrap();
    }
    let linked = |directory: &Path| {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("0"), b"before").unwrap();
        for n in 1..NAMES {
            let name = directory.join(n.to_string());
            if !name.exists() {
                fs::hard_link(directory.join("0"), name).unwrap();
            }
        }
    };
    let (there, here) = (server.export().join("linked"), server.beside("linked"));
    for lane in LANE_OPTIONS {
        let (from, to) = ("{}source/.", path(&here));
        for (from, to, made) in
            [(path(&local), "{}linked", &there.join("local")), (from, "{}linked", &there), (from, to, &here)]
        {
            linked(made);
            server.run(&["cp", "-r", "-q", lane, from, to]).exits(0);
            let file = fs::read(made.join("0")).unwrap();
            assert!((0..NAMES).any(|n| file == contents(n)), "{lane} {from} {to}: {} bytes", file.len());
            assert_eq!(fs::metadata(made.join("0")).unwrap().nlink(), u64::from(NAMES));
        }
    }
}

/// path_resolution(7): a path with a slash at its end is a directory's.
#[test]
fn a_slash_at_the_end_names_a_directory() {
    let server = Server::start();
    let export = server.export();
    fs::write(export.join("file"), b"file").unwrap();
    fs::write(export.join("other"), b"other").unwrap();
    fs::create_dir(export.join("dir")).unwrap();
    symlink("dir", export.join("link")).unwrap();
    let (local, new) = (server.beside("local"), server.beside("new"));
    let [missing, dot] = ["/", "/."].map(|end| format!("{}{end}", path(&server.beside("missing"))));
    fs::write(&local, b"local").unwrap();
    let refused: [&[&str]; 11] = [
        &["cat", "{}file/"],
        &["ls", "{}file/"],
        &["stat", "{}file/."],
        &["rm", "{}file/"],
        &["rm", "-r", "{}file/"],
        &["rm", "{}link/"],
        &["mv", "{}file/", "{}new"],
        &["mv", "{}other", "{}file/"],
        &["cp", "{}file/", path(&new)],
        &["cp", path(&local), "{}file/"],
        &["mv", "{}link/", "{}new"],
    ];
    for args in refused {
        server.run(args).exits(1).complains(&["not a directory"]);
    }
    for args in [
        &["cp", path(&local), "{}new/"],
        &["cp", "{}file", &missing[..]],
        &["cp", "{}file", &dot[..]],
        &["mv", "{}file", "{}new/"],
    ] {
        server.run(args).exits(1).complains(&["isn't a directory", "mkdir"]);
    }
    assert!(!export.join("new").exists() && !server.beside("missing").exists());
    assert_eq!(fs::read(export.join("file")).unwrap(), b"file");
    // As for directories themselves.
    server.run(&["ls", "{}link/"]).exits(0);
    server.run(&["mv", "{}dir/", "{}moved/"]).exits(0);
    server.run(&["cp", "-r", "{}moved/", "{}copy/"]).exits(0);
    server.run(&["cp", path(&local), "{}copy/"]).exits(0);
    assert_eq!(fs::read(export.join("copy/local")).unwrap(), b"local");
    server.run(&["rm", "-r", "{}copy/"]).exits(0);
    assert!(!export.join("copy").exists());
}

/// The destination's times change during the copy, which must not hide that it is the same directory.
#[test]
fn a_directory_is_not_copied_into_itself() {
    let server = Server::start();
    let d = server.export().join("d");
    fs::create_dir(&d).unwrap();
    for number in 0..500 {
        fs::write(d.join(number.to_string()), b"x").unwrap();
    }
    for (number, lane) in LANE_OPTIONS.into_iter().enumerate() {
        let (one, two, three) = (format!("one-{number}"), format!("two-{number}"), format!("three-{number}"));
        let there = |name: &str| format!("{{}}d/{name}");
        let here = |name: &str| path(&d.join(name)).to_owned();
        // Both on the server; a local source; a local destination.
        for (from, to, name) in
            [("{}d", there(&one), &one), (path(&d), there(&two), &two), ("{}d", here(&three), &three)]
        {
            server.run(&["cp", "-r", lane, from, &to]).exits(1).complains(&["into itself"]);
            assert_eq!(fs::read(d.join(name).join("499")).unwrap(), b"x");
            assert!(!d.join(name).join(name).exists(), "{lane} {from} {to}");
            fs::remove_dir_all(d.join(name)).unwrap();
        }
    }
}

/// As mv(1) does, where rename(2) would do nothing and report success.
#[test]
fn mv_between_hard_links_of_a_file_removes_the_old_name() {
    let server = Server::start();
    let export = server.export();
    fs::create_dir(export.join("d")).unwrap();
    fs::write(export.join("file"), b"precious").unwrap();
    symlink("file", export.join("symbolic")).unwrap();
    for (lane, version) in [("--lane=required", "?vers=3"), ("--lane=off", "?vers=3"), ("--lane=off", "")] {
        let mv = |from: &str, to: &str| {
            server.run(&["mv", lane, &format!("{{}}{from}{version}"), &format!("{{}}{to}{version}")])
        };
        for original in ["file", "symbolic"] {
            for (name, to, stays) in [("link", original, original), ("d/link", original, original)] {
                fs::hard_link(export.join(original), export.join(name)).unwrap();
                mv(name, to).exits(0);
                assert!(fs::symlink_metadata(export.join(name)).is_err(), "{lane}: {name} is still there");
                assert_eq!(fs::symlink_metadata(export.join(stays)).unwrap().nlink(), 1, "{lane}");
            }
        }
        // Into a directory that has the link under the same name.
        fs::hard_link(export.join("file"), export.join("d/file")).unwrap();
        mv("d/file", "").exits(0);
        assert!(!export.join("d/file").exists());
        // One name is no second one.
        mv("file", "file").exits(1).complains(&["is the same file as"]);
        mv("d/", "d/../d/").exits(1);
        assert_eq!(fs::read(export.join("file")).unwrap(), b"precious");
        // A different file is replaced, and a file with links moved to a new name, as ever.
        fs::write(export.join("other"), b"other").unwrap();
        fs::hard_link(export.join("file"), export.join("linked")).unwrap();
        mv("linked", "other").exits(0);
        mv("other", "linked").exits(0);
        assert_eq!(fs::read(export.join("linked")).unwrap(), b"precious");
        fs::remove_file(export.join("linked")).unwrap();
    }
}

/// A copy from a server that stops answering ends with one message and the exit code for servers.
#[test]
fn a_copy_from_an_unreachable_server_ends() {
    use rustix::process::Signal;
    let server = Server::start();
    fs::create_dir(server.export().join("tree")).unwrap();
    for number in 0..100 {
        // More than can be copied meanwhile.
        fs::File::create(server.export().join(format!("tree/{number}"))).unwrap().set_len(1 << 42).unwrap();
    }
    let destination = server.beside("destination");
    let from = server.url("tree");
    let mut cp = samehost([
        "cp",
        "-r",
        "--lane=off",
        "--soft",
        "--timeo=10",
        "--retrans=0",
        &from,
        path(&destination),
    ]);
    let cp = cp.env("SAMEHOST_RUN_DIR", server.run_dir());
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(|| run(cp));
        let begun = || {
            let entries = fs::read_dir(&destination).into_iter().flatten().flatten();
            entries.flat_map(|entry| entry.metadata()).any(|metadata| metadata.len() > 0)
        };
        while !begun() && !ran.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        server.signal(Signal::STOP);
        let ran = ran.join().unwrap();
        server.signal(Signal::CONT);
        ran
    });
    let ran = ran.exits(4).complains(&[&from]);
    assert_eq!(ran.stderr.matches("next:").count(), 1, "{}", ran.stderr);
}

#[test]
fn preserve_keeps_times_and_special_bits() {
    let server = Server::start();
    let file = server.beside("file");
    fs::write(&file, b"old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o2751)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
    server.run(&["cp", "-p", path(&file), "{}kept"]).exits(0);
    server.run(&["cp", path(&file), "{}plain"]).exits(0);
    let kept = fs::metadata(server.export().join("kept")).unwrap();
    assert_eq!((kept.mtime(), kept.mtime_nsec()), (1_000_000_000, 123_456_789));
    assert_eq!(kept.mode() & 0o7777, 0o2751);
    let plain = fs::metadata(server.export().join("plain")).unwrap();
    assert_ne!(plain.mtime(), 1_000_000_000);
    assert_eq!(plain.mode() & 0o7777, 0o751);
}

#[test]
fn links_below_the_destination_are_not_followed() {
    let server = Server::start();
    let (trap, outside) = (server.beside("trap"), server.beside("outside"));
    fs::create_dir_all(server.export().join("tree/d")).unwrap();
    fs::write(server.export().join("tree/d/file"), b"new").unwrap();
    fs::write(server.export().join("tree/f"), b"new").unwrap();
    fs::create_dir_all(trap.join("tree")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), b"old").unwrap();
    symlink(&outside, trap.join("tree/d")).unwrap();
    symlink(outside.join("f"), trap.join("tree/f")).unwrap();
    server.run(&["cp", "-r", "{}tree", path(&trap)]).exits(1).complains(&["not a directory"]);
    assert!(!outside.join("file").exists());
    assert_eq!(fs::read(outside.join("f")).unwrap(), b"old");
}

#[test]
fn ls_lists() {
    let server = Server::start();
    fs::create_dir(server.export().join("directory")).unwrap();
    fs::write(server.export().join(".hidden"), b"").unwrap();
    fs::write(server.export().join("file"), b"12345").unwrap();
    symlink("file", server.export().join("link")).unwrap();
    for lane in LANE_OPTIONS {
        assert_eq!(server.run(&["ls", lane, "{}"]).exits(0).text(), "directory\nfile\nlink\n");
        assert_eq!(server.run(&["ls", "-a", lane, "{}"]).exits(0).text(), ".hidden\ndirectory\nfile\nlink\n");
        let long = server.run(&["ls", "-ln", lane, "{}"]).exits(0);
        let lines: Vec<&str> = long.text().lines().collect();
        assert!(lines[0].starts_with("drwx") && lines[0].ends_with(" directory"), "{lines:?}");
        assert!(lines[1].starts_with("-rw") && lines[1].contains(" 5  "), "{lines:?}");
        assert!(lines[2].starts_with("lrwx") && lines[2].ends_with(" link -> file"), "{lines:?}");
    }
    assert_eq!(
        server.run(&["ls", "-d", "{}directory"]).exits(0).text(),
        format!("{}\n", server.url("directory"))
    );
    let both = server
        .run(&["ls", "{}directory", "{}missing", "{}"])
        .exits(1)
        .complains(&["missing", "no such file"]);
    assert!(both.text().contains("directory:\n"));
}

/// `ls -R` lists what ls(1) lists in the directory itself, in the same order.
#[test]
fn ls_lists_whole_trees() {
    let server = Server::start();
    let export = server.export();
    make_tree(&export);
    fs::create_dir_all(export.join(".hidden/below")).unwrap();
    fs::write(export.join("deep/.hidden"), b"").unwrap();
    symlink("deep", export.join("link to a directory")).unwrap();
    let local = |options: &str| {
        let mut ls = std::process::Command::new("ls");
        let listed = run(ls.args([options, path(&export)]).env("LC_ALL", "C")).exits(0).stdout;
        String::from_utf8_lossy(&listed).into_owned()
    };
    // Headings are URLs there, and paths here.
    let remote = |options: &str, lane: &str| {
        let listed = server.run(&["ls", options, lane, server.url("").trim_end_matches('/')]).exits(0).stdout;
        let path_of = |line: &str| match line.split_once(path(&export)) {
            Some((host, rest)) if host.starts_with("nfs://") => {
                format!("{}{}", path(&export), rest.replace("%20", " "))
            }
            _ => line.to_owned(),
        };
        let text = String::from_utf8_lossy(&listed).into_owned();
        text.lines().map(|line| path_of(line) + "\n").collect::<String>()
    };
    for lane in LANE_OPTIONS {
        assert_eq!(remote("-R", lane), local("-R"));
        // The command's -a shows no "." and "..", as ls -A.
        assert_eq!(remote("-aR", lane), local("-AR"));
    }
    // The long format has the same lines, names that aren't UTF-8 escaped, and links with their targets.
    let (long, short) = (remote("-lR", LANE_OPTIONS[0]), local("-R"));
    assert_eq!(long.lines().count(), short.lines().count());
    for (long, short) in long.lines().zip(short.lines()).filter(|(_, name)| !name.contains('\u{fffd}')) {
        assert!(long.split(" -> ").next().unwrap().ends_with(short), "{long:?} {short:?}");
    }
    assert!(long.contains(" link to a directory -> deep\n"));
    // -d shows the directory itself.
    assert_eq!(server.run(&["ls", "-dR", "{}deep"]).exits(0).text().lines().count(), 1);
    unlock(&export);
}

#[test]
fn ten_thousand_entries_are_listed_once_each() {
    let server = Server::start();
    for number in 0..10_000 {
        fs::write(server.export().join(format!("{number:05}")), b"").unwrap();
    }
    let listed = server.run(&["ls", "{}"]).exits(0);
    let expected: Vec<String> = (0..10_000).map(|number| format!("{number:05}")).collect();
    assert_eq!(listed.text().lines().collect::<Vec<_>>(), expected);
    assert_eq!(server.run(&["ls", "-l", "{}"]).exits(0).text().lines().count(), 10_000);
}

#[test]
fn stat_shows_the_servers_attributes() {
    let server = Server::start();
    fs::write(server.export().join("file"), b"12345").unwrap();
    fs::set_permissions(server.export().join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    let local = fs::metadata(server.export().join("file")).unwrap();
    let json = server.run(&["stat", "--json", "{}file"]).exits(0);
    let facts = &serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap()[0];
    assert_eq!(facts["kind"], "regular file");
    assert_eq!(facts["size"], 5);
    assert_eq!(facts["mode"], 0o640);
    assert_eq!(facts["fileid"], local.ino());
    assert_eq!(facts["modify"]["nanoseconds"], local.mtime_nsec());
    let text = server.run(&["stat", "{}file"]).exits(0);
    assert!(text.text().contains("mode: 0640 -rw-r-----"), "{}", text.text());
    server.run(&["stat", "{}missing"]).exits(1).complains(&["no such file"]);
}

#[test]
fn cat_writes_every_byte() {
    let server = Server::start();
    for size in [0, 1, 4095, 4096, 65_537, 1 << 20, 5_000_001] {
        let bytes: Vec<u8> = (0..size as u32).map(|n| (n * 31 % 253) as u8).collect();
        fs::write(server.export().join("file"), &bytes).unwrap();
        for lane in LANE_OPTIONS {
            assert!(server.run(&["cat", lane, "{}file"]).exits(0).stdout == bytes, "{lane}, {size} bytes");
        }
    }
    server.run(&["cat", "{}"]).exits(1).complains(&["directory"]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let server = Server::start();
    fs::write(server.export().join("file"), vec![b'x'; 8 << 20]).unwrap();
    let mut child = samehost(["cat", &server.url("file")])
        .env("SAMEHOST_RUN_DIR", server.run_dir())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(wait(&mut child), Some(0));
}

#[test]
fn directories_are_made_moved_and_removed() {
    let server = Server::start();
    let export = server.export();
    server.run(&["mkdir", "-m", "700", "{}a"]).exits(0);
    assert_eq!(fs::metadata(export.join("a")).unwrap().mode() & 0o777, 0o700);
    server.run(&["mkdir", "{}a"]).exits(1).complains(&["exists"]);
    server.run(&["mkdir", "{}x/y/z"]).exits(1).complains(&["no such file"]);
    server.run(&["mkdir", "-p", "{}x/y/z", "{}x/y"]).exits(0);
    assert!(export.join("x/y/z").is_dir());

    fs::write(export.join("file"), b"file").unwrap();
    server.run(&["mv", "{}file", "{}renamed"]).exits(0);
    server.run(&["mv", "{}renamed", "{}a", "{}x"]).exits(0);
    assert_eq!(fs::read(export.join("x/renamed")).unwrap(), b"file");
    assert!(export.join("x/a").is_dir());
    server.run(&["mv", "{}missing", "{}x"]).exits(1).complains(&["no such file"]);

    server.run(&["rm", "{}x"]).exits(1).complains(&["is a directory", "rm -r"]);
    server.run(&["rm", "{}missing"]).exits(1);
    server.run(&["rm", "-f", "{}missing"]).exits(0);
    fs::create_dir(server.beside("outside")).unwrap();
    fs::write(server.beside("outside/kept"), b"").unwrap();
    symlink(server.beside("outside"), export.join("x/link")).unwrap();
    server.run(&["rm", "-r", "{}x"]).exits(0);
    assert!(!export.join("x").exists());
    assert!(server.beside("outside/kept").exists(), "rm -r went through a link");
    // An export can't be removed, so its contents aren't either; nor are they by the directories above it.
    fs::write(export.join("kept"), b"kept").unwrap();
    let above = format!("nfs://127.0.0.1:{}{}", server.port, path(export.parent().unwrap()));
    for target in ["{}", &above] {
        let removed = server.run(&["rm", "-r", target]).exits(1);
        removed.complains(&["is an export or another filesystem", "next:"]);
    }
    assert!(export.join("kept").exists());
}

/// The directories above what `rm -r` leaves stay, and aren't tried.
#[test]
fn rm_removes_the_rest_and_names_what_is_left_only() {
    let server = Server::start();
    let export = server.export();
    let (top, inner) = (export.join("top"), export.join("top/a/b/inner"));
    for lane in LANE_OPTIONS {
        for directory in ["a/b/inner/c", "a/d", "e/f"] {
            fs::create_dir_all(top.join(directory)).unwrap();
        }
        for file in ["1", "a/2", "a/b/3", "a/b/inner/c/4", "a/d/5", "e/f/6"] {
            fs::write(top.join(file), b"x").unwrap();
        }
        // The server doesn't remove the directory of an export.
        let line = format!("{} 127.0.0.1(rw,no_root_squash,insecure)", inner.display());
        server.run(&["ctl", "export", &line]).exits(0);
        let removed = server.run(&["rm", "-r", lane, "{}top"]).exits(1);
        let told: Vec<_> = removed.stderr.lines().filter(|line| line.starts_with("samehost: ")).collect();
        assert!(told.len() == 1 && told[0].contains("/top/a/b/inner: "), "{lane} {told:?}");
        let left: Vec<_> = tree(&top).into_keys().collect();
        assert_eq!(left, ["a", "a/b", "a/b/inner"].map(std::path::PathBuf::from), "{lane}");
        server.run(&["ctl", "unexport", path(&inner)]).exits(0);
        server.run(&["rm", "-r", lane, "{}top"]).exits(0);
        assert!(!top.exists());
    }
}

/// As with rm(1): an empty directory can be removed by who may not read it.
#[test]
fn unreadable_directories_are_removed_if_they_are_empty() {
    let server = Server::start();
    let (user, gid) = match rustix::process::geteuid() {
        root if root.is_root() => (1000, 1000),
        user => (user.as_raw(), rustix::process::getegid().as_raw()),
    };
    let top = server.export().join("top");
    for directory in ["empty", "full/file"] {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    for directory in ["", "empty", "full"] {
        std::os::unix::fs::chown(top.join(directory), Some(user), Some(gid)).unwrap();
    }
    for directory in ["empty", "full"] {
        fs::set_permissions(top.join(directory), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let who = format!("--as={user}:{gid}");
    let removed = server.run(&["rm", "-r", "--lane=off", &who, "{}top/empty", "{}top/full"]).exits(1);
    assert!(!removed.stderr.contains("empty"), "{}", removed.stderr);
    removed.complains(&["/top/full: permission denied"]);
    assert!(!top.join("empty").exists() && top.join("full").exists());
    fs::set_permissions(top.join("full"), fs::Permissions::from_mode(0o700)).unwrap();
}

/// Forwards connections to a server of this host, and calls `before` before it forwards the first RMDIR of
/// NFSv3. Returns the port to connect to. The threads end with the test's process.
fn before_first_removal<F: FnOnce() + Send + 'static>(to: u16, before: F) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let before = Arc::new(Mutex::new(Some(before)));
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
            let (mut replies, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut replies, &mut back));
            let before = before.clone();
            thread::spawn(move || forward_calls(client, server, &before));
        }
    });
    port
}

fn forward_calls(
    mut client: TcpStream,
    mut server: TcpStream,
    before: &Mutex<Option<impl FnOnce()>>,
) -> std::io::Result<()> {
    // Program, version and procedure.
    let rmdir: Vec<u8> = [100_003_u32, 3, 13].into_iter().flat_map(u32::to_be_bytes).collect();
    loop {
        let mut mark = [0; 4];
        client.read_exact(&mut mark)?;
        let mut record = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        client.read_exact(&mut record)?;
        if record.get(12..24) == Some(&rmdir[..]) {
            before.lock().unwrap().take().into_iter().for_each(|before| before());
        }
        server.write_all(&[&mark[..], &record].concat())?;
    }
}

#[test]
fn what_is_moved_out_of_a_tree_is_not_removed_with_it() {
    let server = Server::start();
    for force in [false, true] {
        let directory = server.export().join(format!("directory-{force}"));
        for name in ["a", "b"] {
            fs::create_dir_all(directory.join(name)).unwrap();
            fs::write(directory.join(name).join("file"), name).unwrap();
        }
        let elsewhere = server.export().join(format!("elsewhere-{force}"));
        fs::create_dir(&elsewhere).unwrap();
        let (from, to) = (directory.clone(), elsewhere.clone());
        // One of the two is empty then, and the other one is moved.
        let port = before_first_removal(server.port, move || {
            let full = ["a", "b"].into_iter().find(|name| from.join(name).join("file").exists());
            let full = full.expect("the second one");
            fs::rename(from.join(full), to.join(full)).unwrap();
        });
        let url = format!("nfs://127.0.0.1:{port}{}?vers=3", path(&directory));
        let arguments = ["rm", "-r", "--lane=off", &url, "--force"];
        let removed = run(&mut samehost(&arguments[..if force { 5 } else { 4 }]));
        if force {
            removed.exits(0);
        } else {
            removed.exits(1).complains(&["no such file"]);
        }
        assert!(!directory.exists());
        let moved: Vec<_> = fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(moved.len(), 1);
        assert!(moved[0].join("file").exists());
    }
}

#[test]
fn df_agrees_with_statvfs() {
    let server = Server::start();
    let json = server.run(&["df", "--json", "{}"]).exits(0);
    let space = &serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap()[0];
    let stat = rustix::fs::statvfs(server.export()).unwrap();
    assert_eq!(space["total_bytes"], stat.f_blocks * stat.f_frsize);
    assert!(server.run(&["df", "{}"]).exits(0).text().contains('%'));
}

#[test]
fn errors_name_their_reason() {
    let server = Server::with(&[], "127.0.0.1(ro,insecure)");
    fs::write(server.export().join("file"), b"x").unwrap();
    for lane in LANE_OPTIONS {
        server.run(&["cat", lane, "{}file"]).exits(0);
        server.run(&["rm", lane, "{}file"]).exits(1).complains(&["read-only", "next:"]);
        server
            .run(&["cp", lane, path(&server.export().join("file")), "{}new"])
            .exits(1)
            .complains(&["read-only"]);
    }
    let elsewhere = format!("nfs://127.0.0.1:{}/etc", server.port);
    run(samehost(["ls", &elsewhere]).env("SAMEHOST_RUN_DIR", server.run_dir()))
        .exits(1)
        .complains(&[&elsewhere]);
}

/// 64 descriptors are enough for every command; with fewer it fails.
#[test]
fn few_descriptors_are_enough_or_refused() {
    let server = Server::start();
    fs::create_dir(server.export().join("d")).unwrap();
    for number in 0..200 {
        fs::write(server.export().join(format!("d/{number}")), number.to_string()).unwrap();
    }
    let within = |limit: u32, args: &[&str]| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_samehost")).args(args).env("SAMEHOST_RUN_DIR", server.run_dir());
        run(&mut command)
    };
    let (url, copy) = (server.url("d"), server.beside("copy"));
    for lane in ["off", "auto", "required"] {
        within(64, &["ls", "--lane", lane, &url]).exits(0);
        within(64, &["cp", "-r", "--lane", lane, &url, path(&copy)]).exits(0);
        within(64, &["cp", "-r", "--lane", lane, path(&copy), &server.url(lane)]).exits(0);
        assert_eq!(tree(&copy), tree(&server.export().join(lane)));
        fs::remove_dir_all(&copy).unwrap();
    }
    let words = ["RLIMIT_NOFILE", "it is 63", "64 at least", "ulimit -n"];
    within(63, &["ls", &url]).exits(1).complains(&words);
    within(63, &["mount", &url, path(server.beside("").as_path())]).exits(1).complains(&words);
}

/// A file that is a hole but for some bytes is copied in, on the server, and out.
#[test]
fn holes_stay_holes() {
    const SIZE: u64 = 200 << 20;
    let server = Server::start();
    let source = server.beside("source");
    let file = fs::File::create(&source).unwrap();
    file.set_len(SIZE).unwrap();
    let is_sparse = |path: &Path| fs::metadata(path).unwrap().blocks() * 512 < SIZE / 10;
    if !is_sparse(&source) {
        return;
    }
    let data: Vec<u8> = (0..300_000u32).map(|n| (n * 7 % 251) as u8).collect();
    file.write_all_at(&data, 77_777_777).unwrap();
    let is_same = |path: &Path| fs::read(path).unwrap() == fs::read(&source).unwrap();
    for (number, lane) in LANE_OPTIONS.into_iter().enumerate() {
        let (here, back) = (format!("{{}}in-{number}"), server.beside(&format!("back-{number}")));
        let copy = format!("{{}}copy-{number}");
        server.run(&["cp", lane, path(&source), &here]).exits(0);
        server.run(&["cp", lane, &here, &copy]).exits(0);
        server.run(&["cp", lane, &copy, path(&back)]).exits(0);
        let there = ["in", "copy"].map(|name| server.export().join(format!("{name}-{number}")));
        for copied in there.iter().chain([&back]) {
            assert!(is_same(copied) && is_sparse(copied), "{lane}: {}", copied.display());
        }
    }
}
