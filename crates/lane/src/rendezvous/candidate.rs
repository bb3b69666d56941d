//! One connection to a server that may be the one.

use super::{Reason, RendezvousOptions};
use crate::client::Established;
use crate::memory::Memory;
use crate::message::{self, MAX_MESSAGE, Reply, Request, VERSIONS};
use crate::nonce::{Commitment, Instance, Nonce};
use crate::peer::PeerCredentials;
use crate::socket::{self, Received};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// See the module.
pub(super) struct Candidate {
    pub(super) socket: OwnedFd,
    /// Where it was found.
    pub(super) through: String,
    /// The instance in the name under which it was found.
    pub(super) instance: Option<Instance>,
}

/// What a candidate has said.
pub(super) enum Answer {
    /// Nothing.
    NotYet,
    /// It is the server.
    Local(Box<Established>),
    /// It isn't, and won't be.
    Never(Reason),
}

impl Candidate {
    /// Looks who is there and, if it is somebody we trust, registers.
    pub(super) fn register(
        self,
        options: &RendezvousOptions,
        commitment: Commitment,
    ) -> Result<Self, Reason> {
        let through = || self.through.clone();
        let failed = |error: Errno| Reason::Failed { through: through(), error: error.to_string() };
        let peer = PeerCredentials::of(&self.socket).map_err(failed)?;
        if !options.trusts(peer.uid) {
            return Err(match peer.uid {
                Some(uid) => Reason::Untrusted { through: through(), uid },
                None => Reason::UntrustedUnmapped { through: through(), overflow: sys::peer::overflow_uid() },
            });
        }
        let register = Request::Register { lowest: *VERSIONS.start(), highest: *VERSIONS.end(), commitment };
        socket::send(&self.socket, &message::encode(&register), &[]).map_err(failed)?;
        Ok(self)
    }

    /// What it has said by now.
    pub(super) fn look(&self, nonce: &Nonce) -> Answer {
        let through = || self.through.clone();
        let violation = |what| Answer::Never(Reason::Violation { through: through(), what });
        let mut buffer = [0; MAX_MESSAGE + 1];
        let (length, fd) = match socket::receive_descriptors(&self.socket, &mut buffer, false) {
            Err(Errno::AGAIN) => return Answer::NotYet,
            Ok(Received::Datagram { length, mut fds, no_room: false }) if fds.len() < 2 => {
                (length, fds.pop())
            }
            Ok(Received::Datagram { no_room: true, .. }) => {
                return Answer::Never(Reason::Failed { through: through(), error: Errno::MFILE.to_string() });
            }
            Ok(Received::Datagram { .. }) => return violation("descriptors that nobody asked for"),
            Ok(Received::HangUp) | Err(_) => return Answer::Never(Reason::HungUp(through())),
            Ok(Received::Violation(what)) => return violation(what),
        };
        let (version, theirs, instance, outstanding, slots) = match message::decode(&buffer[..length]) {
            Ok(Reply::Local { version, nonce, instance, outstanding, slots, .. }) => {
                (version, nonce, instance, outstanding, slots)
            }
            Ok(Reply::Refused(refusal)) => {
                return Answer::Never(Reason::Refused { through: through(), refusal });
            }
            _ => return violation("no message of the handshake"),
        };
        if theirs != *nonce || self.instance.is_some_and(|expected| expected != instance) {
            return Answer::Never(Reason::Impostor(through()));
        }
        if !VERSIONS.contains(&version) {
            return violation("a version that we didn't offer");
        }
        let Some(fd) = fd else { return violation("no interlock memory") };
        let memory = match Memory::from_peer(fd) {
            Ok(memory) => memory,
            Err(error) => {
                return Answer::Never(Reason::Failed { through: through(), error: error.to_string() });
            }
        };
        let socket = match self.socket.try_clone() {
            Ok(socket) => socket,
            Err(error) => {
                return Answer::Never(Reason::Failed { through: through(), error: error.to_string() });
            }
        };
        Answer::Local(Box::new(Established {
            socket,
            memory,
            version,
            outstanding,
            slots,
            instance,
            through: through(),
        }))
    }
}
