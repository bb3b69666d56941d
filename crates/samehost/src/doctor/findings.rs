//! The decisions: what each fact means for serving and mounting, and the next step.

use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::DataPath::{
    Mount, MountAttached, MountPassthrough, MountUring, ServeFiles, ServeMounts, ServeTrees, ServeWire,
};
use super::facts::{ExportDirectory, Facts, FuseHelper};
use super::{DataPath, Finding, Level, Side};
use crate::fuse_device;

/// The least number of descriptors with which a server starts.
const MIN_DESCRIPTORS: u64 = 352;
/// The number from which on the defaults of connections and lanes aren't reduced much.
const AMPLE_DESCRIPTORS: u64 = 20_000;
/// The kernel with openat2(2), which everything needs.
const OLDEST_KERNEL: (u32, u32) = (5, 6);
/// The kernel with FUSE passthrough.
const PASSTHROUGH_KERNEL: (u32, u32) = (6, 9);
/// What a server needs to act as its clients' users.
const ACTS_AS_USERS: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
];
const EVERY_MOUNT: [DataPath; 4] = [Mount, MountUring, MountPassthrough, MountAttached];

/// Everything that this host lacks, the most important first.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let checks: [fn(&Facts) -> Option<Finding>; 22] = [
        old_kernel_for_server,
        old_kernel_for_mount,
        few_descriptors,
        taken_port,
        firewall,
        loopback_only,
        run_dir_is_not_writable,
        run_dir_is_open,
        acting_as_users,
        cloning_mounts,
        server_in_user_namespace,
        opening_by_handle,
        leases,
        rpcbind,
        fuse_device,
        fuse_helper,
        allow_other,
        passthrough_in_kernel,
        passthrough_privilege,
        requests_over_uring,
        no_server,
        closed_servers,
    ];
    let mut findings: Vec<_> = checks.iter().filter_map(|check| check(facts)).collect();
    findings.extend(facts.directories.iter().filter_map(directory));
    findings.sort_by_key(|finding| finding.level);
    findings
}

/// A finding that rules no data path out.
fn finding(level: Level, side: Side, subject: impl Into<String>) -> Finding {
    Finding {
        level,
        side,
        subject: subject.into(),
        what: String::new(),
        why: String::new(),
        next: String::new(),
        rules_out: Vec::new(),
    }
}

impl Finding {
    /// Numbers of system errors are left out.
    fn what(self, what: impl Into<String>) -> Self {
        Self { what: sys::without_error_numbers(&what.into()), ..self }
    }

    fn why(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), ..self }
    }

    fn next(self, next: impl Into<String>) -> Self {
        Self { next: next.into(), ..self }
    }

    fn rules_out(self, paths: &[DataPath]) -> Self {
        Self { rules_out: paths.to_vec(), ..self }
    }
}

fn old_kernel(facts: &Facts, side: Side, paths: &[DataPath]) -> Option<Finding> {
    (facts.kernel.version < OLDEST_KERNEL).then(|| {
        finding(Level::Problem, side, "the kernel")
            .what(format!("it is Linux {}, older than 5.6", facts.kernel.release))
            .why("paths are looked up with openat2(2), which it lacks")
            .next("run a newer kernel")
            .rules_out(paths)
    })
}

fn old_kernel_for_server(facts: &Facts) -> Option<Finding> {
    old_kernel(facts, Side::Server, &[ServeWire, ServeFiles, ServeTrees, ServeMounts])
}

fn old_kernel_for_mount(facts: &Facts) -> Option<Finding> {
    old_kernel(facts, Side::Mount, &EVERY_MOUNT)
}

fn few_descriptors(facts: &Facts) -> Option<Finding> {
    let limit = facts.descriptor_limit.filter(|limit| *limit < AMPLE_DESCRIPTORS)?;
    let too_few = limit < MIN_DESCRIPTORS;
    let level = if too_few { Level::Problem } else { Level::Advice };
    let why = if too_few {
        "a server doesn't start with less than 352"
    } else {
        "the server divides them among connections, lanes, NFSv4 state and open files, and gives each less \
         than its default"
    };
    let found = finding(level, Side::Server, "the limit of open files")
        .what(format!("the hard limit (RLIMIT_NOFILE) is {limit}"))
        .why(why)
        .next("LimitNOFILE=1048576 in the unit, ulimit -Hn in a shell, --ulimit nofile= for a container");
    Some(if too_few { found.rules_out(&[ServeWire, ServeFiles, ServeTrees, ServeMounts]) } else { found })
}

