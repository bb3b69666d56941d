//! `mount` and `umount`.

use std::path::PathBuf;

use clap::Args;

use super::help::HelpPart;
use super::suggestions::Suggestions;

const ABOUT: &str = "\
Mounts a server's directory as a filesystem (FUSE) and returns when it is mounted,
or fails with the reason. A process in the background serves it until it is
unmounted, with `samehost umount` or umount(8); it logs to the system's log. Users
of the mount act as themselves, and the server decides what they may do.

When the server is on this host, files are opened over the lane and, where the
kernel can (Linux 6.9 or later, mounted with CAP_SYS_ADMIN outside of user
namespaces), passed through: reads and writes then reach the server's filesystem
without any process of Samehost. Otherwise the mount's process reads and writes the
files itself, and without a lane it uses the wire. `samehost status` shows which of
these is used, and why.

Options behind -o, separated by commas, have the names and units of nfs(5). Of
options that exclude each other the last one counts. An unknown one is an error.
";

const NOTES: &str = "\
Defaults for options are in /etc/samehost/mount.toml: for all mounts, for those of a
server, and for a mountpoint. Each wins over those before it, and -o over all of
them. name = false stands for noname.
  [defaults]
  timeo = 100
  soft = true
  [server.\"fileserver\"]
  ro = true
  [mountpoint.\"/mnt/data\"]
  lane = \"required\"

With `remount`, ro, suid, dev, exec and symfollow of the mounted filesystem change;
all other options stay as they are.

Without vers= the highest version that the server has is used. By NFSv4 locks
(flock, fcntl) are the server's, unless nolock or local_lock keeps them on this
host, as NFSv3 does in any case; with lock the mount is never by NFSv3. In sticky
directories that every user may write to the sysctls fs.protected_symlinks,
protected_regular and protected_fifos have no effect on a FUSE mount: use
nosymfollow.

Examples:
  samehost mount nfs://fileserver/srv /mnt
  samehost mount fileserver:/srv /mnt -o ro,soft,timeo=100
  mount -t samehost fileserver:/srv /mnt -o lane=required

Exit codes:
  0  mounted (with bg: or trying)
  1  it can't be mounted
  2  the command line couldn't be understood; nothing was tried
  3  no lane came up and lane=required was given
  4  the server couldn't be reached
As mount(8)'s helper (mount.samehost) it ends with mount(8)'s codes: 0, 1 usage or
permission, 2 system, 32 failure.";

/// The text behind the options of `samehost mount`.
pub fn long_help() -> Vec<HelpPart> {
    let implied = mount::options::implied().collect::<Vec<_>>().join(", ");
    let refused = mount::options::refused().collect::<Vec<_>>().join(", ");
    let others = format!(
        "Accepted, because the mount behaves that way in any case: {implied}, and x-...\n\nRefused, with the \
         reason: {refused}"
    );
    vec![
        HelpPart::Text(ABOUT.to_owned()),
        HelpPart::List { heading: "Mount options", entries: mount::options::entries().collect() },
        HelpPart::Text(others),
        HelpPart::Text(NOTES.to_owned()),
    ]
}

/// Options of `samehost mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// What to mount: `nfs://HOST[:PORT]/PATH` or `HOST:/PATH`
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// The directory to mount it on
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas; may be repeated
    #[arg(
        short,
        value_name = "OPTIONS",
        value_parser = Suggestions(|| mount::options::completions().collect()),
        hide_possible_values = true,
    )]
    pub options: Vec<String>,
    /// The file with defaults for mount options, instead of /etc/samehost/mount.toml
    #[arg(long, value_name = "FILE", env = "SAMEHOST_MOUNT_CONFIG")]
    pub config: Option<PathBuf>,
    /// Stay in the foreground and log to standard error, until unmounted, SIGTERM or SIGINT
    #[arg(short, long)]
    pub foreground: bool,
    /// The process in the background: it reports its start on standard output
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub report: bool,
}

pub const UMOUNT_LONG_HELP: &str =
    "Works while the server is down. umount(8) does the same for users with the permission.

Exit codes:
  0  unmounted
  1  it couldn't be unmounted
  2  the command line couldn't be understood; nothing was tried";

/// Options of `samehost umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mountpoint of a Samehost share
    #[arg(required = true, value_name = "MOUNTPOINT")]
    pub mountpoints: Vec<PathBuf>,
    /// Detach it from the tree at once, and end it when it is no longer in use
    #[arg(short, long)]
    pub lazy: bool,
    /// Abort calls that wait for the server first: they fail with ECONNABORTED or ENOTCONN
    #[arg(short, long)]
    pub force: bool,
}
