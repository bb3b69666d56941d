//! What the host knows about users, groups and its domain: through its name service switch, which may ask a
//! directory server and take its time. Runs on threads of [`Lookups`](crate::authorization::lookups::Lookups).

use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};

use super::owners::Kind;

/// idmapd's configuration, which the kernel's server goes by.
const IDMAPD: &str = "/etc/idmapd.conf";
/// idmapd's domain where the host has none.
const NO_DOMAIN: &str = "localdomain";

/// getaddrinfo(3)'s flag that asks for the canonical name.
const AI_CANONNAME: i32 = 2;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Question {
    Id(Kind, String),
    Name(Kind, u32),
    /// The domain behind users' names.
    Domain,
}

/// What is found. Nothing, too, is an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Answer {
    pub id: Option<u32>,
    pub name: Option<String>,
}

/// Answers a question; `None` if nobody can say.
pub(super) fn look_up(question: &Question) -> Option<Answer> {
    let user = |user: User| Answer { id: Some(user.uid.as_raw()), name: Some(user.name) };
    let group = |group: Group| Answer { id: Some(group.gid.as_raw()), name: Some(group.name) };
    let found = match question {
        Question::Id(Kind::User, name) => User::from_name(name).map(|found| found.map(user)),
        Question::Id(Kind::Group, name) => Group::from_name(name).map(|found| found.map(group)),
        Question::Name(Kind::User, id) => User::from_uid(Uid::from_raw(*id)).map(|found| found.map(user)),
        Question::Name(Kind::Group, id) => Group::from_gid(Gid::from_raw(*id)).map(|found| found.map(group)),
        Question::Domain => return Some(Answer { id: None, name: Some(domain()) }),
    };
    match found {
        Ok(found) => Some(found.unwrap_or_default()),
        Err(error) => {
            tracing::info!(?question, %error, "a lookup failed");
            None
        }
    }
}

/// The domain as idmapd finds it: its configuration's, or what follows the host's own name in the name that
/// the host is known by.
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

/// What follows a host's own name.
fn of_host(name: &str) -> Option<String> {
    let (_, domain) = name.split_once('.')?;
    (!domain.is_empty()).then(|| domain.trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_where_idmapd_has_it() {
        let text =
            "# Domain = no\n[Mapping]\nDomain=wrong\n[General]\nVerbosity = 0\n  domain =  example.org \n";
        assert_eq!(configured(text).as_deref(), Some("example.org"));
        assert_eq!(configured("[General]\n#Domain = localdomain\nDomain =\n"), None);
        assert_eq!(of_host("a.example.org").as_deref(), Some("example.org"));
        assert_eq!((of_host("a"), of_host("a.")), (None, None));
        assert!(!domain().is_empty());
    }

    #[test]
    fn root_is_known_and_nobody_else_is_root() {
        let root = look_up(&Question::Id(Kind::User, "root".into())).unwrap();
        assert_eq!(root, Answer { id: Some(0), name: Some("root".into()) });
        assert_eq!(look_up(&Question::Name(Kind::Group, 0)).unwrap().name.as_deref(), Some("root"));
        assert_eq!(look_up(&Question::Id(Kind::Group, "no such group".into())), Some(Answer::default()));
    }
}
