//! Owners and groups as strings (RFC 8881 section 5.9).
//!
//! To clients they go as numbers, as the Linux server has it for AUTH_SYS (`nfs4_disable_idmapping`), or, if
//! the admin wants it, as `name@domain`, where the name is known; numbers for the rest. From clients both are
//! taken: a number as it stands, a name when its domain is ours and the host knows it.

use std::time::Duration;

use proto::nfs4::Nfsstat4;
use xdr::Encoder;

use super::Result;
use super::users::{self, Answer, Question};
use crate::authorization::lookups::{Lookups, MAX_REMEMBERED};

/// How long a call waits for a name that was never known.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whose names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    User,
    Group,
}

/// How ids and strings become one another.
#[derive(Debug)]
pub(crate) struct Owners {
    /// Ours; else what the host says.
    domain: Option<String>,
    /// Clients get names.
    names: bool,
    lookups: Lookups<Question, Answer>,
}

impl Owners {
    /// With this domain, or the host's; clients get names if `names`.
    pub(crate) fn new(domain: Option<String>, names: bool) -> Self {
        Self { domain, names, lookups: Lookups::new(users::look_up, PATIENCE, MAX_REMEMBERED) }
    }

    /// Appends an id.
    pub(super) fn put(&self, kind: Kind, id: u32, to: &mut Encoder) {
        match self.names.then(|| self.name(kind, id)).flatten() {
            Some(name) => to.opaque(name.as_bytes()),
            None => put_number(id, to),
        }
    }

    /// The id that a string from a client means.
    ///
    /// # Errors
    /// `Inval` for what isn't UTF-8 or empty, `Badowner` for what nobody is called, `Delay` while that is
    /// being looked up.
    pub(super) fn parse(&self, kind: Kind, text: &[u8]) -> Result<u32> {
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
        let answer = self.lookups.ask(&Question::Id(kind, name.to_owned())).map_err(|_| Nfsstat4::Delay)?;
        answer.id.ok_or(Nfsstat4::Badowner)
    }

    /// What an id is called, if it can be told now.
    fn name(&self, kind: Kind, id: u32) -> Option<String> {
        let answer = self.lookups.ask(&Question::Name(kind, id)).ok()?;
        let name = answer.name.as_ref()?;
        Some(format!("{name}@{}", self.domain()?))
    }

    /// Our domain, if it can be told now.
    fn domain(&self) -> Option<String> {
        self.domain.clone().or_else(|| self.lookups.ask(&Question::Domain).ok()?.name.clone())
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

    fn put(owners: &Owners, kind: Kind, id: u32) -> String {
        let mut to = Encoder::new();
        owners.put(kind, id, &mut to);
        let text = to.into_vec();
        let length = text[3] as usize;
        String::from_utf8(text[4..4 + length].to_vec()).unwrap()
    }

    #[test]
    fn numbers_go_and_come() {
        let owners = Owners::new(Some("example.org".into()), false);
        for id in [0, 7, 10, 4_294_967_294, u32::MAX] {
            let text = put(&owners, Kind::User, id);
            assert_eq!(text, id.to_string());
            assert_eq!(owners.parse(Kind::Group, text.as_bytes()), Ok(id));
        }
        for bad in ["root", "root@", "@example.org", "01", "-1", "+1", "4294967296", "1 ", "a\0@example.org"]
        {
            assert_eq!(owners.parse(Kind::User, bad.as_bytes()), Err(Nfsstat4::Badowner), "{bad}");
        }
        assert_eq!(owners.parse(Kind::User, b""), Err(Nfsstat4::Inval));
        assert_eq!(owners.parse(Kind::User, &[0xff]), Err(Nfsstat4::Inval));
    }

    #[test]
    fn names_are_those_of_the_host_in_its_domain() {
        let owners = Owners::new(Some("Example.org".into()), true);
        assert_eq!(put(&owners, Kind::User, 0), "root@Example.org");
        assert_eq!(put(&owners, Kind::Group, 0), "root@Example.org");
        assert_eq!(put(&owners, Kind::User, 3_999_999_999), "3999999999", "nobody is called so");
        assert_eq!(owners.parse(Kind::User, b"root@example.ORG"), Ok(0));
        assert_eq!(owners.parse(Kind::Group, b"root@example.org"), Ok(0));
        assert_eq!(owners.parse(Kind::User, b"root@example.com"), Err(Nfsstat4::Badowner));
        assert_eq!(owners.parse(Kind::User, b"no such user@example.org"), Err(Nfsstat4::Badowner));
    }
}
