//! Client records as files of a directory: a file for each client, so that a record exists or doesn't,
//! whenever the power fails.
//!
//! A file's name is a hash of the client's instance. The content begins with a line that names the peer and
//! the principal of the client's holder, if there is one (`for 192.0.2.1 as uid 0`); the instance follows,
//! and a hash of both. Earlier versions wrote the instance alone: nobody may end such a record.
//!
//! A file is written under a temporary name, synced and renamed. The directory is synced afterwards, once for
//! all files that have changed meanwhile. One more file holds the longest lease that clients may have been
//! promised.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::state_dir::{self, StateDirError, StateDirectory};
use crate::{ClientRecord, RecordHolder, Recovered, RecoveryStore};

/// The longest record in bytes: the line of its holder, a client's verifier and owner string
/// (`NFS4_OPAQUE_LIMIT`), and the hash.
const MAX_RECORD: u64 = 128 + 8 + 1024 + HASH as u64;
/// The length of a hash in bytes.
const HASH: usize = 16;
/// The most entries that are read: more than there can be clients.
const MAX_RECORDS: usize = 65_536;

/// The file with the lease in milliseconds. Its name isn't a hash.
const LEASE_FILE: &str = "lease";
/// The suffix of files that aren't complete.
const UNFINISHED: &str = ".new";

fn hash(bytes: &[u8]) -> u128 {
    let mut hasher = SipHasher24::new();
    hasher.write(bytes);
    hasher.finish128().as_u128()
}

/// A record's content.
fn encode(client: &ClientRecord) -> Vec<u8> {
    let holder = client.holder.as_ref();
    let holder = holder.map_or(String::new(), |held| format!("for {} as {}", held.peer, held.principal));
    let mut content = format!("{holder}\n").into_bytes();
    content.extend_from_slice(&client.instance);
    let check = hash(&content);
    content.extend_from_slice(&check.to_be_bytes());
    content
}

/// The record that a file of this name contains.
fn decode(name: &OsStr, content: &[u8]) -> Option<ClientRecord> {
    let is_its_name = |instance: &[u8]| *name == *RecoveryDirectory::name(instance);
    if is_its_name(content) {
        return Some(ClientRecord { instance: content.to_owned(), holder: None });
    }
    let (content, check) = content.split_at_checked(content.len().checked_sub(HASH)?)?;
    let line =
        content.iter().position(|byte| *byte == b'\n').filter(|_| hash(content).to_be_bytes() == check)?;
    let (line, instance) = (std::str::from_utf8(&content[..line]).ok()?, &content[line + 1..]);
    let holder = if line.is_empty() {
        None
    } else {
        let (peer, principal) = line.strip_prefix("for ")?.split_once(" as ")?;
        Some(RecordHolder { peer: peer.parse().ok()?, principal: principal.to_owned() })
    };
    is_its_name(instance).then(|| ClientRecord { instance: instance.to_owned(), holder })
}

/// Client records as files of a directory.
#[derive(Debug)]
pub struct RecoveryDirectory {
    directory: PathBuf,
    /// No other server writes here as long as this one may.
    _state_directory: Arc<StateDirectory>,
}

impl RecoveryDirectory {
    /// Opens the directory `name` of a state directory, and creates it if it doesn't exist.
    ///
    /// # Errors
    /// If it can't be created, or other users can write to it.
    pub fn open(state_directory: &Arc<StateDirectory>, name: &Path) -> Result<Self, StateDirError> {
        let directory = state_directory.path().join(name);
        state_dir::create(&directory)?;
        Ok(Self { directory, _state_directory: Arc::clone(state_directory) })
    }

    /// The file name of a client's record.
    fn name(instance: &[u8]) -> String {
        format!("{:032x}", hash(instance))
    }

