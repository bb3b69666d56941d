//! Which clients may reclaim after a restart, on stable storage (RFC 8881 section 8.4.3): a file each, so that an entry is there or isn't,
//! whenever the power fails.
//!
//! A client is entered when it says that it has reclaimed everything (4.1) or before it gets its first open, and taken out before anybody else is given what it had: when its
//! grace period has passed without it, when its lease has run out and somebody wanted what it held, when it says goodbye; and when
//! it has had nothing for a lease's time. Beside them stands how long a lease they may have been promised.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// The longest entry that is read back: a client's name, for which NFS has this bound, and its verifier.
const MAX_ENTRY: u64 = 1024 + 8;
/// More entries than clients there can be aren't read.
const MAX_RECORDS: usize = 65_536;

/// The file that has the lease, in milliseconds; its name is no entry's.
const LEASE_FILE: &str = "lease";

/// What earlier runs have left.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The clients that may reclaim.
    pub owners: Vec<Vec<u8>>,
    /// The lease that they may have been promised, and so the time that they may take to hear of the restart.
    pub lease: Option<Duration>,
}

/// Where the clients that may reclaim are kept. Entries are instances of clients ([`state::instance`]).
pub(crate) trait Records: Send + Sync {
    /// What was kept.
    ///
    /// # Errors
    /// When it can't be read: then nobody can reclaim.
    fn load(&self) -> io::Result<Recovered>;

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
    /// When it can't be made.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    fn path(&self, owner: &[u8]) -> PathBuf {
        let mut hasher = SipHasher24::new();
        hasher.write(owner);
        self.directory.join(format!("{:032x}", hasher.finish128().as_u128()))
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.directory)?.sync_all()
    }
}

impl Records for Files {
    fn load(&self) -> io::Result<Recovered> {
        let mut recovered = Recovered::default();
        for entry in fs::read_dir(&self.directory)?.take(MAX_RECORDS) {
            let path = entry?.path();
            let mut content = Vec::new();
            fs::File::open(&path)?.take(MAX_ENTRY).read_to_end(&mut content)?;
            if path.ends_with(LEASE_FILE) {
                let millis = std::str::from_utf8(&content).ok().and_then(|text| text.parse().ok());
                recovered.lease = millis.map(Duration::from_millis);
            } else if self.path(&content) == path {
                recovered.owners.push(content);
            } else {
                // Half an entry, or something else's file.
                fs::remove_file(&path)?;
            }
        }
        Ok(recovered)
    }

    fn promise(&self, lease: Duration) -> io::Result<()> {
        let fresh = self.directory.join(format!("{LEASE_FILE}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(lease.as_millis().to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(fresh, self.directory.join(LEASE_FILE))?;
        self.sync()
    }

    fn remember(&self, owner: &[u8]) -> io::Result<()> {
        let path = self.path(owner);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(owner)?;
        file.sync_all()?;
        self.sync()
    }

    fn forget(&self, owner: &[u8]) -> io::Result<()> {
        match fs::remove_file(self.path(owner)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        self.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_last_until_they_are_taken_out() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("a/b");
        let records = Files::open(&directory).unwrap();
        for owner in [&b"one"[..], b"two", b"two", &[0xff; 1032]] {
            records.remember(owner).unwrap();
        }
        records.forget(b"one").unwrap();
        records.forget(b"one").unwrap();
        fs::write(directory.join("0123"), "half").unwrap();
        let mut left = Files::open(&directory).unwrap().load().unwrap();
        left.owners.sort();
        assert_eq!(left.owners, [b"two".to_vec(), vec![0xff; 1032]]);
        assert!(!directory.join("0123").exists());
        assert_eq!(left.lease, None);
        for lease in [Duration::from_secs(90), Duration::from_millis(1500)] {
            records.promise(lease).unwrap();
            assert_eq!(records.load().unwrap().lease, Some(lease));
        }
        fs::write(directory.join("lease"), "soon").unwrap();
        assert_eq!(records.load().unwrap().lease, None);
    }
}
