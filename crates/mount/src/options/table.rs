//! Mount options that aren't options of the session: nfs(5)'s for caches and locks, those of every
//! filesystem, FUSE's, and Samehost's own.
//!
//! An option without help text is accepted because the mount behaves that way in any case. nfs(5)'s options
//! take the values that the kernel's client accepts (fs/nfs/fs_context.c); the defaults of the times are
//! those of include/uapi/linux/nfs_fs.h.

use std::time::Duration;

use client::Version;
use client::options::{Descriptor, Kind, Source, Words};

use control::exposition::MetricsAddress;

use super::Parsed;
use crate::settings::{Direct, LocalLocks, LookupCache, UringMode};

type Entry = Descriptor<Parsed>;
type Refusals = &'static [(&'static str, &'static str)];

const NO_V4_OPTION: &str = "this client has nothing that it changes. Leave it out";
const NO_SESSIONS: &str = "NFSv4.0 has no sessions, and this client needs them. Use v4.1 or v4.2";
const TCP_ONLY: &str = "this client speaks TCP. Use proto=tcp, or leave it out";
const READDIRPLUS: &str = "directories are always read with READDIRPLUS. Leave it out";
const WRITE_THROUGH: &str = "a write has reached the server when it returns. Use write=wait";
const NO_TLS: &str = "there is no TLS here. Use xprtsec=none";
const NOT_IN_FUSE: &str = "FUSE mounts don't have it. Leave it out";
const NOT_REMOTE: &str = "it isn't about a filesystem on a server. Use mount(8) without -t";

/// TCP by its nfs(5) names, and the transports that aren't supported.
const TCP: Kind<Parsed> = Kind::Word {
    words: &[("tcp", |_| {}), ("tcp6", |_| {})],
    refused: &[("udp", TCP_ONLY), ("udp6", TCP_ONLY), ("rdma", TCP_ONLY), ("rdma6", TCP_ONLY)],
};

