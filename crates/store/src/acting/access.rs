//! The store's half of the one check: may this user do that with this file? All roads ask here: NFSv3, NFSv4 and the lane.
//!
//! The kernel answers, asked as the user (faccessat2 on the node's descriptor), and its answer is kept for as long as the file's
//! ctime stands still, for nothing that decides about permissions (mode, owner, access control list) changes without it.

use rustix::fs::Access as Rights;
use rustix::time::{ClockId, clock_gettime};
use sys::Access;

use super::{AccessMode, Acting};
use crate::attributes::{Kind, Status, Timestamp};
use crate::error::{Error, Result};
use crate::node::Node;

/// Before Linux 6.13 ctime moves in steps of up to 10 ms: an answer about a file that changed within the last step may be overtaken by a
/// change that leaves no trace.
const SETTLED_NANOSECONDS: i128 = 20_000_000;

impl Acting<'_> {
    /// Whether the user may open the file so. As in the Linux server, an owner may read and write
    /// his file whatever its mode says (a process that has the file open could, too, and NFSv3 has no open), and who may
    /// execute a file may read it.
    ///
    /// An unprivileged store can't do better than its process: there the mode binds the owner, too.
    ///
    /// Costs a statx, and a faccessat2 when the file or the user is new. [`Acting::read`], [`Acting::write`],
    /// [`Acting::read_file`] and [`Acting::grant`] make this check themselves.
    ///
    /// # Errors
    /// `Access` or `Permission` (immutable files) when not; `ReadOnly` for writing where nothing may change; `Stale`.
    pub fn may(&self, node: &Node, mode: AccessMode) -> Result<()> {
        self.check(node, &self.live(node)?, mode)
    }

    /// Whether the user may open the file so as any process could: what NFSv4's OPEN asks. Stricter than [`Acting::may`], which
    /// is asked again at each READ and WRITE: the owner isn't let pass whatever the mode says. Who may execute a file may open it
    /// for reading, and only for that: his client has to.
    ///
    /// # Errors
    /// As for [`Acting::may`].
    pub fn may_open(&self, node: &Node, mode: AccessMode) -> Result<()> {
        let status = self.live(node)?;
        self.check_changeable(&status, mode)?;
        let readable = mode == AccessMode::Write
            || self.has(node, &status, Rights::READ_OK)?
            || mode == AccessMode::Read && self.may_execute(node, &status)?;
        let writable = mode == AccessMode::Read || self.has(node, &status, Rights::WRITE_OK)?;
        if readable && writable { Ok(()) } else { Err(Error::Access) }
    }

    pub(super) fn check(&self, node: &Node, status: &Status, mode: AccessMode) -> Result<()> {
        self.check_changeable(status, mode)?;
        let (read, write) = (mode != AccessMode::Write, mode != AccessMode::Read);
        if status.attributes.kind == Kind::Regular && self.overrides(status) {
            return Ok(());
        }
        if read && !self.has(node, status, Rights::READ_OK)? && !self.may_execute(node, status)? {
            return Err(Error::Access);
        }
        // A file that an unprivileged process has made without write permission for itself: what it holds open will do.
        if write && !self.holds_for_writing(node) && !self.has(node, status, Rights::WRITE_OK)? {
            return Err(Error::Access);
        }
        Ok(())
    }

    fn may_execute(&self, node: &Node, status: &Status) -> Result<bool> {
        Ok(status.attributes.kind == Kind::Regular && self.has(node, status, Rights::EXEC_OK)?)
    }

    /// The part of the check that isn't about the user.
    pub(super) fn check_changeable(&self, status: &Status, mode: AccessMode) -> Result<()> {
        match mode {
            AccessMode::Read => Ok(()),
            _ if self.read_only => Err(Error::ReadOnly),
            _ if status.immutable => Err(Error::Permission),
            _ => Ok(()),
        }
    }

    /// Root, or the owner: no mode keeps them from reading and writing a regular file.
    pub(super) fn overrides(&self, status: &Status) -> bool {
        self.is_privileged() && (self.is_root() || self.who.identity.uid == status.attributes.uid)
    }

    fn holds_for_writing(&self, node: &Node) -> bool {
        !self.is_privileged() && node.data_file(true).get().is_some()
    }

    /// Whether the kernel gives the user this one right.
    fn has(&self, node: &Node, status: &Status, right: Rights) -> Result<bool> {
        let (change, fingerprint, bit) = (status.attributes.change, self.who.fingerprint, right.bits());
        if let Some(allowed) = node.decisions().lock().get(change, fingerprint, bit) {
            return Ok(allowed);
        }
        self.wear()?;
        let allowed = match sys::pathless::access(node.file(), right).map_err(Error::from) {
            Ok(()) => true,
            Err(Error::Access) => false,
            Err(error) => return Err(error),
        };
        if is_settled(status.attributes.ctime) {
            node.decisions().lock().put(change, fingerprint, bit, allowed);
        }
        Ok(allowed)
    }

    /// Which of the `wanted` rights the user has; those that make no sense for the type are not among them.
    ///
    /// # Errors
    /// `Stale`.
    pub fn access(&self, node: &Node, wanted: Access) -> Result<Access> {
        let status = self.live(node)?;
        let directory = status.attributes.kind == Kind::Directory;
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

/// Whether a change from now on is sure to leave another ctime.
fn is_settled(ctime: Timestamp) -> bool {
    let now = clock_gettime(ClockId::Realtime);
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let age = nanoseconds(now.tv_sec, now.tv_nsec) - nanoseconds(ctime.seconds, i64::from(ctime.nanoseconds));
    age > SETTLED_NANOSECONDS
}
