//! Who a client is to its server: the client owner of EXCHANGE_ID (RFC 8881 section 2.4).
//!
//! The owner's id is the host's name, its machine id (machine-id(5), if it has one), the inode number of the
//! process's mount namespace, and an instance within that. Containers of one image have the same machine id,
//! and the same name if they share the host's, but each has its own mount namespace. A server ends the state
//! of an owner's former instance when it sees another verifier, so two clients at the same time must not have
//! the same owner; and a client that restarts with the same owner needn't wait until its former state
//! expires.
//!
//! The instance is [`Options::unique_id`], for a mount its mount point. Without one it is a random number, as
//! for programs that use the library: they have nothing to come back to.
//!
//! A former instance may still run: the process of a mount that was unmounted returns its delegations, and
//! one that was detached (`umount -l`) serves the files that are open. Two clients of one owner would end
//! each other's state again and again. So a client claims its owner for as long as it lives, and one that
//! finds it claimed waits for [`PATIENCE`] and then appends a number to its instance. The claim is a Unix
//! socket with an abstract name, which ends with its process. Any local user could take that name, too: the
//! client then has another owner, and nothing else follows.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::time::{Instant, sleep};

use super::session::ClientIdentity;
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

/// Keeps others on this host from using the same owner at the same server, until it is dropped.
#[derive(Debug)]
pub(super) struct OwnerClaim {
    _socket: Option<OwnedFd>,
}

impl OwnerClaim {
    /// `None` if another client has claimed the owner.
    fn new(owner_id: &[u8], server: SocketAddr) -> Option<Self> {
        let claimed = || -> rustix::io::Result<OwnedFd> {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            let name = format!("samehost/nfs4-owner/{server}/{:016x}", fnv(owner_id));
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

/// The identity of a new client of a server.
///
/// # Errors
/// [`Error::Local`] without random numbers.
pub(super) async fn new(options: &Options, server: SocketAddr) -> Result<ClientIdentity> {
    identity(options, server, PATIENCE).await
}

async fn identity(options: &Options, server: SocketAddr, patience: Duration) -> Result<ClientIdentity> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(|error| Error::Local {
        object: "EXCHANGE_ID".to_owned(),
        source: std::io::Error::other(error),
    })?;
    let (verifier, instance) = random.split_at(8);
    let unique = instance.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let machine = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    let namespace = std::fs::metadata(MOUNT_NAMESPACE).map_or(0, |namespace| namespace.ino());
    let owner_of = |instance: &str| owner_id(&host, machine.trim(), namespace, instance);
    let mut eight = [0; 8];
    eight.copy_from_slice(verifier);
    let claimed = match &options.unique_id {
        Some(id) => claim(|number| owner_of(&numbered(id, number)), server, patience).await,
        None => None,
    };
    Ok(match claimed {
        Some((owner_id, claim)) => ClientIdentity { owner_id, verifier: eight, claim: Some(claim) },
        None => ClientIdentity { owner_id: owner_of(&unique), verifier: eight, claim: None },
    })
}

/// Claims the first owner, or after `patience` the first that is free.
async fn claim(
    owner: impl Fn(u32) -> Vec<u8>,
    server: SocketAddr,
    patience: Duration,
) -> Option<(Vec<u8>, OwnerClaim)> {
    let until = Instant::now() + patience;
    let claim = |number| {
        let owner = owner(number);
        let claim = OwnerClaim::new(&owner, server)?;
        Some((owner, claim))
    };
    loop {
        match claim(0) {
            None if Instant::now() < until => sleep(PAUSE).await,
            None => return (1..MAX_INSTANCES).find_map(claim),
            claimed => return claimed,
        }
    }
}

/// The instance of an id with this number.
fn numbered(id: &str, number: u32) -> String {
    // In front, so that no bound cuts it off.
    if number == 0 { id.to_owned() } else { format!("{number}#{id}") }
}

fn owner_id(host: &str, machine: &str, namespace: u64, instance: &str) -> Vec<u8> {
    let part = |text: &str| text.bytes().take(MAX_PART).collect::<Vec<u8>>();
    let namespace = namespace.to_string();
    [b"Samehost NFSv4".to_vec(), part(host), part(machine), part(&namespace), part(instance)].join(&b'/')
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    const SERVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 2049));

    async fn of(options: &Options) -> ClientIdentity {
        identity(options, SERVER, Duration::ZERO).await.unwrap()
    }

    #[tokio::test]
    async fn an_owner_is_the_same_after_a_restart_and_differs_between_instances() {
        // Ids of this process: tests of others run at the same time.
        let id = |name: &str| format!("{name} {}", std::process::id());
        let named = |name: &str| Options::new().unique_id(id(name));
        let first = of(&named("/mnt")).await;
        let (owner, verifier) = (first.owner_id.clone(), first.verifier);
        let beside = of(&named("/mnt")).await;
        assert_ne!(beside.owner_id, owner, "two at the same time");
        assert_eq!(identity(&named("/mnt"), other_server(), PATIENCE).await.unwrap().owner_id, owner);
        let options = named("/mnt");
        let waiting = tokio::spawn(async move { identity(&options, SERVER, PATIENCE).await.unwrap() });
        tokio::task::yield_now().await;
        drop(first);
        let again = waiting.await.unwrap();
        assert_eq!(again.owner_id, owner);
        assert_ne!(again.verifier, verifier);
        assert_ne!(owner, of(&named("/other")).await.owner_id);
        assert_ne!(of(&Options::new()).await.owner_id, of(&Options::new()).await.owner_id);
        assert_eq!(owner_id("host", "", 7, "x"), b"Samehost NFSv4/host//7/x");
        assert!(owner_id(&"h".repeat(2000), "m", 7, &"i".repeat(2000)).len() < proto::nfs4::OPAQUE_LIMIT);
    }

    fn other_server() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 2049))
    }

    /// Whoever takes all the names only makes the client another one.
    #[tokio::test]
    async fn a_client_whose_owners_are_all_claimed_has_one_of_its_own() {
        let options = Options::new().unique_id(format!("/squatted {}", std::process::id()));
        let mut taken = Vec::new();
        for _ in 0..MAX_INSTANCES + 2 {
            let identity = of(&options).await;
            assert!(taken.iter().all(|other: &ClientIdentity| other.owner_id != identity.owner_id));
            taken.push(identity);
        }
        assert!(taken.last().is_some_and(|last| last.claim.is_none()));
    }
}
