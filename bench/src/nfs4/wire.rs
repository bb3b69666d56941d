//! A minimal RPC client over one TCP connection, so that the server dominates the measurement.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rpc::message::{AuthSys, CallHeader, Credential, ReplyHeader, ReplyStatus};
use xdr::{Decoder, Encoder};

/// The longest time to wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection with root's credentials.
pub struct Wire {
    stream: BufReader<TcpStream>,
    credential: Credential,
    xid: u32,
    sending: Encoder,
    received: Vec<u8>,
}

impl Wire {
    /// Connects to a server on this machine.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).with_context(|| format!("port {port}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let machine_name = b"bench".to_vec();
        let credential = Credential::Sys(AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids: vec![] });
        let stream = BufReader::with_capacity(64 << 10, stream);
        Ok(Self { stream, credential, xid: 0, sending: Encoder::new(), received: Vec::new() })
    }

    /// Sends a call; its number.
    pub fn send(
        &mut self,
        (program, version, procedure): (u32, u32, u32),
        args: impl FnOnce(&mut Encoder),
    ) -> Result<u32> {
        self.xid += 1;
        let to = &mut self.sending;
        to.truncate(0);
        to.u32(0);
        CallHeader::encode(to, self.xid, program, version, procedure, &self.credential);
        args(to);
        let mark = rpc::record::mark(to.position() - 4)?;
        to.patch_u32(0, mark);
        self.stream.get_mut().write_all(to.as_slice())?;
        Ok(self.xid)
    }

    /// Receives the next reply: the call's number, and the results.
    pub fn receive(&mut self) -> Result<(u32, &[u8])> {
        self.received.clear();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let start = self.received.len();
            self.received.resize(start + (mark & 0x7fff_ffff) as usize, 0);
            self.stream.read_exact(&mut self.received[start..])?;
            if mark >> 31 == 1 {
                break;
            }
        }
        let mut from = Decoder::new(&self.received);
        let header = ReplyHeader::decode(&mut from)?;
        ensure!(header.status == ReplyStatus::Success, "{:?}", header.status);
        let at = self.received.len() - from.rest().len();
        Ok((header.xid, &self.received[at..]))
    }

    /// Sends a call and waits for its results.
    pub fn call(&mut self, what: (u32, u32, u32), args: impl FnOnce(&mut Encoder)) -> Result<&[u8]> {
        let sent = self.send(what, args)?;
        let (xid, results) = self.receive()?;
        ensure!(xid == sent, "reply {xid} to call {sent}");
        Ok(results)
    }
}
