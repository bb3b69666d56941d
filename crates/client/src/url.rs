//! NFS URLs: `nfs://host[:port]/path?options` (RFC 2224, with libnfs's options).
//!
//! The path is bytes behind percent escapes, because NFS names need not be UTF-8. Options have the names of
//! nfs(5) and of libnfs ([`SESSION`]); any other name is an error.

use std::fmt;
use std::str::FromStr;

use crate::options::{Descriptor, OptionError, Options, SESSION, Setting, Source};

/// Why a text is not an NFS URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It doesn't begin with `nfs://`.
    #[error("{0:?} is not an NFS URL: it must look like nfs://host[:port]/path")]
    Scheme(String),
    /// There is no host.
    #[error("{0:?} names no host: it must look like nfs://host[:port]/path")]
    Host(String),
    /// The port is not 1..=65535.
    #[error("{0:?} is not a port (1 to 65535)")]
    Port(String),
    /// A '%' without two hexadecimal digits behind it, or an escaped NUL.
    #[error("bad percent escape at {0:?}: write %25 for a percent sign")]
    Escape(String),
    /// There is no such option.
    #[error("{error} (known: {known})")]
    UnknownOption {
        /// The option, and what was probably meant.
        error: OptionError,
        /// The options that a URL can have.
        known: String,
    },
    /// An option's value can't be used.
    #[error(transparent)]
    Option(#[from] OptionError),
}

/// A file or directory on an NFS server, and options of the session with it.
///
/// ```
/// use samehost_client::{Url, UrlError};
///
/// let url: Url = "nfs://[::1]:2050/export/a%20b?soft".parse()?;
/// assert_eq!((url.host(), url.port(), url.path()), ("::1", Some(2050), &b"/export/a b"[..]));
/// assert_eq!(url.to_string(), "nfs://[::1]:2050/export/a%20b?soft");
/// assert!(matches!("nfs://host/?rsiz=1".parse::<Url>(), Err(UrlError::UnknownOption { .. })));
/// # Ok::<(), UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    host: String,
    port: Option<u16>,
    path: Vec<u8>,
    options: Vec<(String, Option<String>)>,
}

impl Url {
    /// A URL from its parts. `path` has no escapes; a leading '/' is added if it has none.
    #[must_use]
    pub fn new(host: &str, port: Option<u16>, path: &[u8]) -> Self {
        let mut whole = Vec::with_capacity(path.len() + 1);
        if path.first() != Some(&b'/') {
            whole.push(b'/');
        }
        whole.extend_from_slice(path);
        Self { host: host.to_owned(), port, path: whole, options: Vec::new() }
    }

    /// The host's name or address; an IPv6 address has no brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, if one was given.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The path without escapes. It begins with '/'.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The same server, another path.
    #[must_use]
    pub fn with_path(&self, path: &[u8]) -> Self {
        Self { options: self.options.clone(), ..Self::new(&self.host, self.port, path) }
    }

    /// Applies the URL's own options to `options`.
    ///
    /// # Errors
    /// [`UrlError::UnknownOption`] or [`UrlError::Option`].
    pub fn apply(&self, options: &mut Options) -> Result<(), UrlError> {
        for (name, value) in &self.options {
            read(name, value.as_deref())?.apply(options);
        }
        Ok(())
    }
}

/// The setting of an option in a URL.
fn read(name: &str, value: Option<&str>) -> Result<Setting<Options>, UrlError> {
    let Some(descriptor) = Descriptor::find(SESSION, Source::Url, name) else {
        let known = || SESSION.iter().filter(|each| each.sources.contains(&Source::Url));
        return Err(UrlError::UnknownOption {
            error: OptionError::unknown(name, known().flat_map(Descriptor::names)),
            known: known().map(|each| each.name).collect::<Vec<_>>().join(", "),
        });
    };
    Ok(descriptor.read(name, value)?)
}

