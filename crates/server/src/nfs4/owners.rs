//! Owners and groups as strings (RFC 8881 section 5.9): numbers go as decimal digits, which every client of ours that
//! speaks AUTH_SYS takes, and come back so or as a name of this host, with or without a domain.

use proto::nfs4::Nfsstat4;
use xdr::Encoder;

use super::Result;

/// Appends an id.
pub(super) fn put(id: u32, to: &mut Encoder) {
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

/// The id that a string from a client means.
pub(super) fn parse(text: &[u8]) -> Result<u32> {
    if text.is_empty() {
        return Err(Nfsstat4::Inval);
    }
    let text = std::str::from_utf8(text).map_err(|_| Nfsstat4::Inval)?;
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain).ok_or(Nfsstat4::Badowner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_and_come() {
        for id in [0, 7, 10, 4_294_967_294, u32::MAX] {
            let mut to = Encoder::new();
            put(id, &mut to);
            let text = to.into_vec();
            let length = text[3] as usize;
            assert_eq!(parse(&text[4..4 + length]), Ok(id));
        }
        for bad in ["root@example", "01", "-1", "+1", "4294967296", "1 "] {
            assert_eq!(parse(bad.as_bytes()), Err(Nfsstat4::Badowner), "{bad}");
        }
        assert_eq!(parse(b""), Err(Nfsstat4::Inval));
        assert_eq!(parse(&[0xff]), Err(Nfsstat4::Inval));
    }
}