/// Every option of a mount beside those of [`client::options::SESSION`].
pub const MOUNT: &[Entry] = &[
    effective("bg", "Return when the first attempt fails, and go on trying in the background", |to| {
        to.background = true;
    }),
    default("fg", "Fail when the server isn't reached within `retry`", |to| to.background = false),
    seconds("acregmin", "3", "Shortest time for which attributes of a file are cached", |to, time| {
        to.mount.attributes.file_min = duration(time);
    }),
    seconds("acregmax", "60", "Longest time for which attributes of a file are cached", |to, time| {
        to.mount.attributes.file_max = duration(time);
    }),
    seconds("acdirmin", "30", "Shortest time for which attributes of a directory are cached", |to, time| {
        to.mount.attributes.directory_min = duration(time);
    }),
    seconds("acdirmax", "60", "Longest time for which attributes of a directory are cached", |to, time| {
        to.mount.attributes.directory_max = duration(time);
    }),
    Descriptor {
        default: None,
        ..seconds("actimeo", "", "Sets acregmin, acregmax, acdirmin and acdirmax to this time", |to, time| {
            let times = &mut to.mount.attributes;
            (times.file_min, times.file_max) = (duration(time), duration(time));
            (times.directory_min, times.directory_max) = (duration(time), duration(time));
        })
    },
    default("ac", "Attributes are cached", |to| to.mount.attributes.on = true),
    effective("noac", "Attributes aren't cached, and writes are synchronous (sync)", |to| {
        to.mount.attributes.on = false;
        to.mount.sync = true;
    }),
    word(
        "lookupcache",
        "all",
        "Which names are cached: all, those of existing files (pos), or none",
        &[
            ("all", |to| to.mount.lookup_cache = LookupCache::All),
            ("positive", |to| to.mount.lookup_cache = LookupCache::Positive),
            ("pos", |to| to.mount.lookup_cache = LookupCache::Positive),
            ("none", |to| to.mount.lookup_cache = LookupCache::None),
        ],
        &[],
    ),
    default(
        "acl",
        "Ask the server for access control lists, and show and change them (getfacl, setfacl)",
        |to| to.mount.acl = true,
    ),
    effective(
        "noacl",
        "No access control lists: the server checks each step of a path (ACCESS), and setfacl fails",
        |to| {
            to.mount.acl = false;
        },
    ),
    effective("ro", "The mount is read-only", |to| to.mount.read_only = true),
    default("rw", "The mount can be written to", |to| to.mount.read_only = false),
    effective("sync", "A write is on stable storage when it returns", |to| to.mount.sync = true),
    default("async", "A write is on stable storage after fsync or close", |to| to.mount.sync = false),
    effective("suid", "Set-id bits of programs have an effect (default for mounts of root)", |to| {
        to.mount.suid = true
    }),
    effective("nosuid", "Set-id bits of programs have no effect (default for mounts of other users)", |to| {
        to.mount.suid = false
    }),
    effective("dev", "Device files work, for every user, whatever their modes", |to| to.mount.dev = true),
    // mount(8) takes `dev` for the default of every filesystem and doesn't hand it to its helper.
    effective("devices", "The same as dev, for mount(8) and fstab(5)", |to| to.mount.dev = true),
    default("nodev", "Device files don't work", |to| to.mount.dev = false),
    default("exec", "Programs can be executed", |to| to.mount.exec = true),
    effective("noexec", "Programs can't be executed", |to| to.mount.exec = false),
    default("symfollow", "Symbolic links are followed", |to| to.mount.symfollow = true),
    effective("nosymfollow", "Symbolic links aren't followed (Linux 5.10)", |to| to.mount.symfollow = false),
    default("atime", "Access times are requested from the server after a read", |to| {
        to.mount.noatime = false
    }),
    effective(
        "noatime",
        "Access times aren't requested after a read; the server decides whether a read changes them",
        |to| {
            to.mount.noatime = true;
        },
    ),
    effective("allow_other", "All users may use the mount (default for mounts of root)", |to| {
        to.mount.allow_other = true;
    }),
    effective(
        "noallow_other",
        "Only the user who mounts may use the mount (default for mounts of other users)",
        |to| {
            to.mount.allow_other = false;
        },
    ),
    default("passthrough", "The kernel passes I/O on granted files through, if it supports that", |to| {
        to.mount.passthrough = true;
    }),
    effective("nopassthrough", "The mount's process reads and writes granted files", |to| {
        to.mount.passthrough = false;
    }),
    word(
        "odirect",
        "end-to-end",
        "Whether O_DIRECT bypasses the server's page cache, too, or only this mount's (server)",
        &[
            ("end-to-end", |to| to.mount.direct = Direct::EndToEnd),
            ("server", |to| to.mount.direct = Direct::Server),
        ],
        &[],
    ),
    word(
        "uring",
        "auto",
        "Whether the kernel's requests come over io_uring: if the kernel has that switched on (auto), by \
         /dev/fuse (off), or not without it (required)",
        &[
            ("auto", |to| to.mount.uring = UringMode::Auto),
            ("off", |to| to.mount.uring = UringMode::Off),
            ("required", |to| to.mount.uring = UringMode::Required),
        ],
        &[],
    ),
    word(
        "mountgrant",
        "auto",
        "Whether the export's own mount is attached where the server grants it to root (auto, off)",
        &[("auto", |to| to.mount.mount_grant = true), ("off", |to| to.mount.mount_grant = false)],
        &[],
    ),
    entry(
        "metrics",
        "Serve metrics for Prometheus by HTTP, with the path /metrics, or on a Unix socket",
        Kind::Text {
            expected: "an address and a port, or the absolute path of a Unix socket",
            placeholder: "ADDR:PORT|PATH",
            is_valid: |text| text.parse::<MetricsAddress>().is_ok(),
            set: |to, text| to.metrics = text.parse().ok(),
        },
    ),
    // fstab(5): these let users mount, who mustn't bring root's programs and devices along.
    any("user", "All users may mount it; implies nosuid, nodev and noexec", |to| {
        (to.mount.suid, to.mount.dev, to.mount.exec) = (false, false, false);
    }),
    any("users", "As user, and all users may unmount it", |to| {
        (to.mount.suid, to.mount.dev, to.mount.exec) = (false, false, false);
    }),
    any("owner", "The owner of the device may mount it; implies nosuid and nodev", |to| {
        (to.mount.suid, to.mount.dev) = (false, false);
    }),
    any("group", "The group of the device may mount it; implies nosuid and nodev", |to| {
        (to.mount.suid, to.mount.dev) = (false, false);
    }),
    effective("sloppy", "Skip options that are wrong, and report them", |_| {}),
    refused("remount", "nothing is being changed that is mounted already. Leave it out"),
    implied("tcp"),
    Descriptor { kind: TCP, ..implied("proto") },
    Descriptor { kind: TCP, ..implied("mountproto") },
    word("mountvers", "3", "", &[("3", |_| {})], &[]),
    refused("udp", TCP_ONLY),
    refused("rdma", TCP_ONLY),
    effective("v3", "As vers=3", |to| to.session.version = Version::V3),
    effective("v4", "As vers=4", |to| to.session.version = Version::V4),
    effective("v4.1", "As vers=4.1", |to| to.session.version = Version::V4_1),
    effective("v4.2", "As vers=4.2", |to| to.session.version = Version::V4_2),
    refused("v4.0", NO_SESSIONS),
    refused("minorversion", "the minor version is a part of vers. Use vers=4.1 or vers=4.2"),
    refused("clientaddr", "the server calls back on the client's own connections. Leave it out"),
    refused("migration", NO_V4_OPTION),
    refused("nomigration", NO_V4_OPTION),
    refused("trunkdiscovery", NO_V4_OPTION),
    refused("max_connect", NO_V4_OPTION),
    refused("mounthost", "MOUNT must be answered by the server's own host. Leave it out"),
    refused(
        "softreval",
        "attributes and names aren't served from memory while the server is down. Leave it out",
    ),
    implied("nosoftreval"),
    implied("cto"),
    refused("nocto", "an open always sees what was closed on another host before it. Leave it out"),
    implied("intr"),
    implied("nointr"),
    implied("nofsc"),
    refused("fsc", "there is no cache on disk here. Use nofsc"),
    implied("noalignwrite"),
    refused("alignwrite", "a write isn't extended to whole pages. Leave it out"),
    refused("namlen", "the server says how long names may be. Leave it out"),
    implied("nosharecache"),
    refused("sharecache", "each mount is a process with a cache of its own. Use nosharecache"),
    effective("nolock", "Keep all locks on this host, as always with vers=3", |to| {
        to.keep_locks(LocalLocks { posix: true, flock: true }, None);
    }),
    default("lock", "Locks are the server's (vers=4.1 and 4.2)", |to| {
        to.keep_locks(LocalLocks::default(), Some("lock"));
    }),
    word(
        "local_lock",
        "none",
        "Which locks are kept on this host",
        &[
            ("all", |to| to.keep_locks(LocalLocks { posix: true, flock: true }, None)),
            ("none", |to| to.keep_locks(LocalLocks::default(), Some("local_lock=none"))),
            ("flock", |to| {
                to.keep_locks(LocalLocks { posix: false, flock: true }, Some("local_lock=flock"));
            }),
            ("posix", |to| {
                to.keep_locks(LocalLocks { posix: true, flock: false }, Some("local_lock=posix"));
            }),
        ],
        &[],
    ),
    implied("rdirplus"),
    refused("nordirplus", READDIRPLUS),
    word("write", "wait", "", &[("wait", |_| {})], &[("lazy", WRITE_THROUGH), ("eager", WRITE_THROUGH)]),
    word("xprtsec", "none", "", &[("none", |_| {})], &[("tls", NO_TLS), ("mtls", NO_TLS)]),
    implied("defaults"),
    implied("auto"),
    implied("noauto"),
    implied("nofail"),
    implied("_netdev"),
    implied("nouser"),
    implied("nousers"),
    implied("nogroup"),
    implied("noowner"),
    implied("silent"),
    implied("loud"),
    implied("nomand"),
    implied("noiversion"),
    any("comment", "", |_| {}),
    // The server keeps access times, and makes changes of directories durable where the export is sync.
    implied("relatime"),
    implied("norelatime"),
    implied("strictatime"),
    implied("nostrictatime"),
    implied("lazytime"),
    implied("nolazytime"),
    implied("diratime"),
    implied("nodiratime"),
    implied("dirsync"),
    refused("bind", NOT_REMOTE),
    refused("rbind", NOT_REMOTE),
    refused("move", NOT_REMOTE),
    refused("mand", "Linux has no mandatory locks any more. Leave it out"),
    refused("iversion", NOT_IN_FUSE),
    refused("context", NOT_IN_FUSE),
    refused("allow_root", "it would keep other users out, but not root. Use allow_other"),
    refused("default_permissions", "the server decides who may do what. Leave it out"),
];

