//! The store's half of the one check: may this user do that with this file? All roads ask here: NFSv3, NFSv4
//! and the lane.
//!
//! The kernel answers, asked as the user (faccessat2 on the node's descriptor). What opens a file (NFSv4's
//! OPEN, a grant) asks it each time. What a client does with a file that it has opened, READ and WRITE, would
//! ask it a hundred thousand times a second; for these its answer is kept for as long as the file's ctime
//! proves that nothing has changed that decides about permissions (mode, owner, access control list). The
//! proof needs two things: time stamps that this kernel makes (`Filesystem::stamps_itself`), and a ctime that
//! no further change can get (`Timestamp::is_settled`).

use rustix::fs::Access as Rights;
use sys::Access;

use super::context::UserContext;
use super::types::AccessMode;
use crate::attributes::{FileKind, FileStatus, TimedStatus, Timestamp};
use crate::error::{Error, Result};
use crate::node::Node;

impl UserContext<'_> {
    /// Whether the user may open the file so. As in the Linux server, an owner may read and write his file
    /// whatever its mode says (a process that has the file open could, too, and NFSv3 has no open), and who
    /// may execute a file may read it.
    ///
    /// An unprivileged store can't do better than its process: there the mode binds the owner, too.
    ///
    /// Costs a statx, and a faccessat2 when the file or the user is new, or the file has just changed.
    /// [`UserContext::read`], [`UserContext::write`], [`UserContext::read_file`] and [`UserContext::grant`] make this check
    /// themselves.
    ///
    /// # Errors
    /// `Access` or `Permission` (immutable files) when not; `ReadOnly` for writing where nothing may change;
    /// `Stale`.
    pub fn may(&self, node: &Node, mode: AccessMode) -> Result<()> {
        self.check(node, &self.live(node)?, mode)
    }

    /// Whether the user may open the file so as any process could: what NFSv4's OPEN asks. Stricter than
    /// [`UserContext::may`], which is asked again at each READ and WRITE: the owner isn't let pass whatever the
    /// mode says. Who may execute a file may open it for reading, and only for that: his client has to.
    ///
    /// # Errors
    /// As for [`UserContext::may`].
    pub fn may_open(&self, node: &Node, mode: AccessMode) -> Result<()> {
        let status = self.live(node)?;
        self.check_changeable(&status, mode)?;
        let readable = mode == AccessMode::Write
            || self.has_now(node, Rights::READ_OK)?
            || mode == AccessMode::Read
                && node.kind() == FileKind::Regular
                && self.has_now(node, Rights::EXEC_OK)?;
        let writable = mode == AccessMode::Read || self.has_now(node, Rights::WRITE_OK)?;
        if readable && writable { Ok(()) } else { Err(Error::Access) }
    }

    /// Whether the user may change any of the file's attributes: as its owner or as root, and with the right
    /// to write, who may set its times to the present. Who may not can change none, whatever is asked for.
    ///
    /// # Errors
    /// `Permission`, `ReadOnly`, `Stale`.
    pub fn may_change(&self, node: &Node) -> Result<()> {
        let status = self.live(node)?;
        self.check_changeable(&status, AccessMode::Write)?;
        let owns = self.is_root() || self.who.identity.uid == status.attributes.uid;
        if owns || self.has(node, &status, Rights::WRITE_OK)? { Ok(()) } else { Err(Error::Permission) }
    }

    /// Whether the user may make and remove names in a directory. More may be asked for a certain name
    /// (sticky directories).
    ///
    /// # Errors
    /// `Access`, `Permission`, `ReadOnly`, `Stale`.
    pub fn may_change_entries(&self, directory: &Node) -> Result<()> {
        let status = self.live(directory)?;
        self.check_changeable(&status, AccessMode::Write)?;
        let may = self.has(directory, &status, Rights::WRITE_OK)?
            && self.has(directory, &status, Rights::EXEC_OK)?;
        if may { Ok(()) } else { Err(Error::Access) }
    }

    pub(super) fn check(&self, node: &Node, status: &FileStatus, mode: AccessMode) -> Result<()> {
        self.check_changeable(status, mode)?;
        let (read, write) = (mode != AccessMode::Write, mode != AccessMode::Read);
        if status.attributes.kind == FileKind::Regular && self.overrides(status) {
            return Ok(());
        }
        if read && !self.has(node, status, Rights::READ_OK)? && !self.may_execute(node, status)? {
            return Err(Error::Access);
        }
        // A file that an unprivileged process has made without write permission for itself: what it holds
        // open will do.
        if write && !self.holds_for_writing(node) && !self.has(node, status, Rights::WRITE_OK)? {
            return Err(Error::Access);
        }
        Ok(())
    }

    fn may_execute(&self, node: &Node, status: &FileStatus) -> Result<bool> {
        Ok(status.attributes.kind == FileKind::Regular && self.has(node, status, Rights::EXEC_OK)?)
    }

    /// The part of the check that isn't about the user.
    pub(super) fn check_changeable(&self, status: &FileStatus, mode: AccessMode) -> Result<()> {
        match mode {
            AccessMode::Read => Ok(()),
            _ if self.read_only => Err(Error::ReadOnly),
            _ if status.immutable => Err(Error::Permission),
            _ => Ok(()),
        }
    }

    /// Root, or the owner: no mode keeps them from reading and writing a regular file.
    pub(super) fn overrides(&self, status: &FileStatus) -> bool {
        self.is_privileged() && (self.is_root() || self.who.identity.uid == status.attributes.uid)
    }

    fn holds_for_writing(&self, node: &Node) -> bool {
        !self.is_privileged() && node.data_file(true).get().is_some()
    }

    /// Whether the kernel gives the user this one right, or gave it when the file was what it is now.
    fn has(&self, node: &Node, status: &FileStatus, right: Rights) -> Result<bool> {
        let (ctime, bit) = (status.attributes.ctime, right.bits());
        let fingerprint = self.who.fingerprint.wrapping_add(self.store.attached.changes());
        if let Some(allowed) = node.permissions().lock().get(ctime, fingerprint, bit) {
            return Ok(allowed);
        }
        // Cheap, and no for a file that is being written: the ctime may settle while the kernel is asked.
        if !self.is_proof(&TimedStatus { status: *status, asked: Timestamp::now() }) {
            return self.has_now(node, right);
        }
        // The answer is about the file as it was between this look and the next change, and any change after
        // the look shows.
        let look = self.look(node)?;
        let allowed = self.has_now(node, right)?;
        if self.is_proof(&look) {
            node.permissions().lock().put(look.status.attributes.ctime, fingerprint, bit, allowed);
        }
        Ok(allowed)
    }

    /// Whether the kernel gives the user this one right.
    fn has_now(&self, node: &Node, right: Rights) -> Result<bool> {
        self.assume_ids()?;
        match sys::empty_path::access(node.file(), right).map_err(Error::from) {
            Ok(()) => Ok(true),
            Err(Error::Access) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether nothing can have changed as long as the file has this ctime.
    pub(super) fn is_proof(&self, look: &TimedStatus) -> bool {
        self.store.tree.filesystem.stamps_itself && look.is_settled()
    }

    /// As [`UserContext::live`], with the time.
    pub(super) fn look(&self, node: &Node) -> Result<TimedStatus> {
        let asked = Timestamp::now();
        Ok(TimedStatus { status: self.live(node)?, asked })
    }

    /// Which of the `wanted` rights the user has; those that make no sense for the type are not among them.
    ///
    /// # Errors
    /// `Stale`.
    pub fn access(&self, node: &Node, wanted: Access) -> Result<Access> {
        let status = self.live(node)?;
        let directory = status.attributes.kind == FileKind::Directory;
        let change = Rights::WRITE_OK;
        let table: [(Access, &[Rights]); 6] = [
            (Access::READ, &[Rights::READ_OK]),
            (Access::LOOKUP, if directory { &[Rights::EXEC_OK] } else { &[] }),
            (Access::MODIFY, if directory { &[change, Rights::EXEC_OK] } else { &[change] }),
            (Access::EXTEND, if directory { &[change, Rights::EXEC_OK] } else { &[change] }),
            (Access::DELETE, if directory { &[change, Rights::EXEC_OK] } else { &[] }),
            (Access::EXECUTE, if directory { &[] } else { &[Rights::EXEC_OK] }),
        ];
        let mut granted = Access::default();
        for (right, needs) in table {
            if !wanted.contains(right) || needs.is_empty() {
                continue;
            }
            let changes = needs.contains(&change);
            if changes && (self.read_only || status.immutable) {
                continue;
            }
            let all = needs.iter().try_fold(true, |all, need| Ok(all && self.has(node, &status, *need)?));
            match all {
                Ok(true) => granted = granted | right,
                Ok(false) | Err(Error::ReadOnly | Error::Permission) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(granted)
    }
}
