//! Owners and groups as strings (RFC 8881 section 5.9).
//!
//! Clients get numbers, as the Linux server sends them for AUTH_SYS (`nfs4_disable_idmapping`), or
//! `name@domain` if the administrator configures that and the host knows the name. The server takes both: a
//! number as it stands, a name if the domain is the server's and the host knows the name.

use std::time::Duration;

use proto::nfs4::Nfsstat4;
use xdr::Encoder;

use super::users::{self, NameAnswer, NameQuery, OwnerKind};
use crate::authorization::lookups::{Lookups, MAX_REMEMBERED};

/// How long a call waits for a name that isn't cached.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

/// Translates ids to strings and back.
#[derive(Debug)]
pub(crate) struct Owners {
    /// The configured domain; otherwise it is the host's.
    domain: Option<String>,
    /// Clients get names instead of numbers.
    names: bool,
    lookups: Lookups<NameQuery, NameAnswer>,
}

impl Owners {
    /// With this domain, or the host's. Clients get `names`, or numbers.
    pub(crate) fn new(domain: Option<String>, names: bool) -> Self {
        Self { domain, names, lookups: Lookups::new(users::look_up, LOOKUP_TIMEOUT, MAX_REMEMBERED) }
    }

    /// Appends an id.
    pub(crate) fn put(&self, kind: OwnerKind, id: u32, to: &mut Encoder) {
        match self.names.then(|| self.name(kind, id)).flatten() {
            Some(name) => to.opaque(name.as_bytes()),
            None => put_number(id, to),
        }
    }

    /// The id that a string from a client means.
    ///
    /// # Errors
    /// `Inval` for an empty string or one that isn't UTF-8, `Badowner` for an unknown name, `Delay` while the
    /// name is looked up.
    pub(crate) fn parse(&self, kind: OwnerKind, text: &[u8]) -> Result<u32, Nfsstat4> {
        let text = std::str::from_utf8(text).map_err(|_| Nfsstat4::Inval)?;
        if text.is_empty() {
            return Err(Nfsstat4::Inval);
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        if plain {
            return text.parse().map_err(|_| Nfsstat4::Badowner);
        }
        let (name, domain) = text.rsplit_once('@').ok_or(Nfsstat4::Badowner)?;
        let ours = self.domain().ok_or(Nfsstat4::Delay)?;
        if name.is_empty() || name.contains('\0') || !domain.eq_ignore_ascii_case(&ours) {
            return Err(Nfsstat4::Badowner);
        }
        let answer = self.lookups.ask(&NameQuery::Id(kind, name.to_owned())).map_err(|_| Nfsstat4::Delay)?;
        answer.id.ok_or(Nfsstat4::Badowner)
    }

    /// The name of an id, if it is known by now.
    fn name(&self, kind: OwnerKind, id: u32) -> Option<String> {
        let answer = self.lookups.ask(&NameQuery::Name(kind, id)).ok()?;
        let name = answer.name.as_ref()?;
        Some(format!("{name}@{}", self.domain()?))
    }

    /// The domain, if it is known by now.
    fn domain(&self) -> Option<String> {
        self.domain.clone().or_else(|| self.lookups.ask(&NameQuery::Domain).ok()?.name.clone())
    }
}

fn put_number(id: u32, to: &mut Encoder) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = id;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    to.opaque(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(owners: &Owners, kind: OwnerKind, id: u32) -> String {
        let mut to = Encoder::new();
        owners.put(kind, id, &mut to);
        let text = to.into_vec();
        let length = text[3] as usize;
        String::from_utf8(text[4..4 + length].to_vec()).unwrap()
    }

    #[test]
    fn numbers_are_sent_and_parsed() {
        let owners = Owners::new(Some("example.org".into()), false);
        for id in [0, 7, 10, 4_294_967_294, u32::MAX] {
            let text = put(&owners, OwnerKind::User, id);
            assert_eq!(text, id.to_string());
            assert_eq!(owners.parse(OwnerKind::Group, text.as_bytes()), Ok(id));
        }
        for bad in ["root", "root@", "@example.org", "01", "-1", "+1", "4294967296", "1 ", "a\0@example.org"]
        {
            assert_eq!(owners.parse(OwnerKind::User, bad.as_bytes()), Err(Nfsstat4::Badowner), "{bad}");
        }
        assert_eq!(owners.parse(OwnerKind::User, b""), Err(Nfsstat4::Inval));
        assert_eq!(owners.parse(OwnerKind::User, &[0xff]), Err(Nfsstat4::Inval));
    }

    #[test]
    fn names_are_the_hosts_in_its_domain() {
        let owners = Owners::new(Some("Example.org".into()), true);
        assert_eq!(put(&owners, OwnerKind::User, 0), "root@Example.org");
        assert_eq!(put(&owners, OwnerKind::Group, 0), "root@Example.org");
        assert_eq!(put(&owners, OwnerKind::User, 3_999_999_999), "3999999999", "no such user");
        assert_eq!(owners.parse(OwnerKind::User, b"root@example.ORG"), Ok(0));
        assert_eq!(owners.parse(OwnerKind::Group, b"root@example.org"), Ok(0));
        assert_eq!(owners.parse(OwnerKind::User, b"root@example.com"), Err(Nfsstat4::Badowner));
        assert_eq!(owners.parse(OwnerKind::User, b"no such user@example.org"), Err(Nfsstat4::Badowner));
    }
}
