//! Registration with rpcbind (RFC 1833), so that clients that use it find MOUNT and NFS. Without rpcbind on
//! the host nothing is registered: the port is the well-known one or part of the URL.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proto::rpcbind::{self, Procedure, Rpcb, from_universal, to_universal};
use proto::{mount3, nfs3};
use rpc::message::{CallHeader, Credential, ReplyHeader, ReplyStatus};
use xdr::{Decode, Decoder, Encode, Encoder, Opaque};

/// rpcbind's Unix socket, where it knows the user that registers.
const SOCKET: &str = "/run/rpcbind.sock";
/// The timeout of each exchange with rpcbind.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of a reply in bytes: far above that of an address.
const MAX_REPLY: usize = 8 << 10;

/// The registrations that were made. Dropping this removes them.
#[derive(Debug)]
pub(crate) struct Registrations {
    made: Vec<Registration>,
}

#[derive(Debug, Clone)]
struct Registration {
    program: u32,
    version: u32,
    address: SocketAddr,
}

/// Registers both programs at all of `addresses`; `None` if no rpcbind runs. The strings describe what
/// failed.
pub(crate) fn register(addresses: &[SocketAddr]) -> Option<(Registrations, Vec<String>)> {
    let mut rpcbind = match Rpcbind::connect() {
        Ok(rpcbind) => rpcbind,
        Err(error) => {
            tracing::debug!(%error, "no rpcbind to register with");
            return None;
        }
    };
    let (mut made, mut problems) = (Vec::new(), Vec::new());
    for (program, version) in [(mount3::PROGRAM, mount3::VERSION), (nfs3::PROGRAM, nfs3::VERSION)] {
        for address in addresses {
            let registration = Registration { program, version, address: *address };
            match rpcbind.register(&registration) {
                Ok(true) => made.push(registration),
                Ok(false) => problems.push(format!(
                    "rpcbind has another server for program {program} on {}: clients that ask rpcbind go \
                     there",
                    registration.netid()
                )),
                Err(error) => {
                    problems.push(format!(
                        "rpcbind doesn't register program {program} at {address}: \
                                           {error}"
                    ));
                }
            }
        }
    }
    Some((Registrations { made }, problems))
}

impl Drop for Registrations {
    fn drop(&mut self) {
        if self.made.is_empty() {
            return;
        }
        let unset = |rpcbind: &mut Rpcbind| {
            self.made.iter().try_for_each(|made| rpcbind.call::<bool>(Procedure::Unset, made).map(|_| ()))
        };
        if let Err(error) = Rpcbind::connect().and_then(|mut rpcbind| unset(&mut rpcbind)) {
            tracing::warn!(%error, "rpcbind keeps our registrations");
        }
    }
}

impl Registration {
    fn netid(&self) -> &'static str {
        if self.address.is_ipv4() { "tcp" } else { "tcp6" }
    }
}

impl Encode for Registration {
    fn encode(&self, to: &mut Encoder) {
        let address = to_universal(self.address);
        to.put(&Rpcb {
            prog: self.program,
            vers: self.version,
            netid: Opaque(self.netid().as_bytes()),
            addr: Opaque(address.as_bytes()),
            owner: Opaque(b""),
        });
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection to rpcbind.
struct Rpcbind {
    stream: Box<dyn Stream>,
    xid: u32,
}

impl Rpcbind {
    fn connect() -> io::Result<Self> {
        let stream: Box<dyn Stream> = match UnixStream::connect(SOCKET) {
            Ok(stream) => {
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
            Err(_) => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rpcbind::PORT));
                let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
        };
        Ok(Self { stream, xid: std::process::id() })
    }

    /// SET; false if another server is registered and alive. A dead server's registration is replaced.
    fn register(&mut self, registration: &Registration) -> io::Result<bool> {
        if self.call(Procedure::Set, registration)? {
            return Ok(true);
        }
        let present = self.call::<OwnedString>(Procedure::Getaddr, registration)?.0;
        let dead = from_universal(&present).is_none_or(|other| {
            // This server's own port, or one without a listener.
            other.port() == registration.address.port() || refused(other)
        });
        if !dead {
            return Ok(false);
        }
        self.call::<bool>(Procedure::Unset, registration)?;
        self.call(Procedure::Set, registration)
    }

    fn call<R: for<'a> Decode<'a>>(&mut self, procedure: Procedure, args: &Registration) -> io::Result<R> {
        self.xid = self.xid.wrapping_add(1);
        let mut to = Encoder::new();
        to.u32(0);
        CallHeader::encode(
            &mut to,
            self.xid,
            rpcbind::PROGRAM,
            rpcbind::RPCB_VERSION_4,
            procedure.number(),
            &Credential::None,
        );
        to.put(args);
        let mark = rpc::record::mark(to.position() - rpc::record::MARK).map_err(io::Error::other)?;
        to.patch_u32(0, mark);
        self.stream.write_all(to.as_slice())?;
        let record = self.record()?;
        let mut from = Decoder::new(&record);
        let header = ReplyHeader::decode(&mut from).map_err(io::Error::other)?;
        if header.xid != self.xid || header.status != ReplyStatus::Success {
            return Err(io::Error::other(format!("answers {:?}", header.status)));
        }
        from.get().map_err(io::Error::other)
    }

    fn record(&mut self) -> io::Result<Vec<u8>> {
        let mut reader = rpc::record::Reader::new(MAX_REPLY);
        let mut buffer = [0; 1024];
        loop {
            let count = self.stream.read(&mut buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(record) = reader.take(&mut &buffer[..count]).map_err(io::Error::other)? {
                return Ok(record);
            }
        }
    }
}

/// A string from rpcbind.
struct OwnedString(Vec<u8>);

impl<'a> Decode<'a> for OwnedString {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        from.opaque(rpcbind::MAX_STRING).map(|text| Self(text.to_vec()))
    }
}

/// Whether an address of this host has no listener.
fn refused(mut address: SocketAddr) -> bool {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    matches!(
        TcpStream::connect_timeout(&address, TIMEOUT),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused
    )
}
