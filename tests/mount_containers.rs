//! Mounts and containers: made on the host and bind-mounted into a container, made inside a privileged
//! container, over all data paths; and made inside a user namespace, where the kernel refuses passthrough.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_tests::podman::Podman;
use samehost_tests::scratch::pattern;
use samehost_tests::{
    DataPath, Mount, Netns, Scratch, Serve, Server, UringSwitch, need_root, run, run_ok, wait_for,
};
use serde_json::{Value, json};

/// busybox has no cksum.
const CKSUM: &str = "/usr/bin/cksum";
/// Size of the file in bytes.
const SIZE: usize = 3 << 20;

/// A server, whose export has a file.
struct Share {
    server: Server,
    export: PathBuf,
    _scratch: Scratch,
}

impl Share {
    fn new(netns: &Netns, serve: impl FnOnce(&Path) -> Serve) -> Self {
        need_root();
        let scratch = Scratch::new();
        let export = scratch.mkdir("export");
        fs::write(export.join("file"), pattern(1, SIZE)).expect("own directory");
        let server = serve(&export).inside(netns).start();
        Self { server, export, _scratch: scratch }
    }

    /// A share for each data path that this kernel has.
    fn for_data_paths(netns: &Netns) -> Vec<(DataPath, Self)> {
        let paths = DataPath::all().filter(|path| path.with_options(|_| ()).is_some());
        paths.map(|path| (path, Self::new(netns, |export| path.serve(export)))).collect()
    }

    fn checksum(&self) -> String {
        run_ok(Command::new("cksum").arg(self.export.join("file")))
            .split(' ')
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Asserts that `output`, a container's, has the file's checksum, and that the container has copied it.
    fn assert_used(&self, output: &str) {
        assert!(output.contains(&self.checksum()), "{output}");
        assert_eq!(fs::read(self.export.join("copy")).expect("the copy"), pattern(1, SIZE));
    }
}

#[test]
fn made_on_the_host_and_bound_into_a_container() {
    let netns = Netns::new("mnt1");
    let podman = Podman::new(&[Path::new(CKSUM)]);
    let shares = Share::for_data_paths(&netns);
    let mount = |(path, share): &(DataPath, Share)| {
        let mount = path.mount_by(Mount::unmounted(&share.server), |mount, options| {
            let inner = mount.command(&share.server.url(&share.export), options);
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={}", netns.path())).arg("--");
            command.arg(inner.get_program()).args(inner.get_args());
            run_ok(command.env("SAMEHOST_RUN_DIR", share.server.run_dir()));
        });
        mount.expect("the kernel has the data path")
    };
    let mounts: Vec<Mount> = shares.iter().map(mount).collect();
    let bound = |((path, _), mount): (&(DataPath, Share), &Mount)| {
        format!("--volume={}:/data/{}", mount.path().display(), path.name)
    };
    let volumes: Vec<String> = shares.iter().zip(&mounts).map(bound).collect();
    let options: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let script = "for data in /data/*; do
        cksum $data/file; cp $data/file $data/copy; cmp $data/file $data/copy
        echo from-inside >$data/note; mkdir $data/directory; mv $data/note $data/directory
        done";
    let output = run_ok(&mut podman.once(&netns, &options, &["sh", "-ec", script]));
    for ((path, share), mount) in shares.iter().zip(&mounts) {
        assert!(output.contains(&format!("{}/file", path.name)), "{output}");
        share.assert_used(&output);
        assert_eq!(fs::read_to_string(share.export.join("directory/note")).unwrap(), "from-inside\n");
        let status = mount.status().expect("a mount");
        path.assert_status(&status);
        assert!(!path.has_lane() || status["wire"]["bytes_read"] == 0, "{status}");
    }
}

#[test]
fn made_inside_a_privileged_container() {
    let netns = Netns::new("mnt2");
    let podman = Podman::new(&[Path::new(CKSUM)]);
    let shares = Share::for_data_paths(&netns);
    let mut script = "set -e; mkdir -p /tmp/mnt; ".to_owned();
    let mut options = ["--device=/dev/fuse", "--cap-add=SYS_ADMIN"].map(str::to_owned).to_vec();
    // podman's seccomp profile has no io_uring.
    options.extend(["apparmor", "seccomp"].map(|name| format!("--security-opt={name}=unconfined")));
    for (path, share) in &shares {
        options.push(format!("--volume={}:/run/{}", share.server.run_dir().display(), path.name));
        path.with_options(|own| {
            script += &format!(
                "export SAMEHOST_RUN_DIR=/run/{}; samehost mount {} /tmp/mnt -o {own}; cksum /tmp/mnt/file; \
                 cp /tmp/mnt/file /tmp/mnt/copy; cmp /tmp/mnt/file /tmp/mnt/copy; \
                 samehost status --json >$SAMEHOST_RUN_DIR/status.json; \
                 samehost umount /tmp/mnt; ! grep -q /tmp/mnt /proc/mounts; ",
                path.name,
                share.server.url(&share.export)
            );
        });
    }
    let output = {
        let _on = UringSwitch::set(true);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        run(&mut podman.once(&netns, &options, &["sh", "-c", &script]))
    };
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{printed}");
    for (path, share) in &shares {
        share.assert_used(&printed);
        let status = fs::read(share.server.run_dir().join("status.json")).expect("the container's status");
        let status: Value = serde_json::from_slice(&status).expect("JSON");
        let status = &status["mounts"][0];
        if path.is_local_filesystem() {
            // Mount grants are for the mount namespace of the server.
            assert_eq!((&status["mounted"], &status["tree"]), (&json!(false), &json!(true)), "{status}");
            let refusal = status["mount_refusal"].as_str().expect("a reason");
            assert!(refusal.contains("in its mount namespace"), "{refusal}");
        } else {
            path.assert_status(status);
        }
    }
}

#[test]
fn inside_a_user_namespace_the_mounts_process_serves_granted_files() {
    let netns = Netns::new("mnt3");
    let share = Share::new(&netns, Serve::openly);
    let scratch = Scratch::new();
    let at = scratch.mkdir("mnt");
    // unshare(1) with root mapped in new user and mount namespaces: this process may mount FUSE.
    let url = share.server.url(&share.export);
    let samehost = samehost_tests::samehost::reachable_binary(&scratch);
    let script = format!(
        "set -e; {0} mount {url} {1} -o lane=required; cksum <{1}/file; cp {1}/file {1}/copy; cmp {1}/file \
         {1}/copy; {0} status --json; {0} umount {1}",
        samehost.display(),
        at.display()
    );
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", netns.path())).arg("--");
    command.args(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    command.env("SAMEHOST_RUN_DIR", share.server.run_dir());
    let output = run_ok(&mut command);
    share.assert_used(&output);
    assert!(output.contains("\"road\": \"lane, served by the mount's process\""), "{output}");
    assert!(output.contains("CAP_SYS_ADMIN"), "{output}");
    wait_for("the end of every mount", || {
        let table = fs::read_to_string("/proc/self/mounts").ok()?;
        (!table.contains(&at.display().to_string())).then_some(())
    });
}