fn taken_port(facts: &Facts) -> Option<Finding> {
    if !facts.nfs_port_taken || facts.nfs_port_ours {
        return None;
    }
    if facts.run_dir.closed_servers > 0 && facts.knfsd_threads == 0 {
        return Some(
            finding(Level::Note, Side::Server, "TCP port 2049")
                .what("a process listens on it: perhaps a server whose status is closed to this user")
                .why("`samehost serve` listens there by default")
                .next("run `samehost doctor` as the user of that server, or as root, to know which"),
        );
    }
    let (what, next) = match facts.knfsd_threads {
        0 => (
            "another process listens on it".to_owned(),
            "find it (ss -ltnp sport = :2049) and stop it, or choose another port with --listen",
        ),
        threads => (
            format!("the kernel's NFS server has it ({threads} threads)"),
            "systemctl disable --now nfs-server, or choose another port with --listen",
        ),
    };
    Some(
        finding(Level::Problem, Side::Server, "TCP port 2049")
            .what(what)
            .why("`samehost serve` listens there by default, and clients expect an NFS server there")
            .next(next)
            .rules_out(&[ServeWire]),
    )
}

fn firewall(facts: &Facts) -> Option<Finding> {
    (facts.drops_nfs == Some(true)).then(|| {
        finding(Level::Advice, Side::Server, "the packet filter")
            .what("it drops what comes in by default, and no rule names NFS or port 2049")
            .why("clients on other hosts may not reach the server; those of this host do")
            .next(
                "admit the clients' network (nft add rule inet filter input ip saddr NETWORK tcp dport 2049 \
                 accept), and try `samehost probe` from a client",
            )
    })
}

fn loopback_only(facts: &Facts) -> Option<Finding> {
    let is_loopback =
        |address: &String| address.parse().is_ok_and(|address: SocketAddr| address.ip().is_loopback());
    (!facts.listen.is_empty() && facts.listen.iter().all(is_loopback)).then(|| {
        finding(Level::Note, Side::Server, "the server's addresses")
            .what(format!("it listens on {} only", facts.listen.join(", ")))
            .why("clients on other hosts can't reach it")
            .next("start it with --listen [::]:2049, or with an address of this host")
    })
}

fn run_dir_is_not_writable(facts: &Facts) -> Option<Finding> {
    let run_dir = &facts.run_dir;
    (!run_dir.writable).then(|| {
        let what = if run_dir.exists {
            "this user can't create sockets in it"
        } else {
            "it doesn't exist, and this user can't create it"
        };
        finding(Level::Advice, Side::Server, format!("the run directory {}", run_dir.path.display()))
            .what(what)
            .why(
                "a server then has its abstract socket only: clients with another network namespace get no \
                 lane, and `samehost status` doesn't find the server",
            )
            .next("name a directory of your own for servers and clients: export SAMEHOST_RUN_DIR=~/.samehost")
    })
}

fn run_dir_is_open(facts: &Facts) -> Option<Finding> {
    facts.run_dir.open_to_others.then(|| {
        let path = facts.run_dir.path.display();
        finding(Level::Advice, Side::Server, format!("the run directory {path}"))
            .what("users other than its owner can write to it")
            .why("they can remove a server's sockets there, and add false ones")
            .next(format!("chmod go-w {path}"))
    })
}

fn acting_as_users(facts: &Facts) -> Option<Finding> {
    let missing: Vec<_> = ACTS_AS_USERS
        .iter()
        .filter(|(capability, _)| !facts.capabilities.contains(*capability))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return None;
    }
    let is_root = facts.uid == 0;
    let level = if is_root { Level::Advice } else { Level::Note };
    Some(
        finding(level, Side::Server, "acting as other users")
            .what(format!("this process lacks {}", missing.join(", ")))
            .why(
                "a server started like this does everything as its own user and serves that user and root \
                 only; it gives files over the lane, and no directories",
            )
            .next(if is_root {
                "in a container: --cap-add DAC_READ_SEARCH, and don't drop SETUID and SETGID"
            } else {
                "start the server as root to serve all users"
            })
            .rules_out(&[ServeTrees, ServeMounts]),
    )
}

