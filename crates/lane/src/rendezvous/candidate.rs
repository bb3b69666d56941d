//! A connection to a server that may be the one at the other end of the NFS connection.

use super::options::{RendezvousOptions, trusts_unnamed};
use super::reason::Reason;
use crate::client::Established;
use crate::memory::InterlockMemory;
use crate::message::{self, LaneReply, LaneRequest, MAX_MESSAGE, VERSIONS};
use crate::nonce::{Commitment, Instance, Nonce};
use crate::peer::PeerCredentials;
use crate::socket::{self, Received};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// A candidate with which this client has registered.
pub(super) struct Candidate {
    socket: OwnedFd,
    /// Where it was found.
    pub(super) through: String,
    /// The instance in the name under which it was found.
    instance: Option<Instance>,
    /// Only the configuration trusts its user.
    files_only: bool,
}

/// The state of a candidate.
pub(super) enum CandidateState {
    /// It has sent nothing.
    NotYet,
    /// It is the server.
    Local(Box<Established>),
    /// It isn't the server.
    Never(Reason),
}

impl Candidate {
    /// Checks the user of the process at the other end and, if it is trusted, registers.
    pub(super) fn register(
        socket: OwnedFd,
        through: String,
        instance: Option<Instance>,
        options: &RendezvousOptions,
        commitment: Commitment,
    ) -> Result<Self, Reason> {
        let failed = |error: Errno| Reason::Failed { through: through.clone(), error: error.to_string() };
        let peer = PeerCredentials::of(&socket).map_err(failed)?;
        if !options.trusts(peer.uid) {
            return Err(match peer.uid {
                Some(uid) => Reason::Untrusted { through, uid },
                None => Reason::UntrustedUnmapped { through, overflow: sys::peer::overflow_uid() },
            });
        }
        let register =
            LaneRequest::Register { lowest: *VERSIONS.start(), highest: *VERSIONS.end(), commitment };
        socket::send(&socket, &message::encode(&register), &[]).map_err(failed)?;
        Ok(Self { socket, through, instance, files_only: !trusts_unnamed(peer.uid) })
    }

    /// Reads what it has sent by now.
    pub(super) fn look(&self, nonce: &Nonce) -> CandidateState {
        let through = || self.through.clone();
        let violation = |what| CandidateState::Never(Reason::Violation { through: through(), what });
        let mut buffer = [0; MAX_MESSAGE + 1];
        let (length, fd) = match socket::receive_descriptors(&self.socket, &mut buffer, false) {
            Err(Errno::AGAIN) => return CandidateState::NotYet,
            Ok(Received::Datagram { length, mut fds, no_room: false }) if fds.len() < 2 => {
                (length, fds.pop())
            }
            Ok(Received::Datagram { no_room: true, .. }) => {
                return CandidateState::Never(Reason::Failed {
                    through: through(),
                    error: Errno::MFILE.to_string(),
                });
            }
            Ok(Received::Datagram { .. }) => return violation("unexpected descriptors"),
            Ok(Received::HangUp) | Err(_) => return CandidateState::Never(Reason::HungUp(through())),
            Ok(Received::Violation(what)) => return violation(what),
        };
        let (version, theirs, instance, outstanding, slots) = match message::decode(&buffer[..length]) {
            Ok(LaneReply::Local { version, nonce, instance, outstanding, slots, .. }) => {
                (version, nonce, instance, outstanding, slots)
            }
            Ok(LaneReply::Refused(refusal)) => {
                return CandidateState::Never(Reason::Refused { through: through(), refusal });
            }
            _ => return violation("no message of the handshake"),
        };
        if theirs != *nonce || self.instance.is_some_and(|expected| expected != instance) {
            return CandidateState::Never(Reason::Impostor(through()));
        }
        if !VERSIONS.contains(&version) {
            return violation("a version that we didn't offer");
        }
        let Some(fd) = fd else { return violation("no interlock memory") };
        let memory = match InterlockMemory::from_peer(fd) {
            Ok(memory) => memory,
            Err(error) => {
                return CandidateState::Never(Reason::Failed {
                    through: through(),
                    error: error.to_string(),
                });
            }
        };
        let socket = match self.socket.try_clone() {
            Ok(socket) => socket,
            Err(error) => {
                return CandidateState::Never(Reason::Failed {
                    through: through(),
                    error: error.to_string(),
                });
            }
        };
        CandidateState::Local(Box::new(Established {
            socket,
            memory,
            version,
            outstanding,
            slots,
            instance,
            through: through(),
            files_only: self.files_only,
        }))
    }
}
