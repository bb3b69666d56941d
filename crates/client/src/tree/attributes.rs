//! LOOKUP, GETATTR, SETATTR, ACCESS, READLINK and FSSTAT.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{
    Access as Rights, AtFlags, Gid, Mode, OFlags, StatxFlags, StatxTimestamp, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, chmodat, chownat, fstatvfs, ftruncate, readlinkat, statx, utimensat,
};
use rustix::io::Errno;
use user_ids::with_set_id_kept;

use super::failure::{Failure, Result};
use super::local::{Call, LocalTree, entry_name};
use crate::error::Status;
use crate::handle::Handle;
use crate::types::{Access, Attributes, FileKind, Found, FsStat, SetAttributes, SetTime, Timestamp};

/// A mode bit: programs run with the rights of the owner.
const S_ISUID: u32 = 0o4000;
/// A mode bit: programs run with the rights of the group, and new entries of a directory inherit it.
pub(super) const S_ISGID: u32 = 0o2000;

impl LocalTree {
    pub(crate) fn lookup(&self, call: Call<'_>, directory: &Handle, name: &[u8]) -> Result<Found> {
        let (asked, name) = (Instant::now(), entry_name(name)?);
        let at = self.find(call, directory)?;
        let result = self.entry(call, (&at, directory), &name);
        if let Err(failure @ (Failure::WouldWait | Failure::NotLocal)) = result {
            return Err(failure);
        }
        let directory_now = self.live(&at);
        self.report(directory, None, directory_now.ok(), asked);
        let entry = match (result, directory_now) {
            (Err(Failure::Status(Status::NoEntry)), Err(gone)) => return Err(gone),
            (result, _) => result?,
        };
        let found = Found { handle: entry.handle, attributes: Some(entry.attributes) };
        self.report_found(&found, asked);
        Ok(found)
    }

    pub(crate) fn attributes(&self, call: Call<'_>, file: &Handle) -> Result<Attributes> {
        let asked = Instant::now();
        let attributes = self.live(&*self.find(call, file)?)?;
        self.report(file, None, Some(attributes), asked);
        Ok(attributes)
    }

    pub(crate) fn birth_time(&self, call: Call<'_>, file: &Handle) -> Result<Option<Timestamp>> {
        let descriptor = self.find(call, file)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = statx(&*descriptor, c"", flags, StatxFlags::BTIME)?;
        let is_told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let StatxTimestamp { tv_sec: seconds, tv_nsec: nanoseconds, .. } = stat.stx_btime;
        Ok(is_told.then_some(Timestamp { seconds, nanoseconds }))
    }

    pub(crate) fn set_attributes(
        &self,
        call: Call<'_>,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Attributes> {
        call.check_waits()?;
        let ((), after) = self.changing(call, file, |descriptor, before| {
            if guard.is_some_and(|guard| guard != before.ctime) {
                return Err(Status::NotSync.into());
            }
            self.apply(call, descriptor.as_fd(), None, before, set).map_err(|failure| {
                let now = self.attributes_of(descriptor);
                // Repeated, it would meet its own change.
                let is_changed = guard.is_some() && now.is_ok_and(|now| now.ctime != before.ctime);
                if is_changed { failure.after_change() } else { failure }
            })
        })?;
        after.map_err(|errno| Failure::from(errno).after_change())
    }

