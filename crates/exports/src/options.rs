//! The options of a client entry, as in exports(5), with their defaults.

use std::fmt;

use crate::IoMode;

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
            Some(("sec", value)) => sec(value),
            Some(("local_peers", value)) => local_peers(value).map(|peers| self.local_peers = peers),
            Some(("read_io", value)) => io_mode("read_io", value).map(|mode| self.read_io = Some(mode)),
            Some(("write_io", value)) => io_mode("write_io", value).map(|mode| self.write_io = Some(mode)),
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
            "all_act_as_server_user" => self.all_act_as_server_user = true,
            "lane" => self.lane = true,
            "no_lane" => self.lane = false,
            "tree" => self.tree = true,
            "no_tree" => self.tree = false,
            "mount_grant" => self.mount_grant = true,
            "no_mount_grant" => self.mount_grant = false,
            "anonuid" | "anongid" | "fsid" | "sec" | "local_peers" | "read_io" | "write_io" => {
                return Err(format!("option {option} needs a value: {option}=..."));
            }
            "" => return Err("an empty option: remove the comma".into()),
            _ => return Err(unsupported(option, option)),
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
    let digits: Vec<u8> = value.bytes().filter(|b| !matches!(b, b'-' | b':')).collect();
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

fn sec(value: &str) -> Result<(), String> {
    match value.split(':').find(|flavor| *flavor != "sys") {
        None => Ok(()),
        Some(flavor) if flavor.starts_with("krb5") => Err(format!(
            "sec={flavor}: Kerberos is not supported: write sec=sys, or export over a private network"
        )),
        Some(flavor) => Err(format!("sec={flavor} is not supported: write sec=sys")),
    }
}

/// The message for an option that knfsd may have and this server doesn't.
fn unsupported(name: &str, option: &str) -> String {
    let advice = match name {
        "wdelay" | "no_wdelay" => "remove it: writes are never delayed",
        "hide" => "remove it: other filesystems below an export are always hidden",
        "nohide" | "crossmnt" => "export the filesystem below with a line of its own",
        "secure_locks" | "insecure_locks" | "auth_nlm" | "no_auth_nlm" => {
            "remove it: NFSv4 locks need no option, and there is no lock manager for NFSv3"
        }
        "acl" | "no_acl" => "remove it: access control lists (NFSACL) are always served",
        "mp" | "mountpoint" => "remove it, and order the server's start after the mount",
        "pnfs" | "no_pnfs" => "remove it: parallel NFS is not supported",
        "refer" | "replicas" => "remove it: referrals are not supported",
        "security_label" => "remove it: security labels are not supported",
        "xprtsec" => "remove it: TLS is not supported",
        "nordirplus" => "remove it, and mount with nordirplus on the client",
        _ => {
            "remove it; supported are ro, rw, root_squash, no_root_squash, all_squash, no_all_squash, \
             anonuid=, anongid=, secure, insecure, sync, async, fsid=, subtree_check, no_subtree_check, \
             sec=sys, local_peers=, all_act_as_server_user, lane, no_lane, tree, no_tree, mount_grant, \
             no_mount_grant, read_io=, write_io="
        }
    };
    format!("option {option} is not supported: {advice}")
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
            "sec=sys:krb5",
            "sec=none",
            "",
            "crossmnt",
            "refer=/a@b",
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
        assert!(apply("nohide").unwrap_err().contains("nohide"));
    }
}
