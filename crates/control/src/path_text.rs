//! Paths as text, for JSON and for the labels of metrics.
//!
//! A path is any bytes but NUL, and both take UTF-8 only. Bytes that aren't UTF-8 are written as `\xNN`. A
//! backslash that would be read as the beginning of such a byte is written as one, `\x5c`, so that no two
//! paths have the same text and the path can be had back.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize as _, Deserializer, Serializer};

/// The text of a path.
#[must_use]
pub fn text(path: &Path) -> String {
    let mut text = String::with_capacity(path.as_os_str().len());
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find('\\') {
            text.push_str(&rest[..at]);
            text.push_str(if escaped(&rest.as_bytes()[at..]).is_some() { r"\x5c" } else { r"\" });
            rest = &rest[at + 1..];
        }
        text.push_str(rest);
        text.extend(chunk.invalid().iter().map(|byte| format!(r"\x{byte:02x}")));
    }
    text
}

/// The path of a text.
#[must_use]
pub fn path(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        match escaped(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// The byte for which the beginning of a text stands, if that is `\xNN`.
fn escaped(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(br"\x")?.get(..2)?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = Some(digits).filter(|digits| digits.iter().all(is_digit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// For `#[serde(with = "control::path_text")]` on a path.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(path))
}

/// As [`serialize`].
///
/// # Errors
/// The deserializer's.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(path(&String::deserialize(deserializer)?))
}

/// For `#[serde(with = "control::path_text::option")]` on a path that may be missing.
pub mod option {
    use super::{Deserializer, Path, PathBuf, Serializer, path, text};
    use serde::Deserialize as _;

    /// As [`serialize`](super::serialize).
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        match path.as_deref().map(Path::new) {
            Some(path) => serializer.serialize_some(&text(path)),
            None => serializer.serialize_none(),
        }
    }

    /// As [`deserialize`](super::deserialize).
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(|text| path(&text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn each_path_has_a_text_of_its_own_and_is_had_back() {
        let cases: [(&[u8], &str); 8] = [
            (b"/srv/data", "/srv/data"),
            ("/srv/grün \n".as_bytes(), "/srv/grün \n"),
            (b"/srv/\xff", r"/srv/\xff"),
            (br"/srv/\xff", r"/srv/\x5cxff"),
            (br"/srv/\x5cxff", r"/srv/\x5cx5cxff"),
            (b"/srv/\\\xff", r"/srv/\\xff"),
            (b"/srv/\\x\xff0", r"/srv/\x\xff0"),
            (br"/srv/\xFF\x\", r"/srv/\xFF\x\"),
        ];
        for (bytes, expected) in cases {
            let original = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(text(original), expected);
            assert_eq!(path(expected), original, "{expected}");
        }
    }
}