const fn entry(name: &'static str, help: &'static str, kind: Kind<Parsed>) -> Entry {
    Descriptor { name, aliases: &[], sources: &[Source::Mount], kind, default: None, help }
}

/// A flag that changes something.
const fn effective(name: &'static str, help: &'static str, set: fn(&mut Parsed)) -> Entry {
    entry(name, help, Kind::Flag(set))
}

/// A flag that restores a default.
const fn default(name: &'static str, help: &'static str, set: fn(&mut Parsed)) -> Entry {
    Descriptor { default: Some(name), ..effective(name, help, set) }
}

/// A flag for what the mount does in any case.
const fn implied(name: &'static str) -> Entry {
    entry(name, "", Kind::Flag(|_| {}))
}

/// An option whose value, if it has one, means nothing here.
const fn any(name: &'static str, help: &'static str, set: fn(&mut Parsed)) -> Entry {
    entry(name, help, Kind::Any(set))
}

const fn refused(name: &'static str, reason: &'static str) -> Entry {
    entry(name, "", Kind::Refused(reason))
}

const fn word(
    name: &'static str,
    default: &'static str,
    help: &'static str,
    words: Words<Parsed>,
    refused: Refusals,
) -> Entry {
    Descriptor { default: Some(default), ..entry(name, help, Kind::Word { words, refused }) }
}

/// A time in seconds. The kernel has no upper limit but that of the number's type.
const fn seconds(
    name: &'static str,
    default: &'static str,
    help: &'static str,
    set: fn(&mut Parsed, u32),
) -> Entry {
    let kind = Kind::Number { unit: "seconds", min: 0, max: u32::MAX, set };
    Descriptor { default: Some(default), ..entry(name, help, kind) }
}

const fn duration(seconds: u32) -> Duration {
    Duration::from_secs(seconds as u64)
}