fn cloning_mounts(facts: &Facts) -> Option<Finding> {
    // An ordinary user lacks more, which `acting_as_users` says.
    (facts.uid == 0 && !facts.capabilities.contains(CapabilitySet::SYS_ADMIN)).then(|| {
        finding(Level::Advice, Side::Server, "cloning mounts")
            .what("this process lacks CAP_SYS_ADMIN")
            .why(
                "clients of this host get no directories, and read-only and squashed clients read over the \
                 wire",
            )
            .next("in a container: --cap-add SYS_ADMIN, or run the server on the host")
            .rules_out(&[ServeTrees, ServeMounts])
    })
}

fn server_in_user_namespace(facts: &Facts) -> Option<Finding> {
    (facts.uid == 0 && !facts.initial_user_namespace).then(|| {
        finding(Level::Advice, Side::Server, "the user namespace")
            .what("this process is root of a user namespace, not of the host")
            .why("the kernel opens no files by handle for it and clones no mounts of the host")
            .next("run the server as root of the host, or in a container without a user namespace")
            .rules_out(&[ServeTrees, ServeMounts])
    })
}

fn opening_by_handle(facts: &Facts) -> Option<Finding> {
    let errno = facts.handles?.err()?;
    // Without the capability EPERM is what `acting_as_users` says already.
    let has_right = facts.capabilities.contains(CapabilitySet::DAC_READ_SEARCH);
    let is_known = errno == Errno::PERM && (!has_right || !facts.initial_user_namespace);
    (!is_known).then(|| {
        finding(Level::Advice, Side::Server, "open_by_handle_at(2)")
            .what(format!("it fails: {}", std::io::Error::from(errno)))
            .why("the server then does everything as its own user and gives no directories")
            .next("permit it in the seccomp profile of the container, or run the server on the host")
            .rules_out(&[ServeTrees, ServeMounts])
    })
}

fn leases(facts: &Facts) -> Option<Finding> {
    (!facts.leases).then(|| {
        finding(Level::Note, Side::Server, "the sysctl fs.leases-enable")
            .what("it is 0")
            .why("the server gives no NFSv4 delegations")
            .next("sysctl fs.leases-enable=1")
    })
}

fn rpcbind(facts: &Facts) -> Option<Finding> {
    (!facts.rpcbind).then(|| {
        finding(Level::Note, Side::Server, "rpcbind")
            .what("none answers at /run/rpcbind.sock")
            .why(
                "NFSv3 clients that ask it for ports don't find the server; NFSv4 clients and Samehost's \
                 don't ask",
            )
            .next("install rpcbind, or mount with -o vers=3,port=2049,mountport=2049,nolock")
    })
}

fn fuse_device(facts: &Facts) -> Option<Finding> {
    let errno = facts.fuse_device.err()?;
    let (what, next) = fuse_device::explain(&errno.into(), facts.uid == 0);
    Some(
        finding(Level::Problem, Side::Mount, fuse_device::PATH)
            .what(what)
            .why("a mount is a FUSE filesystem, and the kernel's requests come through this device")
            .next(next)
            .rules_out(&EVERY_MOUNT),
    )
}

fn fuse_helper(facts: &Facts) -> Option<Finding> {
    if facts.capabilities.contains(CapabilitySet::SYS_ADMIN) {
        return None;
    }
    let (what, next) = match facts.fuse_helper {
        FuseHelper::Missing => ("it isn't installed", "apt install fuse3, or mount as root"),
        FuseHelper::NotSetUid => {
            ("it isn't set-user-ID root", "reinstall the package fuse3, or mount as root")
        }
        FuseHelper::SetUid if facts.no_new_privileges => (
            "this process and its children get no new privileges (NoNewPrivs), so its set-user-ID bit has \
             no effect",
            "start without NoNewPrivileges= or --security-opt no-new-privileges, or mount as root",
        ),
        FuseHelper::SetUid => return None,
    };
    Some(
        finding(Level::Problem, Side::Mount, "fusermount3")
            .what(what)
            .why("without CAP_SYS_ADMIN a process mounts through it only")
            .next(next)
            .rules_out(&EVERY_MOUNT),
    )
}

fn allow_other(facts: &Facts) -> Option<Finding> {
    (facts.uid != 0 && !facts.user_allow_other).then(|| {
        finding(Level::Note, Side::Mount, "/etc/fuse.conf")
            .what("it has no line user_allow_other")
            .why("a mount of this user is for this user only; root and others get EACCES")
            .next("have root add the line, and mount with -o allow_other")
    })
}

