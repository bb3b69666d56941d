//! Listening Unix sockets with abstract names in a network namespace, and their owners (`sock_diag(7)`).
//!
//! `/proc/net/unix` lists these sockets among all Unix sockets of the namespace, and without owners. Abstract
//! names have no permissions: every user in the namespace may take any free name.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbstractListener {
    /// Its name without the leading NUL.
    pub name: Vec<u8>,
    /// The user that created it, as this process's user namespace maps it; the overflow id for a user without
    /// a mapping. `None` where the kernel doesn't report it (before Linux 5.3).
    pub uid: Option<u32>,
}

/// Passes the listening `SOCK_SEQPACKET` sockets with abstract names, in the network namespace of the calling
/// thread, to `found` until `deadline`, because a namespace can have any number of them. The first few
/// thousand are listed whatever the deadline, because on a busy machine it may have passed early.
///
/// # Errors
/// `ENOENT`, `EPROTONOSUPPORT` or `EAFNOSUPPORT` where the kernel has no `sock_diag` for Unix sockets (use
/// `/proc/net/unix` then), `EPERM` or `EACCES` where a seccomp filter forbids it, and when the system is
/// short of descriptors or memory. Sockets found before an error are valid.
pub fn abstract_listeners(
    deadline: Instant,
    mut found: impl FnMut(AbstractListener),
) -> rustix::io::Result<()> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let netlink: OwnedFd =
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&netlink, &request(), SendFlags::empty(), &kernel)?;
    let mut answer = vec![0; ANSWER_SIZE];
    for part in 0_usize.. {
        if part >= MIN_PARTS && Instant::now() >= deadline {
            break;
        }
        // The kernel has the next part ready when the previous one has been read.
        let (length, _) = rustix::net::recv(&netlink, &mut answer, RecvFlags::DONTWAIT)?;
        if !read_part(&answer[..length], &mut found)? {
            break;
        }
    }
    Ok(())
}

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR`, `NLMSG_DONE`, and `NLM_F_REQUEST | NLM_F_DUMP`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST_ALL: u16 = 0x301;

/// `TCP_LISTEN`, which means listening in every family; `SOCK_SEQPACKET`.
const LISTEN: u8 = 10;
const SEQPACKET: u8 = 5;

/// `UDIAG_SHOW_NAME | UDIAG_SHOW_UID`, `UNIX_DIAG_NAME`, `UNIX_DIAG_UID`.
const SHOW: u32 = 0x41;
const NAME: u16 = 0;
const UID: u16 = 7;

/// `struct nlmsghdr`; with `struct unix_diag_req` and `struct unix_diag_msg` after it; `struct rtattr`.
const HEADER: usize = 16;
const REQUEST_SIZE: usize = HEADER + 24;
const MESSAGE: usize = HEADER + 16;
const ATTRIBUTE: usize = 4;

/// Parts that are read whatever the deadline: a few hundred sockets each.
const MIN_PARTS: usize = 8;

/// More than the kernel's largest part (32 KiB).
const ANSWER_SIZE: usize = 64 << 10;

/// The request for all listening Unix sockets.
fn request() -> [u8; REQUEST_SIZE] {
    let mut message = [0; REQUEST_SIZE];
    message[..4].copy_from_slice(&(REQUEST_SIZE as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    message[HEADER] = u8::try_from(AddressFamily::UNIX.as_raw()).unwrap_or(0);
    message[HEADER + 4..HEADER + 8].copy_from_slice(&(1_u32 << LISTEN).to_ne_bytes());
    message[HEADER + 12..HEADER + 16].copy_from_slice(&SHOW.to_ne_bytes());
    message
}

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Parses one part of a reply, which has several messages. Returns whether more parts follow.
fn read_part(mut part: &[u8], found: &mut impl FnMut(AbstractListener)) -> rustix::io::Result<bool> {
    while !part.is_empty() {
        let (length, kind) = (four(part, 0).ok_or(Errno::BADMSG)?, two(part, 4).ok_or(Errno::BADMSG)?);
        let length = length as usize;
        let message = part.get(..length).filter(|message| message.len() >= HEADER).ok_or(Errno::BADMSG)?;
        match kind {
            SOCK_DIAG_BY_FAMILY => {
                if let Some(listener) = listener(message) {
                    found(listener);
                }
            }
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let error = four(message, HEADER).ok_or(Errno::BADMSG)?.cast_signed();
                return Err(Errno::from_raw_os_error(error.checked_neg().ok_or(Errno::BADMSG)?));
            }
            _ => {}
        }
        part = &part[length.next_multiple_of(4).min(part.len())..];
    }
    Ok(true)
}

/// The socket in a message, if it is a listening `SOCK_SEQPACKET` socket with an abstract name.
fn listener(message: &[u8]) -> Option<AbstractListener> {
    if message.get(HEADER + 1) != Some(&SEQPACKET) || message.get(HEADER + 2) != Some(&LISTEN) {
        return None;
    }
    let (mut name, mut uid) = (None, None);
    let mut rest = message.get(MESSAGE..)?;
    while let (Some(length), Some(kind)) = (two(rest, 0), two(rest, 2)) {
        let length = usize::from(length);
        let value = rest.get(ATTRIBUTE..length)?;
        match kind {
            NAME => name = Some(value),
            UID => uid = four(value, 0),
            _ => {}
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    // An abstract name begins with a NUL, a path doesn't.
    let name = name?.strip_prefix(b"\0")?.to_vec();
    Some(AbstractListener { name, uid })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::net::SocketAddrUnix;

    use super::*;

    fn bound(name: &[u8], kind: SocketType, listens: bool) -> OwnedFd {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name).unwrap()).unwrap();
        if listens {
            rustix::net::listen(&socket, 1).unwrap();
        }
        socket
    }

    #[test]
    fn only_listening_seqpacket_sockets_are_listed() {
        let name = |kind: &str| format!("samehost-test/{}/{kind}", std::process::id()).into_bytes();
        let (listening, silent, stream) = (name("listening"), name("silent"), name("stream"));
        let _sockets = [
            bound(&listening, SocketType::SEQPACKET, true),
            bound(&silent, SocketType::SEQPACKET, false),
            bound(&stream, SocketType::STREAM, true),
        ];
        let mut found = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        match abstract_listeners(deadline, |listener| found.push(listener)) {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT | Errno::PERM) => return,
            Err(error) => panic!("{error}"),
        }
        let ours = found.iter().find(|listener| listener.name == listening).expect("it listens");
        assert!(ours.uid.is_none_or(|uid| uid == rustix::process::geteuid().as_raw()));
        assert!(found.iter().all(|listener| listener.name != silent && listener.name != stream));
    }

    #[test]
    fn malformed_replies_are_errors_or_ignored() {
        let none = &mut |_| panic!("nobody listens");
        assert_eq!(read_part(&[], none), Ok(true));
        assert_eq!(read_part(&[1; 7], none), Err(Errno::BADMSG));
        assert_eq!(read_part(&[0; 20], none), Err(Errno::BADMSG));
        let mut refusal = [0; 36];
        refusal[0] = 36;
        refusal[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        refusal[16..20].copy_from_slice(&(-libc::ENOENT).to_ne_bytes());
        assert_eq!(read_part(&refusal, none), Err(Errno::NOENT));
        let mut message = [0; MESSAGE];
        message[0] = 38;
        message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        (message[HEADER + 1], message[HEADER + 2]) = (SEQPACKET, LISTEN);
        // An attribute that is longer than the message, and one of no length.
        for attribute in [[0xff, 0xff, 0, 0, 0, b'x'], [0, 0, 0, 0, 0, b'x']] {
            assert_eq!(listener(&[&message[..], &attribute].concat()), None);
        }
    }
}
