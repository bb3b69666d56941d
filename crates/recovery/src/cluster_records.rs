//! Client records in RADOS: an object for each node and epoch, with a key of the omap for each client.
//!
//! Names of objects, and the form of the values, are those of nfs-ganesha's `rados_cluster` recovery backend:
//! the value is a client's address, its owner string's length and the owner string, in hexadecimal digits if
//! it isn't printable. A client's instance has a verifier, too, which follows where ganesha lists revoked
//! delegations. The object's data, which ganesha leaves empty, has the longest promised lease.

use std::hash::Hasher as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use cluster::object_name;
use parking_lot::Mutex;
use rados::{Guard, ObjectChange, ObjectError, ObjectNamespace, Reason};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::{Recovered, RecoveryStore};

/// How far back records are looked for. The epoch of a node's newest records is the one before the recovery
/// epoch, unless the node was away while other nodes recovered.
const MAX_EPOCHS: u64 = 64;
/// The length of a verifier, with which an instance begins.
const VERIFIER: usize = 8;

/// The client records of one node of a cluster.
#[derive(Debug)]
pub struct ClusterRecords {
    objects: ObjectNamespace,
    node: String,
    open: Mutex<OpenRecords>,
}

/// What this run has recorded.
#[derive(Debug, Default)]
struct OpenRecords {
    /// The epoch in which clients are recorded; `None` before the first.
    epoch: Option<u64>,
    /// The last epoch, whose records would count after a crash, from which clients are removed, too.
    last: Option<u64>,
    clients: Vec<Vec<u8>>,
    lease: Option<Duration>,
}

/// The newest records of a node.
#[derive(Debug)]
pub struct FoundRecords {
    /// The epoch in which they were written.
    pub epoch: u64,
    /// What they say.
    pub recovered: Recovered,
}

impl ClusterRecords {
    /// The records of `node` in this namespace. [`ClusterRecords::open`] comes before clients are recorded.
    #[must_use]
    pub fn new(objects: ObjectNamespace, node: &str) -> Arc<Self> {
        Arc::new(Self { objects, node: node.to_owned(), open: Mutex::default() })
    }

    /// The epochs in which records are looked for, the newest first.
    fn epochs(up_to: u64) -> impl Iterator<Item = u64> {
        (up_to.saturating_sub(MAX_EPOCHS - 1).max(1)..=up_to).rev()
    }

