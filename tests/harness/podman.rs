//! Containers by podman and runc, independent of registries and of the machine's configuration.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::{run, run_ok};
use crate::samehost::binary;
use crate::{Netns, Scratch};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// podman with its own storage and configuration, and one image: busybox, our command, and their shared
/// libraries.
#[derive(Debug)]
pub struct Podman {
    scratch: Scratch,
}

/// The name of the one image.
const IMAGE: &str = "localhost/samehost-test:latest";

impl Podman {
    /// Configures podman and imports the image. `programs` go into the image's /bin beside `samehost`.
    ///
    /// # Panics
    /// When podman doesn't do it.
    pub fn new(programs: &[&Path]) -> Self {
        let podman = Self { scratch: Scratch::new() };
        // podman's default raises limits to the machine's maximum, and fails without that privilege.
        fs::write(
            podman.scratch.join("containers.conf"),
            "[containers]\ndefault_ulimits = [\"nofile=1024:20000\", \"nproc=32768:32768\"]\n\
             log_driver = \"k8s-file\"\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n",
        )
        .expect("own directory");
        fs::write(
            podman.scratch.join("storage.conf"),
            format!(
                "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/graph\"\nrunroot = \"{0}/runroot\"\n",
                podman.scratch.path().display()
            ),
        )
        .expect("own directory");
        let root = podman.scratch.mkdir("image");
        for directory in ["bin", "dev", "etc", "proc", "sys", "tmp", "run", "var/lib", "srv"] {
            fs::create_dir_all(root.join(directory)).expect("own directory");
        }
        fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777)).expect("own directory");
        fs::write(root.join("etc/passwd"), "root::0:0:root:/:/bin/sh\n").expect("own directory");
        for program in [Path::new("/bin/busybox"), binary()].iter().chain(programs) {
            install(program, &root);
        }
        std::os::unix::fs::symlink("busybox", root.join("bin/sh")).expect("own directory");
        let tar = podman.scratch.join("image.tar");
        run_ok(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg("."));
        run_ok(podman.command().args(["import", "-q"]).arg(&tar).arg(IMAGE));
        podman
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command
            .env("CONTAINERS_CONF", self.scratch.join("containers.conf"))
            .env("CONTAINERS_STORAGE_CONF", self.scratch.join("storage.conf"))
            .args(["--runtime", "runc"]);
        command
    }

    /// Starts a container in the background, in `netns`, with `options` of `podman run`, running `words`.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(&self, netns: &Netns, options: &[&str], words: &[&str]) -> Container<'_> {
        let name = format!("shtest{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run_ok(self.run_command(netns, &["--detach", "--name", &name]).args(options).arg(IMAGE).args(words));
        Container { podman: self, name }
    }

    /// A command in a container that is removed when the command ends.
    pub fn once(&self, netns: &Netns, options: &[&str], words: &[&str]) -> Command {
        let mut command = self.run_command(netns, &["--rm"]);
        command.args(options).arg(IMAGE).args(words);
        command
    }

    fn run_command(&self, netns: &Netns, options: &[&str]) -> Command {
        let mut command = self.command();
        command.args(["run", "--network", &format!("ns:{}", netns.path())]);
        command.args(options);
        command
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = run(self.command().args(["rm", "--all", "--force", "--time", "0"]));
        let _ = run(self.command().args(["rmi", "--all", "--force"]));
        let _ = run(Command::new("umount").arg("--quiet").arg(self.scratch.join("graph")));
    }
}

/// A container in the background. Removed when dropped.
#[derive(Debug)]
pub struct Container<'a> {
    podman: &'a Podman,
    name: String,
}

impl Container<'_> {
    /// A command inside it.
    pub fn exec(&self, words: &[&str]) -> Command {
        let mut command = self.podman.command();
        command.args(["exec", &self.name]).args(words);
        command
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        let output = run(self.podman.command().args(["logs", &self.name]));
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Kills it.
    pub fn kill(&self) {
        let _ = run(self.podman.command().args(["kill", &self.name]));
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- container {}:\n{}", self.name, self.log());
        }
        let _ = run(self.podman.command().args(["rm", "--force", "--time", "0", &self.name]));
    }
}

/// Copies a program to `root`/bin, and its shared libraries to the paths where it expects them.
fn install(program: &Path, root: &Path) {
    let copy = |from: &Path, to: PathBuf| {
        fs::create_dir_all(to.parent().expect("inside the root")).expect("own directory");
        fs::copy(from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    };
    copy(program, root.join("bin").join(program.file_name().expect("a program has a name")));
    // A static program has none, which ldd reports as a failure.
    let listed = run(Command::new("ldd").arg(program));
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)" and "/lib64/ld-linux-x86-64.so.2 (0x...)"
        if let Some(path) = line.split_whitespace().find(|w| w.starts_with('/')).map(Path::new) {
            copy(path, root.join(path.strip_prefix("/").expect("it starts with one")));
        }
    }
}
