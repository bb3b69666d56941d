//! A worker's cache of decoded credentials. Nearly every call has a credential that was used just before, and
//! comparing bytes costs less than decoding and allocates nothing.

use crate::message::{AuthFlavor, AuthStat, Credential, OpaqueAuth};

/// The number of cached credentials.
const REMEMBERED: usize = 8;

/// The last few credentials. Its size is bounded by [`REMEMBERED`] times 400 bytes and their decoded form.
#[derive(Debug, Default)]
pub struct Credentials {
    remembered: Vec<(Vec<u8>, Credential)>,
    next: usize,
}

impl Credentials {
    /// Decodes `opaque`, or finds it in the cache.
    ///
    /// # Errors
    /// As [`Credential::from_opaque`].
    #[inline]
    pub fn get(&mut self, opaque: &OpaqueAuth<'_>) -> Result<&Credential, AuthStat> {
        if opaque.flavor == AuthFlavor::NONE {
            return Ok(&Credential::None);
        }
        let known =
            |(body, _): &(Vec<u8>, Credential)| body == opaque.body && opaque.flavor == AuthFlavor::SYS;
        let index = match self.remembered.iter().position(known) {
            Some(index) => index,
            None => self.remember(opaque)?,
        };
        Ok(&self.remembered[index].1)
    }

    #[cold]
    fn remember(&mut self, opaque: &OpaqueAuth<'_>) -> Result<usize, AuthStat> {
        let entry = (opaque.body.to_vec(), Credential::from_opaque(opaque)?);
        let index = self.next;
        self.next = (index + 1) % REMEMBERED;
        match self.remembered.get_mut(index) {
            Some(old) => *old = entry,
            None => self.remembered.push(entry),
        }
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use xdr::{Encode as _, Encoder};

    use super::*;
    use crate::message::AuthSys;

    #[test]
    fn every_credential_is_decoded_as_itself() {
        let mut credentials = Credentials::default();
        let none = OpaqueAuth { flavor: AuthFlavor::NONE, body: b"whatever" };
        for uid in (0..20).chain(0..20) {
            let sys = AuthSys { uid, ..AuthSys::default() };
            let mut body = Encoder::new();
            sys.encode(&mut body);
            let opaque = OpaqueAuth { flavor: AuthFlavor::SYS, body: body.as_slice() };
            for _ in 0..2 {
                assert_eq!(credentials.get(&opaque), Ok(&Credential::Sys(sys.clone())));
            }
            let other = OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body: body.as_slice() };
            assert_eq!(credentials.get(&other), Err(AuthStat::BadCred), "same body, other flavour");
            assert_eq!(credentials.get(&none), Ok(&Credential::None));
        }
        assert!(credentials.remembered.len() <= REMEMBERED);
    }
}
