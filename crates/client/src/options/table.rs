//! The options of a session that users write, with the names, units, ranges and defaults of nfs(5).
//!
//! The ranges are those that the kernel's client accepts (fs/nfs/fs_context.c, `nfs_fs_context_parse_param`);
//! the defaults are those of include/uapi/linux/nfs_fs.h. `retry` is an option of mount.nfs(8) (nfs-utils,
//! utils/mount/stropts.c, `nfs_parse_retry_option`).

use std::time::Duration;

use super::descriptor::{Descriptor, Kind, Source};
use super::{Credential, LaneMode, Options, ReservedPort, Version};

const ALL: &[Source] = &[Source::Url, Source::CommandLine, Source::Mount];
const URL: &[Source] = &[Source::Url];
const URL_AND_MOUNT: &[Source] = &[Source::Url, Source::Mount];
const LOCAL: &[Source] = &[Source::CommandLine, Source::Mount];

/// The largest `timeo` and `retrans` that the kernel accepts, C's `INT_MAX`.
const INT_MAX: u32 = i32::MAX as u32;

/// The longest timeout in tenths of a second (fs/nfs/client.c, `nfs_init_timeout_values`:
/// NFS_MAX_TCP_TIMEOUT). nfs(5) of nfs-utils 2.8 gives the default as the maximum, which isn't what the
/// kernel does.
const MAX_TIMEO: u32 = 6000;

const NO_SESSIONS: &str = "NFSv4.0 has no sessions, and this client needs them. Use vers=4.1 or 4.2";
const NO_KERBEROS: &str = "there is no Kerberos here. Use sec=sys";

