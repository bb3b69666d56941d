//! The clients of an export: hosts, networks, patterns, netgroups or everyone, and which of several entries
//! applies.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::ExportOptions;
use crate::pattern;

/// The rank of [`ClientSpec::Anybody`], the least specific entry.
const MAX_RANK: u8 = 4;
/// Maximum length of a netgroup's name in bytes.
const MAX_NETGROUP: usize = 255;

/// Look-up of host names. Results may be empty, and should come quickly (from a cache), because a client is
/// waiting.
pub trait Names {
    /// The addresses of `host`.
    ///
    /// # Errors
    /// [`NotKnownYet`].
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet>;
    /// The names that `address` claims to have. They are used only if [`Names::addresses`] confirms them.
    ///
    /// # Errors
    /// [`NotKnownYet`].
    fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet>;
    /// Whether `host`, a name or an address, is a member of a netgroup (netgroup(5)).
    ///
    /// # Errors
    /// [`NotKnownYet`].
    fn in_netgroup(&self, group: &str, host: &str) -> Result<bool, NotKnownYet>;
}

/// A host name is still being looked up, so it isn't known yet which entry applies. The client should retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a host name is still being looked up")]
pub struct NotKnownYet;

/// No host names and netgroups: only entries by address and `*` match.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn addresses(&self, _: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
        Ok(Vec::new())
    }
    fn names(&self, _: IpAddr) -> Result<Vec<String>, NotKnownYet> {
        Ok(Vec::new())
    }
    fn in_netgroup(&self, _: &str, _: &str) -> Result<bool, NotKnownYet> {
        Ok(false)
    }
}

/// One client entry of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportClient {
    /// The hosts it applies to.
    pub spec: ClientSpec,
    /// Their options.
    pub options: ExportOptions,
}

/// The hosts that a client entry applies to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientSpec {
    /// One host by its address.
    Address(IpAddr),
    /// One host by its name, in lower case.
    Host(String),
    /// All hosts of a network; bits of `address` behind the prefix are zero.
    Network {
        /// The network's address.
        address: IpAddr,
        /// The prefix length: at most 32 or 128.
        prefix: u8,
    },
    /// All hosts whose name matches a pattern of `*`, `?` and `[...]`, in lower case. These match dots, too.
    /// A host without a name matches by its address.
    Pattern(String),
    /// The members of a netgroup, whose name this is without the `@`.
    Netgroup(String),
    /// Everybody.
    Anybody,
}

impl ClientSpec {
    /// Parses the part before the parenthesis.
    ///
    /// # Errors
    /// A sentence with the mistake and its remedy.
    pub fn parse(word: &str) -> Result<Self, String> {
        if word.is_empty() || word == "*" {
            return Ok(Self::Anybody);
        }
        if let Some(group) = word.strip_prefix('@') {
            let is_plain =
                |b: u8| b.is_ascii_graphic() && !matches!(b, b'@' | b'(' | b')' | b',' | b'#' | b'"');
            return if !group.is_empty() && group.len() <= MAX_NETGROUP && group.bytes().all(is_plain) {
                Ok(Self::Netgroup(group.to_owned()))
            } else {
                Err(format!("{word:?} is not the name of a netgroup"))
            };
        }
        if word.starts_with("gss/") {
            return Err(format!(
                "{word}: Kerberos is not supported: export with sec=sys to hosts or networks"
            ));
        }
        if let Some((address, mask)) = word.split_once('/') {
            return network(word, address, mask);
        }
        let bare = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(word);
        if let Ok(address) = IpAddr::from_str(bare) {
            return Ok(Self::Address(address.to_canonical()));
        }
        if word.contains(['*', '?', '[']) {
            return match pattern::check(word) {
                Ok(()) => Ok(Self::Pattern(word.to_ascii_lowercase())),
                Err(reason) => Err(format!("pattern {word}: {reason}")),
            };
        }
        let name = word.strip_suffix('.').unwrap_or(word);
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if let Ok(address) = IpAddr::from_str(name) {
            return Ok(Self::Address(address.to_canonical()));
        }
        if name.split('.').any(str::is_empty) || name.len() > 255 || !name.bytes().all(plain) {
            return Err(format!("{word:?} is not a host name, address, network or pattern"));
        }
        Ok(Self::Host(name.to_ascii_lowercase()))
    }

    /// How specific the entry is: a lower rank takes precedence, as in exportfs.
    const fn rank(&self) -> u8 {
        match self {
            Self::Address(_) | Self::Host(_) => 0,
            Self::Network { .. } => 1,
            Self::Pattern(_) => 2,
            Self::Netgroup(_) => 3,
            Self::Anybody => MAX_RANK,
        }
    }

