//! The options of exports(5): what each means to the Linux kernel's server (knfsd) and to this one. Manual
//! pages are made of it.

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOption {
    /// Its name.
    pub name: &'static str,
    /// What stands behind `=`; empty if it has no value.
    pub value: &'static str,
    /// Its meaning to knfsd; empty for options of this server only.
    pub knfsd: &'static str,
    /// Its meaning here.
    pub ours: &'static str,
}

const SAME: &str = "The same";
const NO_EFFECT: &str = "No effect; said at start";
const LOCKS: &str = "No effect; said at start. There is no lock manager for NFSv3";

const MOUNT_POINT: &str =
    "The same, for all clients of the export. Mounts are followed while the server runs";

const fn flag(name: &'static str, knfsd: &'static str, ours: &'static str) -> ExportOption {
    ExportOption { name, value: "", knfsd, ours }
}

const fn valued(
    name: &'static str,
    value: &'static str,
    knfsd: &'static str,
    ours: &'static str,
) -> ExportOption {
    ExportOption { name, value, knfsd, ours }
}

/// All options, related ones together.
pub const OPTIONS: &[ExportOption] = &[
    flag("ro", "Refuses changes; the default", SAME),
    flag("rw", "Allows changes", SAME),
    flag("sync", "Changes are on stable storage before the reply; the default", SAME),
    flag("async", "Replies before changes are on stable storage", SAME),
    flag("secure", "Requests come from ports below 1024; the default", SAME),
    flag("insecure", "Requests may come from any port", SAME),
    flag("root_squash", "User and group 0 are mapped to the anonymous ones; the default", SAME),
    flag("no_root_squash", "User 0 stays user 0", SAME),
    flag("all_squash", "All users are mapped to the anonymous one", SAME),
    flag("no_all_squash", "Undoes all_squash; the default", SAME),
    valued("anonuid", "ID", "The anonymous user; 65534 by default", SAME),
    valued("anongid", "ID", "The anonymous group; 65534 by default", SAME),
    valued(
        "sec",
        "FLAVOR[:FLAVOR]...",
        "The security flavors that are admitted. Several sec= may have different options",
        "sys must be among them. The options that apply to sys apply. Other flavors have no effect, which is \
         said at start. A client entry without sys is an error",
    ),
    valued(
        "xprtsec",
        "none|tls|mtls[:...]",
        "The transports that are admitted",
        "none must be among them. Others have no effect, which is said at start. An entry without none is an \
         error",
    ),
    valued(
        "fsid",
        "NUMBER|root|UUID",
        "The filesystem's identity in handles. 0 or root is the root of NFSv4's namespace",
        "The export's identity in handles, instead of its path. 0 or root is the root of NFSv4's namespace, \
         and other exports are seen only if they lie in it. Filesystems have their own fsid in attributes",
    ),
    flag("subtree_check", "Each request checks that the file is below the exported directory", SAME),
    flag("no_subtree_check", "Without that check; the default", SAME),
    flag(
        "crossmnt",
        "Clients see filesystems that are mounted below, with the same options except fsid=",
        "The same. Filesystems of the kernel, of other processes (FUSE) and of other hosts are not crossed. \
         NFSv3 and NFSv4 clients see the filesystems come and go",
    ),
    flag("nocrossmnt", "Undoes crossmnt; the default", SAME),
    flag(
        "nohide",
        "NFSv3 clients see this export in the one around it. Single hosts only",
        "The same, for any client",
    ),
    flag("hide", "Undoes nohide; the default", SAME),
    flag("mountpoint", "Exported only if a filesystem is mounted at the directory", MOUNT_POINT),
    valued("mountpoint", "PATH", "Exported only if a filesystem is mounted at PATH", MOUNT_POINT),
    flag("mp", "Another name of mountpoint", MOUNT_POINT),
    valued("mp", "PATH", "Another name of mountpoint=PATH", MOUNT_POINT),
    valued(
        "refer",
        "PATH@HOST[+HOST]...[:PATH@HOST...]",
        "NFSv4 clients are sent to these servers",
        "The same. The directory needn't be a mount point. NFSv3 clients see the directory",
    ),
    valued(
        "replicas",
        "PATH@HOST[+HOST]...[:PATH@HOST...]",
        "NFSv4 clients may use these servers, too",
        "The same",
    ),
    flag("nordirplus", "READDIRPLUS isn't supported, so NFSv3 clients use READDIR", SAME),
    flag("acl", "No effect in current kernels: access control lists are served", SAME),
    flag("no_acl", "No effect in current kernels, either", NO_EFFECT),
    flag("wdelay", "Waits for further writes before one is committed; the default", NO_EFFECT),
    flag("no_wdelay", "Doesn't wait", NO_EFFECT),
    flag("auth_nlm", "NLM's locks need access to the file; the default", LOCKS),
    flag("no_auth_nlm", "They don't", LOCKS),
    flag("secure_locks", "Another name of auth_nlm", LOCKS),
    flag("insecure_locks", "Another name of no_auth_nlm", LOCKS),
    flag("pnfs", "pNFS layouts, where the filesystem supports them", NO_EFFECT),
    flag("no_pnfs", "Undoes pnfs; the default", SAME),
    flag("security_label", "Clients of NFSv4.2 see and set security labels", NO_EFFECT),
    valued("reexport", "auto-fsidnum|predefined-fsidnum", "How exported NFS mounts get an fsid", NO_EFFECT),
    flag("lane", "", "Local clients may get open files; the default"),
    flag("no_lane", "", "Local clients get nothing but NFS"),
    flag("tree", "", "Local clients may get the directory itself; the default"),
    flag("no_tree", "", "Local clients get open files only"),
    flag("mount_grant", "", "Root of the server's host may get the directory as a mount"),
    flag("no_mount_grant", "", "It gets none; the default"),
    valued(
        "local_peers",
        "verify|trust",
        "",
        "Whether processes of the server's host must be the user that they claim. verify is the default",
    ),
    flag(
        "all_act_as_server_user",
        "",
        "A server that can't act as other users serves all of them as its own user",
    ),
    valued("read_io", "buffered|dontcache|direct", "", "How files are read"),
    valued("write_io", "buffered|dontcache|direct", "", "How files are written"),
];
