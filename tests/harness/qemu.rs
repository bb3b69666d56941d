//! The real Linux kernel's NFS client or server: a Debian kernel in QEMU, with an initramfs made here.
//!
//! The guest is tests/guest/init. Its output on the serial line is the protocol: `PASS name`,
//! `FAIL name: why`, `HOST words` (a request to this side, which replies with a line), `DONE`. It reaches
//! this machine as 10.0.2.2.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::cpio::Archive;
use crate::process::run_ok;
use crate::samehost::binary;
use crate::{Netns, Scratch, assets, workspace};

/// A guest's job.
#[derive(Debug)]
pub struct Job<'a> {
    /// The port of NFS on this machine.
    pub nfs_port: u16,
    /// The port of MOUNT.
    pub mount_port: u16,
    /// The uid that the squashing exports map to.
    pub anon_uid: u32,
    /// Shell lines for the guest's init, which offers `mount_export NAME PATH OPTIONS` and
    /// `as USER MODE DIRECTORY`.
    pub plan: &'a str,
}

/// A guest's results.
#[derive(Debug, Default)]
pub struct Report {
    /// Version of its kernel.
    pub kernel: String,
    /// Names of the passed tests.
    pub passed: Vec<String>,
    /// The failed tests, with the reasons.
    pub failed: Vec<String>,
    /// Whether the plan ran to its end.
    pub done: bool,
    /// Everything it printed.
    pub console: String,
}

impl Report {
    /// Fails the test unless everything passed, and at least `min` tests did.
    ///
    /// # Panics
    /// Otherwise.
    pub fn assert_passed(&self, min: usize) {
        assert!(
            self.done && self.failed.is_empty() && self.passed.len() >= min,
            "Linux {}: {} passed (at least {min} wanted), {} failed, ran to its end: {}\n{}",
            self.kernel,
            self.passed.len(),
            self.failed.len(),
            self.done,
            self.failed.join("\n"),
        );
    }
}

impl Drop for Report {
    /// A test that fails shows the console.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the guest's console:\n{}", self.console);
        }
    }
}

#[derive(Debug)]
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The port on which a guest in a namespace receives callbacks.
pub const CALLBACK_PORT: u16 = 4045;

/// Boots a guest and waits for its end, at most `timeout`. `host` replies to its requests. With `netns`,
/// 10.0.2.2 is that namespace's loopback, to which the guest's [`CALLBACK_PORT`] is forwarded.
///
/// # Panics
/// When the kernel isn't there (run scripts/setup), QEMU can't be started or the timeout expires.
pub fn boot(
    job: &Job<'_>,
    netns: Option<&Netns>,
    timeout: Duration,
    host: impl FnMut(&str) -> String,
) -> Report {
    let (command, net) = match netns {
        None => (Command::new("qemu-system-x86_64"), "user,id=net".to_owned()),
        Some(netns) => (netns.command("qemu-system-x86_64"), user_network(&[CALLBACK_PORT])),
    };
    let mut archive = Archive::new();
    let kernel = Kernel::find(Release::Host);
    kernel.add_guest_files(&mut archive, job, &["virtio_pci", "virtio_net", "nfsv3", "nfsv4"]);
    Guest::start(command, &net, &kernel, archive, timeout).finish(host)
}

/// As [`boot`], for a guest that acts as the server: it has our command, the filesystem in the file `disk` as
/// /dev/vda, and the quota modules. Its port 2049 is forwarded to the namespace's loopback.
///
/// # Panics
/// As [`boot`]; when our command can't be built.
pub fn boot_server(
    job: &Job<'_>,
    disk: &Path,
    netns: &Netns,
    timeout: Duration,
    host: impl FnMut(&str) -> String,
) -> Report {
    let mut command = netns.command("qemu-system-x86_64");
    command.arg("-drive").arg(format!("file={},format=raw,if=virtio", disk.display()));
    let mut archive = Archive::new();
    let kernel = Kernel::find(Release::Host);
    kernel.add_guest_files(&mut archive, job, &["virtio_pci", "virtio_net", "virtio_blk", "quota_v2"]);
    archive.program("bin/samehost", binary());
    Guest::start(command, &user_network(&[2049]), &kernel, archive, timeout).finish(host)
}

