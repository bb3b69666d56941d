//! Client records in RADOS: an object for each node and epoch, with a key of the omap for each client.
//!
//! Names of objects, and the form of the values, are those of nfs-ganesha's `rados_cluster` recovery backend:
//! the value is a client's address, its owner string's length and the owner string, in hexadecimal digits if
//! it isn't printable. A client's instance has a verifier, too, which follows where ganesha lists revoked
//! delegations, and after it the client's principal. The object's data, which ganesha leaves empty, has the
//! longest promised lease.
//!
//! Instead of an address there is `(unknown)`, as ganesha writes it, if nobody may end the record: also for a
//! process of the server's host, because its uid isn't the same user on another server.

use std::hash::Hasher as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use cluster::object_name;
use fairness::Peer;
use parking_lot::Mutex;
use rados::{Guard, ObjectChange, ObjectError, ObjectNamespace, Reason};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::{ClientRecord, RecordHolder, Recovered, RecoveryStore};

/// How far back records are looked for. The epoch of a node's newest records is the one before the recovery
/// epoch, unless the node was away while other nodes recovered.
const MAX_EPOCHS: u64 = 64;
/// The length of a verifier, with which an instance begins.
const VERIFIER: usize = 8;
/// What ganesha writes where it doesn't know a client's address.
const UNKNOWN: &str = "(unknown)";

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
    clients: Vec<ClientRecord>,
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
                        match decode(value).filter(|client| client_key(&client.instance).as_bytes() == key) {
                            Some(client) => recovered.clients.push(client),
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
            open.clients.iter().map(|client| (client_key(&client.instance), encode(client))).collect();
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

    fn add_client(&self, client: &ClientRecord) -> io::Result<()> {
        let (key, value) = (client_key(&client.instance), encode(client));
        let mut open = self.open.lock();
        let set = [(key.as_bytes(), value.as_bytes())];
        self.write(open.epoch, ObjectChange { set: &set, ..ObjectChange::default() })?;
        open.clients.retain(|other| other.instance != client.instance);
        open.clients.push(client.clone());
        Ok(())
    }

    fn remove_client(&self, instance: &[u8]) -> io::Result<()> {
        let key = client_key(instance);
        let mut open = self.open.lock();
        // What isn't removed from the object isn't carried into the next epoch.
        open.clients.retain(|client| client.instance != instance);
        let remove = &[key.as_bytes()][..];
        if open.last.is_some() {
            self.write(open.last, ObjectChange { remove, ..ObjectChange::default() })?;
        }
        self.write(open.epoch, ObjectChange { remove, ..ObjectChange::default() })
    }

    /// Nothing: RADOS has confirmed each change as durable.
    fn sync(&self) -> io::Result<()> {
        Ok(())
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

/// A peer as an address, if it has the same on every server.
fn address(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::V4(octets) => Some(Ipv4Addr::from(octets).into()),
        Peer::V6(network) => {
            let mut octets = [0; 16];
            octets[..network.len()].copy_from_slice(&network);
            Some(Ipv6Addr::from(octets).into())
        }
        Peer::Local(_) | Peer::LocalUnknown => None,
    }
}

/// A client's record.
fn encode(client: &ClientRecord) -> String {
    let (verifier, owner) = client.instance.split_at(VERIFIER.min(client.instance.len()));
    let verifier = hexadecimal(verifier);
    let holder = client.holder.as_ref().and_then(|holder| Some((address(holder.peer)?, &holder.principal)));
    let owner = match std::str::from_utf8(owner) {
        Ok(text) if is_plain(owner) => text.to_owned(),
        _ => format!("0x{}", hexadecimal(owner)),
    };
    match holder {
        Some((address, principal)) => format!("{address}-({}:{owner})#{verifier}#{principal}", owner.len()),
        None => format!("{UNKNOWN}-({}:{owner})#{verifier}", owner.len()),
    }
}

/// A client, from its record.
fn decode(value: &[u8]) -> Option<ClientRecord> {
    let text = std::str::from_utf8(value).ok()?.trim_end_matches('\0');
    let (address, rest) = text.split_once("-(")?;
    let (length, rest) = rest.split_once(':')?;
    let (owner, rest) = rest.split_at_checked(length.parse().ok()?)?;
    let rest = rest.strip_prefix(")#")?;
    let (verifier, holder) = match rest.split_once('#') {
        Some((verifier, principal)) => {
            let peer = Peer::remote(address.parse().ok()?);
            (verifier, Some(RecordHolder { peer, principal: principal.to_owned() }))
        }
        None if address == UNKNOWN => (rest, None),
        None => return None,
    };
    let mut instance = bytes(verifier)?;
    match owner.strip_prefix("0x") {
        Some(digits) => instance.extend(bytes(digits)?),
        None => instance.extend_from_slice(owner.as_bytes()),
    }
    Some(ClientRecord { instance, holder })
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
            for peer in
                [None, Some(Peer::V4([192, 0, 2, 7])), Some(Peer::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 9]))]
            {
                let holder = peer.map(|peer| RecordHolder { peer, principal: "uid 0".to_owned() });
                let instance = [b"\x01\x02\x03\x04\x05\x06\x07\xff", owner].concat();
                let client = ClientRecord { instance, holder };
                let value = encode(&client);
                assert!(value.is_ascii(), "{value}");
                assert_eq!(value.matches('#').count(), 1 + usize::from(peer.is_some()), "{value}");
                assert_eq!(decode(value.as_bytes()), Some(client.clone()), "{value}");
                assert_eq!(decode(format!("{value}\0").as_bytes()), Some(client));
            }
        }
        let held = |peer| {
            let holder = Some(RecordHolder { peer, principal: "uid 0".to_owned() });
            encode(&ClientRecord { instance: b"\0\0\0\0\0\0\0\x01host".to_vec(), holder })
        };
        assert_eq!(held(Peer::V4([10, 0, 0, 1])), "10.0.0.1-(4:host)#0000000000000001#uid 0");
        assert_eq!(held(Peer::V6([0xfd; 8])), "fdfd:fdfd:fdfd:fdfd::-(4:host)#0000000000000001#uid 0");
        for peer in [Peer::Local(0), Peer::LocalUnknown] {
            assert_eq!(held(peer), "(unknown)-(4:host)#0000000000000001", "another user elsewhere");
        }
        for damaged in [
            "",
            "10.0.0.1-(4:host)",
            "10.0.0.1-(4:host)#0000000000000001",
            "(unknown)-(5:host)#00",
            "(unknown)-(4:host)#0g",
            "(unknown)-(4:host)#0000000000000001#uid 0",
            "somewhere-(4:host)#0000000000000001#uid 0",
        ] {
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
