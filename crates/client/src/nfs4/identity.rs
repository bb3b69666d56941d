//! Who a client is to its server: the client owner of EXCHANGE_ID (RFC 8881 section 2.4).
//!
//! The owner's id is the host's name, its machine id (machine-id(5), if it has one), the inode number of the
//! process's mount namespace, the user who establishes the session, and an instance within that. Containers
//! of one image have the same machine id, and the same name if they share the host's, but each has its own
//! mount namespace. A server ends the state of an owner's former instance when it sees another verifier, so
//! two clients at the same time must not have the same owner; and a client that restarts with the same owner
//! needn't wait until its former state expires. A server that sees an owner with another principal refuses
//! it, or ends the owner's client at once if that is idle (section 18.35.4, case 3), so the principal is part
//! of the owner.
//!
//! The instance is [`Options::unique_id`], for a mount its mount point. Without one it is a random number, as
//! for programs that use the library: they have nothing to come back to.
//!
//! A former instance may still run: the process of a mount that was unmounted returns its delegations, and
//! one that was detached (`umount -l`) serves the files that are open. Two clients of one owner would end
//! each other's state again and again. So a client claims its owner at its server for as long as it lives,
//! and one that finds it claimed waits for [`PATIENCE`] and then appends a number to its instance. The claim
//! is a Unix socket with an abstract name, which ends with its process. Any local user could take that name,
//! too: the client then has another owner, and nothing else follows.
//!
//! A server is known by its scope (`eir_server_scope`, section 2.10.4), whatever its address is: one that has
//! several addresses knows its clients by their owners alone, and the servers of one scope take over each
//! other's clients. The scope is in the reply to EXCHANGE_ID. So the owner is claimed after EXCHANGE_ID,
//! which ends nothing, and before CREATE_SESSION, which does (section 18.35.4, case 5). A server that falsely
//! says that it is of another's scope gets a client with another number, and nothing else follows.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rpc::message::Credential;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::time::{Instant, sleep};

use crate::error::{Error, Result};
use crate::options::Options;

/// The file of machine-id(5).
const MACHINE_ID: &str = "/etc/machine-id";

/// The mount namespace of this process. Its inode number differs from those of all others that exist.
const MOUNT_NAMESPACE: &str = "/proc/self/ns/mnt";

/// The longest part of the owner's id that comes from files and options, in bytes. The whole has a bound of
/// 1024 (`NFS4_OPAQUE_LIMIT`).
const MAX_PART: usize = 256;

/// How long a client waits for the end of a former instance: longer than the process of an unmounted mount
/// takes to end.
const PATIENCE: Duration = Duration::from_millis(2500);

/// The pause between attempts to claim an owner.
const PAUSE: Duration = Duration::from_millis(20);

/// The instances of one id that can run at the same time and come back after a restart.
const MAX_INSTANCES: u32 = 16;

/// Keeps others on this host from using the same owner in the same scope, until it is dropped.
#[derive(Debug)]
struct OwnerClaim {
    _socket: Option<OwnedFd>,
}

impl OwnerClaim {
    /// `None` if another client has claimed the owner.
    fn new(owner_id: &[u8], scope: &[u8]) -> Option<Self> {
        let claimed = || -> rustix::io::Result<OwnedFd> {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            let name = format!("samehost/nfs4-owner/{:016x}/{:016x}", fnv(owner_id), fnv(scope));
            rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
            Ok(socket)
        };
        match claimed() {
            Ok(socket) => Some(Self { _socket: Some(socket) }),
            Err(rustix::io::Errno::ADDRINUSE) => None,
            Err(error) => {
                tracing::debug!(%error, "the NFSv4 client owner can't be claimed");
                Some(Self { _socket: None })
            }
        }
    }
}

/// The FNV-1a hash. It is the same in all builds.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Who a client is to its server. The owner changes if it is another client's in the server's scope.
#[derive(Debug)]
pub(super) struct ClientIdentity {
    /// What the owners of this host, process and user begin with.
    prefix: Vec<u8>,
    /// [`Options::unique_id`], unless all of its instances are others'.
    unique_id: Option<String>,
    /// The number of the instance with this id.
    number: u32,
    /// The instance without an id.
    random: String,
    /// `co_verifier`: another in each instance of the client.
    verifier: [u8; 8],
    /// The scope in which the owner is claimed.
    claim: Option<(Box<[u8]>, OwnerClaim)>,
}

impl ClientIdentity {
    /// The identity of a new client, whose sessions a user with this credential establishes.
    ///
    /// # Errors
    /// [`Error::Local`] without random numbers.
    pub(super) fn new(options: &Options, user: &Credential) -> Result<Self> {
        let mut random = [0; 24];
        getrandom::fill(&mut random).map_err(|error| Error::Local {
            object: "EXCHANGE_ID".to_owned(),
            source: std::io::Error::other(error),
        })?;
        let (verifier, instance) = random.split_at(8);
        let random = instance.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let machine = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
        let namespace = std::fs::metadata(MOUNT_NAMESPACE).map_or(0, |namespace| namespace.ino());
        let user = match user {
            Credential::None => "anonymous".to_owned(),
            Credential::Sys(sys) => sys.uid.to_string(),
        };
        let mut eight = [0; 8];
        eight.copy_from_slice(verifier);
        Ok(Self {
            prefix: prefix(&host, machine.trim(), namespace, &user),
            unique_id: options.unique_id.clone(),
            number: 0,
            random,
            verifier: eight,
            claim: None,
        })
    }

    /// `co_ownerid`.
    pub(super) fn owner_id(&self) -> Vec<u8> {
        let instance = match &self.unique_id {
            None => self.random.clone(),
            Some(id) if self.number == 0 => id.clone(),
            // In front, so that no bound cuts it off.
            Some(id) => format!("{}#{id}", self.number),
        };
        [&self.prefix[..], &bounded(&instance)].concat()
    }