/// As [`boot`], for a guest that acts as a server of CephFS: it has the kernel's Ceph client, our command
/// with librados, and `manager` (tests/guest/manager.c). `ceph` is the configuration of the cluster, beside
/// which is a keyring. The network namespace is the caller's.
///
/// # Panics
/// As [`boot_server`]; when librados isn't there (run scripts/setup cluster).
pub fn boot_ceph(job: &Job<'_>, ceph: &Path, timeout: Duration, host: impl FnMut(&str) -> String) -> Report {
    let mut archive = Archive::new();
    let kernel = Kernel::find(Release::Host);
    // The server finds out by tcp_diag whose process a client of its own host is.
    let modules = ["virtio_pci", "virtio_net", "ceph", "fuse", "tcp_diag"];
    kernel.add_guest_files(&mut archive, job, &modules);
    archive.program("bin/samehost", binary());
    archive.file("bin/manager", 0o755, &guest_program("manager"));
    let libraries = run_ok(Command::new("ldconfig").arg("-p"));
    let librados = libraries.lines().filter(|line| line.trim_start().starts_with("librados.so.2 "));
    let librados = librados.filter_map(|line| line.split(" => ").nth(1)).next();
    archive.program("lib/librados.so.2", Path::new(librados.expect("librados2: run scripts/setup cluster")));
    archive.directory("etc/ceph");
    archive.directory("srv");
    for name in ["ceph.conf", "keyring"] {
        let content = fs::read(ceph.with_file_name(name)).expect("Ceph has a configuration and a keyring");
        archive.file(&format!("etc/ceph/{name}"), 0o600, &content);
    }
    let command = Command::new("qemu-system-x86_64");
    Guest::start(command, &user_network(&[]), &kernel, archive, timeout).finish(host)
}

/// As [`boot`], for a guest with the NFS server of Debian 13's kernel, rpcbind, getfacl(1), setfacl(1) and
/// the programs of Debian's nfs-kernel-server, which tests/guest/knfsd.sh starts. The filesystem in the file
/// `disk` is its /dev/vda. The ports of rpcbind (111), NFS (2049) and MOUNT (20048) are forwarded to the
/// namespace's loopback. The caller converses with it.
///
/// # Panics
/// As [`boot`]; when nfs-kernel-server isn't there (run scripts/setup).
pub fn boot_knfsd(disk: &Path, netns: &Netns, timeout: Duration) -> Guest {
    let plan = include_str!("../guest/knfsd.sh");
    let job = Job { nfs_port: 0, mount_port: 0, anon_uid: 0, plan };
    let mut archive = Archive::new();
    let kernel = Kernel::find(Release::Debian13);
    kernel.add_guest_files(&mut archive, &job, &["virtio_pci", "virtio_net", "virtio_blk", "nfsd"]);
    let package = assets().join("knfsd");
    assert!(package.is_dir(), "no {}: run scripts/setup test", package.display());
    for directory in ["sbin", "usr", "usr/sbin"] {
        archive.directory(directory);
    }
    archive.program("sbin/rpcbind", Path::new("/sbin/rpcbind"));
    for program in ["getfacl", "setfacl"] {
        archive.program(&format!("bin/{program}"), &Path::new("/usr/bin").join(program));
    }
    for program in ["usr/sbin/exportfs", "usr/sbin/nfsdcld", "usr/sbin/rpc.mountd", "usr/sbin/rpc.nfsd"] {
        archive.program(program, &package.join(program));
    }
    let mut command = netns.command("qemu-system-x86_64");
    // What the guest flushes stays in this machine's memory: the tests cut the guest's power only.
    command.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=unsafe", disk.display()));
    Guest::start(command, &user_network(&[111, 2049, 20048]), &kernel, archive, timeout)
}

/// QEMU's user-mode network, with these ports of the namespace forwarded to the guest. Its loopback may be
/// off at the time.
fn user_network(ports: &[u16]) -> String {
    let forward = |port| format!(",hostfwd=tcp::{port}-:{port}");
    format!("user,id=net{}", ports.iter().map(forward).collect::<String>())
}

/// A running guest. Killed when dropped.
#[derive(Debug)]
pub struct Guest {
    qemu: KilledOnDrop,
    console_input: ChildStdin,
    lines: Receiver<String>,
    report: Report,
    start: Instant,
    timeout: Duration,
    /// Has the initramfs.
    _scratch: Scratch,
}

