//! `rados://POOL/NAMESPACE`.

use std::fmt;
use std::str::FromStr;

/// The longest name of a pool, a namespace or an object in bytes (`osd_max_object_name_len` is larger).
const MAX_NAME: usize = 255;

/// A namespace of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAddress {
    /// The pool's name.
    pub pool: String,
    /// The namespace's name; never empty.
    pub namespace: String,
}

/// A text that isn't an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not rados://POOL/NAMESPACE: {reason}")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl FromStr for ClusterAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let failed = |reason| AddressError { text: text.to_owned(), reason };
        let rest = text.strip_prefix("rados://").ok_or_else(|| failed("it begins differently"))?;
        let (pool, namespace) = rest.split_once('/').ok_or_else(|| failed("the namespace is missing"))?;
        for (name, empty) in [(pool, "the pool is missing"), (namespace, "the namespace is missing")] {
            if name.is_empty() {
                return Err(failed(empty));
            }
            if name.len() > MAX_NAME {
                return Err(failed("a name has more than 255 bytes"));
            }
            if name.contains(|letter: char| letter == '/' || letter.is_control()) {
                return Err(failed("a name has a slash or a control character"));
            }
        }
        Ok(Self { pool: pool.to_owned(), namespace: namespace.to_owned() })
    }
}

impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rados://{}/{}", self.pool, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_shown() {
        let address: ClusterAddress = "rados://cephfs.a.meta/nfs".parse().unwrap();
        assert_eq!((address.pool.as_str(), address.namespace.as_str()), ("cephfs.a.meta", "nfs"));
        assert_eq!(address.to_string(), "rados://cephfs.a.meta/nfs");
        let long = format!("rados://{}/n", "p".repeat(256));
        for wrong in [
            "",
            "nfs",
            "rados:/p/n",
            "rados://p",
            "rados://p/",
            "rados:///n",
            "rados://p/n/x",
            "rados://p/n\0",
            &long,
        ] {
            let error = wrong.parse::<ClusterAddress>().unwrap_err().to_string();
            assert!(error.contains("rados://POOL/NAMESPACE"), "{error}");
        }
    }
}
