//! The options of a client entry, as in exports(5), with their defaults.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use crate::lexer::Quoted;
use crate::locations::FsLocations;
use crate::{IneffectiveOptions, IoMode, reference, security};

/// The default anonymous user and group (exports(5)).
pub const NOBODY: u32 = 65534;

/// Which users are mapped to the anonymous user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Squash {
    /// None (`no_root_squash`).
    None,
    /// Id 0 (`root_squash`, the default).
    Root,
    /// All (`all_squash`).
    All,
}

/// Whether to believe the user ids that processes of the server's own host claim over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LocalPeers {
    /// The claimed user id must be that of the process, as reported by the kernel, else the process is mapped
    /// to the anonymous user. The groups come from the user database (`local_peers=verify`, the default).
    /// Root's processes may claim any user, as a client host's kernel does.
    #[default]
    Verify,
    /// Believe the claim, as from any other host (`local_peers=trust`).
    Trust,
}

/// Identifies an export in file handles, instead of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fsid {
    /// `fsid=N`; `fsid=root` is 0.
    Number(u32),
    /// `fsid=` and a UUID.
    Uuid([u8; 16]),
}

/// What must be a mount point for an export to be served.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MountPoint {
    /// The exported directory (`mountpoint` or `mp`).
    Export,
    /// Another directory (`mountpoint=PATH`).
    Path(PathBuf),
}

/// How clients may use an export.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExportOptions {
    /// `ro` (default) or `rw`.
    pub read_only: bool,
    /// `root_squash` (default), `no_root_squash` or `all_squash`.
    pub squash: Squash,
    /// `anonuid=`.
    pub anon_uid: u32,
    /// `anongid=`.
    pub anon_gid: u32,
    /// `secure` (default): only source ports below 1024. Or `insecure`.
    pub secure: bool,
    /// `sync` (default): changes are on stable storage before the reply. Or `async`.
    pub sync: bool,
    /// `fsid=`.
    pub fsid: Option<Fsid>,
    /// `subtree_check`; default `no_subtree_check`.
    pub subtree_check: bool,
    /// `local_peers=verify|trust` (specific to this server).
    pub local_peers: LocalPeers,
    /// `all_act_as_server_user` (specific to this server): a server that can't act as other users serves all
    /// of them as its own user, not only that user.
    pub all_act_as_server_user: bool,
    /// `lane` (default) or `no_lane` (specific to this server): whether files may be granted to local
    /// clients.
    pub lane: bool,
    /// `tree` (default) or `no_tree` (specific to this server): whether local clients may be granted the
    /// directory with everything below. Without `lane` there are no trees either.
    pub tree: bool,
    /// `mount_grant` or `no_mount_grant` (default; specific to this server): whether root of the server's
    /// host may be granted the directory as a mount. Not without `lane` and `tree`.
    pub mount_grant: bool,
    /// `crossmnt`: clients see the filesystems that are mounted below and have no lines of their own.
    pub crossmnt: bool,
    /// `nohide`: clients of NFSv3 see this export in the one around it, though it is another filesystem.
    /// Those of NFSv4 always do. Default `hide`.
    pub nohide: bool,
    /// `mountpoint=`, `mp=`: the export is served only while a mount is there.
    pub mountpoint: Option<MountPoint>,
    /// `refer=` or `replicas=`; of several the last one.
    pub locations: Option<FsLocations>,
    /// `nordirplus`: READDIRPLUS of NFSv3 isn't supported.
    pub nordirplus: bool,
    /// Options that were given and have no effect.
    pub ineffective: IneffectiveOptions,
    /// `read_io=buffered|dontcache|direct` (specific to this server); `None`: the server's setting.
    pub read_io: Option<IoMode>,
    /// `write_io=`, likewise.
    pub write_io: Option<IoMode>,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            read_only: true,
            squash: Squash::Root,
            anon_uid: NOBODY,
            anon_gid: NOBODY,
            secure: true,
            sync: true,
            fsid: None,
            subtree_check: false,
            local_peers: LocalPeers::Verify,
            all_act_as_server_user: false,
            lane: true,
            tree: true,
            mount_grant: false,
            crossmnt: false,
            nohide: false,
            mountpoint: None,
            locations: None,
            nordirplus: false,
            ineffective: IneffectiveOptions::default(),
            read_io: None,
            write_io: None,
        }
    }
}

