//! Which clients may reclaim after a restart, on stable storage (RFC 8881 section 8.4.3): a file each, so that an entry is there or isn't,
//! whenever the power fails.
//!
//! A client is entered when it says that it has reclaimed everything (4.1) or before it gets its first open, and taken out before anybody else is given what it had: when its
//! grace period has passed without it, when its lease has run out and somebody wanted what it held, when it says goodbye; and when
//! it has had nothing for a lease's time.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// The longest name of a client that is read back: NFS's own bound.
const MAX_OWNER: u64 = 1024;
/// More entries than clients there can be aren't read.
const MAX_RECORDS: usize = 65_536;

/// Where the clients that may reclaim are kept. Entries are what clients call themselves.
pub(crate) trait Records: Send + Sync {
    /// All entries of the last run.
    ///
    /// # Errors
    /// When they can't be read: then nobody can reclaim.
    fn load(&self) -> io::Result<Vec<Vec<u8>>>;

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
    fn load(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut owners = Vec::new();
        for entry in fs::read_dir(&self.directory)?.take(MAX_RECORDS) {
            let path = entry?.path();
            let mut owner = Vec::new();
            fs::File::open(&path)?.take(MAX_OWNER).read_to_end(&mut owner)?;
            // Half an entry, or something else's file.
            if self.path(&owner) == path {
                owners.push(owner);
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(owners)
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
        for owner in [&b"one"[..], b"two", b"two", &[0xff; 1024]] {
            records.remember(owner).unwrap();
        }
        records.forget(b"one").unwrap();
        records.forget(b"one").unwrap();
        fs::write(directory.join("0123"), "half").unwrap();
        let mut left = Files::open(&directory).unwrap().load().unwrap();
        left.sort();
        assert_eq!(left, [b"two".to_vec(), vec![0xff; 1024]]);
        assert!(!directory.join("0123").exists());
    }
}