/// Replaces percent escapes with their bytes. An escaped NUL is an error, because no file name has one.
fn unescape(text: &str) -> Result<Vec<u8>, UrlError> {
    let bad = || UrlError::Escape(text.to_owned());
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            out.push(first);
            continue;
        }
        let (digits, tail) = rest.split_first_chunk::<2>().ok_or_else(bad)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(bad);
        let byte = (digit(digits[0])? * 16 + digit(digits[1])?) as u8;
        if byte == 0 {
            return Err(bad());
        }
        out.push(byte);
        rest = tail;
    }
    Ok(out)
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = match text.get(..6) {
            Some(scheme) if scheme.eq_ignore_ascii_case("nfs://") => &text[6..],
            _ => return Err(UrlError::Scheme(text.to_owned())),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let (host, port) = if let Some(inside) = authority.strip_prefix('[') {
            let (host, behind) = inside.split_once(']').ok_or_else(|| UrlError::Host(text.to_owned()))?;
            let port = match behind {
                "" => None,
                behind => Some(behind.strip_prefix(':').ok_or_else(|| UrlError::Host(text.to_owned()))?),
            };
            (host, port)
        } else {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        };
        if host.is_empty() {
            return Err(UrlError::Host(text.to_owned()));
        }
        let parse_port = |port: &str| match port.parse() {
            Ok(0) | Err(_) => Err(UrlError::Port(port.to_owned())),
            Ok(port) => Ok(port),
        };
        let mut url = Self::new(host, port.map(parse_port).transpose()?, &unescape(path)?);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            let text = |value: &str| {
                String::from_utf8(unescape(value)?).map_err(|_| UrlError::Escape(value.to_owned()))
            };
            url.options.push((name.to_owned(), value.map(text).transpose()?));
        }
        // Errors in options are reported when the URL is parsed, not when a session connects.
        let mut options = Options::default();
        url.apply(&mut options)?;
        url.port = options.port.or(url.port);
        Ok(url)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "nfs://[{}]", self.host)?
        } else {
            write!(f, "nfs://{}", self.host)?
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        for &byte in &self.path {
            match byte {
                b'%' | b'?' | b'#' | 0..=b' ' | 0x7f.. => write!(f, "%{byte:02X}")?,
                byte => write!(f, "{}", char::from(byte))?,
            }
        }
        let is_port = |name: &str| matches!(name, "nfsport" | "port");
        let options = self.options.iter().filter(|(name, _)| !is_port(name));
        for (index, (name, value)) in options.enumerate() {
            write!(f, "{}{name}", if index == 0 { '?' } else { '&' })?;
            if let Some(value) = value {
                write!(f, "={}", value.replace('%', "%25").replace('&', "%26"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::Credential;

    fn parsed(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn urls_are_split_into_parts() {
        let url = parsed("nfs://server/export/a%20b");
        assert_eq!((url.host(), url.port(), url.path()), ("server", None, &b"/export/a b"[..]));
        let url = parsed("NFS://[::1]:20490");
        assert_eq!((url.host(), url.port(), url.path()), ("::1", Some(20490), &b"/"[..]));
        assert_eq!(parsed("nfs://h/%ff%2f").path(), b"/\xff/");
        assert_eq!(parsed("nfs://h/x?nfsport=111").port(), Some(111));
    }

    #[test]
    fn written_urls_parse_to_the_same() {
        for text in [
            "nfs://h/",
            "nfs://[fe80::1]:1/a%25b%3Fc",
            "nfs://h:9/%FF%20",
            "nfs://h/x?lane=off&soft&timeo=10",
        ] {
            assert_eq!(parsed(text).to_string(), text);
            assert_eq!(parsed(&parsed(text).to_string()), parsed(text));
        }
    }

    #[test]
    fn options_change_options() {
        let mut options = Options::default();
        parsed("nfs://h/x?uid=7&gid=8&soft&timeo=15&nconnect=4&rsize=65536&lane=required")
            .apply(&mut options)
            .unwrap();
        assert_eq!(options.credential, Credential::Sys { uid: 7, gid: 8, groups: vec![] });
        assert_eq!((options.hard, options.timeo, options.nconnect), (false, Duration::from_millis(1500), 4));
        assert_eq!((options.rsize, options.lane), (Some(65536), crate::LaneMode::Required));
        parsed("nfs://h/x?retry=3&localio_probe_throttle=8").apply(&mut options).unwrap();
        assert_eq!((options.retry, options.probe_throttle), (Some(Duration::from_secs(180)), 8));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let error = |text: &str| text.parse::<Url>().unwrap_err();
        assert!(matches!(error("http://h/"), UrlError::Scheme(_)));
        assert!(matches!(error("nfs:///x"), UrlError::Host(_)));
        assert!(matches!(error("nfs://é/x%"), UrlError::Escape(_)));
        assert!(matches!(error("nfs://h:0/"), UrlError::Port(_)));
        assert!(matches!(error("nfs://h/%00"), UrlError::Escape(_)));
        assert!(matches!(error("nfs://h/?frobnicate"), UrlError::UnknownOption { .. }));
        assert!(matches!(error("nfs://h/?trust_uid=7"), UrlError::UnknownOption { .. }));
        assert!(matches!(error("nfs://h/?nconnect=17"), UrlError::Option(_)));
        assert!(matches!(error("nfs://h/?soft=1"), UrlError::Option(_)));
        assert!(matches!(error("nfs://h/?version=4.0"), UrlError::Option(_)));
        let unknown = error("nfs://h/?rsiz=1").to_string();
        assert!(unknown.contains("did you mean 'rsize'?") && unknown.contains("known: vers, "), "{unknown}");
        assert!(matches!(error("nfs://[::1/"), UrlError::Host(_)));
    }
}
