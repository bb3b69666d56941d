//! Our client with other servers: nfs-ganesha, and the Linux kernel's with Debian's nfs-kernel-server in a
//! QEMU guest. Both serve MOUNT on another port than NFS; clients find it by rpcbind. Every command, on every
//! kind of file, and a mount, also its locks.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use samehost_tests::ganesha::Ganesha;
use samehost_tests::knfsd::Knfsd;
use samehost_tests::samehost::binary;
use samehost_tests::scratch::pattern;
use samehost_tests::{Application, Mount, Netns, Scratch, need_root, run, run_ok, wait_for};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The versions of NFS that our client speaks.
const VERSIONS: [&str; 3] = ["3", "4.1", "4.2"];

/// A server that exports one empty directory.
struct Peer<'a> {
    /// Makes a command that runs where the server is reachable.
    command: &'a dyn Fn(&Path) -> Command,
    /// The export's URL.
    url: String,
    /// The version of NFS.
    version: &'a str,
    scratch: &'a Scratch,
}

impl Peer<'_> {
    fn samehost(&self, words: &[&str]) -> Command {
        let mut command = (self.command)(binary());
        command.args(words).env("SAMEHOST_RUN_DIR", self.scratch.join("empty"));
        if words[0] != "mount" {
            command.args(["--vers", self.version]);
        }
        command
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// Runs a command that must fail with this exit code; its error messages.
    fn refused(&self, words: &[&str], code: i32) -> String {
        let done = run(&mut self.samehost(words));
        assert_eq!(done.status.code(), Some(code), "{words:?}: {done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    /// Every command, and a mount.
    fn every_command(&self) {
        self.commands();
        self.mounts();
        self.check_empty();
    }

    /// Every command but `mount`.
    fn commands(&self) {
        println!("by NFSv{}", self.version);
        self.scratch.mkdir("empty");
        self.trees();
        self.files();
        self.check_empty();
    }

    fn check_empty(&self) {
        assert_eq!(run_ok(&mut self.samehost(&["ls", "-a", &self.url])).trim(), "", "entries left");
        // There is no lane: `probe` says so and fails.
        let probe = run(&mut self.samehost(&["probe", &self.url]));
        assert_eq!(probe.status.code(), Some(3), "{probe:?}");
        assert!(String::from_utf8_lossy(&probe.stdout).contains("local: no"), "{probe:?}");
    }

    /// Copies a tree to the server and back.
    fn trees(&self) {
        let at = |name: &str| self.at(name);
        let tree = self.scratch.mkdir("tree");
        fs::create_dir_all(tree.join("a/b")).expect("own directory");
        fs::write(tree.join("empty"), "").expect("own directory");
        fs::write(tree.join("a/large"), pattern(5, 5_000_003)).expect("own directory");
        for i in 0..200 {
            fs::write(tree.join(format!("a/b/small{i}")), pattern(i, i as usize * 7)).expect("own directory");
        }
        symlink("large", tree.join("a/link")).expect("own directory");
        let back = self.scratch.join("back");
        run_ok(&mut self.samehost(&["cp", "-r", &tree.display().to_string(), &at("tree")]));
        run_ok(&mut self.samehost(&["cp", "-r", &at("tree"), &back.display().to_string()]));
        run_ok(Command::new("diff").arg("-r").arg("--no-dereference").arg(&tree).arg(&back));
        assert_eq!(run_ok(&mut self.samehost(&["ls", &at("tree/a/b")])).lines().count(), 200);
        run_ok(&mut self.samehost(&["mkdir", &at("made")]));
        run_ok(&mut self.samehost(&["mv", &at("tree/a/large"), &at("made/moved")]));
        assert!(run_ok(&mut self.samehost(&["stat", &at("made/moved")])).contains("5000003"));
        // By NFSv4.2 a copy within the server, which is long enough to be asynchronous.
        run_ok(&mut self.samehost(&["cp", &at("made/moved"), &at("made/copied")]));
        for name in ["made/moved", "made/copied"] {
            let cat = run(&mut self.samehost(&["cat", &at(name)]));
            assert!(cat.status.success() && cat.stdout == pattern(5, 5_000_003), "cat {name} differs");
        }
        run_ok(&mut self.samehost(&["df", &self.url]));
        run_ok(&mut self.samehost(&["rm", "-r", &at("tree"), &at("made")]));
    }

    /// URLs of files, at the top of the export and below. ganesha refuses to mount a file's path; knfsd's
    /// mountd replies with the file's handle.
    fn files(&self) {
        let at = |name: &str| self.at(name);
        let here = self.scratch.join("file");
        fs::write(&here, "twelve bytes").expect("own directory");
        let here = here.display().to_string();
        for directory in ["", "below/"] {
            let at = |name: &str| at(&format!("{directory}{name}"));
            if !directory.is_empty() {
                run_ok(&mut self.samehost(&["mkdir", "-p", &at("")]));
            }
            run_ok(&mut self.samehost(&["cp", &here, &at("file")]));
            let out = self.scratch.join("out");
            run_ok(&mut self.samehost(&["cp", &at("file"), &out.display().to_string()]));
            assert_eq!(fs::read(&out).expect("copied"), b"twelve bytes");
            fs::remove_file(&out).expect("own file");
            assert_eq!(run_ok(&mut self.samehost(&["cat", &at("file")])), "twelve bytes");
            assert_eq!(run_ok(&mut self.samehost(&["ls", &at("file")])).trim(), at("file"));
            assert!(run_ok(&mut self.samehost(&["ls", "-l", &at("file")])).contains("12"));
            let stat = run_ok(&mut self.samehost(&["stat", &at("file")]));
            assert!(stat.contains("regular file") && stat.contains("12"), "{stat}");
            run_ok(&mut self.samehost(&["df", &at("file")]));
            // Overwritten, renamed over, moved into a directory.
            run_ok(&mut self.samehost(&["cp", &here, &at("file")]));
            run_ok(&mut self.samehost(&["cp", &at("file"), &at("copy")]));
            run_ok(&mut self.samehost(&["mv", &at("copy"), &at("file")]));
            run_ok(&mut self.samehost(&["mkdir", &at("directory")]));
            run_ok(&mut self.samehost(&["mv", &at("file"), &at("directory")]));
            assert_eq!(run_ok(&mut self.samehost(&["cat", &at("directory/file")])), "twelve bytes");
            assert!(self.refused(&["cat", &at("directory")], 1).contains("directory"));
            assert!(self.refused(&["rm", &at("directory")], 1).contains("directory"));
            self.refused(&["mkdir", &at("directory/file")], 1);
            self.refused(&["ls", &at("directory/file/below")], 1);
            self.refused(&["cat", &at("nothing")], 1);
            // `stat` and `cp -r` act on the link itself, `cat` on its target.
            let link = self.scratch.join("link");
            symlink("directory/file", &link).expect("own directory");
            run_ok(&mut self.samehost(&["cp", "-r", &link.display().to_string(), &at("link")]));
            fs::remove_file(&link).expect("own link");
            let stat = run_ok(&mut self.samehost(&["stat", &at("link")]));
            assert!(stat.contains("symbolic link") && stat.contains("directory/file"), "{stat}");
            assert_eq!(run_ok(&mut self.samehost(&["cat", &at("link")])), "twelve bytes");
            run_ok(&mut self.samehost(&["cp", "-r", &at("link"), &link.display().to_string()]));
            assert_eq!(fs::read_link(&link).expect("a link"), Path::new("directory/file"));
            fs::remove_file(&link).expect("own link");
            run_ok(&mut self.samehost(&["rm", &at("link"), &at("directory/file")]));
            run_ok(&mut self.samehost(&["rm", "-r", &at("directory")]));
        }
        run_ok(&mut self.samehost(&["rm", "-r", &at("below")]));
    }

    /// Mounts the export, and a directory in it. A file can't be mounted.
    fn mounts(&self) {
        let here = self.scratch.join("file").display().to_string();
        run_ok(&mut self.samehost(&["mkdir", &self.at("shared")]));
        run_ok(&mut self.samehost(&["cp", &here, &self.at("shared/file")]));
        let mount = Mount::unmounted_with(&self.scratch.join("empty"));
        let mnt = mount.path().display().to_string();
        let options = format!("lane=off,vers={}", self.version);
        let said = self.refused(&["mount", &self.at("shared/file"), &mnt, "-o", &options], 1);
        assert!(said.contains("not a directory"), "{said}");
        for (url, prefix) in [(self.url.clone(), "shared/"), (self.at("shared"), "")] {
            run_ok(&mut self.samehost(&["mount", &url, &mnt, "-o", &options]));
            check_directory(&mount.join(prefix));
            mount.unmount();
        }
        run_ok(&mut self.samehost(&["rm", "-r", &self.at("shared")]));
        self.looks_up_a_tree(&mount);
    }

    /// Looks all files of many directories up, as git's status does, and again when their attributes have
    /// expired. The mount then lists several directories in a call.
    fn looks_up_a_tree(&self, mount: &Mount) {
        let (tree, url) = (self.scratch.mkdir("many"), self.at("many"));
        let files: Vec<(String, usize)> = (0..20)
            .flat_map(|directory| {
                (0..8).map(move |file| (format!("{directory}/{file}"), directory * 8 + file))
            })
            .collect();
        for (file, size) in &files {
            fs::create_dir_all(tree.join(file).parent().expect("a directory")).expect("own directory");
            fs::write(tree.join(file), pattern(1, *size)).expect("own directory");
        }
        run_ok(&mut self.samehost(&["cp", "-r", &tree.display().to_string(), &url]));
        let mnt = mount.path().display().to_string();
        let options = format!("lane=off,vers={},acregmin=1,acregmax=1", self.version);
        run_ok(&mut self.samehost(&["mount", &url, &mnt, "-o", &options]));
        for _ in 0..3 {
            for (file, size) in &files {
                let found = fs::metadata(mount.join(file)).expect("it is there");
                assert_eq!(found.size(), *size as u64, "{file} by NFSv{}", self.version);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        mount.unmount();
        run_ok(&mut self.samehost(&["rm", "-r", &url]));
        fs::remove_dir_all(&tree).expect("own directory");
    }
}

/// Checks that a mounted directory, which holds one file of twelve bytes, works as a local one.
fn check_directory(mounted: &Path) {
    let at = |name: &str| mounted.join(name);
    assert_eq!(fs::read(at("file")).expect("mounted"), b"twelve bytes");
    fs::write(at("new"), pattern(3, 300_001)).expect("written");
    assert!(fs::read(at("new")).expect("read") == pattern(3, 300_001));
    fs::create_dir(at("d")).expect("made");
    fs::rename(at("new"), at("d/renamed")).expect("renamed");
    assert!(!at("new").exists());
    symlink("renamed", at("d/link")).expect("linked");
    assert_eq!(fs::read_link(at("d/link")).expect("a link"), Path::new("renamed"));
    fs::hard_link(at("d/renamed"), at("d/hard")).expect("linked");
    assert!(fs::read(at("d/link")).expect("followed") == pattern(3, 300_001));
    let of = |name: &str| fs::metadata(at(name)).expect("it is there");
    assert_eq!((of("d/hard").ino(), of("d/hard").nlink()), (of("d/renamed").ino(), 2));
    // Root isn't squashed.
    assert_eq!((of("d/renamed").uid(), of("d/renamed").gid()), (0, 0));
    fs::set_permissions(at("d/renamed"), Permissions::from_mode(0o640)).expect("changed");
    chown(at("d/renamed"), Some(1000), Some(1001)).expect("given away");
    let renamed = of("d/renamed");
    assert_eq!((renamed.mode() & 0o7777, renamed.uid(), renamed.gid()), (0o640, 1000, 1001));
    // More entries than fit into one READDIR reply.
    fs::create_dir(at("d/many")).expect("made");
    let many: BTreeSet<String> = (0..300).map(|i| format!("entry-with-a-name-that-takes-room-{i}")).collect();
    for name in &many {
        fs::write(at("d/many").join(name), name).expect("written");
    }
    assert_eq!(names(&at("d/many")), many);
    for name in &many {
        assert_eq!(fs::read(at("d/many").join(name)).expect("read"), name.as_bytes());
    }
    assert_eq!(names(&at("d")), ["hard", "link", "many", "renamed"].map(str::to_owned).into());
    fs::remove_file(at("d/hard")).expect("removed");
    assert_eq!(of("d/renamed").nlink(), 1);
    // A server may keep what it recognises an exclusive create by in the file's times.
    let is_recent = |time: SystemTime| match time.elapsed() {
        Ok(age) => age < DAY,
        Err(ahead) => ahead.duration() < DAY,
    };
    for data in ["", "twelve bytes"] {
        let mut file = File::create_new(at("d/exclusive")).expect("created");
        file.write_all(data.as_bytes()).expect("written");
        let of = |file: &File| file.metadata().expect("open");
        let now = of(&file);
        assert!(is_recent(now.accessed().expect("atime")) && is_recent(now.modified().expect("mtime")));
        assert_eq!((now.len(), now.mode() & 0o7777), (data.len() as u64, 0o644));
        file.write_all(data.as_bytes()).expect("written");
        let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000);
        file.set_modified(long_ago).expect("set");
        file.set_permissions(Permissions::from_mode(0o600)).expect("changed");
        drop(file);
        let then = fs::metadata(at("d/exclusive")).expect("closed");
        assert_eq!(then.modified().expect("mtime"), long_ago);
        assert!(is_recent(then.accessed().expect("atime")));
        assert_eq!((then.len(), then.mode() & 0o7777), (2 * data.len() as u64, 0o600));
        assert_eq!(fs::read(at("d/exclusive")).expect("read"), data.repeat(2).as_bytes());
        fs::remove_file(at("d/exclusive")).expect("removed");
    }
    fs::remove_dir_all(at("d")).expect("removed");
    assert_eq!(names(mounted), ["file".to_owned()].into());
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("listed").file_name().into_string().expect("UTF-8")).collect()
}

#[test]
fn every_command_on_ganesha() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("og");
    let _ganesha = Ganesha::start(&netns, &export);
    let path = |version| match version {
        "3" => export.display().to_string(),
        _ => Ganesha::PSEUDO.to_owned(),
    };
    for version in VERSIONS {
        let scratch = Scratch::new();
        let peer = Peer {
            command: &|program| netns.command(program),
            url: format!("nfs://127.0.0.1:{}{}", Ganesha::NFS_PORT, path(version)),
            version,
            scratch: &scratch,
        };
        peer.every_command();
    }
}

/// nfs-ganesha notifies no client that waits for a lock (CB_NOTIFY_LOCK), so the mount asks again and again.
#[test]
fn a_lock_of_ganesha_is_waited_for_until_it_is_free_or_a_signal_comes() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("ol");
    let _ganesha = Ganesha::start(&netns, &export);
    let url = format!("nfs://127.0.0.1:{}{}", Ganesha::NFS_PORT, Ganesha::PSEUDO);
    let mounts = ["4.2", "4.1"].map(|version| {
        let mount = Mount::unmounted_with(&scratch.mkdir(version));
        run_ok(&mut netns.inside(&mount.command(&url, &format!("lane=off,vers={version}"))));
        mount
    });
    let mut applications = mounts.each_ref().map(|mount| Application::new(mount.path()));
    for application in &mut applications {
        assert_eq!(application.run("open locked"), "ok");
    }
    for (holder, waiter) in [(0, 1), (1, 0)] {
        assert_eq!(applications[holder].run("lock locked 0"), "ok");
        let round_trips = || mounts[waiter].status()?["wire"]["round_trips"].as_u64();
        for is_interrupted in [true, false] {
            let before = round_trips().expect("a mount");
            applications[waiter].begin("lock locked 1");
            wait_for("the mount to ask again", || (round_trips()? >= before + 4).then_some(()));
            assert!(applications[waiter].is_waiting());
            if is_interrupted {
                run_ok(Command::new("kill").args(["-USR1", &applications[waiter].pid().to_string()]));
                assert_eq!(applications[waiter].result(), "EINTR");
            }
        }
        let text = format!("by-{holder}");
        assert_eq!(applications[holder].run(&format!("write locked {text}")), "ok");
        assert_eq!(applications[holder].run("unlock locked"), "ok");
        assert_eq!(applications[waiter].result(), "ok");
        assert_eq!(applications[waiter].run("read locked"), text);
        assert_eq!(applications[holder].run("lock locked 0"), "EAGAIN");
        assert_eq!(applications[waiter].run("unlock locked"), "ok");
    }
}

/// The guest is slow on a busy machine.
const GUEST_TIMEOUT: Duration = Duration::from_secs(180);

#[test]
fn every_command_on_knfsd() {
    need_root();
    let scratches = VERSIONS.map(|_| Scratch::new());
    let netns = Netns::new("ok");
    Knfsd::with(&netns, GUEST_TIMEOUT, |_| {
        let command = |program: &Path| netns.command(program);
        let peer =
            |version, scratch| Peer { command: &command, url: Knfsd::URL.to_owned(), version, scratch };
        peer(VERSIONS[1], &scratches[1]).commands();
        peer(VERSIONS[2], &scratches[2]).every_command();
        let peer = peer(VERSIONS[0], &scratches[0]);
        peer.every_command();
        // mountd returns this file's handle, and refuses every directory above it.
        let said = peer.refused(&["cat", "nfs://127.0.0.1/srv/file"], 1);
        assert!(said.contains("export the directory it is in"), "{said}");
    });
}