    fn matches(&self, peer: IpAddr, names: &dyn Names) -> Result<bool, NotKnownYet> {
        Ok(match self {
            Self::Address(address) => *address == peer,
            Self::Host(host) => has_address(names, host, peer)?,
            Self::Network { address, prefix } => masked(peer, *prefix) == Some(*address),
            Self::Pattern(pattern) => {
                let known = confirmed_names(names, peer)?;
                known.iter().any(|name| pattern::matches(pattern, name))
                    || known.is_empty() && pattern::matches(pattern, &peer.to_string())
            }
            Self::Netgroup(group) => {
                // Netgroups list full names, names without their domain, or addresses.
                let mut hosts = vec![peer.to_string()];
                for name in confirmed_names(names, peer)? {
                    hosts.extend(name.split_once('.').map(|(label, _)| label.to_owned()));
                    hosts.push(name);
                }
                for host in hosts {
                    if names.in_netgroup(group, &host)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::Anybody => true,
        })
    }
}

fn has_address(names: &dyn Names, host: &str, peer: IpAddr) -> Result<bool, NotKnownYet> {
    Ok(names.addresses(host)?.iter().any(|address| address.to_canonical() == peer))
}

/// The names of `peer` that lead back to its address, in lower case. The owner of an address can claim any
/// name.
fn confirmed_names(names: &dyn Names, peer: IpAddr) -> Result<Vec<String>, NotKnownYet> {
    let mut confirmed = Vec::new();
    for claimed in names.names(peer)? {
        let name = claimed.strip_suffix('.').unwrap_or(&claimed).to_ascii_lowercase();
        if has_address(names, &name, peer)? {
            confirmed.push(name);
        }
    }
    Ok(confirmed)
}

/// The entry of `clients` that applies to `peer`: the most specific kind, and the first of that kind. If an
/// entry can't be evaluated yet, no later one is considered.
pub(crate) fn select<'a>(
    clients: &'a [ExportClient],
    peer: IpAddr,
    names: &dyn Names,
) -> Result<Option<&'a ExportClient>, NotKnownYet> {
    let peer = peer.to_canonical();
    for rank in 0..=MAX_RANK {
        for client in clients.iter().filter(|client| client.spec.rank() == rank) {
            if client.spec.matches(peer, names)? {
                return Ok(Some(client));
            }
        }
    }
    Ok(None)
}

fn network(word: &str, address: &str, mask: &str) -> Result<ClientSpec, String> {
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let address =
        IpAddr::from_str(bare).map_err(|_| format!("{word}: {address:?} is not an IPv4 or IPv6 address"))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match (mask.parse::<u8>(), IpAddr::from_str(mask)) {
        (Ok(prefix), _) if prefix <= most && mask.bytes().all(|b| b.is_ascii_digit()) => prefix,
        (_, Ok(mask)) if mask.is_ipv4() == address.is_ipv4() => {
            prefix_of(mask).ok_or_else(|| format!("{word}: the netmask has a hole"))?
        }
        _ => return Err(format!("{word}: {mask:?} is neither a prefix length up to {most} nor a netmask")),
    };
    let network = masked(address, prefix).unwrap_or(address);
    Ok(ClientSpec::Network { address: network, prefix })
}

/// The prefix length of a netmask; `None` if ones follow a zero.
fn prefix_of(mask: IpAddr) -> Option<u8> {
    let (bits, width) = match mask {
        IpAddr::V4(mask) => (u128::from(mask.to_bits()) << 96, 32),
        IpAddr::V6(mask) => (mask.to_bits(), 128),
    };
    let ones = bits.leading_ones();
    (bits.count_ones() == ones && ones <= width).then(|| u8::try_from(ones).unwrap_or(128))
}

/// `address` with the bits after `prefix` cleared; `None` if its family has fewer bits.
fn masked(address: IpAddr, prefix: u8) -> Option<IpAddr> {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) if prefix <= 32 => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            Some(IpAddr::V4((v4.to_bits() & mask).into()))
        }
        IpAddr::V6(v6) if prefix <= 128 => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            Some(IpAddr::V6((v6.to_bits() & mask).into()))
        }
        _ => None,
    }
}

impl fmt::Display for ClientSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Host(name) | Self::Pattern(name) => f.write_str(name),
            Self::Netgroup(group) => write!(f, "@{group}"),
            Self::Network { address, prefix } => write!(f, "{address}/{prefix}"),
            Self::Anybody => f.write_str("*"),
        }
    }
}