fn passthrough_in_kernel(facts: &Facts) -> Option<Finding> {
    let is_old = facts.kernel.version < PASSTHROUGH_KERNEL;
    (is_old || facts.kernel.fuse_passthrough == Some(false)).then(|| {
        let release = &facts.kernel.release;
        finding(Level::Advice, Side::Mount, "FUSE passthrough")
            .what(if is_old {
                format!("Linux {release} doesn't have it (6.9 does)")
            } else {
                format!("Linux {release} is built without CONFIG_FUSE_PASSTHROUGH")
            })
            .why("the mount's process then reads and writes the server's files, at a few times the cost")
            .next("run a kernel that has it; Debian 13's does")
            .rules_out(&[MountPassthrough])
    })
}

fn passthrough_privilege(facts: &Facts) -> Option<Finding> {
    let has_right = facts.capabilities.contains(CapabilitySet::SYS_ADMIN);
    if has_right && facts.initial_user_namespace {
        return None;
    }
    let (what, next) = if has_right {
        (
            "this process is in a user namespace, where CAP_SYS_ADMIN doesn't permit it",
            "mount on the host as root, and bind the mount into the container",
        )
    } else {
        (
            "this process lacks CAP_SYS_ADMIN",
            "have root mount it: `samehost mount`, fstab or a unit; users of the mount act as themselves",
        )
    };
    Some(
        finding(Level::Advice, Side::Mount, "the kernel's access to a server's files")
            .what(what)
            .why(
                "the kernel passes files through, and attaches mounts, for root of the host only; the \
                 mount's process then reads and writes them",
            )
            .next(next)
            .rules_out(&[MountPassthrough, MountAttached]),
    )
}

fn requests_over_uring(facts: &Facts) -> Option<Finding> {
    let privileged = facts.capabilities.contains(CapabilitySet::SYS_ADMIN);
    let (what, next) = match (facts.fuse_uring, facts.io_uring_disabled.unwrap_or(0)) {
        (None, _) => (
            format!("Linux {} doesn't have it (6.14 does, with CONFIG_FUSE_IO_URING)", facts.kernel.release),
            "run a newer kernel if it matters; until then requests come by /dev/fuse",
        ),
        (Some(false), _) => (
            "the kernel has it, and it is switched off".to_owned(),
            "as root: echo Y > /sys/module/fuse/parameters/enable_uring; at each start: options fuse \
             enable_uring=Y in /etc/modprobe.d/fuse.conf, or fuse.enable_uring=Y for the kernel",
        ),
        (Some(true), 2) => (
            "io_uring is closed to all processes (kernel.io_uring_disabled=2)".to_owned(),
            "sysctl kernel.io_uring_disabled=0",
        ),
        (Some(true), 1) if !privileged => (
            "io_uring is closed to this user (kernel.io_uring_disabled=1)".to_owned(),
            "mount as root, or sysctl kernel.io_uring_disabled=0",
        ),
        (Some(true), _) => return None,
    };
    Some(
        finding(Level::Advice, Side::Mount, "FUSE over io_uring")
            .what(what)
            .why("each request of the kernel then costs the mount's process two system calls of its own")
            .next(next)
            .rules_out(&[MountUring]),
    )
}

fn closed_servers(facts: &Facts) -> Option<Finding> {
    let run_dir = &facts.run_dir;
    (run_dir.closed_servers > 0).then(|| {
        let servers = match run_dir.closed_servers {
            1 => "a server has a socket".to_owned(),
            several => format!("{several} servers have sockets"),
        };
        let path = run_dir.path.display();
        finding(Level::Note, Side::Mount, "servers of this host")
            .what(format!("{servers} in {path}, and the status is closed to this user"))
            .why("doctor can't tell their addresses and exports; lanes don't need the status")
            .next("for more, run `samehost doctor` as the user of the server, or as root")
    })
}

fn no_server(facts: &Facts) -> Option<Finding> {
    let run_dir = &facts.run_dir;
    (run_dir.servers == 0 && run_dir.closed_servers == 0).then(|| {
        let path = run_dir.path.display();
        finding(Level::Note, Side::Mount, "servers of this host")
            .what(format!("none has a socket in {path}"))
            .why("a lane needs a server of Samehost on this host, and a rendezvous that both sides see")
            .next(
                "start `samehost serve`, or name the server's run directory with --run-dir; `samehost probe \
                 nfs://HOST/PATH` tries a server's lane",
            )
    })
}

