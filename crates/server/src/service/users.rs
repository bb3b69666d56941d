//! The host's names of users and groups, and its NFSv4 domain, from the name service switch.
//!
//! A lookup may ask a directory server and take long: it runs on the threads of
//! [`Lookups`](crate::authorization::lookups::Lookups).

use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};

/// The configuration of idmapd, which the kernel's server uses.
const IDMAPD: &str = "/etc/idmapd.conf";
/// idmapd's domain where the host has none.
const NO_DOMAIN: &str = "localdomain";

/// getaddrinfo(3)'s flag that asks for the canonical name.
const AI_CANONNAME: i32 = 2;

/// Users or groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OwnerKind {
    User,
    Group,
}

/// A lookup.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum NameQuery {
    Id(OwnerKind, String),
    Name(OwnerKind, u32),
    /// The domain behind users' names.
    Domain,
}

/// The result of a lookup; empty if there is no such user or group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NameAnswer {
    pub id: Option<u32>,
    pub name: Option<String>,
}

/// Runs a lookup; `None` if it fails.
pub(super) fn look_up(question: &NameQuery) -> Option<NameAnswer> {
    let user = |user: User| NameAnswer { id: Some(user.uid.as_raw()), name: Some(user.name) };
    let group = |group: Group| NameAnswer { id: Some(group.gid.as_raw()), name: Some(group.name) };
    let found = match question {
        NameQuery::Id(OwnerKind::User, name) => User::from_name(name).map(|found| found.map(user)),
        NameQuery::Id(OwnerKind::Group, name) => Group::from_name(name).map(|found| found.map(group)),
        NameQuery::Name(OwnerKind::User, id) => {
            User::from_uid(Uid::from_raw(*id)).map(|found| found.map(user))
        }
        NameQuery::Name(OwnerKind::Group, id) => {
            Group::from_gid(Gid::from_raw(*id)).map(|found| found.map(group))
        }
        NameQuery::Domain => return Some(NameAnswer { id: None, name: Some(domain()) }),
    };
    match found {
        Ok(found) => Some(found.unwrap_or_default()),
        Err(error) => {
            tracing::info!(?question, %error, "a lookup failed");
            None
        }
    }
}

/// The domain as idmapd determines it: the configured one, or the domain part of the host's canonical name.
fn domain() -> String {
    let configured = std::fs::read_to_string(Path::new(IDMAPD)).ok().and_then(|text| configured(&text));
    configured.or_else(|| of_host(&canonical_name()?)).unwrap_or_else(|| NO_DOMAIN.to_owned())
}

/// `Domain` in the section `General`.
fn configured(text: &str) -> Option<String> {
    let mut general = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            general = section.trim_end_matches(']').trim().eq_ignore_ascii_case("general");
        } else if let Some((key, value)) = line.split_once('=').filter(|_| general)
            && key.trim().eq_ignore_ascii_case("domain")
            && !value.trim().is_empty()
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

fn canonical_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.contains('.') {
        return Some(name);
    }
    let hints = dns_lookup::AddrInfoHints { flags: AI_CANONNAME, ..Default::default() };
    let mut found = dns_lookup::getaddrinfo(Some(&name), None, Some(hints)).ok()?;
    found.find_map(|address| address.ok()?.canonname)
}

/// The domain part of a host's name.
fn of_host(name: &str) -> Option<String> {
    let (_, domain) = name.split_once('.')?;
    (!domain.is_empty()).then(|| domain.trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_the_configured_one_or_the_hosts() {
        let text =
            "# Domain = no\n[Mapping]\nDomain=wrong\n[General]\nVerbosity = 0\n  domain =  example.org \n";
        assert_eq!(configured(text).as_deref(), Some("example.org"));
        assert_eq!(configured("[General]\n#Domain = localdomain\nDomain =\n"), None);
        assert_eq!(of_host("a.example.org").as_deref(), Some("example.org"));
        assert_eq!((of_host("a"), of_host("a.")), (None, None));
        assert!(!domain().is_empty());
    }

    #[test]
    fn root_is_found_and_unknown_names_are_not() {
        let root = look_up(&NameQuery::Id(OwnerKind::User, "root".into())).unwrap();
        assert_eq!(root, NameAnswer { id: Some(0), name: Some("root".into()) });
        assert_eq!(look_up(&NameQuery::Name(OwnerKind::Group, 0)).unwrap().name.as_deref(), Some("root"));
        assert_eq!(
            look_up(&NameQuery::Id(OwnerKind::Group, "no such group".into())),
            Some(NameAnswer::default())
        );
    }
}