    /// `co_verifier`.
    pub(super) const fn verifier(&self) -> [u8; 8] {
        self.verifier
    }

    /// Claims the owner in the scope of the server that has answered its EXCHANGE_ID. If it is another
    /// client's for too long, the owner changes, and the result is `false`: EXCHANGE_ID is due for the other
    /// owner.
    pub(super) async fn claim_in(&mut self, scope: &[u8]) -> bool {
        self.claim_within(scope, PATIENCE).await
    }

    async fn claim_within(&mut self, scope: &[u8], patience: Duration) -> bool {
        if self.unique_id.is_none() || self.claim.as_ref().is_some_and(|(claimed, _)| **claimed == *scope) {
            return true;
        }
        // That in another scope.
        self.claim = None;
        let until = Instant::now() + patience;
        while !self.claim_now(scope) {
            if Instant::now() >= until {
                self.take_other_owner(scope);
                return false;
            }
            sleep(PAUSE).await;
        }
        true
    }

    fn claim_now(&mut self, scope: &[u8]) -> bool {
        self.claim = OwnerClaim::new(&self.owner_id(), scope).map(|claim| (scope.into(), claim));
        self.claim.is_some()
    }

    /// Takes the next owner that is free in the scope.
    fn take_other_owner(&mut self, scope: &[u8]) {
        while self.number + 1 < MAX_INSTANCES {
            self.number += 1;
            if self.claim_now(scope) {
                return;
            }
        }
        self.unique_id = None;
    }
}

fn bounded(part: &str) -> Vec<u8> {
    part.bytes().take(MAX_PART).collect()
}

/// An owner's id without the instance.
fn prefix(host: &str, machine: &str, namespace: u64, user: &str) -> Vec<u8> {
    let parts = [host, machine, &namespace.to_string(), user, ""].map(bounded);
    [&b"Samehost NFSv4/"[..], &parts.join(&b'/')].concat()
}

#[cfg(test)]
mod tests {
    use rpc::message::AuthSys;

    use super::*;

    /// A client that has an owner in this scope.
    async fn at(scope: &[u8], options: &Options) -> ClientIdentity {
        let mut identity = ClientIdentity::new(options, &Credential::None).unwrap();
        while !identity.claim_within(scope, Duration::ZERO).await {}
        identity
    }

    /// Ids of this process: tests of others run at the same time.
    fn named(name: &str) -> Options {
        Options::new().unique_id(format!("{name} {}", std::process::id()))
    }

    #[tokio::test]
    async fn an_owner_is_the_same_after_a_restart_and_differs_between_instances() {
        let first = at(b"server", &named("/mnt")).await;
        let (owner, verifier) = (first.owner_id(), first.verifier());
        let beside = at(b"server", &named("/mnt")).await;
        assert_ne!(beside.owner_id(), owner, "two at the same time");
        assert_eq!(at(b"another", &named("/mnt")).await.owner_id(), owner);
        let waiting = tokio::spawn(async move {
            let mut again = ClientIdentity::new(&named("/mnt"), &Credential::None).unwrap();
            assert!(again.claim_in(b"server").await);
            again
        });
        tokio::task::yield_now().await;
        drop(first);
        let again = waiting.await.unwrap();
        assert_eq!(again.owner_id(), owner);
        assert_ne!(again.verifier(), verifier);
        assert_ne!(owner, at(b"server", &named("/other")).await.owner_id());
        let random = Options::new();
        assert_ne!(at(b"server", &random).await.owner_id(), at(b"server", &random).await.owner_id());
    }

    #[test]
    fn an_owner_has_the_host_the_user_and_the_instance() {
        assert_eq!(prefix("host", "", 7, "0"), b"Samehost NFSv4/host//7/0/");
        let long = "x".repeat(2000);
        let of = |uid| {
            let sys = AuthSys { stamp: 0, machine_name: Vec::new(), uid, gid: 0, gids: Vec::new() };
            ClientIdentity::new(&Options::new().unique_id(long.clone()), &Credential::Sys(sys)).unwrap()
        };
        assert_ne!(of(0).owner_id(), of(1).owner_id(), "principals");
        let longest = prefix(&long, &long, u64::MAX, &u32::MAX.to_string()).len() + bounded(&long).len();
        assert!(longest <= proto::nfs4::OPAQUE_LIMIT);
    }

    #[tokio::test]
    async fn a_client_at_another_server_claims_its_owner_there() {
        let (mut moves, stays) = (at(b"old", &named("/moved")).await, at(b"new", &named("/moved")).await);
        assert_eq!(moves.owner_id(), stays.owner_id());
        assert!(moves.claim_within(b"old", Duration::ZERO).await);
        assert!(!moves.claim_within(b"new", Duration::ZERO).await);
        assert_ne!(moves.owner_id(), stays.owner_id());
        assert!(moves.claim_within(b"new", Duration::ZERO).await);
        assert_eq!(at(b"old", &named("/moved")).await.owner_id(), stays.owner_id());
    }

    /// Whoever takes all the names only makes the client another one.
    #[tokio::test]
    async fn a_client_whose_owners_are_all_claimed_has_one_of_its_own() {
        let mut taken = Vec::new();
        for _ in 0..MAX_INSTANCES + 2 {
            let identity = at(b"server", &named("/squatted")).await;
            assert!(taken.iter().all(|other: &ClientIdentity| other.owner_id() != identity.owner_id()));
            taken.push(identity);
        }
        assert!(taken.last().is_some_and(|last| last.claim.is_none()));
    }
}
