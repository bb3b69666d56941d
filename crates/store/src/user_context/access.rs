//! Permission checks: may this user do that with this file? NFSv3, NFSv4 and the lane all use them.
//!
//! The kernel decides, asked as the user (faccessat2(2) on the node's descriptor). Operations that open a
//! file (NFSv4's OPEN, a grant) ask it each time. READ and WRITE would ask it a hundred thousand times a
//! second, so its answer is cached as long as the file's ctime proves that mode, owner and access control
//! list haven't changed. The proof requires time stamps made by this kernel (`Filesystem::stamps_itself`) and
//! a ctime that no later change can get (`Timestamp::is_settled`).

use rustix::fs::Access as Rights;
use sys::Access;

use super::context::UserContext;
use super::types::AccessMode;
use crate::attributes::{FileKind, FileStatus, TimedStatus, Timestamp};
use crate::error::{Error, Result};
use crate::node::Node;

impl UserContext<'_> {
    /// Whether the user may read or write the file, as the Linux server decides it: an owner may, whatever
    /// the mode says (NFSv3 has no open, and a process that has the file open could, too), and permission to
    /// execute a file includes reading it.
    ///
    /// In an unprivileged store the mode binds the owner, too, because it binds the process.
    ///
    /// Costs a statx(2), and a faccessat2(2) when the file or the user is new or the file has just changed.
    /// [`UserContext::read`], [`UserContext::write`], [`UserContext::read_file`] and [`UserContext::grant`]
    /// make this check themselves.
    ///
    /// # Errors
    /// `Access` or `Permission` (immutable files) when not; `ReadOnly` for writing to a read-only store or
    /// export; `Stale`.
    pub fn may(&self, node: &Node, mode: AccessMode) -> Result<()> {
        self.check(node, &self.live(node)?, mode)
    }

    /// Whether the user may open the file as a local process could: the check of NFSv4's OPEN. It is stricter
    /// than [`UserContext::may`], which READ and WRITE repeat: the mode binds the owner. A user who may only
    /// execute the file may open it for reading, because the client must read it to execute it.
    ///
    /// # Errors
    /// As for [`UserContext::may`].
    pub fn may_open(&self, node: &Node, mode: AccessMode) -> Result<()> {
        self.live(node)?;
        self.may_open_found(node, mode)
    }

    /// As [`UserContext::may_open`] for a file that the caller has just found by its name: it still exists.
    /// Costs one faccessat2(2) for reading and one for writing.
    ///
    /// # Errors
    /// As for [`UserContext::may`], except `Stale`.
    pub fn may_open_found(&self, node: &Node, mode: AccessMode) -> Result<()> {
        if mode != AccessMode::Read && self.read_only {
            return Err(Error::ReadOnly);
        }
        let readable = mode == AccessMode::Write
            || self.has_now(node, Rights::READ_OK)?
            || mode == AccessMode::Read
                && node.kind() == FileKind::Regular
                && self.has_now(node, Rights::EXEC_OK)?;
        let writable = mode == AccessMode::Read || self.has_now(node, Rights::WRITE_OK)?;
        if readable && writable { Ok(()) } else { Err(Error::Access) }
    }

    /// Whether the user may change any of the file's attributes: as owner, as root, or with permission to
    /// write, which suffices for setting the times to now.
    ///
    /// # Errors
    /// `Permission` if the user may change none of them; `ReadOnly`, `Stale`.
    pub fn may_change(&self, node: &Node) -> Result<()> {
        let status = self.live(node)?;
        self.check_changeable(&status, AccessMode::Write)?;
        let owns = self.is_root() || self.who.identity.uid == status.attributes.uid;
        if owns || self.has(node, &status, Rights::WRITE_OK)? { Ok(()) } else { Err(Error::Permission) }
    }

    /// Whether the user may create and remove names in a directory. A specific name may need more (sticky
    /// directories).
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
        // An unprivileged process may have created the file without write permission for itself. The
        // descriptor that it holds suffices.
        if write && !self.holds_for_writing(node) && !self.has(node, status, Rights::WRITE_OK)? {
            return Err(Error::Access);
        }
        Ok(())
    }

    fn may_execute(&self, node: &Node, status: &FileStatus) -> Result<bool> {
        Ok(status.attributes.kind == FileKind::Regular && self.has(node, status, Rights::EXEC_OK)?)
    }

    /// The part of the check that doesn't depend on the user.
    pub(super) fn check_changeable(&self, status: &FileStatus, mode: AccessMode) -> Result<()> {
        match mode {
            AccessMode::Read => Ok(()),
            _ if self.read_only => Err(Error::ReadOnly),
            _ if status.immutable => Err(Error::Permission),
            _ => Ok(()),
        }
    }

    /// The user is root or the owner, whom no mode keeps from reading and writing a regular file.
    pub(super) fn overrides(&self, status: &FileStatus) -> bool {
        self.is_privileged() && (self.is_root() || self.who.identity.uid == status.attributes.uid)
    }

    fn holds_for_writing(&self, node: &Node) -> bool {
        !self.is_privileged() && node.data_file(true).get().is_some()
    }

    /// Whether the kernel grants the user this permission, from the cache if possible.
    fn has(&self, node: &Node, status: &FileStatus, right: Rights) -> Result<bool> {
        let (ctime, bit) = (status.attributes.ctime, right.bits());
        let fingerprint = self.who.fingerprint.wrapping_add(self.store.attached.changes());
        if let Some(allowed) = node.permissions().lock().get(ctime, fingerprint, bit) {
            return Ok(allowed);
        }
        // A cheap check first. It fails for a file that is being written; by the second check the ctime may
        // have settled.
        if !self.is_proof(&TimedStatus { status: *status, asked: Timestamp::now() }) {
            return self.has_now(node, right);
        }
        // The answer applies to the file between this status and its next change, and every change after the
        // status changes the ctime.
        let timed_status = self.timed_status(node)?;
        let allowed = self.has_now(node, right)?;
        if self.is_proof(&timed_status) {
            node.permissions().lock().put(timed_status.status.attributes.ctime, fingerprint, bit, allowed);
        }
        Ok(allowed)
    }

    /// Asks the kernel.
    fn has_now(&self, node: &Node, right: Rights) -> Result<bool> {
        self.assume_ids()?;
        match sys::empty_path::access(node.file(), right).map_err(Error::from) {
            Ok(()) => Ok(true),
            Err(Error::Access) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether permissions can't have changed as long as the file has this ctime.
    pub(super) fn is_proof(&self, timed_status: &TimedStatus) -> bool {
        self.store.tree.filesystem.stamps_itself && timed_status.is_settled()
    }

    /// As [`UserContext::live`], with the time of asking.
    pub(super) fn timed_status(&self, node: &Node) -> Result<TimedStatus> {
        let asked = Timestamp::now();
        Ok(TimedStatus { status: self.live(node)?, asked })
    }

    /// Which of the `wanted` permissions the user has, except those that don't apply to the file's type.
    ///
    /// # Errors
    /// `Stale`.
    pub fn access(&self, node: &Node, wanted: Access) -> Result<Access> {
        let status = self.live(node)?;
        let kind = status.attributes.kind;
        let directory = kind == FileKind::Directory;
        // Data written into a pipe, a socket or a device doesn't change the export.
        let stored_here = matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        let unchangeable = self.read_only && stored_here || status.immutable;
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
            if unchangeable && needs.contains(&change) {
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