/// Every option of a session.
pub const SESSION: &[Descriptor<Options>] = &[
    Descriptor {
        name: "vers",
        aliases: &["nfsvers", "version"],
        sources: ALL,
        kind: Kind::Word {
            words: &[
                ("highest", |options| options.version = Version::Highest),
                ("3", |options| options.version = Version::V3),
                ("4", |options| options.version = Version::V4),
                ("4.1", |options| options.version = Version::V4_1),
                ("4.2", |options| options.version = Version::V4_2),
            ],
            refused: &[("2", "NFSv2 is gone. Use vers=3"), ("4.0", NO_SESSIONS)],
        },
        default: Some("highest"),
        help: "NFS version; highest is the highest of 4.2, 4.1 and 3 that the server has, 4 the higher one \
               of 4.2 and 4.1",
    },
    Descriptor {
        name: "port",
        aliases: &["nfsport"],
        sources: URL_AND_MOUNT,
        kind: Kind::Number {
            unit: "a port",
            min: 0,
            max: 65_535,
            set: |options, number| options.port = port(number),
        },
        default: None,
        help: "NFS port of the server; 0 or without it 2049 is tried, then rpcbind is asked",
    },
    Descriptor {
        name: "mountport",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Number {
            unit: "a port",
            min: 0,
            max: 65_535,
            set: |options, number| options.mount_port = port(number),
        },
        default: None,
        help: "MOUNT port of the server; 0 or without it the NFS port is tried, then rpcbind is asked",
    },
    Descriptor {
        name: "nconnect",
        aliases: &[],
        sources: ALL,
        kind: Kind::Number {
            unit: "connections",
            min: 1,
            max: 16,
            set: |options, number| options.nconnect = number,
        },
        default: Some("1"),
        help: "TCP connections to the server",
    },
    Descriptor {
        name: "rsize",
        aliases: &[],
        sources: ALL,
        kind: Kind::Number {
            unit: "bytes",
            min: 0,
            max: u32::MAX,
            set: |options, bytes| options.rsize = transfer_size(bytes),
        },
        default: None,
        help: "Size of a READ, rounded down to a multiple of 4096, or below that to a power of two; less \
               than 1024 means 4096, more than 1 MiB means 1 MiB; 0 or without it what the server prefers",
    },
    Descriptor {
        name: "wsize",
        aliases: &[],
        sources: ALL,
        kind: Kind::Number {
            unit: "bytes",
            min: 0,
            max: u32::MAX,
            set: |options, bytes| options.wsize = transfer_size(bytes),
        },
        default: None,
        help: "Size of a WRITE, rounded as rsize is; 0 or without it what the server prefers",
    },
    Descriptor {
        name: "hard",
        aliases: &[],
        sources: ALL,
        kind: Kind::Flag(|options| (options.hard, options.softerr) = (true, false)),
        default: Some("hard"),
        help: "Repeat a call until the server answers",
    },
    Descriptor {
        name: "soft",
        aliases: &[],
        sources: ALL,
        kind: Kind::Flag(|options| (options.hard, options.softerr) = (false, false)),
        default: None,
        help: "Give up on a call after `retrans` repetitions: it fails with EIO",
    },
    Descriptor {
        name: "softerr",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Flag(|options| (options.hard, options.softerr) = (false, true)),
        default: None,
        help: "As soft, but calls fail with ETIMEDOUT",
    },
    Descriptor {
        name: "timeo",
        aliases: &[],
        sources: ALL,
        kind: Kind::Number {
            unit: "tenths of a second",
            min: 1,
            max: INT_MAX,
            set: |options, tenths| {
                options.timeo = Duration::from_millis(u64::from(tenths.min(MAX_TIMEO)) * 100);
            },
        },
        default: Some("600"),
        help: "Time to wait for a reply before a call is repeated; more than 6000 means 6000",
    },
    Descriptor {
        name: "retrans",
        aliases: &[],
        sources: ALL,
        kind: Kind::Number {
            unit: "repetitions",
            min: 0,
            max: INT_MAX,
            set: |options, number| options.retrans = number,
        },
        default: Some("2"),
        help: "Repetitions of a call before soft gives up",
    },
    Descriptor {
        name: "retry",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Number {
            unit: "minutes",
            min: 0,
            max: u32::MAX,
            set: |options, minutes| options.retry = Some(Duration::from_secs(u64::from(minutes) * 60)),
        },
        default: None,
        help: "Time for which a server that can't be reached at first is tried again; 0: the first failure \
               is final; without it 2 for mounts, with bg 10000, and 0 for URLs",
    },
    Descriptor {
        name: "resvport",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Flag(|options| options.reserved_port = ReservedPort::Yes),
        default: None,
        help: "Connect from a port below 1024; without it, if the process may",
    },
    Descriptor {
        name: "noresvport",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Flag(|options| options.reserved_port = ReservedPort::No),
        default: None,
        help: "Connect from any port",
    },
    Descriptor {
        name: "sec",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Word {
            words: &[
                ("sys", |_| {}),
                ("none", |options| options.credential = Credential::None),
                ("null", |options| options.credential = Credential::None),
            ],
            refused: &[("krb5", NO_KERBEROS), ("krb5i", NO_KERBEROS), ("krb5p", NO_KERBEROS)],
        },
        default: Some("sys"),
        help: "Credential of the calls: AUTH_SYS or AUTH_NONE",
    },
    Descriptor {
        name: "uid",
        aliases: &[],
        sources: URL,
        kind: id("a user number", |options, id| {
            if let Credential::Sys { uid, groups, .. } = &mut options.credential {
                *uid = id;
                groups.clear();
            }
        }),
        default: None,
        help: "User of the calls, without supplementary groups",
    },
    Descriptor {
        name: "gid",
        aliases: &[],
        sources: URL,
        kind: id("a group number", |options, id| {
            if let Credential::Sys { gid, groups, .. } = &mut options.credential {
                *gid = id;
                groups.clear();
            }
        }),
        default: None,
        help: "Group of the calls, without supplementary groups",
    },
    Descriptor {
        name: "nfs4_unique_id",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Text {
            expected: "1 to 64 letters, digits, '.', '-' and '_'",
            placeholder: "ID",
            is_valid: is_unique_id,
            set: |options, text| options.unique_id = Some(text.to_owned()),
        },
        default: None,
        help: "Distinguishes this NFSv4 client from others with the same hostname and machine-id(5), and is \
               the same after a restart. No two clients at a time may have the same",
    },
    Descriptor {
        name: "delegations",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Flag(|options| options.delegations = Some(true)),
        default: None,
        help: "Ask an NFSv4 server for delegations of files that are read, or written again and again: \
               further opens need no request. The default of mounts",
    },
    Descriptor {
        name: "nodelegations",
        aliases: &[],
        sources: URL_AND_MOUNT,
        kind: Kind::Flag(|options| options.delegations = Some(false)),
        default: None,
        help: "Ask for no delegations: the default of whatever isn't a mount",
    },
    Descriptor {
        name: "lane",
        aliases: &[],
        sources: ALL,
        kind: Kind::Word {
            words: &[
                ("auto", |options| options.lane = LaneMode::Auto),
                ("off", |options| options.lane = LaneMode::Off),
                ("required", |options| options.lane = LaneMode::Required),
            ],
            refused: &[],
        },
        default: Some("auto"),
        help: "auto: use the lane if one comes up; off: don't use it; required: fail without one",
    },
    Descriptor {
        name: "localio_probe_throttle",
        aliases: &[],
        sources: ALL,
        kind: Kind::PowerOfTwo(|options, number| options.probe_throttle = number),
        default: Some("0"),
        help: "Probe for a lane again after this many READs and WRITEs over the wire; 0: don't",
    },
    Descriptor {
        name: "run_dir",
        aliases: &[],
        sources: &[Source::Mount],
        kind: Kind::Path(|options, path| options.run_dir = path),
        default: Some("/run/samehost"),
        help: "Directory with the servers' sockets",
    },
    Descriptor {
        name: "trust_uid",
        aliases: &[],
        sources: LOCAL,
        kind: id("a user number", |options, uid| {
            if !options.trusted_uids.contains(&uid) {
                options.trusted_uids.push(uid);
            }
        }),
        default: None,
        help: "Trust lanes of this user besides root's and your own with files, not with directories: the \
               user decides what your reads return. May be repeated",
    },
];

/// A number of a user or group.
const fn id(unit: &'static str, set: fn(&mut Options, u32)) -> Kind<Options> {
    Kind::Number { unit, min: 0, max: u32::MAX, set }
}

fn is_unique_id(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=64).contains(&text.len()) && text.bytes().all(is_fit)
}

/// `port` and `mountport`: 0 is the same as no option (nfs(5), "Options for NFS versions 2 and 3 only").
fn port(number: u32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

/// `rsize` and `wsize` as the kernel rounds them (fs/nfs/internal.h, `nfs_io_size`) where a page has 4 KiB; 0
/// is the same as no option (fs/nfs/client.c, `nfs_init_server`). The server's own limit is applied when the
/// session connects.
const fn transfer_size(bytes: u32) -> Option<u32> {
    match bytes {
        0 => None,
        1..1024 => Some(4096),
        1024..4096 => Some(1 << bytes.ilog2()),
        4096..0x10_0000 => Some(bytes & !4095),
        0x10_0000.. => Some(0x10_0000),
    }
}