fn directory(directory: &ExportDirectory) -> Option<Finding> {
    let found = |level| finding(level, Side::Server, directory.path.display().to_string());
    if let Err(errno) = directory.opened {
        return Some(
            found(Level::Problem)
                .what(format!("it can't be opened: {}", std::io::Error::from(errno)))
                .why("an export that can't be opened isn't served")
                .next("create the directory, or correct the path or its permissions"),
        );
    }
    if !directory.has_handles {
        return Some(
            found(Level::Problem)
                .what(format!("its filesystem ({}) has no file handles", directory.filesystem))
                .why("NFS names files by handle; name_to_handle_at(2) fails here")
                .next("export a directory of a disk filesystem or tmpfs; in a container, a volume"),
        );
    }
    let is_network = matches!(&*directory.filesystem, "nfs" | "nfs4" | "cifs" | "ceph");
    if is_network || directory.filesystem.starts_with("fuse") {
        return Some(
            found(Level::Advice)
                .what(format!("it is on another client's filesystem ({})", directory.filesystem))
                .why("each call passes two servers, and the first one's changes aren't noticed")
                .next("export the directory from the host that has its disk"),
        );
    }
    (directory.filesystem == "overlay").then(|| {
        found(Level::Advice)
            .what("it is on a stacked filesystem (overlay)")
            .why("the kernel may refuse to pass its files through, one level too deep")
            .next("export a volume")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{Kernel, RunDir};
    use crate::doctor::obstacles;

    /// Root of a host that has everything.
    fn best() -> Facts {
        Facts {
            kernel: Kernel { release: "6.18.1".to_owned(), version: (6, 18), fuse_passthrough: Some(true) },
            uid: 0,
            capabilities: CapabilitySet::all(),
            initial_user_namespace: true,
            no_new_privileges: false,
            descriptor_limit: Some(1 << 20),
            fuse_device: Ok(()),
            fuse_helper: FuseHelper::SetUid,
            user_allow_other: true,
            fuse_uring: Some(true),
            io_uring_disabled: Some(0),
            leases: true,
            handles: Some(Ok(())),
            run_dir: RunDir {
                path: "/run/samehost".into(),
                exists: true,
                writable: true,
                open_to_others: false,
                servers: 1,
                closed_servers: 0,
            },
            nfs_port_taken: true,
            nfs_port_ours: true,
            listen: vec!["[::]:2049".to_owned()],
            knfsd_threads: 0,
            rpcbind: true,
            drops_nfs: Some(false),
            directories: Vec::new(),
        }
    }

    /// An ordinary user of the same host.
    fn user() -> Facts {
        Facts { uid: 1000, capabilities: CapabilitySet::empty(), handles: Some(Err(Errno::PERM)), ..best() }
    }

    /// The only finding, with all its parts.
    #[track_caller]
    fn only(facts: &Facts) -> Finding {
        let mut found = findings(facts);
        assert_eq!(found.len(), 1, "{found:#?}");
        let found = found.remove(0);
        for part in [&found.subject, &found.what, &found.why, &found.next] {
            assert!(!part.is_empty(), "{found:#?}");
        }
        assert!(found.rules_out.iter().all(|path| path.side() == found.side), "{found:#?}");
        found
    }

    #[track_caller]
    fn assert_finding(facts: &Facts, level: Level, words: &[&str], rules_out: &[DataPath]) {
        let found = only(facts);
        assert_eq!((found.level, &found.rules_out[..]), (level, rules_out), "{found:#?}");
        let text = format!("{}: {}; {}; {}", found.subject, found.what, found.why, found.next);
        for word in words {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
    }

    #[test]
    fn a_host_with_everything_lacks_nothing() {
        assert_eq!(findings(&best()), []);
        let all = DataPath::ALL.into_iter();
        assert!(all.clone().all(|path| obstacles(path, &[]).is_empty()));
        assert_eq!(all.filter(|path| path.side() == Side::Mount).count(), EVERY_MOUNT.len());
    }

    #[test]
    fn kernels() {
        let mut facts = best();
        facts.kernel.version = (6, 8);
        facts.kernel.release = "6.8.0".to_owned();
        let words = ["6.8.0 doesn't have it (6.9 does)", "kernel that has it"];
        assert_finding(&facts, Level::Advice, &words, &[MountPassthrough]);
        facts = best();
        facts.kernel.fuse_passthrough = Some(false);
        assert_finding(&facts, Level::Advice, &["without CONFIG_FUSE_PASSTHROUGH"], &[MountPassthrough]);
        facts.kernel.fuse_passthrough = None;
        assert_eq!(findings(&facts), [], "what isn't known isn't complained of");
        facts.kernel.version = (5, 4);
        let found = findings(&facts);
        let sides: Vec<_> = found.iter().filter(|f| f.subject == "the kernel").map(|f| f.side).collect();
        assert_eq!(sides, [Side::Server, Side::Mount]);
        assert!(DataPath::ALL.into_iter().all(|path| !obstacles(path, &found).is_empty()));
    }

    #[test]
    fn limits_of_open_files() {
        let limited = |limit| Facts { descriptor_limit: limit, ..best() };
        assert_finding(&limited(Some(1024)), Level::Advice, &["is 1024", "LimitNOFILE"], &[]);
        let all = [ServeWire, ServeFiles, ServeTrees, ServeMounts];
        assert_finding(&limited(Some(351)), Level::Problem, &["is 351", "doesn't start"], &all);
        assert_eq!(findings(&limited(None)), []);
    }

    #[test]
    fn ports_and_packet_filters() {
        let taken = Facts { nfs_port_ours: false, ..best() };
        assert_finding(&taken, Level::Problem, &["another process", "ss -ltnp", "--listen"], &[ServeWire]);
        let knfsd = Facts { knfsd_threads: 8, ..taken.clone() };
        assert_finding(&knfsd, Level::Problem, &["8 threads", "disable --now nfs-server"], &[ServeWire]);
        assert_eq!(findings(&Facts { nfs_port_taken: false, ..taken }), []);
        let filtered = Facts { drops_nfs: Some(true), ..best() };
        assert_finding(&filtered, Level::Advice, &["drops what comes in", "tcp dport 2049"], &[]);
        assert_eq!(findings(&Facts { drops_nfs: None, ..best() }), []);
        let local = Facts { listen: vec!["127.0.0.1:2049".to_owned(), "[::1]:2049".to_owned()], ..best() };
        assert_finding(&local, Level::Note, &["127.0.0.1:2049, [::1]:2049 only", "--listen"], &[]);
        let alone = Facts { rpcbind: false, ..best() };
        assert_finding(&alone, Level::Note, &["install rpcbind", "mountport=2049"], &[]);
    }

    #[test]
    fn run_directories() {
        let mut facts = best();
        facts.run_dir.writable = false;
        assert_finding(&facts, Level::Advice, &["can't create sockets", "SAMEHOST_RUN_DIR"], &[]);
        facts.run_dir.exists = false;
        assert_finding(&facts, Level::Advice, &["doesn't exist"], &[]);
        facts = best();
        facts.run_dir.open_to_others = true;
        assert_finding(&facts, Level::Advice, &["false ones", "chmod go-w /run/samehost"], &[]);
        facts = best();
        facts.run_dir.servers = 0;
        assert_finding(&facts, Level::Note, &["none has a socket", "samehost probe"], &[]);
        facts.run_dir.closed_servers = 1;
        assert_finding(
            &facts,
            Level::Note,
            &["a server has a socket", "closed to this user", "as root"],
            &[],
        );
        // It may be the one that has the port.
        facts.nfs_port_ours = false;
        assert!(findings(&facts).iter().all(|finding| finding.level == Level::Note));
        facts.knfsd_threads = 8;
        assert_eq!(findings(&facts)[0].level, Level::Problem);
    }

    #[test]
    fn roots_with_less_than_all_capabilities() {
        let without = |missing| Facts { capabilities: CapabilitySet::all() - missing, ..best() };
        let above_files = [ServeTrees, ServeMounts];
        let found = without(CapabilitySet::DAC_READ_SEARCH);
        assert_finding(&found, Level::Advice, &["lacks CAP_DAC_READ_SEARCH", "--cap-add"], &above_files);
        let found = findings(&without(CapabilitySet::SYS_ADMIN));
        let paths: Vec<_> = found.iter().flat_map(|finding| finding.rules_out.clone()).collect();
        assert_eq!(paths, [ServeTrees, ServeMounts, MountPassthrough, MountAttached], "{found:#?}");
        let facts = Facts { handles: Some(Err(Errno::NOSYS)), ..best() };
        assert_finding(&facts, Level::Advice, &["open_by_handle_at(2)", "seccomp"], &above_files);
        let facts = Facts { initial_user_namespace: false, handles: Some(Err(Errno::PERM)), ..best() };
        let found = findings(&facts);
        let subjects: Vec<_> = found.iter().map(|finding| &*finding.subject).collect();
        assert_eq!(subjects, ["the user namespace", "the kernel's access to a server's files"]);
        let facts = Facts { leases: false, ..best() };
        assert_finding(&facts, Level::Note, &["delegations", "sysctl fs.leases-enable=1"], &[]);
    }

    #[test]
    fn ordinary_users_serve_and_mount_for_themselves() {
        let found = findings(&user());
        assert!(found.iter().all(|finding| finding.level > Level::Problem), "{found:#?}");
        let missing: Vec<_> =
            DataPath::ALL.into_iter().filter(|path| !obstacles(*path, &found).is_empty()).collect();
        assert_eq!(missing, [ServeTrees, ServeMounts, MountPassthrough, MountAttached]);
        let found = findings(&Facts { user_allow_other: false, ..user() });
        assert!(found.iter().any(|finding| finding.next.contains("-o allow_other")), "{found:#?}");
    }

    #[test]
    fn devices_and_helpers() {
        let closed = Facts { fuse_device: Err(Errno::ACCESS), ..user() };
        let found = findings(&closed);
        assert_eq!((found[0].level, &*found[0].subject), (Level::Problem, "/dev/fuse"));
        assert!(found[0].next.contains("ask an admin"), "{found:#?}");
        assert_eq!(found[0].rules_out, EVERY_MOUNT);
        let missing = Facts { fuse_device: Err(Errno::NOENT), ..best() };
        assert_finding(&missing, Level::Problem, &["modprobe fuse"], &EVERY_MOUNT);
        for (helper, no_new_privileges, words) in [
            (FuseHelper::Missing, false, "apt install fuse3"),
            (FuseHelper::NotSetUid, false, "reinstall"),
            (FuseHelper::SetUid, true, "NoNewPrivs"),
        ] {
            let facts = Facts { fuse_helper: helper, no_new_privileges, ..user() };
            let found = findings(&facts);
            let text = format!("{} {}", found[0].what, found[0].next);
            assert!(found[0].subject == "fusermount3" && text.contains(words), "{found:#?}");
            // Root needs no helper.
            assert_eq!(findings(&Facts { fuse_helper: helper, no_new_privileges, ..best() }), []);
        }
    }

    #[test]
    fn requests_come_over_uring_where_it_is_open() {
        let uring = |switch, sysctl| Facts { fuse_uring: switch, io_uring_disabled: sysctl, ..best() };
        let out = [MountUring];
        assert_finding(&uring(None, Some(0)), Level::Advice, &["6.14 does"], &out);
        assert_finding(&uring(Some(false), Some(0)), Level::Advice, &["echo Y >"], &out);
        assert_finding(&uring(Some(true), Some(2)), Level::Advice, &["io_uring_disabled=2"], &out);
        assert_eq!(findings(&uring(Some(true), Some(1))), []);
        assert_eq!(findings(&uring(Some(true), None)), []);
        let found = findings(&Facts { io_uring_disabled: Some(1), ..user() });
        assert_eq!(obstacles(MountUring, &found), ["FUSE over io_uring"]);
    }

    #[test]
    fn directories() {
        let on = |filesystem: &str, has_handles, opened| Facts {
            directories: vec![ExportDirectory {
                path: "/srv".into(),
                opened,
                has_handles,
                filesystem: filesystem.to_owned(),
            }],
            ..best()
        };
        assert_eq!(findings(&on("ext4", true, Ok(()))), []);
        let missing = on("", false, Err(Errno::NOENT));
        assert_finding(&missing, Level::Problem, &["/srv: it can't be opened: No such file"], &[]);
        assert_finding(&on("proc", false, Ok(())), Level::Problem, &["(proc) has no file handles"], &[]);
        assert_finding(&on("nfs4", true, Ok(())), Level::Advice, &["another client's filesystem"], &[]);
        assert_finding(&on("overlay", true, Ok(())), Level::Advice, &["stacked", "volume"], &[]);
    }
}