impl fmt::Display for ExportClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.spec, self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed set of names.
    struct Zone;
    impl Names for Zone {
        fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NotKnownYet> {
            Ok(match host {
                "slow.example.org" => return Err(NotKnownYet),
                "alpha.example.org" => vec!["10.1.2.3".parse().unwrap()],
                "six.example.org" => vec!["2001:db8::6".parse().unwrap()],
                _ => vec![],
            })
        }
        fn names(&self, address: IpAddr) -> Result<Vec<String>, NotKnownYet> {
            Ok(match address.to_string().as_str() {
                "10.1.2.3" => vec!["Alpha.Example.Org.".into()],
                // The owner of the reverse zone can claim any name.
                "10.6.6.6" => vec!["alpha.example.org".into()],
                "10.7.7.7" => return Err(NotKnownYet),
                _ => vec![],
            })
        }
        fn in_netgroup(&self, group: &str, host: &str) -> Result<bool, NotKnownYet> {
            match group {
                "slow" => Err(NotKnownYet),
                "full" => Ok(host == "alpha.example.org"),
                "short" => Ok(host == "alpha"),
                "addresses" => Ok(host == "10.1.2.3" || host == "10.6.6.6"),
                _ => Ok(false),
            }
        }
    }

    fn chosen(specs: &[&str], peer: &str) -> Option<String> {
        decided(specs, peer).unwrap()
    }

    fn decided(specs: &[&str], peer: &str) -> Result<Option<String>, NotKnownYet> {
        let clients: Vec<_> = specs
            .iter()
            .map(|spec| ExportClient {
                spec: ClientSpec::parse(spec).unwrap(),
                options: ExportOptions::default(),
            })
            .collect();
        let selected = select(&clients, peer.parse().unwrap(), &Zone)?;
        Ok(selected.map(|client| client.spec.to_string()))
    }

    #[test]
    fn the_most_specific_kind_applies_and_then_the_first() {
        let all = ["*", "*.example.org", "10.0.0.0/8", "10.1.0.0/16", "alpha.example.org", "10.1.2.3"];
        assert_eq!(chosen(&all, "10.1.2.3").unwrap(), "alpha.example.org");
        assert_eq!(chosen(&all[..4], "10.1.2.3").unwrap(), "10.0.0.0/8");
        assert_eq!(chosen(&all[..2], "::ffff:10.1.2.3").unwrap(), "*.example.org");
        assert_eq!(chosen(&all, "192.0.2.1").unwrap(), "*");
        assert_eq!(chosen(&all[1..], "192.0.2.1"), None);
        assert_eq!(chosen(&["six.example.org"], "2001:db8::6").unwrap(), "six.example.org");
    }

    #[test]
    fn a_claimed_name_without_its_address_is_not_believed() {
        assert_eq!(chosen(&["*.example.org"], "10.6.6.6"), None);
        assert_eq!(chosen(&["alpha.example.org"], "10.6.6.6"), None);
    }

    #[test]
    fn netgroups_come_after_patterns_and_list_names_or_addresses() {
        for group in ["@full", "@short", "@addresses"] {
            assert_eq!(chosen(&["*", group], "10.1.2.3").unwrap(), group);
            assert_eq!(chosen(&["*", group, "*.example.org"], "10.1.2.3").unwrap(), "*.example.org");
        }
        assert_eq!(chosen(&["@other", "@full"], "10.1.2.3").unwrap(), "@full");
        // The address is its own; the name it claims isn't.
        assert_eq!(chosen(&["@addresses"], "10.6.6.6").unwrap(), "@addresses");
        assert_eq!(chosen(&["@full", "@short"], "10.6.6.6"), None);
        assert_eq!(decided(&["@slow", "*"], "10.1.2.3"), Err(NotKnownYet));
        assert_eq!(decided(&["@full", "*"], "10.7.7.7"), Err(NotKnownYet));
    }

    #[test]
    fn a_pattern_matches_the_address_of_a_host_without_a_name() {
        assert_eq!(chosen(&["192.0.2.*"], "192.0.2.9").unwrap(), "192.0.2.*");
        assert_eq!(chosen(&["192.0.2.*"], "198.51.100.1"), None);
        assert_eq!(chosen(&["10.1.2.*"], "10.1.2.3"), None, "it has a name");
    }

    #[test]
    fn an_unresolved_entry_blocks_later_ones() {
        assert_eq!(decided(&["slow.example.org", "*"], "10.1.2.3"), Err(NotKnownYet));
        assert_eq!(decided(&["*.example.org", "*"], "10.7.7.7"), Err(NotKnownYet));
        // An earlier entry applies all the same.
        assert_eq!(chosen(&["10.1.2.3", "slow.example.org"], "10.1.2.3").unwrap(), "10.1.2.3");
        assert_eq!(chosen(&["*.example.org", "10.0.0.0/8"], "10.7.7.7").unwrap(), "10.0.0.0/8");
    }

    #[test]
    fn networks() {
        for (spec, shown) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/255.255.0.0", "10.1.0.0/16"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("[2001:db8::1]/ffff:ffff::", "2001:db8::/32"),
            ("10.0.0.1/32", "10.0.0.1/32"),
            ("::1/128", "::1/128"),
        ] {
            assert_eq!(ClientSpec::parse(spec).unwrap().to_string(), shown, "{spec}");
        }
        assert_eq!(chosen(&["0.0.0.0/0"], "2001:db8::1"), None);
        assert_eq!(chosen(&["::/0"], "10.0.0.1"), None);
        assert!(chosen(&["10.0.0.0/31"], "10.0.0.1").is_some());
        assert!(chosen(&["10.0.0.0/31"], "10.0.0.2").is_none());
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            "@",
            "@a@b",
            "gss/krb5i",
            "10.0.0.0/33",
            "10.0.0.0/255.0.255.0",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "::/129",
            "::/255.0.0.0",
            "name/8",
            "ho st",
            "a/b/c",
            "x[",
            "höst",
            ".",
        ] {
            assert!(ClientSpec::parse(bad).is_err(), "{bad}");
        }
    }
}
