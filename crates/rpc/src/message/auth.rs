//! Authentication flavours and credentials (RFC 5531 sections 8.1, 8.2 and appendix A).

use xdr::{Decode, Decoder, Encode, Encoder};

/// The longest body of a credential or verifier, in bytes (`opaque body<400>`, section 8.2).
pub const MAX_AUTH_BODY: usize = 400;

/// The longest `machinename` of AUTH_SYS, in bytes (appendix A).
pub const MAX_MACHINE_NAME: usize = 255;

/// The most `gids` of AUTH_SYS (appendix A).
pub const MAX_GIDS: usize = 16;

/// `auth_flavor` (section 8.1): an open set of numbers, so a number with named constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthFlavor(pub u32);

impl AuthFlavor {
    /// No authentication.
    pub const NONE: Self = Self(0);
    /// A Unix user's ids, unauthenticated (appendix A).
    pub const SYS: Self = Self(1);
    /// RFC 2203. Not implemented.
    pub const RPCSEC_GSS: Self = Self(6);
    /// RFC 9289. Not implemented.
    pub const TLS: Self = Self(7);
}

/// `opaque_auth` (section 8.2): an undecoded credential or verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// The flavour, which determines the format of the body.
    pub flavor: AuthFlavor,
    /// At most [`MAX_AUTH_BODY`] bytes.
    pub body: &'a [u8],
}

impl OpaqueAuth<'_> {
    /// AUTH_NONE, as a credential and as the verifier of every message that is sent.
    pub const NONE: Self = Self { flavor: AuthFlavor::NONE, body: &[] };
}

impl<'a> Decode<'a> for OpaqueAuth<'a> {
    #[inline]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        Ok(Self { flavor: AuthFlavor(from.u32()?), body: from.opaque(MAX_AUTH_BODY)? })
    }
}

impl Encode for OpaqueAuth<'_> {
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.flavor.0);
        to.opaque(self.body);
    }
}

/// `auth_stat` (section 9): why a credential was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum AuthStat {
    /// Success. Never part of an error.
    #[error("AUTH_OK")]
    Ok = 0,
    /// Bad credential (seal broken).
    #[error("bad credential (AUTH_BADCRED)")]
    BadCred = 1,
    /// The client must begin a new session.
    #[error("credential rejected (AUTH_REJECTEDCRED)")]
    RejectedCred = 2,
    /// Bad verifier (seal broken).
    #[error("bad verifier (AUTH_BADVERF)")]
    BadVerf = 3,
    /// Verifier expired or replayed.
    #[error("verifier rejected (AUTH_REJECTEDVERF)")]
    RejectedVerf = 4,
    /// Rejected for security reasons: a stronger flavour is wanted.
    #[error("a stronger flavour is wanted (AUTH_TOOWEAK)")]
    TooWeak = 5,
    /// The client found the server's verifier bad.
    #[error("bogus response verifier (AUTH_INVALIDRESP)")]
    InvalidResp = 6,
    /// Any other reason, also those of Kerberos and RPCSEC_GSS.
    #[error("authentication failed (AUTH_FAILED)")]
    Failed = 7,
}

impl Encode for AuthStat {
    fn encode(&self, to: &mut Encoder) {
        to.u32(*self as u32);
    }
}

impl<'a> Decode<'a> for AuthStat {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        Ok(match from.u32()? {
            0 => Self::Ok,
            1 => Self::BadCred,
            2 => Self::RejectedCred,
            3 => Self::BadVerf,
            4 => Self::RejectedVerf,
            5 => Self::TooWeak,
            6 => Self::InvalidResp,
            // The set is open (section 14 and the flavours that add to it), so unknown reasons are valid.
            _ => Self::Failed,
        })
    }
}

/// `authsys_parms` (appendix A).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AuthSys {
    /// A number of the caller's choice.
    pub stamp: u32,
    /// The caller's host name: at most [`MAX_MACHINE_NAME`] bytes.
    pub machine_name: Vec<u8>,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Further groups: at most [`MAX_GIDS`].
    pub gids: Vec<u32>,
}

