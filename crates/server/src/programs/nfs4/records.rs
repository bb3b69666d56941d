//! Which clients may reclaim after a restart, on stable storage (RFC 8881 section 8.4.3): a file each, so
//! that an entry is there or isn't, whenever the power fails.
//!
//! A client is entered when it says that it has reclaimed everything (4.1) or before it gets its first open,
//! and taken out before anybody else is given what it had: when its grace period has passed without it, when
//! its lease has run out and somebody wanted what it held, when it says goodbye; and when it has had nothing
//! for a lease's time. Beside them stands how long a lease they may have been promised.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::lifecycle::state_dir::{self, Failure};

/// The longest entry that is read back: a client's name, for which NFS has this bound, and its verifier.
const MAX_ENTRY: u64 = 1024 + 8;
/// More entries than clients there can be aren't read.
const MAX_RECORDS: usize = 65_536;

/// The file that has the lease, in milliseconds; its name is no entry's.
const LEASE_FILE: &str = "lease";
/// How the names of files end that aren't complete.
const UNFINISHED: &str = ".new";

/// What earlier runs have left.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The clients that may reclaim.
    pub owners: Vec<Vec<u8>>,
    /// The lease that they may have been promised, and so the time that they may take to hear of the restart.
    pub lease: Option<Duration>,
    /// What is there that can't be understood, and why. It may have been a client's record: nobody may be
    /// given what that client had before a whole grace period has passed (RFC 8881 section 8.4.3).
    pub damaged: Vec<String>,
}

/// Where the clients that may reclaim are kept. Entries are instances of clients ([`state::instance`]).
pub(crate) trait Records: Send + Sync {
    /// What was kept, and what of it can't be read.
    fn load(&self) -> Recovered;

    /// Makes durable that nobody has been promised a longer lease than this.
    ///
    /// # Errors
    /// When it can't be: after a restart clients may come too late.
    fn promise(&self, lease: Duration) -> io::Result<()>;

    /// Makes an entry durable. One that is there already stays.
    ///
    /// # Errors
    /// When it can't be made: the client won't be able to reclaim.
    fn remember(&self, owner: &[u8]) -> io::Result<()>;

    /// Takes an entry out for good.
    ///
    /// # Errors
    /// When it can't: the client might reclaim what somebody else has had meanwhile.
    fn forget(&self, owner: &[u8]) -> io::Result<()>;
}

/// Entries as files of a directory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
}

