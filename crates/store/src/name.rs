//! Validation of names from clients.
//!
//! A name is any sequence of bytes without '/' and NUL, valid UTF-8 or not, and is stored unchanged. Names
//! that the kernel would interpret as a path, or as another directory than the intended one, are rejected.

use std::ffi::CString;

use crate::error::{Error, Result};

/// Maximum length of a name in bytes on Linux filesystems (`NAME_MAX`).
const MAX_NAME: usize = 255;

/// Maximum length of a symbolic link's target in bytes (`PATH_MAX` without the NUL).
const MAX_TARGET: usize = 4095;

/// A name to look up; "." and ".." are allowed.
pub(crate) fn any(name: &[u8]) -> Result<CString> {
    if name.is_empty() || name.contains(&b'/') {
        return Err(Error::InvalidName);
    }
    if name.len() > MAX_NAME {
        return Err(Error::NameTooLong);
    }
    CString::new(name).map_err(|_| Error::InvalidName)
}

/// The name of a directory entry. "." and ".." are rejected with `dots`, because the error depends on the
/// operation.
pub(crate) fn entry(name: &[u8], dots: Error) -> Result<CString> {
    if name == b"." || name == b".." {
        return Err(dots);
    }
    any(name)
}

/// The target of a symbolic link.
pub(crate) fn link_target(target: &[u8]) -> Result<CString> {
    if target.is_empty() {
        return Err(Error::Invalid);
    }
    if target.len() > MAX_TARGET {
        return Err(Error::NameTooLong);
    }
    CString::new(target).map_err(|_| Error::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any as anything, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn each_invalid_name_has_its_error() {
        assert_eq!(any(b""), Err(Error::InvalidName));
        assert_eq!(any(b"a/b"), Err(Error::InvalidName));
        assert_eq!(any(b"a\0"), Err(Error::InvalidName));
        assert_eq!(any(&[b'x'; 256]), Err(Error::NameTooLong));
        assert!(any(&[b'x'; 255]).is_ok() && any(b"..").is_ok());
        assert_eq!(entry(b".", Error::Exists), Err(Error::Exists));
        assert_eq!(entry(b"..", Error::Invalid), Err(Error::Invalid));
        assert!(entry(b"...", Error::Exists).is_ok() && entry(b"\xff\xfe", Error::Exists).is_ok());
        assert_eq!(link_target(b""), Err(Error::Invalid));
        assert_eq!(link_target(&[b'x'; 4096]), Err(Error::NameTooLong));
    }

    proptest! {
        #[test]
        fn a_name_is_unchanged_or_refused(name in proptest::collection::vec(anything::<u8>(), 0..300)) {
            match any(&name) {
                Ok(kept) => prop_assert_eq!(kept.as_bytes(), &name[..]),
                Err(Error::NameTooLong) => prop_assert!(name.len() > MAX_NAME),
                Err(error) => {
                    prop_assert_eq!(error, Error::InvalidName);
                    prop_assert!(name.is_empty() || name.contains(&b'/') || name.contains(&0));
                }
            }
        }
    }
}
