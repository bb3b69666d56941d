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

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;

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

/// The identity of a new client.
///
/// # Errors
/// [`Error::Local`] without random numbers.
pub(super) fn new(options: &Options) -> Result<ClientIdentity> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(|error| Error::Local {
        object: "EXCHANGE_ID".to_owned(),
        source: std::io::Error::other(error),
    })?;
    let (verifier, instance) = random.split_at(8);
    let instance = match &options.unique_id {
        Some(id) => id.clone(),
        None => instance.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let machine = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
    let namespace = std::fs::metadata(MOUNT_NAMESPACE).map_or(0, |namespace| namespace.ino());
    let owner_id = owner_id(&host, machine.trim(), namespace, &instance);
    let mut eight = [0; 8];
    eight.copy_from_slice(verifier);
    Ok(ClientIdentity { owner_id, verifier: eight })
}

fn owner_id(host: &str, machine: &str, namespace: u64, instance: &str) -> Vec<u8> {
    let part = |text: &str| text.bytes().take(MAX_PART).collect::<Vec<u8>>();
    let namespace = namespace.to_string();
    [b"Samehost NFSv4".to_vec(), part(host), part(machine), part(&namespace), part(instance)].join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_the_same_after_a_restart_and_differs_between_instances() {
        let named = |id: &str| Options::new().unique_id(id.to_owned());
        let (first, again) = (new(&named("/mnt")).unwrap(), new(&named("/mnt")).unwrap());
        assert_eq!(first.owner_id, again.owner_id);
        assert_ne!(first.verifier, again.verifier);
        assert_ne!(first.owner_id, new(&named("/other")).unwrap().owner_id);
        assert_ne!(new(&Options::new()).unwrap().owner_id, new(&Options::new()).unwrap().owner_id);
        assert_eq!(owner_id("host", "", 7, "x"), b"Samehost NFSv4/host//7/x");
        assert!(owner_id(&"h".repeat(2000), "m", 7, &"i".repeat(2000)).len() < proto::nfs4::OPAQUE_LIMIT);
    }
}
