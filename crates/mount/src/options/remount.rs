//! `remount`: what can change about a filesystem that is mounted.
//!
//! That is what the kernel keeps to by itself. What this process or the session with the server goes by is
//! settled when the filesystem is mounted. mount(8) repeats it when it remounts, from fstab(5) and from the
//! mount table: it is checked and left as it is.

use std::time::Duration;

use super::split::{self, Item};
use super::{Building, OptionError, Parsed};
use crate::settings::MountOptions;

/// What the mount table shows of a FUSE filesystem.
const SHOWN: &[&str] =
    &["blksize", "default_permissions", "fd", "group_id", "max_read", "rootmode", "subtype", "user_id"];

/// What is to change; `None`: that stays as it is.
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

/// What a list of options with `remount` in it asks for; `None` without.
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
                check(item)?;
                continue;
            }
        };
        item.bare()?;
        *what = Some(!matches!(item.name.as_str(), "rw" | "nosuid" | "nodev" | "noexec" | "nosymfollow"));
    }
    Ok(Some(to))
}

/// Whether an option is one, with a value that it can have.
fn check(item: &Item) -> Result<(), OptionError> {
    let parsed = Parsed {
        mount: MountOptions::default(),
        session: client::Options::default(),
        port: None,
        background: false,
        retry: Duration::ZERO,
        passed_over: Vec::new(),
    };
    Building { parsed, retry: None, sloppy: false }.take(item)
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
