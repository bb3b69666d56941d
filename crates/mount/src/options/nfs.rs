//! nfs(5)'s options.

use std::time::Duration;

use client::{Credential, ReservedPort};

use super::split::Item;
use super::{Building, Known, OptionError};
use crate::settings::LookupCache;

/// `retry` in the foreground.
pub const RETRY_FG: Duration = Duration::from_secs(2 * 60);
/// `retry` in the background.
pub const RETRY_BG: Duration = Duration::from_secs(10_000 * 60);

/// The names.
pub const NAMES: &[&str] = &[
    "ac",
    "acdirmax",
    "acdirmin",
    "acl",
    "acregmax",
    "acregmin",
    "actimeo",
    "bg",
    "clientaddr",
    "cto",
    "fg",
    "fsc",
    "hard",
    "intr",
    "local_lock",
    "lock",
    "lookupcache",
    "max_connect",
    "migration",
    "minorversion",
    "mounthost",
    "mountport",
    "mountproto",
    "mountvers",
    "nconnect",
    "nfsvers",
    "noac",
    "noacl",
    "nocto",
    "nofsc",
    "nointr",
    "nolock",
    "nomigration",
    "nordirplus",
    "noresvport",
    "nosharecache",
    "nosoftreval",
    "port",
    "proto",
    "rdirplus",
    "rdma",
    "resvport",
    "retrans",
    "retry",
    "rsize",
    "sec",
    "sharecache",
    "sloppy",
    "soft",
    "softerr",
    "softreval",
    "tcp",
    "timeo",
    "trunkdiscovery",
    "udp",
    "vers",
    "write",
    "wsize",
    "xprtsec",
];

const NO_V4: &str = "this client speaks NFSv3; NFSv4 is planned. Use vers=3, or leave it out";
const V4_ONLY: &str = "it belongs to NFSv4, and this client speaks NFSv3. Leave it out";
const TCP_ONLY: &str = "this client speaks TCP. Use proto=tcp, or leave it out";
const SECONDS: &str = "a number of seconds, 0 to 86400";
const PORT: &str = "a port, 1 to 65535";
const BYTES: &str = "a number of bytes";

