//! The comparison of two trees: names, types, modes, link targets and all data.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::exit::Failure;
use crate::human;

/// Compares `one` with `other` and returns the number of files. The first difference is an error.
pub fn compare(one: &Path, other: &Path) -> Result<u64, Failure> {
    let differs = |what: &str| {
        let (one, other) =
            (human::name(one.as_os_str().as_bytes()), human::name(other.as_os_str().as_bytes()));
        Failure::new(other, format!("differs from {one} in its {what}"))
    };
    let to_failure = |error: io::Error| differs("existence or readability").next(error.to_string());
    let (a, b) =
        (fs::symlink_metadata(one).map_err(to_failure)?, fs::symlink_metadata(other).map_err(to_failure)?);
    if a.file_type() != b.file_type() {
        return Err(differs("kind"));
    }
    if a.is_symlink() {
        let same = fs::read_link(one).map_err(to_failure)? == fs::read_link(other).map_err(to_failure)?;
        return if same { Ok(1) } else { Err(differs("target")) };
    }
    if (a.permissions().mode() ^ b.permissions().mode()) & 0o777 != 0 {
        return Err(differs("mode"));
    }
    if a.is_dir() {
        let names = names(one).map_err(to_failure)?;
        if names != self::names(other).map_err(to_failure)? {
            return Err(differs("names"));
        }
        let mut same = 0;
        for name in names {
            same += compare(&one.join(&name), &other.join(&name))?;
        }
        return Ok(same);
    }
    let same = a.len() == b.len() && same_bytes(one, other).map_err(to_failure)?;
    if same { Ok(1) } else { Err(differs("bytes")) }
}

fn names(directory: &Path) -> io::Result<BTreeSet<OsString>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (mut a, mut b) = (vec![0; 256 << 10], vec![0; 256 << 10]);
    loop {
        let read = one.read(&mut a)?;
        if read == 0 {
            return Ok(other.read(&mut b)? == 0);
        }
        match other.read_exact(&mut b[..read]) {
            Ok(()) if a[..read] == b[..read] => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_found() {
        let scratch = tempfile::tempdir().unwrap();
        let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
        super::super::generate(&one).unwrap();
        super::super::generate(&other).unwrap();
        assert!(compare(&one, &other).unwrap() > 1200);
        let reason = |change: &dyn Fn(), undo: &dyn Fn()| {
            change();
            let failure = compare(&one, &other).unwrap_err();
            undo();
            failure.reason
        };
        let leaf = other.join("branch-3/twig-3/leaf-3");
        let bytes = fs::read(&leaf).unwrap();
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() ^= 1;
        let restore = || fs::write(&leaf, &bytes).unwrap();
        assert!(reason(&|| fs::write(&leaf, &changed).unwrap(), &restore).ends_with("bytes"));
        let extra = other.join("extra");
        assert!(
            reason(&|| fs::write(&extra, b"").unwrap(), &|| fs::remove_file(&extra).unwrap())
                .ends_with("names")
        );
        let mode = |mode| fs::set_permissions(&leaf, fs::Permissions::from_mode(mode)).unwrap();
        assert!(reason(&|| mode(0o600), &|| mode(0o644)).ends_with("mode"));
    }
}