impl Guest {
    /// Boots the archive.
    fn start(mut command: Command, net: &str, kernel: &Kernel, archive: Archive, timeout: Duration) -> Self {
        let scratch = Scratch::new();
        let initramfs = scratch.join("initramfs");
        fs::write(&initramfs, archive.finish()).expect("own directory");
        command
            .args(["-accel", "tcg", "-cpu", "max,-cx16", "-smp", "1", "-m", "1024"])
            .args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot", "-nodefaults"])
            .args(["-netdev", net, "-device", "virtio-net-pci,netdev=net,romfile="])
            // A guest that gets little processor time misses timer interrupts; the check would panic because
            // of it.
            .args(["-append", "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check rdinit=/init"])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&initramfs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut qemu = KilledOnDrop(command.spawn().expect("qemu-system-x86_64 can be started"));
        let console_input = qemu.0.stdin.take().expect("piped");
        let serial = BufReader::new(qemu.0.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in serial.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let (report, start) = (Report::default(), Instant::now());
        Self { qemu, console_input, lines, report, start, timeout, _scratch: scratch }
    }

    /// Waits for its next request, which is then to be answered. `None` when it has ended.
    ///
    /// # Panics
    /// When its time is over.
    pub fn request(&mut self) -> Option<String> {
        loop {
            let line = match self.lines.recv_timeout(self.timeout.saturating_sub(self.start.elapsed())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("the guest was not done after {:?}", self.timeout),
            };
            let report = &mut self.report;
            report.console.push_str(&line);
            report.console.push('\n');
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "BOOTED" => report.kernel = rest.to_owned(),
                "PASS" => report.passed.push(rest.to_owned()),
                "FAIL" => report.failed.push(rest.to_owned()),
                "DONE" => report.done = true,
                "HOST" => return Some(rest.to_owned()),
                _ => {}
            }
        }
    }

    /// Answers a request.
    ///
    /// # Panics
    /// When QEMU has ended.
    pub fn answer(&mut self, words: &str) {
        writeln!(self.console_input, "{words}").expect("QEMU reads its serial line");
    }

    /// Waits for its end. `host` replies to its requests.
    ///
    /// # Panics
    /// As [`Guest::request`] and [`Guest::answer`].
    pub fn finish(mut self, mut host: impl FnMut(&str) -> String) -> Report {
        while let Some(request) = self.request() {
            self.answer(&host(&request));
        }
        self.report
    }

    /// Ends it as a power cut does: it writes nothing more to its disks and sends nothing more. Its results
    /// until then.
    pub fn cut_power(self) -> Report {
        drop(self.qemu);
        self.report
    }
}

/// Executes a request of the workload on the host: `remove`, `create`, `append` or `checksum` of a file.
/// Its path is `/mnt/NAME/...` in the guest; on the host NAME's directory is in `exports`.
pub fn change_on_host(exports: &[(&str, &Path)], request: &str) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    let done = (|| -> Result<(), String> {
        let (Some(verb), Some(guest)) = (words.first(), words.get(1)) else { return Err("no words".into()) };
        let path = exports
            .iter()
            .find_map(|(name, served)| Some(served.join(guest.strip_prefix(&format!("/mnt/{name}/"))?)))
            .ok_or("no such mount")?;
        let with_path = |e: std::io::Error| format!("{}: {e}", path.display());
        match *verb {
            "remove" => fs::remove_file(&path).map_err(with_path),
            "create" => fs::write(&path, "from the host\n").map_err(with_path),
            "append" => fs::File::options()
                .append(true)
                .open(&path)
                .and_then(|mut f| f.write_all(b"appended\n"))
                .map_err(with_path),
            "checksum" => {
                let sum = run_ok(Command::new("md5sum").arg(&path));
                let sum = sum.split_whitespace().next().unwrap_or_default();
                if Some(&sum) == words.get(2) { Ok(()) } else { Err(format!("{sum} on the host")) }
            }
            other => Err(format!("{other}?")),
        }
    })();
    done.map_or_else(|why| why, |()| "ok".to_owned())
}

/// Creates the files that the workload expects in an exported directory: files and directories owned by root
/// with different permissions, and `work`, which everybody may write to.
///
/// # Panics
/// When they can't be created.
pub fn create_workload_files(export: &Path) {
    let make = |name: &str, mode: u32, content: Option<&str>| {
        let path = export.join(name);
        match content {
            Some(text) => fs::write(&path, text),
            None => fs::create_dir(&path),
        }
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    };
    make("work", 0o1777, None);
    make("private", 0o600, Some("secret\n"));
    make("public", 0o644, Some("everybody\n"));
    make("locked", 0o755, None);
    make("locked/file", 0o644, Some("stays\n"));
    make("locked/closed", 0o700, None);
}

/// tests/guest/holder.c, linked statically.
fn holder() -> &'static [u8] {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    BUILT.get_or_init(|| guest_program("holder"))
}