impl ExportOptions {
    /// Applies one option; of two contradicting options the later wins, as in exportfs.
    ///
    /// # Errors
    /// A sentence with the option and a remedy.
    pub fn apply(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=') {
            None => self.flag(option),
            Some(("anonuid", value)) => id("anonuid", value).map(|id| self.anon_uid = id),
            Some(("anongid", value)) => id("anongid", value).map(|id| self.anon_gid = id),
            Some(("fsid", value)) => fsid(value).map(|fsid| self.fsid = Some(fsid)),
            Some(("sec", value)) => security::sec(value, self),
            Some(("xprtsec", value)) => security::xprtsec(value, self),
            Some(("mountpoint" | "mp", value)) => {
                mountpoint(value).map(|point| self.mountpoint = Some(point))
            }
            Some(("refer", value)) => {
                FsLocations::parse(true, value).map(|locations| self.locations = Some(locations))
            }
            Some(("replicas", value)) => {
                FsLocations::parse(false, value).map(|locations| self.locations = Some(locations))
            }
            Some(("local_peers", value)) => local_peers(value).map(|peers| self.local_peers = peers),
            Some(("read_io", value)) => io_mode("read_io", value).map(|mode| self.read_io = Some(mode)),
            Some(("write_io", value)) => io_mode("write_io", value).map(|mode| self.write_io = Some(mode)),
            Some(_) if self.ineffective.insert(option) => Ok(()),
            Some((name, _)) => Err(unsupported(name, option)),
        }
    }

    fn flag(&mut self, option: &str) -> Result<(), String> {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            // In exports(5) all_squash is independent of the other two and takes precedence; no_all_squash
            // restores the default.
            "root_squash" if self.squash != Squash::All => self.squash = Squash::Root,
            "no_root_squash" if self.squash != Squash::All => self.squash = Squash::None,
            "no_all_squash" if self.squash == Squash::All => self.squash = Squash::Root,
            "root_squash" | "no_root_squash" | "no_all_squash" => {}
            "all_squash" => self.squash = Squash::All,
            "secure" => self.secure = true,
            "insecure" => self.secure = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "subtree_check" => self.subtree_check = true,
            "no_subtree_check" => self.subtree_check = false,
            "crossmnt" => self.crossmnt = true,
            "nocrossmnt" => self.crossmnt = false,
            "nohide" => self.nohide = true,
            "hide" => self.nohide = false,
            "mountpoint" | "mp" => self.mountpoint = Some(MountPoint::Export),
            "nordirplus" => self.nordirplus = true,
            // The defaults, and all that there is.
            "acl" | "no_pnfs" => {}
            "all_act_as_server_user" => self.all_act_as_server_user = true,
            "lane" => self.lane = true,
            "no_lane" => self.lane = false,
            "tree" => self.tree = true,
            "no_tree" => self.tree = false,
            "mount_grant" => self.mount_grant = true,
            "no_mount_grant" => self.mount_grant = false,
            "" => return Err("an empty option: remove the comma".into()),
            _ if self.ineffective.insert(option) => {}
            _ => {
                let described = reference::OPTIONS.iter().find(|known| known.name == option);
                return Err(match described {
                    Some(_) => format!("option {option} needs a value: {option}=..."),
                    None => unsupported(option, option),
                });
            }
        }
        Ok(())
    }
}

fn id(name: &str, value: &str) -> Result<u32, String> {
    // Negative numbers stand for the upper end of the range, as C programs print them; the kernel takes -1
    // for "no id".
    let wrapped = value.parse::<i32>().ok().filter(|id| *id < 0).map(i32::cast_unsigned);
    match wrapped.or_else(|| value.parse().ok().filter(|_| !value.starts_with('+'))) {
        Some(u32::MAX) => Err(format!("{name}={value} is no id: the kernel reads it as \"none\"")),
        Some(id) => Ok(id),
        None => Err(format!("{name}={value}: not a number from 0 to 4294967294")),
    }
}

fn io_mode(name: &str, value: &str) -> Result<IoMode, String> {
    value.parse().map_err(|why| format!("{name}={value}: {why}"))
}

fn local_peers(value: &str) -> Result<LocalPeers, String> {
    match value {
        "verify" => Ok(LocalPeers::Verify),
        "trust" => Ok(LocalPeers::Trust),
        _ => Err(format!("local_peers={value}: write verify or trust")),
    }
}

