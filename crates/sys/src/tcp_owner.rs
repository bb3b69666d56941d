//! The owner of the other end of a TCP connection within this host (`sock_diag(7)`).
//!
//! Unix sockets have `SO_PEERCRED`, TCP has no equivalent. But the other end of a connection within one
//! network namespace is a socket of the same kernel, which reports the owners of its sockets.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, netlink};

use crate::peer::overflow_uid;

/// The owner of the other end of a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TcpOwner {
    /// Not a socket of this network namespace: another host, or a container with a network of its own.
    Remote,
    /// The user that created the socket, as this process's user namespace maps it.
    User(u32),
    /// A socket of this host without a known user: its process has closed it, or the user has no mapping in
    /// this user namespace.
    Unknown,
}

/// The owner of the other end of `connection`, a connected TCP socket.
///
/// The answer is reliable only while the connection is established. So if no other end is found, our own end
/// is looked up as well: a process that closes its socket with a reset leaves readable data, and must not be
/// taken for another host.
///
/// A kernel without `sock_diag` for TCP can't report owners. Then a peer with a loopback address, or with the
/// address that it connected to, is [`TcpOwner::Unknown`], and every other peer is [`TcpOwner::Remote`].
///
/// # Errors
/// When the system is short of descriptors or memory, and `ENOTCONN`: the owner couldn't be determined.
pub fn tcp_owner(connection: impl AsFd) -> rustix::io::Result<TcpOwner> {
    let address = |any: SocketAddrAny| SocketAddr::try_from(any).map_err(|_| Errno::AFNOSUPPORT);
    let local = address(rustix::net::getsockname(&connection)?)?;
    let peer = address(rustix::net::getpeername(&connection)?.ok_or(Errno::NOTCONN)?)?;
    let by_address = if peer.ip().to_canonical().is_loopback() || peer.ip() == local.ip() {
        TcpOwner::Unknown
    } else {
        TcpOwner::Remote
    };
    let netlink = match Netlink::open() {
        Ok(netlink) => netlink,
        Err(Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT | Errno::PERM | Errno::ACCESS) => {
            return Ok(by_address);
        }
        Err(error) => return Err(error),
    };
    match netlink.look_up(peer, local)? {
        Some(Socket { state: ESTABLISHED, uid, inode }) if inode != 0 && uid != overflow_uid() => {
            Ok(TcpOwner::User(uid))
        }
        Some(_) => Ok(TcpOwner::Unknown),
        None => match netlink.look_up(local, peer)? {
            Some(Socket { state: ESTABLISHED, .. }) => Ok(by_address),
            Some(_) => Ok(TcpOwner::Unknown),
            // Either our end was reset, or this kernel doesn't answer such requests for TCP.
            None if rustix::net::getpeername(&connection).is_ok() => Ok(by_address),
            None => Ok(TcpOwner::Unknown),
        },
    }
}

/// A netlink socket for requests.
struct Netlink(OwnedFd);

impl Netlink {
    fn open() -> rustix::io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
        Ok(Self(socket))
    }

    fn look_up(&self, source: SocketAddr, destination: SocketAddr) -> rustix::io::Result<Option<Socket>> {
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.0, &request(source, destination), SendFlags::empty(), &kernel)?;
        let mut answer = [0; ANSWER_SIZE];
        // The kernel replies before sendto(2) returns.
        let (length, _) = rustix::net::recv(&self.0, &mut answer, RecvFlags::DONTWAIT)?;
        parse(&answer[..length], destination.port())
    }
}

/// `TCP_ESTABLISHED`; `TCP_LISTEN`.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR`, `NLM_F_REQUEST`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
const HEADER: usize = 16;
const REQUEST_SIZE: usize = HEADER + 56;

/// More than `struct inet_diag_msg` and the attributes that are always included.
const ANSWER_SIZE: usize = 1024;

/// A socket as reported by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Socket {
    state: u8,
    uid: u32,
    /// 0 for a socket that no process has open.
    inode: u32,
}

