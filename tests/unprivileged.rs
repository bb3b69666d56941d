//! The commands of README's quick start, run by root, and by an ordinary user on a machine with a hostile
//! user.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use samehost_tests::process::run_within;
use samehost_tests::samehost::reachable_binary;
use samehost_tests::{Daemon, Netns, Scratch, need_root, wait_for, workspace};

/// The user who runs them: one with a name, which fusermount3 requires (daemon, in every Debian).
const OWNER: u32 = 1;
/// The attacker.
const OTHER: u32 = 23_456;

/// The quick start's commands, without the first, which builds the programs.
fn quick_start() -> Vec<String> {
    let readme = fs::read_to_string(workspace().join("README.md")).expect("the README");
    let (_, after) = readme.split_once("## Quick start\n").expect("a quick start");
    let (section, _) = after.split_once("\n## ").expect("another section");
    let mut commands: Vec<_> =
        section.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect();
    let first = commands.remove(0);
    let (build, environment) = first.split_once("; ").expect("building, and the environment");
    assert!(build.starts_with("cargo build ") && environment.starts_with("export PATH="), "{first}");
    commands.insert(0, environment.to_owned());
    commands
}

/// A machine with its own network (the README's port is fixed), and the home of a user who has built Samehost
/// there.
struct Machine {
    netns: Netns,
    scratch: Scratch,
    home: PathBuf,
}