impl<'a> Decode<'a> for AuthSys {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        Ok(Self {
            stamp: from.u32()?,
            machine_name: from.opaque(MAX_MACHINE_NAME)?.to_vec(),
            uid: from.u32()?,
            gid: from.u32()?,
            gids: from.get::<xdr::Array<u32, MAX_GIDS>>()?.0,
        })
    }
}

impl Encode for AuthSys {
    /// Values above the RFC's bounds are cut: the name is informational, and of more than 16 groups the first
    /// 16 are sent, as every Unix does.
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.stamp);
        to.opaque(&self.machine_name[..self.machine_name.len().min(MAX_MACHINE_NAME)]);
        to.u32(self.uid);
        to.u32(self.gid);
        let gids = &self.gids[..self.gids.len().min(MAX_GIDS)];
        to.length(gids.len());
        gids.iter().for_each(|gid| to.u32(*gid));
    }
}

/// A credential of an implemented flavour.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(AuthSys),
}

impl Credential {
    /// Decodes a call's credential.
    ///
    /// # Errors
    /// [`AuthStat::BadCred`] for another flavour, a body that is not of its flavour, or bytes behind it.
    pub fn from_opaque(opaque: &OpaqueAuth<'_>) -> Result<Self, AuthStat> {
        match opaque.flavor {
            AuthFlavor::NONE => Ok(Self::None),
            AuthFlavor::SYS => {
                let mut body = Decoder::new(opaque.body);
                let sys = body.get().and_then(|sys| body.finish().map(|()| sys));
                sys.map(Self::Sys).map_err(|_| AuthStat::BadCred)
            }
            _ => Err(AuthStat::BadCred),
        }
    }
}

impl Encode for Credential {
    /// As an `opaque_auth`: flavour, length, body.
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::None => to.put(&OpaqueAuth::NONE),
            Self::Sys(sys) => {
                to.u32(AuthFlavor::SYS.0);
                let length = to.position();
                to.u32(0);
                to.put(sys);
                let body = to.position() - length - 4;
                to.patch_u32(length, u32::try_from(body).unwrap_or(0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opaque(credential: &Credential) -> Vec<u8> {
        let mut to = Encoder::new();
        to.put(credential);
        to.into_vec()
    }

    #[test]
    fn credentials_come_back_as_they_were() {
        let sys =
            AuthSys { stamp: 7, machine_name: b"host".to_vec(), uid: 1000, gid: 100, gids: vec![4, 24] };
        for credential in [Credential::None, Credential::Sys(sys)] {
            let bytes = opaque(&credential);
            let mut from = Decoder::new(&bytes);
            let auth: OpaqueAuth<'_> = from.get().unwrap();
            from.finish().unwrap();
            assert_eq!(Credential::from_opaque(&auth), Ok(credential));
        }
    }

    #[test]
    fn more_than_the_rfc_allows_is_cut_when_sent() {
        let sys = AuthSys { machine_name: vec![b'x'; 300], gids: (0..40).collect(), ..AuthSys::default() };
        let bytes = opaque(&Credential::Sys(sys));
        let auth: OpaqueAuth<'_> = Decoder::new(&bytes).get().unwrap();
        let Ok(Credential::Sys(sys)) = Credential::from_opaque(&auth) else { panic!("not AUTH_SYS") };
        assert_eq!((sys.machine_name.len(), sys.gids.len()), (255, 16));
    }

    #[test]
    fn invalid_credentials_are_rejected() {
        let bad = |flavor, body| Credential::from_opaque(&OpaqueAuth { flavor: AuthFlavor(flavor), body });
        assert_eq!(bad(6, &[]), Err(AuthStat::BadCred));
        assert_eq!(bad(1, &[0; 8]), Err(AuthStat::BadCred), "truncated");
        assert_eq!(bad(1, &[0; 24]), Err(AuthStat::BadCred), "trailing");
        let mut many = vec![0; 16];
        many.extend_from_slice(&17u32.to_be_bytes());
        many.extend_from_slice(&[0; 68]);
        assert_eq!(bad(1, &many), Err(AuthStat::BadCred), "17 groups");
    }
}
