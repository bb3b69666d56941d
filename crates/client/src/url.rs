//! NFS URLs: `nfs://host[:port]/path?options` (RFC 2224, with libnfs's options).
//!
//! Instead of one host there may be several servers of one cluster, `nfs://a,b:2050/path`. They are tried in
//! this order until one can be reached; the session is with that one.
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
    /// Further hosts, each with its port.
    alternatives: Vec<(String, Option<u16>)>,
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
        Self { host: host.to_owned(), port, alternatives: Vec::new(), path: whole, options: Vec::new() }
    }

    /// The name or address of the first host; an IPv6 address has no brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The first host's port, if one was given.
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
        let (alternatives, options) = (self.alternatives.clone(), self.options.clone());
        Self { alternatives, options, ..Self::new(&self.host, self.port, path) }
    }

    /// The same, with this port of all hosts that have none.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port.get_or_insert(port);
        for (_, of) in &mut self.alternatives {
            of.get_or_insert(port);
        }
        self
    }

    /// A URL for each host, in the order in which they are to be tried.
    ///
    /// ```
    /// let url: samehost_client::Url = "nfs://a,b:2050/export".parse()?;
    /// let each: Vec<_> = url.each_host().map(|url| url.to_string()).collect();
    /// assert_eq!(each, ["nfs://a/export", "nfs://b:2050/export"]);
    /// # Ok::<(), samehost_client::UrlError>(())
    /// ```
    pub fn each_host(&self) -> impl Iterator<Item = Self> {
        let first = std::iter::once((&self.host, self.port));
        let all = first.chain(self.alternatives.iter().map(|(host, port)| (host, *port)));
        all.map(|(host, port)| Self { host: host.clone(), port, alternatives: Vec::new(), ..self.clone() })
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

/// A host and its port, `host[:port]` or `[address][:port]`, of the URL `whole`.
fn parse_host<'a>(text: &'a str, whole: &str) -> Result<(&'a str, Option<u16>), UrlError> {
    let wrong = || UrlError::Host(whole.to_owned());
    let (host, port) = if let Some(inside) = text.strip_prefix('[') {
        let (host, behind) = inside.split_once(']').ok_or_else(wrong)?;
        let port = match behind {
            "" => None,
            behind => Some(behind.strip_prefix(':').ok_or_else(wrong)?),
        };
        (host, port)
    } else {
        text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
    };
    if host.is_empty() {
        return Err(wrong());
    }
    let parse_port = |port: &str| match port.parse() {
        Ok(0) | Err(_) => Err(UrlError::Port(port.to_owned())),
        Ok(port) => Ok(port),
    };
    Ok((host, port.map(parse_port).transpose()?))
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
        let (first, others) = authority.split_once(',').map_or((authority, None), |(a, b)| (a, Some(b)));
        let (host, port) = parse_host(first, text)?;
        let mut url = Self::new(host, port, &unescape(path)?);
        for other in others.into_iter().flat_map(|others| others.split(',')) {
            let (host, port) = parse_host(other, text)?;
            url.alternatives.push((host.to_owned(), port));
        }
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
        if let Some(port) = options.port {
            url.port = Some(port);
            url.alternatives.iter_mut().for_each(|(_, of)| *of = Some(port));
        }
        Ok(url)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nfs://")?;
        let others = self.alternatives.iter().map(|(host, port)| (host, *port));
        for (index, (host, port)) in std::iter::once((&self.host, self.port)).chain(others).enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            if host.contains(':') { write!(f, "[{host}]") } else { f.write_str(host) }?;
            if let Some(port) = port {
                write!(f, ":{port}")?;
            }
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
        assert_eq!(parsed("nfs://a,b:7/x?nfsport=111").to_string(), "nfs://a:111,b:111/x");
        assert_eq!(parsed("nfs://a,b:7/x").with_port(9).to_string(), "nfs://a:9,b:7/x");
        assert_eq!(parsed("nfs://a,b/x").with_path(b"/y").to_string(), "nfs://a,b/y");
    }

    #[test]
    fn written_urls_parse_to_the_same() {
        for text in [
            "nfs://h/",
            "nfs://[fe80::1]:1/a%25b%3Fc",
            "nfs://h:9/%FF%20",
            "nfs://h/x?lane=off&soft&timeo=10",
            "nfs://a,b:7,[::1]:8/x?soft",
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
        for text in ["nfs://[::1/", "nfs://a,/", "nfs://,a/", "nfs://a,,b/"] {
            assert!(matches!(error(text), UrlError::Host(_)), "{text}");
        }
    }
}