fn fsid(value: &str) -> Result<Fsid, String> {
    if value == "root" {
        return Ok(Fsid::Number(0));
    }
    if value.bytes().all(|b| b.is_ascii_digit())
        && let Ok(number) = value.parse()
    {
        return Ok(Fsid::Number(number));
    }
    let digits: Vec<u8> = value.bytes().filter(|b| !b.is_ascii_punctuation()).collect();
    let mut uuid = [0; 16];
    if digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit) {
        for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
            let nibble = |digit: u8| char::from(digit).to_digit(16).map_or(0, |n| n as u8);
            *byte = nibble(pair[0]) << 4 | nibble(pair[1]);
        }
        return Ok(Fsid::Uuid(uuid));
    }
    Err(format!(
        "fsid={value}: neither root, nor a number up to 4294967295, nor a UUID of 32 hexadecimal digits"
    ))
}

fn mountpoint(value: &str) -> Result<MountPoint, String> {
    if value.starts_with('/') {
        Ok(MountPoint::Path(PathBuf::from(value)))
    } else {
        Err(format!("mountpoint={value}: write an absolute path, or mountpoint alone"))
    }
}

/// The message for an option that isn't accepted.
fn unsupported(name: &str, option: &str) -> String {
    if matches!(name, "squash_uids" | "squash_gids") {
        return format!(
            "option {option} is not supported: remove it, and squash all users (all_squash) or export to \
             fewer hosts"
        );
    }
    match nearest(name) {
        Some(known) => format!("option {option} is not known; did you mean {known}?"),
        None => format!("option {option} is not known: remove it; samehost-exports(5) has the options"),
    }
}

/// The option with the fewest changes to `name` (letters inserted, removed, replaced or swapped), if they are
/// few for its length.
fn nearest(name: &str) -> Option<&'static str> {
    let max_distance = (name.len() / 3).clamp(1, 3);
    let name = name.to_ascii_lowercase();
    let known = reference::OPTIONS.iter().map(|known| (strsim::osa_distance(&name, known.name), known.name));
    let (_, nearest) = known.filter(|(distance, _)| *distance <= max_distance).min()?;
    Some(nearest)
}

impl fmt::Display for Fsid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Uuid(bytes) => bytes.iter().enumerate().try_for_each(|(at, byte)| {
                let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                write!(f, "{dash}{byte:02x}")
            }),
        }
    }
}