impl Files {
    /// In `directory`, which is made if it isn't there.
    ///
    /// # Errors
    /// When it can't be made, or can be written to by others.
    pub(crate) fn open(directory: &Path) -> Result<Self, Failure> {
        state_dir::make(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// The name of a client's entry.
    fn name(owner: &[u8]) -> String {
        let mut hasher = SipHasher24::new();
        hasher.write(owner);
        format!("{:032x}", hasher.finish128().as_u128())
    }

    /// Puts a file into the directory, whole or not at all.
    fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let fresh = self.directory.join(format!("{name}{UNFINISHED}"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(fresh, self.directory.join(name))?;
        state_dir::sync(&self.directory)
    }

    /// Reads one entry of the directory.
    fn read(&self, name: &OsStr, into: &mut Recovered) -> io::Result<()> {
        if name.as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
            // The power failed, or a server that this one replaces is at it: nobody has been promised yet
            // what it was to be.
            return Ok(());
        }
        let path = self.directory.join(name);
        let mut content = Vec::new();
        state_dir::open_regular(&path)?.take(MAX_ENTRY + 1).read_to_end(&mut content)?;
        let not = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if name == LEASE_FILE {
            let millis = std::str::from_utf8(&content).ok().and_then(|text| text.parse().ok());
            let Some(millis) = millis else { return not("not the length of a lease") };
            into.lease = Some(Duration::from_millis(millis));
        } else if *name == *Self::name(&content) {
            into.owners.push(content);
        } else {
            return not("not the record of an NFSv4 client");
        }
        Ok(())
    }
}

impl Records for Files {
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

    fn promise(&self, lease: Duration) -> io::Result<()> {
        self.put(LEASE_FILE, lease.as_millis().to_string().as_bytes())
    }

    fn remember(&self, owner: &[u8]) -> io::Result<()> {
        self.put(&Self::name(owner), owner)
    }

    fn forget(&self, owner: &[u8]) -> io::Result<()> {
        match fs::remove_file(self.directory.join(Self::name(owner))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        state_dir::sync(&self.directory)
    }
}

/// The records in the server's state directory, if they can be kept, and what the last run has left in them.
pub(crate) fn open_records(state_dir: &Path, identity: &[u8; 16]) -> (Option<Box<dyn Records>>, Recovered) {
    let name: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
    match Files::open(&state_dir.join("nfs4-clients").join(name)) {
        Ok(files) => {
            let recovered = files.load();
            (Some(Box::new(files)), recovered)
        }
        Err((path, error)) => {
            let damaged = vec![format!("{}: {error}", path.display())];
            (None, Recovered { damaged, ..Recovered::default() })
        }
    }
}

impl Recovered {
    /// What is damaged, and what that means, in words; `kept` says that there are records in this run.
    pub(crate) fn problem(&self, kept: bool) -> Option<String> {
        let first = self.damaged.first()?;
        let more = match self.damaged.len() {
            1 => String::new(),
            all => format!(", and {} more (the log has them)", all - 1),
        };
        let now = "NFSv4 clients whose records can't be read can't reclaim their opens and locks, and for a \
                   whole grace period nobody gets new ones";
        Some(if kept {
            format!("{now}: {first}{more}; move it away before the next start")
        } else {
            format!("{now}, and after the next restart nobody can reclaim: {first}{more}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does something to a directory of records.
    type Damage<'a> = &'a dyn Fn(&Path);

    /// A directory with the records of two clients.
    fn two(scratch: &tempfile::TempDir) -> (Files, PathBuf) {
        let directory = scratch.path().join("a/b");
        let records = Files::open(&directory).unwrap();
        for owner in [&b"one"[..], b"two", b"two", &[0xff; 1032]] {
            records.remember(owner).unwrap();
        }
        records.forget(b"one").unwrap();
        records.forget(b"one").unwrap();
        (records, directory)
    }

    fn owners(records: &Files) -> Vec<Vec<u8>> {
        let mut owners = records.load().owners;
        owners.sort();
        owners
    }

    #[test]
    fn entries_last_until_they_are_taken_out() {
        let scratch = tempfile::tempdir().unwrap();
        let (records, directory) = two(&scratch);
        // The power failed in the middle of one.
        fs::write(directory.join(format!("{}.new", Files::name(b"half"))), "ha").unwrap();
        let left = Files::open(&directory).unwrap();
        assert_eq!(owners(&left), [b"two".to_vec(), vec![0xff; 1032]]);
        records.remember(b"half").unwrap();
        assert_eq!(owners(&left)[0], b"half");
        records.forget(b"half").unwrap();
        assert_eq!((left.load().lease, left.load().damaged.len()), (None, 0));
        for lease in [Duration::from_secs(90), Duration::from_millis(1500)] {
            records.promise(lease).unwrap();
            assert_eq!(records.load().lease, Some(lease));
        }
    }

    /// What isn't a record is said, and keeps no record from being read.
    #[test]
    fn damage_is_told_and_harms_nothing_else() {
        let whole = [b"two".to_vec(), vec![0xff; 1032]];
        let name = Files::name(b"two");
        let damage: [(&str, Damage<'_>); 8] = [
            ("empty", &|at| fs::write(at.join(Files::name(b"one")), "").unwrap()),
            ("garbled", &|at| fs::write(at.join(Files::name(b"one")), "0ne").unwrap()),
            ("foreign", &|at| fs::write(at.join("README"), "two").unwrap()),
            ("lease", &|at| fs::write(at.join(LEASE_FILE), "soon").unwrap()),
            ("directory", &|at| fs::create_dir(at.join("lost+found")).unwrap()),
            ("dangling", &|at| std::os::unix::fs::symlink("nowhere", at.join("link")).unwrap()),
            ("link", &|at| std::os::unix::fs::symlink(Files::name(b"two"), at.join("link")).unwrap()),
            ("fifo", &|at| {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                let (at, kind) = (at.join("fifo"), rustix::fs::FileType::Fifo);
                rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
            }),
        ];
        for (what, damage) in damage {
            let scratch = tempfile::tempdir().unwrap();
            let (records, directory) = two(&scratch);
            damage(&directory);
            let count = fs::read_dir(&directory).unwrap().count();
            let damaged = records.load().damaged;
            assert_eq!(damaged.len(), 1, "{what}: {damaged:?}");
            assert!(damaged[0].starts_with(directory.to_str().unwrap()), "{what}: {damaged:?}");
            assert_eq!(owners(&records), whole, "{what}");
            assert_eq!(
                fs::read_dir(&directory).unwrap().count(),
                count,
                "{what}: somebody may want to look at it"
            );
        }
        // One of the records themselves.
        let scratch = tempfile::tempdir().unwrap();
        let (records, directory) = two(&scratch);
        fs::write(directory.join(name), "tw").unwrap();
        assert_eq!((owners(&records), records.load().damaged.len()), (vec![vec![0xff; 1032]], 1));
        // All of them.
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(records.load().damaged.len(), 1);
    }
}