impl Machine {
    fn new() -> Self {
        need_root();
        let scratch = Scratch::new();
        let home = scratch.mkdir("home");
        // Other users may enter, as with adduser's default.
        for path in [scratch.path(), &home] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("root is permitted");
        }
        let bin = home.join("target/release");
        fs::create_dir_all(&bin).expect("our own");
        fs::hard_link(reachable_binary(&scratch), bin.join("samehost")).expect("our own");
        // The quick start exports /usr/share/doc; a small directory takes its place.
        let documents = scratch.mkdir("documents");
        fs::create_dir(documents.join("below")).expect("our own");
        fs::write(documents.join("below/copyright"), "free").expect("our own");
        chown(&home, Some(OWNER), Some(OWNER)).expect("root is permitted");
        Self { netns: Netns::new("quick"), scratch, home }
    }

    /// A script run by a user in the owner's home directory.
    fn shell(&self, user: u32, script: &str) -> Command {
        // A FUSE device that every user may open, as udev creates it.
        let prepare = format!(
            "set -e; [ -e {device} ] || mknod {device} c 10 229; chmod 666 {device}; mount --bind {device} \
             /dev/fuse; mount --bind {documents} /usr/share/doc; cd {home}; exec setpriv --reuid {user} \
             --regid {user} --clear-groups bash -ec \"$1\"",
            device = self.scratch.join("fuse").display(),
            documents = self.scratch.join("documents").display(),
            home = self.home.display(),
        );
        let mut command = self.netns.command("unshare");
        command.args(["--mount", "bash", "-c", &prepare, "bash", script]).env("HOME", &self.home);
        for name in ["SAMEHOST_RUN_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a script of the attacker, which must be refused; its output.
    fn attack(&self, script: &str) -> String {
        let output = run_within(&mut self.shell(OTHER, script), Duration::from_secs(120));
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
        assert!(!output.status.success(), "{script} worked: {said}");
        let refused = ["ermission denied", "isn't exported to this host"];
        assert!(refused.iter().any(|words| said.contains(words)), "{script} failed otherwise: {said}");
        said
    }
}

/// The quick start's commands, with what their user would do between them.
fn script(before_unmounting: &[&str]) -> Vec<String> {
    let mut script = Vec::new();
    for command in quick_start() {
        if command.contains("samehost umount ") {
            script.extend(before_unmounting.iter().map(|line| (*line).to_owned()));
        }
        let serves = command.contains("samehost serve ");
        script.push(command);
        if serves {
            // A user would type the next command only when the server is ready.
            script
                .push("until (exec 3<>/dev/tcp/127.0.0.1/20490) 2>/dev/null; do sleep 0.02; done".to_owned());
            script.push("(umask 077; echo private > ~/shared/secret)".to_owned());
        }
    }
    script.push("kill $!; wait $!".to_owned());
    script
}

#[test]
fn the_quick_start_works_for_root() {
    let machine = Machine::new();
    // Root's state directory.
    let mut lines = vec!["mount -t tmpfs tmpfs /var/lib".to_owned()];
    lines.extend(script(&["cat ~/mnt/doc/below/copyright; echo"]));
    let output = run_within(&mut machine.shell(0, &lines.join("\n")), Duration::from_secs(120));
    let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    for words in ["local: yes", "\nfree\n", "data path   lane, passed through"] {
        assert!(said.contains(words), "no {words:?} in: {said}");
    }
}

#[test]
fn the_quick_start_works_for_its_user_only() {
    let machine = Machine::new();
    // The attack runs while the share is mounted and the server runs.
    let script = script(&[
        "cat ~/mnt/doc/below/copyright > ~/read; touch ~/mounted",
        "until [ -e ~/attacked ]; do sleep 0.02; done",
    ]);
    let log = machine.scratch.join("log");
    let mut owner = Daemon::start("quick start", &mut machine.shell(OWNER, &script.join("\n")), &log)
        .expect("the shell starts");
    wait_for("the mount", || {
        assert!(owner.alive(), "{}", owner.log());
        machine.home.join("mounted").exists().then_some(())
    });
    assert_eq!(fs::read_to_string(machine.home.join("read")).expect("it was read"), "free");
    let said = owner.log();
    for words in ["local: yes", "only the server's own user (1) and root are served"] {
        assert!(said.contains(words), "no {words:?} in: {said}");
    }

    let secret = machine.home.join("shared/secret");
    fs::write(machine.scratch.join("program"), "#!/bin/sh\nid\n").expect("our own");
    let (samehost, home) = (machine.scratch.join("samehost"), machine.home.display());
    let (samehost, program) = (samehost.display(), machine.scratch.join("program"));
    let run_dir = format!("export SAMEHOST_RUN_DIR={home}/.samehost;");
    let url = format!("nfs://127.0.0.1:20490{home}/shared");
    // With every claimed identity: its own, the owner's, root's.
    for claim in ["", "?uid=1&gid=1", "?uid=0&gid=0"] {
        for command in [
            format!("{samehost} ls '{url}{claim}'"),
            format!("{samehost} cat '{url}/secret{claim}'"),
            format!("{samehost} cp {} '{url}/program{claim}'", program.display()),
            format!("{samehost} cp {} '{url}/secret{claim}'", program.display()),
            format!("{samehost} rm '{url}/secret{claim}'"),
        ] {
            machine.attack(&format!("{run_dir} {command}"));
        }
        let claim = claim.replace('?', "&");
        let libnfs = |name: &str| {
            format!("'nfs://127.0.0.1{home}/shared/{name}?nfsport=20490&mountport=20490&version=3{claim}'")
        };
        machine.attack(&format!("nfs-cat {}", libnfs("secret")));
        machine.attack(&format!("nfs-cp {} {}", program.display(), libnfs("program")));
    }
    let said = machine.attack(&format!("{run_dir} {samehost} probe {url}"));
    assert!(!said.contains("local: yes"), "{said}");
    machine.attack("cat ~/.local/state/samehost/handle-key");

    let names = fs::read_dir(machine.home.join("shared")).expect("root is permitted");
    let mut names: Vec<_> = names.map(|name| name.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["doc", "secret"], "nothing was created");
    assert_eq!(fs::read_to_string(&secret).expect("root is permitted"), "private\n");
    assert_eq!(fs::metadata(&secret).expect("root is permitted").mode() & 0o7777, 0o600);
    fs::write(machine.home.join("attacked"), "").expect("our own");
    assert!(owner.wait().success(), "{}", owner.log());
    assert!(
        owner.log().contains("refused: served is only the user that the server runs as"),
        "{}",
        owner.log()
    );
}
