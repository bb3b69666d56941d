//! Options of every filesystem: mount(8)'s, fstab(5)'s and systemd's.

use super::split::Item;
use super::{Building, Known, OptionError};

/// The names.
pub const NAMES: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "bind",
    "comment",
    "context",
    "defaults",
    "dev",
    "devices",
    "diratime",
    "dirsync",
    "exec",
    "group",
    "iversion",
    "lazytime",
    "loud",
    "mand",
    "move",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "noexec",
    "nofail",
    "nogroup",
    "noiversion",
    "nolazytime",
    "nomand",
    "noowner",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nosymfollow",
    "nouser",
    "nousers",
    "owner",
    "rbind",
    "relatime",
    "remount",
    "ro",
    "rw",
    "silent",
    "strictatime",
    "suid",
    "symfollow",
    "sync",
    "user",
    "users",
];

/// Takes an option if it is one of these.
pub fn take(to: &mut Building, item: &Item) -> Result<Known, OptionError> {
    let mount = &mut to.parsed.mount;
    match item.name.as_str() {
        // For programs, not for filesystems.
        name if name.starts_with("x-") || name.starts_with("X-") => {}
        "comment" => {}
        "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "nouser" | "nousers" | "nogroup"
        | "noowner" | "silent" | "loud" | "nomand" | "noiversion" => item.bare()?,
        // fstab(5): whoever lets others mount doesn't let them bring programs of root and devices along.
        "user" | "users" => {
            (mount.suid, mount.dev, mount.exec) = (false, false, false);
        }
        "owner" | "group" => (mount.suid, mount.dev) = (false, false),
        "ro" | "rw" => {
            item.bare()?;
            mount.read_only = item.name == "ro";
        }
        "sync" | "async" => {
            item.bare()?;
            mount.sync = item.name == "sync";
        }
        "suid" | "nosuid" => {
            item.bare()?;
            mount.suid = item.name == "suid";
        }
        // mount(8) takes `dev` for the default of every filesystem and doesn't hand it to its helper.
        "dev" | "devices" | "nodev" => {
            item.bare()?;
            mount.dev = item.name != "nodev";
        }
        "exec" | "noexec" => {
            item.bare()?;
            mount.exec = item.name == "exec";
        }
        "atime" | "noatime" => {
            item.bare()?;
            mount.noatime = item.name == "noatime";
        }
        // The server keeps the times of access and decides; changes to directories are durable before they
        // are answered wherever the export is sync.
        "relatime" | "norelatime" | "strictatime" | "nostrictatime" | "lazytime" | "nolazytime"
        | "diratime" | "nodiratime" | "dirsync" => item.bare()?,
        "remount" => {
            return Err(item.impossible("nothing is being changed that is mounted already. Leave it out"));
        }
        "bind" | "rbind" | "move" => {
            return Err(item.impossible("it isn't about a filesystem on a server. Use mount(8) without -t"));
        }
        "mand" => return Err(item.impossible("Linux has no mandatory locks any more. Leave it out")),
        "symfollow" | "nosymfollow" => {
            item.bare()?;
            mount.symfollow = item.name == "symfollow";
        }
        "iversion" | "context" => {
            return Err(item.impossible("FUSE mounts don't have it. Leave it out"));
        }
        _ => return Ok(Known::No),
    }
    Ok(Known::Yes)
}
