//! The session of the exported CephFS mount with the metadata server, and the sessions of former mounts.
//!
//! Each session has a mark: a locked byte of a file, at the session's number. It is locked as long as the
//! service manager keeps the locks of the server's clients. Server and service manager share the open file,
//! as they do those of the clients' locks, so it goes with these, whether the server, the service manager or
//! the mount ends first. Other servers see by it whether these are held. A drained server unlocks it after
//! it has released them: nothing is left then for which its mount's session would have to be ended.
//!
//! All servers have the file open for reading, and none changes a directory for it. Otherwise the metadata
//! server would first ask a mount that is gone for what it has cached, and would end its session with its
//! locks when it doesn't answer (`session_timeout`). So the mark is a shared lock.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rados::Settings;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use store::FileLock;

use super::{ClusterError, commands};
use crate::service::nfs4_state::LockStore;

/// The virtual extended attribute with a mount's session, `client4123` (Ceph 15 and newer).
const CLIENT_ID: &str = "ceph.client_id";

/// The name of the file with the marks, in the first exported directory.
///
/// NFS clients can neither rename nor remove it. A local process that may write to the directory can, and so
/// can other users of CephFS: a server that starts then makes another file, and doesn't see the marks of the
/// others.
pub(crate) const MARKS: &CStr = c".samehost-sessions";
/// The byte that isn't locked: no session has this number.
const NO_SESSION: u64 = 0;

/// The filesystem type of FUSE (statfs(2)).
const FUSE: rustix::fs::FsWord = 0x6573_5546;

/// The session of a CephFS mount.
#[derive(Debug)]
pub(crate) struct CephSession {
    /// Its name in the grace database.
    pub name: String,
    directory: PathBuf,
    /// The file with the marks. Whether a byte is locked only the metadata server knows.
    marks: OwnedFd,
}

/// What has become of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    Alive,
    /// The metadata server has dropped it, or the mount is another one now.
    Lost,
    /// There was no useful answer.
    Unknown,
}

fn client_id(path: &Path) -> io::Result<String> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, CLIENT_ID, &mut value[..])?;
    Ok(String::from_utf8_lossy(&value[..length]).into_owned())
}

impl CephSession {
    /// The session of the mount on which all of `exported` are.
    pub fn of(exported: &[PathBuf]) -> Result<Option<Self>, ClusterError> {
        let (Some(name), Some(first)) = (Self::name_of(exported)?, exported.first()) else { return Ok(None) };
        let marks = open_marks(first);
        let marks = marks.map_err(|source| ClusterError::Marks { path: marks_in(first), source })?;
        Ok(Some(Self { name, directory: first.clone(), marks }))
    }

    /// The name of that session.
    pub fn name_of(exported: &[PathBuf]) -> Result<Option<String>, ClusterError> {
        let Some(first) = exported.first() else { return Ok(None) };
        let id = |path: &PathBuf| {
            client_id(path).map_err(|source| ClusterError::NotCephFs { path: path.clone(), source })
        };
        let name = id(first)?;
        for path in &exported[1..] {
            if id(path)? != name {
                return Err(ClusterError::TwoMounts(first.clone(), path.clone()));
            }
        }
        Ok(Some(name))
    }

    /// What this server's users should know of the mount, and of the service manager, which may store locks.
    /// The kernel's cache of ceph-fuse isn't told what other clients write to a file that several have open;
    /// the kernel's own client has no such cache then.
    pub fn notes(&self, stores_locks: bool) -> Vec<String> {
        let is_fuse = rustix::fs::fstatfs(&self.marks).is_ok_and(|found| found.f_type == FUSE);
        let is_cached = is_fuse && sys::page_cache::is_mappable(&self.marks).unwrap_or(true);
        let stale = is_cached.then(|| {
            format!(
                "{}: clients may read old data where another server has written: mount it with ceph-fuse \
                 --fuse_disable_pagecache=true",
                self.directory.display()
            )
        });
        let unstored = (!stores_locks).then(|| {
            "after a crash no client can reclaim: no service manager stores the locks (systemd's \
             FileDescriptorStoreMax=, with FDSTORE in the environment)"
                .to_owned()
        });
        let not_offered = format!(
            "{}: no delegations, and no opens that deny others: CephFS doesn't tell the cluster's servers of \
             each other's",
            self.directory.display()
        );
        stale.into_iter().chain(unstored).chain([not_offered]).collect()
    }

    /// Asks the metadata server. Blocks as long as it doesn't answer.
    pub fn state(&self) -> SessionState {
        let asked = store::test_lock(&self.marks, &byte(NO_SESSION)).is_ok();
        match client_id(&self.directory) {
            Ok(name) if name == self.name && asked => SessionState::Alive,
            Ok(name) if name != self.name => SessionState::Lost,
            // The client was evicted, or the mount's process has ended.
            Err(error) if Errno::from_io_error(&error).is_some_and(is_end) => SessionState::Lost,
            _ if !asked && self.is_evicted() => SessionState::Lost,
            _ => SessionState::Unknown,
        }
    }

