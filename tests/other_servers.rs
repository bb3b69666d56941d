//! Our client against a server nobody here wrote: nfs-ganesha, whose MOUNT is on another port that rpcbind
//! knows. Every command, on every kind of file, and a mount.

use std::fs;
use std::path::Path;
use std::process::Command;

use samehost_tests::ganesha::Ganesha;
use samehost_tests::samehost::binary;
use samehost_tests::scratch::pattern;
use samehost_tests::{Netns, Scratch, need_root, run, run_ok};

/// A server that exports one directory, which is empty.
struct Peer<'a> {
    /// Makes a command that reaches it.
    command: &'a dyn Fn(&Path) -> Command,
    /// Its export.
    url: String,
    scratch: &'a Scratch,
}

impl Peer<'_> {
    fn samehost(&self, words: &[&str]) -> Command {
        let mut command = (self.command)(binary());
        command.args(words).env("SAMEHOST_RUN_DIR", self.scratch.join("empty"));
        command
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// What fails, with this exit code: what it says.
    fn refused(&self, words: &[&str], code: i32) -> String {
        let done = run(&mut self.samehost(words));
        assert_eq!(done.status.code(), Some(code), "{words:?}: {done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    fn every_command(&self) {
        self.scratch.mkdir("empty");
        self.trees();
        self.files();
        self.mounts();
        assert_eq!(run_ok(&mut self.samehost(&["ls", "-a", &self.url])).trim(), "", "entries left");
        // There is no lane, it says why, and who insists is told with an exit code.
        let probe = run(&mut self.samehost(&["probe", &self.url]));
        assert_eq!(probe.status.code(), Some(3), "{probe:?}");
        assert!(String::from_utf8_lossy(&probe.stdout).contains("local: no"), "{probe:?}");
    }

    /// A tree in and out.
    fn trees(&self) {
        let at = |name: &str| self.at(name);
        let tree = self.scratch.mkdir("tree");
        fs::create_dir_all(tree.join("a/b")).expect("own directory");
        fs::write(tree.join("empty"), "").expect("own directory");
        fs::write(tree.join("a/large"), pattern(5, 5_000_003)).expect("own directory");
        for i in 0..200 {
            fs::write(tree.join(format!("a/b/small{i}")), pattern(i, i as usize * 7)).expect("own directory");
        }
        std::os::unix::fs::symlink("large", tree.join("a/link")).expect("own directory");
        let back = self.scratch.join("back");
        run_ok(&mut self.samehost(&["cp", "-r", &tree.display().to_string(), &at("tree")]));
        run_ok(&mut self.samehost(&["cp", "-r", &at("tree"), &back.display().to_string()]));
        run_ok(Command::new("diff").arg("-r").arg("--no-dereference").arg(&tree).arg(&back));
        assert_eq!(run_ok(&mut self.samehost(&["ls", &at("tree/a/b")])).lines().count(), 200);
        run_ok(&mut self.samehost(&["mkdir", &at("made")]));
        run_ok(&mut self.samehost(&["mv", &at("tree/a/large"), &at("made/moved")]));
        assert!(run_ok(&mut self.samehost(&["stat", &at("made/moved")])).contains("5000003"));
        let cat = run(&mut self.samehost(&["cat", &at("made/moved")]));
        assert!(cat.status.success() && cat.stdout == pattern(5, 5_000_003), "what cat gave differs");
        run_ok(&mut self.samehost(&["df", &self.url]));
        run_ok(&mut self.samehost(&["rm", "-r", &at("tree"), &at("made")]));
    }

    /// Files that are named by themselves, at the top of the export and below: some servers mount whatever a
    /// path names.
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
            // Written again, moved onto, moved into a directory.
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
            // A link is itself to who doesn't follow, and what it leads to to who does.
            let link = self.scratch.join("link");
            std::os::unix::fs::symlink("directory/file", &link).expect("own directory");
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

    /// The filesystem, of the export, of a directory in it, and of what isn't one.
    fn mounts(&self) {
        let here = self.scratch.join("file").display().to_string();
        run_ok(&mut self.samehost(&["mkdir", &self.at("shared")]));
        run_ok(&mut self.samehost(&["cp", &here, &self.at("shared/file")]));
        let place = self.scratch.mkdir("mnt");
        let mnt = place.display().to_string();
        let said = self.refused(&["mount", &self.at("shared/file"), &mnt], 1);
        assert!(said.contains("not a directory"), "{said}");
        for (url, prefix) in [(self.url.clone(), "shared/"), (self.at("shared"), "")] {
            run_ok(&mut self.samehost(&["mount", &url, &mnt, "-o", "lane=off"]));
            let at = |name: &str| place.join(format!("{prefix}{name}"));
            assert_eq!(fs::read(at("file")).expect("mounted"), b"twelve bytes");
            fs::write(at("new"), pattern(3, 300_001)).expect("written");
            assert!(fs::read(at("new")).expect("read") == pattern(3, 300_001));
            fs::create_dir(at("d")).expect("made");
            fs::rename(at("new"), at("d/renamed")).expect("renamed");
            std::os::unix::fs::symlink("renamed", at("d/link")).expect("linked");
            fs::hard_link(at("d/renamed"), at("d/hard")).expect("linked");
            assert!(fs::read(at("d/link")).expect("followed") == pattern(3, 300_001));
            let mut names: Vec<_> =
                fs::read_dir(at("d")).expect("listed").flatten().map(|e| e.file_name()).collect();
            names.sort();
            assert_eq!(names, ["hard", "link", "renamed"]);
            fs::remove_dir_all(at("d")).expect("removed");
            run_ok(&mut self.samehost(&["umount", &mnt]));
        }
        run_ok(&mut self.samehost(&["rm", "-r", &self.at("shared")]));
    }
}

#[test]
fn every_command_on_ganesha() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let netns = Netns::new("og");
    let _ganesha = Ganesha::start(&netns, &export);
    let peer = Peer {
        command: &|program| netns.command(program),
        url: format!("nfs://127.0.0.1:{}{}", Ganesha::NFS_PORT, export.display()),
        scratch: &scratch,
    };
    peer.every_command();
}