    /// The newest records of a node up to an epoch.
    ///
    /// # Errors
    /// If RADOS can't be read. Records that can't be parsed are among [`Recovered::damaged`].
    pub fn find(&self, of: &str, up_to: u64) -> Result<Option<FoundRecords>, ObjectError> {
        for epoch in Self::epochs(up_to) {
            let name = object_name(epoch, of);
            match self.objects.read(&name) {
                Ok(object) => {
                    let mut recovered = Recovered::default();
                    match parse_lease(&object.data) {
                        Ok(lease) => recovered.lease = lease,
                        Err(()) => {
                            recovered.damaged.push(format!("object {name}: not the length of a lease"))
                        }
                    }
                    for (key, value) in &object.omap {
                        match decode(value).filter(|instance| client_key(instance).as_bytes() == key) {
                            Some(instance) => recovered.clients.push(instance),
                            None => recovered.damaged.push(format!(
                                "object {name}, key {}: not a record that Samehost has written",
                                key.escape_ascii()
                            )),
                        }
                    }
                    return Ok(Some(FoundRecords { epoch, recovered }));
                }
                Err(error) if error.reason == Reason::Missing => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Creates this node's records of `epoch`, or empties them, and records clients there from now on. They
    /// begin with the clients of this run if `carries`; then clients are also removed from the records of the
    /// last epoch, until these are removed.
    ///
    /// # Errors
    /// If they can't be written; clients are recorded where they were.
    pub fn open(&self, epoch: u64, carries: bool) -> Result<(), ObjectError> {
        let mut open = self.open.lock();
        if !carries {
            open.clients.clear();
        }
        let entries: Vec<_> =
            open.clients.iter().map(|client| (client_key(client), encode(client))).collect();
        let set: Vec<_> = entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
        let lease = open.lease.map(lease_data).unwrap_or_default();
        let change =
            ObjectChange { data: Some(lease.as_bytes()), clear: true, set: &set, ..ObjectChange::default() };
        self.objects.change(&object_name(epoch, &self.node), Guard::None, change)?;
        open.last = open.epoch.filter(|last| carries && *last != epoch).or(open.last.filter(|_| carries));
        open.epoch = Some(epoch);
        Ok(())
    }

    /// Removes the records of a node in the epochs up to `up_to`, the oldest first: none of its clients may
    /// reclaim.
    ///
    /// # Errors
    /// If they can't be removed. The newest are removed last.
    pub fn remove(&self, of: &str, up_to: u64) -> Result<(), ObjectError> {
        if of == self.node {
            let mut open = self.open.lock();
            open.last = open.last.filter(|last| *last > up_to);
        }
        let epochs: Vec<_> = Self::epochs(up_to).collect();
        for epoch in epochs.into_iter().rev() {
            match self.objects.remove(&object_name(epoch, of)) {
                Err(error) if error.reason != Reason::Missing => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Changes this node's records of an epoch.
    fn write(&self, epoch: Option<u64>, change: ObjectChange<'_>) -> io::Result<()> {
        let Some(epoch) = epoch else {
            return Err(io::Error::other("this node has no epoch to record its clients in yet"));
        };
        self.objects.change(&object_name(epoch, &self.node), Guard::None, change)?;
        Ok(())
    }
}

impl RecoveryStore for Arc<ClusterRecords> {
    /// Nothing: clients are accepted when the cluster is in grace.
    fn load(&self) -> Recovered {
        Recovered::default()
    }

    fn set_lease(&self, lease: Duration) -> io::Result<()> {
        let mut open = self.open.lock();
        open.lease = Some(lease);
        if open.epoch.is_none() {
            // The records begin with it.
            return Ok(());
        }
        let data = lease_data(lease);
        self.write(open.epoch, ObjectChange { data: Some(data.as_bytes()), ..ObjectChange::default() })
    }

    fn add_client(&self, instance: &[u8]) -> io::Result<()> {
        let (key, value) = (client_key(instance), encode(instance));
        let mut open = self.open.lock();
        let set = [(key.as_bytes(), value.as_bytes())];
        self.write(open.epoch, ObjectChange { set: &set, ..ObjectChange::default() })?;
        if !open.clients.iter().any(|client| client == instance) {
            open.clients.push(instance.to_owned());
        }
        Ok(())
    }

    fn remove_client(&self, instance: &[u8]) -> io::Result<()> {
        let key = client_key(instance);
        let mut open = self.open.lock();
        // What isn't removed from the object isn't carried into the next epoch.
        open.clients.retain(|client| client != instance);
        let remove = &[key.as_bytes()][..];
        if open.last.is_some() {
            self.write(open.last, ObjectChange { remove, ..ObjectChange::default() })?;
        }
        self.write(open.epoch, ObjectChange { remove, ..ObjectChange::default() })
    }
}

/// A client's key: a decimal number, as ganesha's are.
fn client_key(instance: &[u8]) -> String {
    let mut hasher = SipHasher24::new();
    hasher.write(instance);
    hasher.finish128().as_u128().to_string()
}

/// Whether an owner string is written as it is.
fn is_plain(owner: &[u8]) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !b"/#".contains(byte);
    !owner.is_empty() && owner.iter().all(is_plain) && !owner.starts_with(b"0x")
}

/// A client's record.
fn encode(instance: &[u8]) -> String {
    let (verifier, owner) = instance.split_at(VERIFIER.min(instance.len()));
    let owner = match std::str::from_utf8(owner) {
        Ok(text) if is_plain(owner) => text.to_owned(),
        _ => format!("0x{}", hexadecimal(owner)),
    };
    format!("(unknown)-({}:{owner})#{}", owner.len(), hexadecimal(verifier))
}

/// A client's instance, from its record.
fn decode(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?.trim_end_matches('\0');
    let (length, rest) = text.strip_prefix("(unknown)-(")?.split_once(':')?;
    let (owner, rest) = rest.split_at_checked(length.parse().ok()?)?;
    let mut instance = bytes(rest.strip_prefix(")#")?)?;
    match owner.strip_prefix("0x") {
        Some(digits) => instance.extend(bytes(digits)?),
        None => instance.extend_from_slice(owner.as_bytes()),
    }
    Some(instance)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn lease_data(lease: Duration) -> String {
    format!("lease={}\n", lease.as_millis())
}

fn parse_lease(data: &[u8]) -> Result<Option<Duration>, ()> {
    if data.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(data).map_err(drop)?;
    let millis = text.strip_prefix("lease=").and_then(|text| text.strip_suffix('\n')).ok_or(())?;
    millis.parse().map(|millis| Some(Duration::from_millis(millis))).map_err(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_decoded_as_they_were_encoded() {
        let owners: [&[u8]; 7] =
            [b"Linux NFSv4.1 host", b"", b"a/b", b"a#b", b"0xff", b"\0\xff", &[b'x'; 1024]];
        for owner in owners {
            let instance = [b"\x01\x02\x03\x04\x05\x06\x07\xff", owner].concat();
            let value = encode(&instance);
            assert!(value.is_ascii() && value.matches('#').count() == 1, "{value}");
            assert_eq!(decode(value.as_bytes()).as_deref(), Some(&instance[..]), "{value}");
            assert_eq!(decode(format!("{value}\0").as_bytes()).as_deref(), Some(&instance[..]));
        }
        assert_eq!(encode(b"\0\0\0\0\0\0\0\x01host"), "(unknown)-(4:host)#0000000000000001");
        for damaged in ["", "10.0.0.1-(4:host)", "(unknown)-(5:host)#00", "(unknown)-(4:host)#0g"] {
            assert_eq!(decode(damaged.as_bytes()), None, "{damaged}");
        }
        assert_eq!(client_key(b"host").parse::<u128>().unwrap().to_string(), client_key(b"host"));
        assert_eq!(
            parse_lease(lease_data(Duration::from_millis(1500)).as_bytes()).unwrap().unwrap().as_millis(),
            1500
        );
        assert!(parse_lease(b"").unwrap().is_none() && parse_lease(b"soon").is_err());
    }

    #[test]
    fn epochs_are_searched_from_the_newest() {
        assert_eq!(ClusterRecords::epochs(3).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!(ClusterRecords::epochs(0).count(), 0);
        let many: Vec<_> = ClusterRecords::epochs(1000).collect();
        assert_eq!((many.len(), many[0], many[63]), (64, 1000, 937));
    }
}