/// Takes an option if it is one of these.
pub fn take(to: &mut Building, item: &Item) -> Result<Known, OptionError> {
    let parsed = &mut to.parsed;
    let (mount, session) = (&mut parsed.mount, &mut parsed.session);
    let times = &mut mount.attributes;
    match item.name.as_str() {
        "vers" | "nfsvers" => version(item)?,
        "minorversion" | "clientaddr" | "migration" | "nomigration" | "trunkdiscovery" => {
            return Err(item.impossible(V4_ONLY));
        }
        "proto" => match item.value()? {
            "tcp" | "tcp6" => {}
            "udp" | "udp6" | "rdma" | "rdma6" => return Err(item.impossible(TCP_ONLY)),
            _ => return Err(item.wrong("it must be tcp")),
        },
        "tcp" => item.bare()?,
        "udp" | "rdma" => return Err(item.impossible(TCP_ONLY)),
        "port" => parsed.port = Some(item.number(1..=u16::MAX, PORT)?),
        "mountport" => session.mount_port = Some(item.number(1..=u16::MAX, PORT)?),
        "mountproto" => match item.value()? {
            "tcp" | "tcp6" => {}
            _ => return Err(item.impossible(TCP_ONLY)),
        },
        "mountvers" => match item.value()? {
            "3" => {}
            _ => return Err(item.impossible("this client speaks MOUNT version 3. Leave it out")),
        },
        "mounthost" => {
            return Err(item.impossible("MOUNT must be answered by the server's own host. Leave it out"));
        }
        "rsize" => session.rsize = Some(transfer(item)?),
        "wsize" => session.wsize = Some(transfer(item)?),
        "nconnect" => session.nconnect = item.number(1..=16, "a number of connections, 1 to 16")?,
        "max_connect" => return Err(item.impossible(V4_ONLY)),
        "hard" => bare(item, || session.hard = true)?,
        "soft" | "softerr" => bare(item, || {
            session.hard = false;
            mount.softerr = item.name == "softerr";
        })?,
        "softreval" => {
            return Err(item.impossible(
                "attributes and names aren't served from memory while the server is down. Leave it out",
            ));
        }
        "nosoftreval" | "cto" | "intr" | "nointr" | "nofsc" | "nosharecache" | "sloppy" => item.bare()?,
        "timeo" => {
            let tenths: u32 =
                item.number(1..=36_000, "tenths of a second, 1 to 36000 (timeo=600 is a minute)")?;
            session.timeo = Duration::from_millis(u64::from(tenths) * 100);
        }
        "retrans" => session.retrans = item.number(0..=1000, "a number of repetitions, 0 to 1000")?,
        "retry" => {
            let minutes: u32 = item.number(0..=1_000_000, "a number of minutes, 0 to 1000000")?;
            to.retry = Some(Duration::from_secs(u64::from(minutes) * 60));
        }
        "bg" => bare(item, || parsed.background = true)?,
        "fg" => bare(item, || parsed.background = false)?,
        "acregmin" => times.file_min = seconds(item)?,
        "acregmax" => times.file_max = seconds(item)?,
        "acdirmin" => times.directory_min = seconds(item)?,
        "acdirmax" => times.directory_max = seconds(item)?,
        "actimeo" => {
            let all = seconds(item)?;
            (times.file_min, times.file_max) = (all, all);
            (times.directory_min, times.directory_max) = (all, all);
        }
        "ac" => bare(item, || times.on = true)?,
        // nfs(5): noac is actimeo=0 and sync.
        "noac" => bare(item, || {
            times.on = false;
            mount.sync = true;
        })?,
        "lookupcache" => {
            mount.lookup_cache = match item.value()? {
                "all" => LookupCache::All,
                "pos" | "positive" => LookupCache::Positive,
                "none" => LookupCache::None,
                _ => return Err(item.wrong("it must be all, positive (pos) or none")),
            }
        }
        "nocto" => {
            return Err(
                item.impossible("what was closed elsewhere is always seen by the next open. Leave it out")
            );
        }
        "sec" => match item.value()? {
            "sys" => {}
            "none" => session.credential = Credential::None,
            "krb5" | "krb5i" | "krb5p" => {
                return Err(item.impossible("there is no Kerberos here. Use sec=sys"));
            }
            _ => return Err(item.wrong("it must be sys or none")),
        },
        "xprtsec" => match item.value()? {
            "none" => {}
            "tls" | "mtls" => return Err(item.impossible("there is no TLS here. Use xprtsec=none")),
            _ => return Err(item.wrong("it must be none")),
        },
        "resvport" => bare(item, || session.reserved_port = ReservedPort::Yes)?,
        "noresvport" => bare(item, || session.reserved_port = ReservedPort::No)?,
        "nolock" => item.bare()?,
        "lock" => {
            return Err(item.impossible(
                "over NFSv3 locks are kept on this host and don't reach the server. Use nolock, or leave it \
                 out",
            ));
        }
        "local_lock" => match item.value()? {
            "all" => {}
            "none" | "flock" | "posix" => {
                return Err(item.impossible(
                    "over NFSv3 all locks are kept on this host. Use local_lock=all, or leave it out",
                ));
            }
            _ => return Err(item.wrong("it must be all")),
        },
        "sharecache" => {
            return Err(item.impossible("each mount is a process with a cache of its own. Use nosharecache"));
        }
        "rdirplus" => match item.value.as_deref() {
            None => {}
            Some(_) => {
                return Err(item.impossible("directories are always read with READDIRPLUS. Use rdirplus"));
            }
        },
        "nordirplus" => {
            return Err(item.impossible("directories are always read with READDIRPLUS. Leave it out"));
        }
        "acl" | "noacl" => bare(item, || mount.acl = item.name == "acl")?,
        "fsc" => return Err(item.impossible("there is no cache on disk here. Use nofsc")),
        "write" => match item.value()? {
            "wait" => {}
            "lazy" | "eager" => {
                return Err(item.impossible("a write is with the server when it returns. Use write=wait"));
            }
            _ => return Err(item.wrong("it must be wait")),
        },
        _ => return Ok(Known::No),
    }
    Ok(Known::Yes)
}

fn bare(item: &Item, set: impl FnOnce()) -> Result<(), OptionError> {
    item.bare()?;
    set();
    Ok(())
}

fn version(item: &Item) -> Result<(), OptionError> {
    match item.value()? {
        "3" => Ok(()),
        "4" | "4.0" | "4.1" | "4.2" => Err(item.impossible(NO_V4)),
        "2" => Err(item.impossible("NFSv2 is gone. Use vers=3")),
        _ => Err(item.wrong("it must be 3")),
    }
}

fn seconds(item: &Item) -> Result<Duration, OptionError> {
    item.number(0..=86_400, SECONDS).map(Duration::from_secs)
}

/// `rsize` and `wsize` as nfs(5) has them: below 1024 it is 4096, above it is rounded down to a multiple of 1024.
/// What the server can is asked later.
fn transfer(item: &Item) -> Result<u32, OptionError> {
    let bytes: u32 = item.number(1..=u32::MAX, BYTES)?;
    Ok(if bytes < 1024 { 4096 } else { bytes & !1023 })
}
