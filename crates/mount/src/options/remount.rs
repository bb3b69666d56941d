//! `remount`: changes of the mount flags that the kernel enforces.
//!
//! The options of the mount's process and its session are settled when the filesystem is mounted. mount(8)
//! repeats them for a remount, from fstab(5) and from the mount table: they are checked and change nothing.

use super::{OptionError, read, split};

/// What the mount table shows of a FUSE filesystem.
const SHOWN: &[&str] =
    &["blksize", "default_permissions", "fd", "group_id", "max_read", "rootmode", "subtype", "user_id"];

/// Mount flags to change; `None` leaves a flag as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remount {
    /// `ro`, `rw`: nothing can be written.
    pub read_only: Option<bool>,
    /// `suid`, `nosuid`: set-id bits of programs count.
    pub suid: Option<bool>,
    /// `dev`, `nodev`: device files work.
    pub dev: Option<bool>,
    /// `exec`, `noexec`: programs can be executed.
    pub exec: Option<bool>,
    /// `symfollow`, `nosymfollow`: symbolic links are followed.
    pub symfollow: Option<bool>,
}

/// The flags that a list of options with `remount` in it changes; `None` for a list without `remount`.
///
/// # Errors
/// [`OptionError`], for the first option that is wrong.
pub fn remount(text: &str) -> Result<Option<Remount>, OptionError> {
    let items = split::split(text)?;
    if !items.iter().any(|item| item.name == "remount") {
        return Ok(None);
    }
    let mut to = Remount::default();
    for item in &items {
        let what = match item.name.as_str() {
            "ro" | "rw" => &mut to.read_only,
            "suid" | "nosuid" => &mut to.suid,
            "dev" | "devices" | "nodev" => &mut to.dev,
            "exec" | "noexec" => &mut to.exec,
            "symfollow" | "nosymfollow" => &mut to.symfollow,
            "remount" => {
                item.bare()?;
                continue;
            }
            name if SHOWN.contains(&name) => continue,
            _ => {
                read(item)?;
                continue;
            }
        };
        item.bare()?;
        *what = Some(!matches!(item.name.as_str(), "rw" | "nosuid" | "nodev" | "noexec" | "nosymfollow"));
    }
    Ok(Some(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_keeps_to_can_change() {
        assert_eq!(remount("ro,nosuid"), Ok(None));
        let shown = "rw,nosuid,nodev,relatime,user_id=0,group_id=0,allow_other";
        let asked = remount(&format!("{shown},remount,ro,exec,nosymfollow")).unwrap();
        let expected = Remount {
            read_only: Some(true),
            suid: Some(false),
            dev: Some(false),
            exec: Some(true),
            symfollow: Some(false),
        };
        assert_eq!(asked, Some(expected));
        assert_eq!(remount("remount,lane=off,timeo=600"), Ok(Some(Remount::default())));
        for wrong in ["remount,roo", "remount,ro=1", "remount=1", "remount,lane=sideways"] {
            assert!(remount(wrong).is_err(), "{wrong}");
        }
    }
}