impl fmt::Display for ExportOptions {
    /// In exports(5) syntax; parsing the result gives the same options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.read_only { "ro" } else { "rw" })?;
        f.write_str(match self.squash {
            Squash::None => ",no_root_squash",
            Squash::Root => ",root_squash",
            Squash::All => ",all_squash",
        })?;
        if self.anon_uid != NOBODY {
            write!(f, ",anonuid={}", self.anon_uid)?;
        }
        if self.anon_gid != NOBODY {
            write!(f, ",anongid={}", self.anon_gid)?;
        }
        f.write_str(if self.secure { ",secure" } else { ",insecure" })?;
        f.write_str(if self.sync { ",sync" } else { ",async" })?;
        if let Some(fsid) = &self.fsid {
            write!(f, ",fsid={fsid}")?;
        }
        f.write_str(if self.subtree_check { ",subtree_check" } else { ",no_subtree_check" })?;
        if self.local_peers == LocalPeers::Trust {
            f.write_str(",local_peers=trust")?;
        }
        if self.all_act_as_server_user {
            f.write_str(",all_act_as_server_user")?;
        }
        if !self.lane {
            f.write_str(",no_lane")?;
        }
        if !self.tree {
            f.write_str(",no_tree")?;
        }
        if self.mount_grant {
            f.write_str(",mount_grant")?;
        }
        if self.crossmnt {
            f.write_str(",crossmnt")?;
        }
        if self.nohide {
            f.write_str(",nohide")?;
        }
        match &self.mountpoint {
            None => {}
            Some(MountPoint::Export) => f.write_str(",mountpoint")?,
            Some(MountPoint::Path(path)) => {
                write!(f, ",mountpoint={}", Quoted(path.as_os_str().as_bytes()))?;
            }
        }
        if let Some(locations) = &self.locations {
            write!(f, ",{locations}")?;
        }
        if self.nordirplus {
            f.write_str(",nordirplus")?;
        }
        self.ineffective.iter().try_for_each(|option| write!(f, ",{}", option.name))?;
        if let Some(mode) = self.read_io {
            write!(f, ",read_io={mode}")?;
        }
        if let Some(mode) = self.write_io {
            write!(f, ",write_io={mode}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(list: &str) -> Result<ExportOptions, String> {
        let mut options = ExportOptions::default();
        list.split(',').try_for_each(|option| options.apply(option))?;
        Ok(options)
    }

    #[test]
    fn squash_options_in_any_order() {
        for (list, squash) in [
            ("all_squash,no_root_squash", Squash::All),
            ("no_root_squash,all_squash", Squash::All),
            ("all_squash,no_all_squash", Squash::Root),
            ("no_all_squash,no_root_squash", Squash::None),
            ("no_root_squash,root_squash", Squash::Root),
            ("no_root_squash,no_all_squash", Squash::None),
        ] {
            assert_eq!(apply(list).unwrap().squash, squash, "{list}");
        }
    }

    #[test]
    fn local_peers_and_all_act_as_server_user() {
        let plain = apply("rw").unwrap();
        assert_eq!((plain.local_peers, plain.all_act_as_server_user), (LocalPeers::Verify, false));
        let text = "rw,local_peers=trust,all_act_as_server_user";
        let open = apply(text).unwrap();
        assert_eq!((open.local_peers, open.all_act_as_server_user), (LocalPeers::Trust, true));
        assert_eq!(apply(&open.to_string()).unwrap(), open);
        assert_eq!(apply("local_peers=trust,local_peers=verify").unwrap().local_peers, LocalPeers::Verify);
    }

    #[test]
    fn every_option_of_the_reference_is_read_and_printed() {
        let values =
            [("anonuid", "5"), ("anongid", "6"), ("fsid", "7"), ("sec", "sys:krb5"), ("refer", "/a@h")]
                .into_iter()
                .chain([
                    ("replicas", "/a@h+i:/b@j"),
                    ("xprtsec", "none:tls"),
                    ("mp", "/x"),
                    ("mountpoint", "/x y"),
                ])
                .chain([("local_peers", "trust"), ("read_io", "direct"), ("write_io", "dontcache")])
                .chain([("reexport", "auto-fsidnum")]);
        let values: std::collections::HashMap<_, _> = values.collect();
        for known in reference::OPTIONS {
            let option = match (known.value, values.get(known.name)) {
                ("", _) => known.name.to_owned(),
                (_, value) => format!("{}={}", known.name, value.expect(known.name)),
            };
            let options = apply(&option).unwrap_or_else(|error| panic!("{option}: {error}"));
            let line = format!("/a *({options})");
            let again = crate::Exports::parse(&line, "t").unwrap();
            assert_eq!(again.list()[0].clients()[0].options, options, "{line}");
        }
    }

    #[test]
    fn a_misspelt_option_gets_the_nearest_one() {
        for (slip, meant) in [
            ("no_root_sqash", "no_root_squash"),
            ("insecur", "insecure"),
            ("Rw", "rw"),
            ("wr", "rw"),
            ("anon_uid=5", "anonuid"),
            ("crossmount", "crossmnt"),
            ("nosubtree_check", "no_subtree_check"),
        ] {
            let expected = format!("option {slip} is not known; did you mean {meant}?");
            assert_eq!(apply(slip).unwrap_err(), expected);
        }
        assert!(apply("frobnicate").unwrap_err().contains("samehost-exports(5) has the options"));
    }

    #[test]
    fn values() {
        assert_eq!(apply("anonuid=-2").unwrap().anon_uid, 4_294_967_294);
        assert_eq!(apply("fsid=root").unwrap().fsid, Some(Fsid::Number(0)));
        let uuid = apply("fsid=7E2f9c10-0102-0304-0506-0708090a0b0c").unwrap().fsid.unwrap();
        assert_eq!(uuid.to_string(), "7e2f9c10-0102-0304-0506-0708090a0b0c");
        for bad in [
            "anonuid=-1",
            "anonuid=",
            "anonuid=+5",
            "anongid=4294967296",
            "anonuid",
            "fsid=",
            "fsid=4294967296",
            "fsid=xyz",
            "sec=krb5p",
            "sec=krb6:sys",
            "sec=none",
            "xprtsec=mtls",
            "",
            "squash_uids=0-15",
            "refer=/a",
            "refer",
            "mountpoint=",
            "mp=x",
            "Rw",
            "anonuid=4294967295",
            "local_peers",
            "local_peers=no",
            "all_act_as_server_user=yes",
            "read_io",
            "read_io=",
            "write_io=Direct",
        ] {
            assert!(apply(bad).is_err(), "{bad}");
        }
        assert_eq!(
            apply("fsid={7E2F9C10.01020304050607080_90A0B0C}").unwrap().fsid,
            Some(Fsid::Uuid([0x7e, 0x2f, 0x9c, 0x10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]))
        );
    }
}
