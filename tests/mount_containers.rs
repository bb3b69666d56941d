//! Mounts and containers: made on the host and bind-mounted into a container, made inside a privileged
//! container, and made inside a user namespace, where the kernel refuses passthrough.

use std::fs;
use std::path::Path;
use std::process::Command;

use samehost_tests::podman::Podman;
use samehost_tests::scratch::pattern;
use samehost_tests::{Mount, Netns, Scratch, Serve, Server, need_root, run, run_ok, wait_for};

/// busybox has no cksum.
const CKSUM: &str = "/usr/bin/cksum";
/// Size of the file in bytes.
const SIZE: usize = 3 << 20;

struct Rig {
    netns: Netns,
    server: Server,
    export: std::path::PathBuf,
    _scratch: Scratch,
}

impl Rig {
    fn new(name: &str) -> Self {
        need_root();
        let scratch = Scratch::new();
        let export = scratch.mkdir("export");
        fs::write(export.join("file"), pattern(1, SIZE)).expect("own directory");
        let netns = Netns::new(name);
        let server = Serve::openly(&export).inside(&netns).start();
        Self { netns, server, export, _scratch: scratch }
    }

    fn checksum(&self) -> String {
        run_ok(Command::new("cksum").arg(self.export.join("file")))
            .split(' ')
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The output of a container that mounts the share itself, reads, writes, asks for the status and
    /// unmounts.
    fn mounted_inside(&self, podman: &Podman, options: &[&str]) -> String {
        let script = format!(
            "set -e; mkdir -p /tmp/mnt; samehost mount {} /tmp/mnt -o lane=required; cksum /tmp/mnt/file; \
             cp /tmp/mnt/file /tmp/mnt/copy; cmp /tmp/mnt/file /tmp/mnt/copy; samehost status --json; \
             samehost umount /tmp/mnt; ! grep -q /tmp/mnt /proc/mounts",
            self.server.url(&self.export)
        );
        let shared = format!("{}:/run/samehost", self.server.run_dir().display());
        let mut all = vec!["--device", "/dev/fuse", "--volume", &shared];
        all.extend(options);
        let output = run(&mut podman.once(&self.netns, &all, &["sh", "-c", &script]));
        let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&self.checksum()), "{said}");
        assert_eq!(fs::read(self.export.join("copy")).unwrap(), pattern(1, SIZE));
        said
    }
}

#[test]
fn made_on_the_host_and_bound_into_a_container() {
    let rig = Rig::new("mnt1");
    let mount = Mount::unmounted(&rig.server);
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", rig.netns.path())).arg("--");
    let inner = mount.command(&rig.server.url(&rig.export), "lane=required");
    command.arg(inner.get_program()).args(inner.get_args()).env("SAMEHOST_RUN_DIR", rig.server.run_dir());
    run_ok(&mut command);
    let podman = Podman::new(&[Path::new(CKSUM)]);
    let bound = format!("{}:/data", mount.path().display());
    let script =
        "cksum /data/file; cp /data/file /data/copy; cmp /data/file /data/copy; echo from-inside >/data/note";
    let said = run_ok(&mut podman.once(&rig.netns, &["--volume", &bound], &["sh", "-ec", script]));
    assert!(said.contains(&rig.checksum()), "{said}");
    assert_eq!(fs::read_to_string(rig.export.join("note")).unwrap(), "from-inside\n");
    assert_eq!(fs::read(rig.export.join("copy")).unwrap(), pattern(1, SIZE));
    let status = mount.status().expect("a mount");
    assert_eq!(status["road"], "lane, passed through", "{status}");
    assert_eq!(status["wire"]["bytes_read"], 0, "{status}");
}

#[test]
fn made_inside_a_privileged_container() {
    let rig = Rig::new("mnt2");
    let podman = Podman::new(&[Path::new(CKSUM)]);
    let said =
        rig.mounted_inside(&podman, &["--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined"]);
    assert!(said.contains("\"road\": \"lane, passed through\""), "{said}");
}

#[test]
fn inside_a_user_namespace_the_mounts_process_serves_granted_files() {
    let rig = Rig::new("mnt3");
    let scratch = Scratch::new();
    let at = scratch.mkdir("mnt");
    // unshare(1) with root mapped in new user and mount namespaces: this process may mount FUSE.
    let url = rig.server.url(&rig.export);
    let samehost = samehost_tests::samehost::reachable_binary(&scratch);
    let script = format!(
        "set -e; {0} mount {url} {1} -o lane=required; cksum <{1}/file; cp {1}/file {1}/copy; cmp {1}/file \
         {1}/copy; {0} status --json; {0} umount {1}",
        samehost.display(),
        at.display()
    );
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", rig.netns.path())).arg("--");
    command.args(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    command.env("SAMEHOST_RUN_DIR", rig.server.run_dir());
    let said = run_ok(&mut command);
    assert!(said.contains(&rig.checksum()), "{said}");
    assert!(said.contains("\"road\": \"lane, served by the mount's process\""), "{said}");
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
    assert_eq!(fs::read(rig.export.join("copy")).unwrap(), pattern(1, SIZE));
    wait_for("the end of every mount", || {
        let table = fs::read_to_string("/proc/self/mounts").ok()?;
        (!table.contains(&at.display().to_string())).then_some(())
    });
}