/// A program of tests/guest, linked statically.
///
/// # Panics
/// When it can't be compiled.
pub fn guest_program(name: &str) -> Vec<u8> {
    let scratch = Scratch::new();
    let program = scratch.join(name);
    let source = workspace().join(format!("tests/guest/{name}.c"));
    run_ok(Command::new("cc").args(["-static", "-O1", "-o"]).arg(&program).arg(source));
    fs::read(program).expect("it was just made")
}

/// The unpacked kernel package.
struct Kernel {
    image: PathBuf,
    root: PathBuf,
    version: String,
}

/// Whose kernel a guest boots.
#[derive(Debug, Clone, Copy)]
enum Release {
    /// That of this machine's Debian.
    Host,
    /// Debian 13's (Linux 6.12).
    Debian13,
}

impl Kernel {
    fn find(release: Release) -> Self {
        let package = assets().join(match release {
            Release::Host => "kernel",
            Release::Debian13 => "kernel-trixie",
        });
        let modules = package.join("lib/modules");
        // Debian 13 has moved them.
        let modules = if modules.is_dir() { modules } else { package.join("usr/lib/modules") };
        let version = fs::read_dir(&modules)
            .ok()
            .and_then(|mut entries| entries.next()?.ok()?.file_name().into_string().ok())
            .unwrap_or_else(|| panic!("no kernel under {}: run scripts/setup test", package.display()));
        let root = modules.ancestors().nth(2).expect("two levels down").to_owned();
        let image = package.join("boot").join(format!("vmlinuz-{version}"));
        Self { image, root, version }
    }

    /// These modules and their dependencies, in the order of loading.
    fn modules(&self, wanted: &[&str]) -> Vec<PathBuf> {
        if !self.root.join("lib/modules").join(&self.version).join("modules.dep.bin").is_file() {
            run_ok(Command::new("depmod").arg("-b").arg(&self.root).arg(&self.version));
        }
        let mut order: Vec<PathBuf> = Vec::new();
        for wanted in wanted {
            let listed = run_ok(Command::new("modprobe").arg("-d").arg(&self.root).args([
                "-S",
                &self.version,
                "--show-depends",
                wanted,
            ]));
            // The line of a builtin module is "builtin NAME".
            for path in listed.lines().filter_map(|l| l.strip_prefix("insmod ")) {
                let path = PathBuf::from(path.split_whitespace().next().unwrap_or_default());
                if !order.contains(&path) {
                    order.push(path);
                }
            }
        }
        order
    }

    /// Adds the files of every guest: these modules, the programs, and the job.
    fn add_guest_files(&self, archive: &mut Archive, job: &Job<'_>, modules: &[&str]) {
        for directory in ["bin", "dev", "etc", "mnt", "modules", "proc", "sys", "tmp"] {
            archive.directory(directory);
        }
        archive.character_device("dev/console", 5, 1);
        archive.character_device("dev/null", 1, 3);
        let busybox = fs::read("/bin/busybox").or_else(|_| fs::read("/usr/bin/busybox"));
        archive.file("bin/busybox", 0o755, &busybox.expect("busybox-static is installed"));
        archive.file("bin/holder", 0o755, holder());
        archive.file("etc/passwd", 0o644, b"root::0:0:root:/:/bin/sh\ntester::1000:1000:tester:/:/bin/sh\n");
        archive.file("etc/group", 0o644, b"root:x:0:\ntester:x:1000:\n");

        let mut order = String::new();
        for path in self.modules(modules) {
            let name = path.file_name().and_then(|n| n.to_str()).expect("modules have plain names");
            // busybox can't decompress modules, and some of Debian's kernels compress them.
            let (name, content) = match name.strip_suffix(".xz") {
                Some(name) => {
                    let unpacked = Command::new("xz").arg("-dc").arg(&path).output().expect("xz");
                    (name, unpacked.stdout)
                }
                None => (name, fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))),
            };
            archive.file(&format!("modules/{name}"), 0o644, &content);
            order.push_str(name);
            order.push('\n');
        }
        archive.file("modules/order", 0o644, order.as_bytes());

        let guest = workspace().join("tests/guest");
        for (file, mode) in [("init", 0o755), ("workload.sh", 0o755)] {
            archive.file(file, mode, &fs::read(guest.join(file)).expect("part of the repository"));
        }
        archive.file("plan.sh", 0o644, job.plan.as_bytes());
        let Job { nfs_port, mount_port, anon_uid, .. } = job;
        let environment = format!("NFS_PORT={nfs_port}\nMOUNT_PORT={mount_port}\nANON_UID={anon_uid}\n");
        archive.file("guest.env", 0o644, environment.as_bytes());
    }
}