    /// Says to this server's next run, and to the other servers, that the service manager keeps the locks of
    /// this session's clients.
    ///
    /// # Errors
    /// If the mark can't be locked: after a crash no client can reclaim.
    pub fn mark(&self, store: &LockStore) -> io::Result<()> {
        // The previous process has locked it.
        if store.has_valid_mark(|inherited| self.is_marks(inherited)) {
            return Ok(());
        }
        store.unmark();
        let mark = open_marks(&self.directory)?;
        let lock = FileLock { exclusive: false, ..byte(number(&self.name)?) };
        if !store::lock(&mark, &lock).map_err(io::Error::other)? {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process has locked it"));
        }
        store.mark(mark);
        Ok(())
    }

    /// Whether the locks of a former mount's session are held. If so, they stay until that session ends.
    ///
    /// # Errors
    /// If the metadata server can't be asked.
    pub fn has_locks_of(&self, former: &str) -> io::Result<bool> {
        let mark = byte(number(former)?);
        // Nothing but the file itself is asked for: its name is in a directory of which a mount that is gone
        // may be asked first.
        if rustix::fs::fstat(&self.marks)?.st_nlink == 0 {
            let what =
                format!("{} was removed: start the servers again", marks_in(&self.directory).display());
            return Err(io::Error::other(what));
        }
        Ok(store::test_lock(&self.marks, &mark).map_err(io::Error::other)?.is_some())
    }

    /// Ends a former mount's session, if it still has locks of clients.
    ///
    /// # Errors
    /// If the session is still there.
    pub fn end_former(&self, ceph: &Settings, former: &str) -> io::Result<()> {
        if !self.has_locks_of(former)? {
            return Ok(());
        }
        let asked = commands::evict(ceph, former);
        if !self.has_locks_of(former)? {
            return Ok(());
        }
        let reason = asked.err().map_or_else(|| "it is still there".to_owned(), |error| error.to_string());
        let id = former.trim_start_matches("client");
        Err(io::Error::other(format!("ceph tell mds.* client evict id={id}: {reason}")))
    }

    /// Whether an open file is the one with the marks, on this mount.
    fn is_marks(&self, file: &OwnedFd) -> bool {
        match (rustix::fs::fstat(file), rustix::fs::fstat(&self.marks)) {
            (Ok(file), Ok(marks)) => (file.st_dev, file.st_ino) == (marks.st_dev, marks.st_ino),
            _ => false,
        }
    }

    /// Whether the mount refuses every request to the metadata server.
    fn is_evicted(&self) -> bool {
        let found = rustix::fs::statat(&self.marks, "", rustix::fs::AtFlags::EMPTY_PATH);
        found.err().is_some_and(is_end)
    }
}

/// The errors of a mount whose client was evicted (`SHUTDOWN`), or whose process has ended (`NOTCONN`).
fn is_end(error: Errno) -> bool {
    matches!(error, Errno::SHUTDOWN | Errno::NOTCONN)
}

/// The number in a session's name.
fn number(session: &str) -> io::Result<u64> {
    let number = session.strip_prefix("client").and_then(|number| number.parse().ok());
    number.filter(|number| *number != NO_SESSION).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{session:?} is no session of CephFS"))
    })
}

/// The lock that conflicts with every lock of a byte.
const fn byte(at: u64) -> FileLock {
    FileLock { first: at, last: at, exclusive: true }
}

/// The path of the file with the marks.
fn marks_in(directory: &Path) -> PathBuf {
    directory.join(OsStr::from_bytes(MARKS.to_bytes()))
}

/// Opens the file with the marks; the first server creates it.
///
/// A client that may write to the exported directory may have made anything of that name: a symbolic link
/// through which the server would create a file elsewhere, a FIFO for which it would wait, or a file that the
/// client can lock.
fn open_marks(directory: &Path) -> io::Result<OwnedFd> {
    let path = marks_in(directory);
    let safely = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::open(&path, flags | safely, Mode::RUSR | Mode::WUSR);
    let file = match open(OFlags::RDONLY) {
        Err(Errno::NOENT) => {
            // Another server may do the same.
            drop(open(OFlags::WRONLY | OFlags::CREATE)?);
            open(OFlags::RDONLY)?
        }
        opened => opened?,
    };
    let found = rustix::fs::fstat(&file)?;
    let is_own = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
        && found.st_uid == rustix::process::geteuid().as_raw()
        && found.st_mode & 0o077 == 0;
    if is_own {
        Ok(file)
    } else {
        let what = "it isn't a regular file that only the server's user may open: remove it";
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn sessions_have_numbers() {
        assert_eq!(number("client4123").unwrap(), 4123);
        for wrong in ["", "client", "client0", "4123", "client-1"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn marks_that_were_removed_say_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let marks = open_marks(directory.path()).unwrap();
        let session = CephSession { name: "client1".into(), directory: directory.path().into(), marks };
        assert!(!session.has_locks_of("client2").unwrap());
        std::fs::remove_file(marks_in(directory.path())).unwrap();
        session.has_locks_of("client2").unwrap_err();
    }

    #[test]
    fn nothing_that_a_client_has_made_is_taken_for_the_marks() {
        let directory = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (marks_in(directory.path()), directory.path().join("elsewhere"));
        let refused = || open_marks(directory.path()).is_err();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(refused() && !elsewhere.exists(), "a link to a file that isn't there");
        std::fs::write(&elsewhere, []).unwrap();
        assert!(refused(), "a link");
        std::fs::remove_file(&path).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
        assert!(refused(), "a FIFO");
        std::fs::remove_file(&path).unwrap();
        drop(open_marks(directory.path()).unwrap());
        drop(open_marks(directory.path()).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refused(), "a file that others may open, and lock");
    }
}