    /// As [`LocalTree::set_attributes`] for a file that is open; the size can't be set.
    pub(crate) fn set_attributes_of_open(
        &self,
        call: Call<'_>,
        (handle, file): (&Handle, BorrowedFd<'_>),
        set: &SetAttributes,
    ) -> Result<Attributes> {
        call.check_waits()?;
        let asked = Instant::now();
        let before = self.attributes_of(file)?;
        let result = self.apply(call, file, None, &before, set);
        let after = self.attributes_of(file);
        self.report(handle, Some(&before), after.ok(), asked);
        result?;
        after.map_err(|errno| Failure::from(errno).after_change())
    }

    /// Sets attributes in this order: size, owner and group, mode (because a change of owner clears set-id
    /// bits), times. A failure leaves the changes made before it, and may be repeated. `writable` is the file
    /// open for writing, if the caller has it.
    pub(super) fn apply(
        &self,
        call: Call<'_>,
        file: BorrowedFd<'_>,
        writable: Option<&OwnedFd>,
        before: &Attributes,
        set: &SetAttributes,
    ) -> Result<()> {
        check_beforehand(call, before, set)?;
        // Root's set-id bits survive, whatever this thread does without the capability for others.
        let may_clear = set.size.is_some() || set.uid.is_some() || set.gid.is_some();
        let concerns_set_id = may_clear && before.mode & (S_ISUID | S_ISGID) != 0
            || set.mode.is_some_and(|mode| mode & S_ISGID != 0);
        with_set_id_kept(call.is_root() && concerns_set_id, || {
            if let Some(size) = set.size {
                match writable {
                    Some(writable) => ftruncate(writable, size)?,
                    None => self.truncate(call, file, before, size)?,
                }
            }
            self.apply_rest(file, before, set)
        })
    }

    fn truncate(&self, call: Call<'_>, file: BorrowedFd<'_>, before: &Attributes, size: u64) -> Result<()> {
        let writable = self.open_again(file, OFlags::WRONLY).map_err(|failure| match failure {
            // NFS lets the owner write whatever the mode says (RFC 1813 section 4.4).
            Failure::Status(Status::Access) if before.uid == call.user.uid => Failure::NotLocal,
            other => other,
        })?;
        Ok(ftruncate(writable, size)?)
    }

    fn apply_rest(&self, file: BorrowedFd<'_>, before: &Attributes, set: &SetAttributes) -> Result<()> {
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(mode) = set.mode {
            self.change_mode(file, before.kind, mode)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
            utimensat(file, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }

    pub(super) fn change_mode(&self, file: BorrowedFd<'_>, kind: FileKind, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        match sys::empty_path::chmod(file, mode) {
            // Before Linux 6.6.
            Err(Errno::NOSYS) if kind == FileKind::Symlink => Err(Status::NotSupported.into()),
            Err(Errno::NOSYS) => {
                let (proc, number) = self.proc_entry(file)?;
                Ok(chmodat(proc, number, mode, AtFlags::empty())?)
            }
            other => Ok(other?),
        }
    }

    pub(crate) fn access(&self, call: Call<'_>, file: &Handle, wanted: Access) -> Result<Access> {
        let asked = Instant::now();
        let descriptor = self.find(call, file)?;
        let attributes = self.live(&descriptor)?;
        let is_directory = attributes.kind == FileKind::Directory;
        let needs = |access: Access, rights: Rights| {
            if wanted.contains(access) { rights } else { Rights::empty() }
        };
        // Removing and making names takes the permission to search, too.
        let change = if is_directory { Rights::WRITE_OK | Rights::EXEC_OK } else { Rights::WRITE_OK };
        let nothing = Rights::empty();
        let table = [
            (Access::READ, Rights::READ_OK),
            (Access::LOOKUP, if is_directory { Rights::EXEC_OK } else { nothing }),
            (Access::MODIFY, change),
            (Access::EXTEND, change),
            (Access::DELETE, if is_directory { change } else { nothing }),
            (Access::EXECUTE, if is_directory { nothing } else { Rights::EXEC_OK }),
        ];
        let asked_for = table.iter().fold(nothing, |all, (access, rights)| all | needs(*access, *rights));
        let mut has = nothing;
        for right in [Rights::READ_OK, Rights::WRITE_OK, Rights::EXEC_OK] {
            if asked_for.contains(right) {
                match sys::empty_path::access(&*descriptor, right) {
                    Ok(()) => has |= right,
                    Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        self.report(file, None, Some(attributes), asked);
        let granted = table.into_iter().filter(|(access, rights)| {
            wanted.contains(*access) && !rights.is_empty() && has.contains(*rights)
        });
        Ok(granted.fold(Access::default(), |all, (access, _)| all | access))
    }

    pub(crate) fn read_link(&self, call: Call<'_>, link: &Handle) -> Result<Vec<u8>> {
        call.check_waits()?;
        let asked = Instant::now();
        let descriptor = self.find(call, link)?;
        let attributes = self.live(&descriptor)?;
        self.report(link, None, Some(attributes), asked);
        if attributes.kind != FileKind::Symlink {
            return Err(Status::Invalid.into());
        }
        Ok(readlinkat(&*descriptor, c"", Vec::with_capacity(256))?.into_bytes())
    }

    pub(crate) fn fs_stat(&self, call: Call<'_>, file: &Handle) -> Result<FsStat> {
        call.check_waits()?;
        let asked = Instant::now();
        let descriptor = self.find(call, file)?;
        let attributes = self.live(&descriptor)?;
        let stat = fstatvfs(&*descriptor)?;
        self.report(file, None, Some(attributes), asked);
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(FsStat {
            total_bytes: bytes(stat.f_blocks),
            free_bytes: bytes(stat.f_bfree),
            available_bytes: bytes(stat.f_bavail),
            total_files: stat.f_files,
            free_files: stat.f_ffree,
            available_files: stat.f_favail,
            invariant_seconds: 0,
        })
    }
}

/// Checks what can be checked before the first change.
fn check_beforehand(call: Call<'_>, before: &Attributes, set: &SetAttributes) -> Result<()> {
    if let Some(size) = set.size {
        match before.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::IsDirectory.into()),
            _ => return Err(Status::Invalid.into()),
        }
        if size > io::MAX_OFFSET {
            return Err(Status::TooBig.into());
        }
    }
    for time in [set.atime, set.mtime] {
        if let Some(SetTime::To(Timestamp { nanoseconds: 1_000_000_000.., .. })) = time {
            return Err(Status::Invalid.into());
        }
    }
    // To the kernel this means "no change".
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
        return Err(Status::Invalid.into());
    }
    let given_time = [set.atime, set.mtime].iter().any(|time| matches!(time, Some(SetTime::To(_))));
    let is_owners = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || given_time;
    if is_owners && !call.is_root() && call.user.uid != before.uid {
        return Err(Status::NotPermitted.into());
    }
    Ok(())
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(Timestamp { seconds, nanoseconds })) => {
            Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
        }
    }
}