    /// Writes a file, whole or not at all. Its name is durable when the directory is synced.
    fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let fresh = self.directory.join(format!("{name}{UNFINISHED}"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(fresh, self.directory.join(name))
    }

    /// Reads one entry of the directory into `into`.
    fn read(&self, name: &OsStr, into: &mut Recovered) -> io::Result<()> {
        if name.as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
            // The power failed. No client has been told of it yet.
            return Ok(());
        }
        let path = self.directory.join(name);
        let mut content = Vec::new();
        state_dir::open_regular(&path)?.take(MAX_RECORD + 1).read_to_end(&mut content)?;
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if name == LEASE_FILE {
            let millis = std::str::from_utf8(&content).ok().and_then(|text| text.parse().ok());
            let Some(millis) = millis else { return invalid("not the length of a lease") };
            into.lease = Some(Duration::from_millis(millis));
        } else if let Some(client) = decode(name, &content) {
            into.clients.push(client);
        } else {
            return invalid("not the record of an NFSv4 client");
        }
        Ok(())
    }
}

impl RecoveryStore for RecoveryDirectory {
    fn load(&self) -> Recovered {
        let mut recovered = Recovered::default();
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) => {
                recovered.damaged.push(format!("{}: {error}", self.directory.display()));
                return recovered;
            }
        };
        for (number, entry) in entries.enumerate() {
            let directory = self.directory.display();
            if number >= MAX_RECORDS {
                recovered.damaged.push(format!("{directory}: more than {MAX_RECORDS} entries"));
                break;
            }
            match entry {
                Ok(entry) => {
                    let name = entry.file_name();
                    if let Err(error) = self.read(&name, &mut recovered) {
                        recovered.damaged.push(format!("{}: {error}", entry.path().display()));
                    }
                }
                Err(error) => {
                    recovered.damaged.push(format!("{directory}: {error}"));
                    break;
                }
            }
        }
        recovered
    }

    fn set_lease(&self, lease: Duration) -> io::Result<()> {
        self.put(LEASE_FILE, lease.as_millis().to_string().as_bytes())?;
        self.sync()
    }

    fn add_client(&self, client: &ClientRecord) -> io::Result<()> {
        self.put(&Self::name(&client.instance), &encode(client))
    }

    fn remove_client(&self, instance: &[u8]) -> io::Result<()> {
        match fs::remove_file(self.directory.join(Self::name(instance))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync(&self) -> io::Result<()> {
        state_dir::sync(&self.directory)
    }
}

/// Opens the client records in the server's state directory and loads them. Servers of different `identity`
/// have records of their own. Without a store the records of this run can't be kept, and `damaged` says why.
#[must_use]
pub fn open_client_records(
    state_directory: &Arc<StateDirectory>,
    identity: &[u8; 16],
) -> (Option<Box<dyn RecoveryStore>>, Recovered) {
    let name: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
    match RecoveryDirectory::open(state_directory, &Path::new("nfs4-clients").join(name)) {
        Ok(directory) => {
            let recovered = directory.load();
            (Some(Box::new(directory)), recovered)
        }
        Err(error) => (None, Recovered { damaged: vec![error.to_string()], ..Recovered::default() }),
    }
}

#[cfg(test)]
mod tests {
    use fairness::Peer;

    use super::*;

    /// A change to a directory of records.
    type Damage<'a> = &'a dyn Fn(&Path);

    fn record(instance: &[u8]) -> ClientRecord {
        ClientRecord { instance: instance.to_owned(), holder: None }
    }

    fn open(scratch: &tempfile::TempDir) -> RecoveryDirectory {
        let state_directory = Arc::new(StateDirectory::acquire(scratch.path()).unwrap());
        RecoveryDirectory::open(&state_directory, Path::new("a/b")).unwrap()
    }

    /// A directory with the records of two clients.
    fn two_records(scratch: &tempfile::TempDir) -> (RecoveryDirectory, PathBuf) {
        let records = open(scratch);
        let directory = scratch.path().join("a/b");
        for client in [&b"one"[..], b"two", b"two", &[0xff; 1032]] {
            records.add_client(&record(client)).unwrap();
        }
        records.remove_client(b"one").unwrap();
        records.remove_client(b"one").unwrap();
        (records, directory)
    }

    fn clients(records: &RecoveryDirectory) -> Vec<Vec<u8>> {
        let mut clients: Vec<_> = records.load().clients.into_iter().map(|client| client.instance).collect();
        clients.sort();
        clients
    }

    #[test]
    fn records_last_until_they_are_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let (records, directory) = two_records(&scratch);
        // The power failed during a write.
        fs::write(directory.join(format!("{}.new", RecoveryDirectory::name(b"half"))), "ha").unwrap();
        drop(records);
        let left = open(&scratch);
        let records = &left;
        assert_eq!(clients(&left), [b"two".to_vec(), vec![0xff; 1032]]);
        records.add_client(&record(b"half")).unwrap();
        assert_eq!(clients(&left)[0], b"half");
        records.remove_client(b"half").unwrap();
        assert_eq!((left.load().lease, left.load().damaged.len()), (None, 0));
        for lease in [Duration::from_secs(90), Duration::from_millis(1500)] {
            records.set_lease(lease).unwrap();
            assert_eq!(records.load().lease, Some(lease));
        }
    }

    #[test]
    fn a_record_has_its_holder() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("a/b");
        let records = open(&scratch);
        let mut client = record(b"12345678for 192.0.2.1 as uid 0\nhost");
        // An earlier version's.
        fs::write(directory.join(RecoveryDirectory::name(&client.instance)), &client.instance).unwrap();
        assert_eq!(records.load().clients, [client.clone()]);
        let peers = [
            Peer::V4([192, 0, 2, 1]),
            Peer::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 9]),
            Peer::Local(0),
            Peer::Local(u32::MAX),
            Peer::LocalUnknown,
        ];
        for peer in peers {
            for principal in ["uid 0", "anonymous"] {
                client.holder = Some(RecordHolder { peer, principal: principal.to_owned() });
                records.add_client(&client).unwrap();
                assert_eq!(records.load().clients, [client.clone()], "in the place of the last");
            }
        }
        records.remove_client(&client.instance).unwrap();
        assert_eq!(records.load().clients, []);
        // A damaged holder ends nobody.
        records.add_client(&client).unwrap();
        let path = directory.join(RecoveryDirectory::name(&client.instance));
        let mut content = fs::read(&path).unwrap();
        content[5] ^= 1;
        fs::write(path, content).unwrap();
        assert_eq!((records.load().clients, records.load().damaged.len()), (Vec::new(), 1));
    }

    #[test]
    fn damaged_entries_are_reported_and_the_others_are_read() {
        let whole = [b"two".to_vec(), vec![0xff; 1032]];
        let name = RecoveryDirectory::name(b"two");
        let damage: [(&str, Damage<'_>); 8] = [
            ("empty", &|at| fs::write(at.join(RecoveryDirectory::name(b"one")), "").unwrap()),
            ("garbled", &|at| fs::write(at.join(RecoveryDirectory::name(b"one")), "0ne").unwrap()),
            ("foreign", &|at| fs::write(at.join("README"), "two").unwrap()),
            ("lease", &|at| fs::write(at.join(LEASE_FILE), "soon").unwrap()),
            ("directory", &|at| fs::create_dir(at.join("lost+found")).unwrap()),
            ("dangling", &|at| std::os::unix::fs::symlink("nowhere", at.join("link")).unwrap()),
            ("link", &|at| {
                std::os::unix::fs::symlink(RecoveryDirectory::name(b"two"), at.join("link")).unwrap()
            }),
            ("fifo", &|at| {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                let (at, kind) = (at.join("fifo"), rustix::fs::FileType::Fifo);
                rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
            }),
        ];
        for (what, damage) in damage {
            let scratch = tempfile::tempdir().unwrap();
            let (records, directory) = two_records(&scratch);
            damage(&directory);
            let count = fs::read_dir(&directory).unwrap().count();
            let damaged = records.load().damaged;
            assert_eq!(damaged.len(), 1, "{what}: {damaged:?}");
            assert!(damaged[0].starts_with(directory.to_str().unwrap()), "{what}: {damaged:?}");
            assert_eq!(clients(&records), whole, "{what}");
            assert_eq!(fs::read_dir(&directory).unwrap().count(), count, "{what}: it stays for inspection");
        }
        // A damaged record.
        let scratch = tempfile::tempdir().unwrap();
        let (records, directory) = two_records(&scratch);
        fs::write(directory.join(name), "tw").unwrap();
        assert_eq!((clients(&records), records.load().damaged.len()), (vec![vec![0xff; 1032]], 1));
        // A missing directory.
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(records.load().damaged.len(), 1);
    }
}
