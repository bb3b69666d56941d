//! Options that only Samehost has, and FUSE's.

use std::path::PathBuf;

use super::split::Item;
use super::{Building, Known, OptionError};
use crate::settings::Direct;

/// The names.
pub const NAMES: &[&str] = &[
    "allow_other",
    "allow_root",
    "default_permissions",
    "lane",
    "localio_probe_throttle",
    "noallow_other",
    "nopassthrough",
    "odirect",
    "passthrough",
    "run_dir",
    "trust_uid",
];

/// Takes an option if it is one of these.
pub fn take(to: &mut Building, item: &Item) -> Result<Known, OptionError> {
    let (mount, session) = (&mut to.parsed.mount, &mut to.parsed.session);
    match item.name.as_str() {
        "lane" => {
            let word = item.value()?;
            session.lane = word.parse().map_err(|_| item.wrong("it must be auto, off or required"))?;
        }
        "odirect" => {
            mount.direct = match item.value()? {
                "end-to-end" => Direct::EndToEnd,
                "server" => Direct::Server,
                _ => return Err(item.wrong("it must be end-to-end or server")),
            }
        }
        "passthrough" | "nopassthrough" => {
            item.bare()?;
            mount.passthrough = item.name == "passthrough";
        }
        "run_dir" => {
            let path = PathBuf::from(item.value()?);
            if !path.is_absolute() {
                return Err(item.wrong("it must be a whole path, from / on"));
            }
            session.run_dir = path;
        }
        "trust_uid" => {
            let uid = item.number(0..=u32::MAX, "a user number")?;
            if !session.trusted_uids.contains(&uid) {
                session.trusted_uids.push(uid);
            }
        }
        "localio_probe_throttle" => {
            const EXPECTED: &str = "it must be a power of two, or 0 for never";
            let every: u32 = item.number(0..=1 << 31, EXPECTED)?;
            if every != 0 && !every.is_power_of_two() {
                return Err(item.wrong(EXPECTED));
            }
            session.probe_throttle = every;
        }
        "allow_other" => {
            item.bare()?;
            mount.allow_other = true;
        }
        "noallow_other" => {
            item.bare()?;
            mount.allow_other = false;
        }
        "allow_root" => {
            return Err(item.impossible("it would keep other users out, but not root. Use allow_other"));
        }
        "default_permissions" => {
            return Err(item.impossible("the server decides who may do what. Leave it out"));
        }
        _ => return Ok(Known::No),
    }
    Ok(Known::Yes)
}