/// The request for the socket that is bound to `source` and connected to `destination`.
fn request(source: SocketAddr, destination: SocketAddr) -> [u8; REQUEST_SIZE] {
    let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut message = [0; REQUEST_SIZE];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        message[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    // struct nlmsghdr
    put(&(REQUEST_SIZE as u32).to_ne_bytes());
    put(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(&NLM_F_REQUEST.to_ne_bytes());
    put(&[0; 8]); // sequence, port
    // struct inet_diag_req_v2: family, protocol, no extensions, padding, all states
    put(&[u8::try_from(family.as_raw()).unwrap_or(0), 6, 0, 0]);
    put(&u32::MAX.to_ne_bytes());
    // struct inet_diag_sockid
    put(&source.port().to_be_bytes());
    put(&destination.port().to_be_bytes());
    put(&octets(source.ip()));
    put(&octets(destination.ip()));
    put(&0_u32.to_ne_bytes()); // any interface
    put(&[0xff; 8]); // INET_DIAG_NOCOOKIE
    message
}

/// An address in the form of `struct inet_diag_sockid`.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// The socket in a reply, if there is one. If no connection matches, the kernel may report a listening socket
/// instead, recognisable by a peer without a port.
fn parse(answer: &[u8], destination_port: u16) -> rustix::io::Result<Option<Socket>> {
    let four =
        |at: usize| answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::BADMSG);
    let two = |at: usize| answer.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::BADMSG);
    match u16::from_ne_bytes(two(4)?) {
        SOCK_DIAG_BY_FAMILY => {
            // struct inet_diag_msg: state, ports and addresses, then expiry and queues, then uid and inode
            let state = *answer.get(HEADER + 1).ok_or(Errno::BADMSG)?;
            let port = u16::from_be_bytes(two(HEADER + 6)?);
            let uid = u32::from_ne_bytes(four(HEADER + 64)?);
            let inode = u32::from_ne_bytes(four(HEADER + 68)?);
            Ok((state != LISTEN && port == destination_port).then_some(Socket { state, uid, inode }))
        }
        NLMSG_ERROR => match i32::from_ne_bytes(four(HEADER)?).checked_neg() {
            Some(libc::ENOENT) => Ok(None),
            Some(error) => Err(Errno::from_raw_os_error(error)),
            None => Err(Errno::BADMSG),
        },
        _ => Err(Errno::BADMSG),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connected(address: &str) -> Option<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(address).ok()?;
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        Some((client, server))
    }

    #[test]
    fn a_process_of_this_host_is_known_by_its_user() {
        let us = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Some((client, server)) = connected(address) else { continue };
            assert_eq!(tcp_owner(&server), Ok(TcpOwner::User(us)), "{address}");
            assert_eq!(tcp_owner(&client), Ok(TcpOwner::User(us)), "{address}");
        }
    }

    #[test]
    fn a_closed_socket_has_an_unknown_owner() {
        let (mut client, server) = connected("127.0.0.1:0").unwrap();
        client.write_all(b"a call").unwrap();
        drop(client);
        assert_eq!(tcp_owner(&server), Ok(TcpOwner::Unknown), "after a FIN");

        let (mut client, server) = connected("127.0.0.1:0").unwrap();
        client.write_all(b"a call").unwrap();
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(tcp_owner(&server), Err(Errno::NOTCONN), "after a RST");
    }

    #[test]
    fn a_listener_on_the_peers_port_is_not_the_peer() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (client, _server) = connected("127.0.0.1:0").unwrap();
        // There is no such connection, but a listener on the port.
        let other = SocketAddr::from(([192, 0, 2, 1], port));
        let found = Netlink::open().unwrap().look_up(other, client.local_addr().unwrap());
        assert_eq!(found, Ok(None));
    }

    #[test]
    fn netlink_errors_are_reported() {
        assert_eq!(parse(&[], 1), Err(Errno::BADMSG));
        let mut refusal = [0; 36];
        refusal[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        refusal[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(parse(&refusal, 1), Err(Errno::PERM));
        refusal[16..20].copy_from_slice(&(-libc::ENOENT).to_ne_bytes());
        assert_eq!(parse(&refusal, 1), Ok(None));
    }
}
