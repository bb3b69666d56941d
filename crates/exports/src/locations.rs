//! `refer=` and `replicas=`: where else a filesystem is (NFSv4's `fs_locations`, RFC 8881 section 11.16).

use std::fmt;

/// Servers that have the filesystem at the same path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FsLocation {
    /// The path on these servers, absolute.
    pub path: String,
    /// Names or addresses, at least one. IPv6 addresses have no brackets.
    pub hosts: Vec<String>,
}

/// The value of one of the two options.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FsLocations {
    /// `refer=`: clients must go to one of the locations. With `replicas=` they may.
    pub refers: bool,
    /// The locations, at least one, in the order of preference.
    pub list: Vec<FsLocation>,
}

impl FsLocations {
    /// Parses `path@host[+host][:path@host[+host]]`. An IPv6 address stands in brackets.
    ///
    /// # Errors
    /// A sentence with the mistake.
    pub(crate) fn parse(refers: bool, value: &str) -> Result<Self, String> {
        let name = if refers { "refer" } else { "replicas" };
        let wrong = || format!("{name}={value}: write path@host, path@host+host or path@host:path@host");
        let mut list = Vec::new();
        for part in split_outside_brackets(value) {
            let (path, hosts) = part.rsplit_once('@').ok_or_else(wrong)?;
            if !path.starts_with('/') || path.split('/').any(|part| part == "." || part == "..") {
                return Err(wrong());
            }
            let hosts = hosts.split('+').map(|host| host_of(host).ok_or_else(wrong));
            list.push(FsLocation { path: path.to_owned(), hosts: hosts.collect::<Result<_, _>>()? });
        }
        Ok(Self { refers, list })
    }
}

/// The parts between colons.
fn split_outside_brackets(value: &str) -> Vec<&str> {
    let (mut parts, mut start, mut in_brackets) = (Vec::new(), 0, false);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b'[' => in_brackets = true,
            b']' => in_brackets = false,
            b':' if !in_brackets => {
                parts.push(&value[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&value[start..]);
    parts
}

/// A host's name or address, without the brackets of an IPv6 address.
fn host_of(host: &str) -> Option<String> {
    if let Some(bare) = host.strip_prefix('[') {
        let address: std::net::Ipv6Addr = bare.strip_suffix(']')?.parse().ok()?;
        return Some(address.to_string());
    }
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    (!host.is_empty() && host.len() <= 255 && host.bytes().all(is_plain)).then(|| host.to_owned())
}

impl fmt::Display for FsLocations {
    /// As the option; parsing the result gives the same locations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.refers { "refer=" } else { "replicas=" })?;
        for (index, location) in self.list.iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{}@", crate::lexer::Quoted(location.path.as_bytes()))?;
            for (index, host) in location.hosts.iter().enumerate() {
                let plus = if index == 0 { "" } else { "+" };
                if host.contains(':') { write!(f, "{plus}[{host}]")? } else { write!(f, "{plus}{host}")? }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_have_paths_and_hosts() {
        let parsed = FsLocations::parse(true, "/a@one+two:/b/c@[2001:db8::1]").unwrap();
        let location = |path: &str, hosts: &[&str]| FsLocation {
            path: path.into(),
            hosts: hosts.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(parsed.list, [location("/a", &["one", "two"]), location("/b/c", &["2001:db8::1"])]);
        assert_eq!(parsed.to_string(), "refer=/a@one+two:/b/c@[2001:db8::1]");
        for bad in ["", "/a", "/a@", "a@host", "/a@one+", "/a@one:", "/a/../b@one", "/a@[x]", "/a@ö"] {
            assert!(FsLocations::parse(false, bad).is_err(), "{bad}");
        }
    }
}
