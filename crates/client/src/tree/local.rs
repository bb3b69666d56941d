//! A directory tree on this host: from handles and names to descriptors ([`LocalTree`]).
//!
//! The operations do what the server's store does for the same request, with the same system calls. So they
//! have the same results, permissions and errors as over the wire. They run as the thread's user.
//!
//! A file is a descriptor with `O_PATH`. A name is resolved one component at a time, below its directory
//! only, through no symbolic link and into no mount.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat};
use rustix::io::Errno;
use rustix::path::DecInt;
use sys::KernelHandle;
use user_ids::Identity;

use super::descriptors::{Descriptor, DescriptorCache};
use super::failure::{Failure, Result};
use super::identity::FileIdentity;
use super::open_dirs::OpenDirs;
use crate::attribute_sink::{AttributeSink, AttributeUpdate, PreOpAttributes};
use crate::error::Status;
use crate::handle::{HEAD, Handle, WeakHandle};
use crate::in_memory::is_in_memory;
use crate::seal_queue::SealQueue;
use crate::types::{Attributes, FileKind, Found, NameHint, PosixAcls, ReplyAcls};

/// Resolution that follows no symbolic link, enters no mount and stays below the starting directory.
pub(super) const STRICT_RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The flags of opens for reading and writing. They neither wait for a lease nor block on a pipe.
pub(super) const NO_WAIT: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The longest name on Linux filesystems in bytes (`NAME_MAX`).
const MAX_NAME: usize = 255;

/// How many directories above a file are opened again if their descriptors are closed.
const MAX_REOPENED: usize = 256;

/// Whether an operation may wait for a disk on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It may.
    Allowed,
    /// It fails with [`Failure::WouldWait`] instead.
    Forbidden,
}

impl Waits {
    /// The flags for openat2(2).
    pub(super) const fn resolve_flags(self) -> ResolveFlags {
        match self {
            Self::Allowed => ResolveFlags::empty(),
            Self::Forbidden => ResolveFlags::CACHED,
        }
    }
}

/// On whose behalf an operation runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The user whose ids the thread has.
    pub(crate) user: &'a Identity,
    pub(crate) waits: Waits,
    /// Cleared in the modes of new files, unless they inherit an access control list.
    pub(crate) umask: u32,
}

impl Call<'_> {
    /// Fails unless the operation may wait for a disk. For operations that have no variant that never waits.
    pub(super) fn check_waits(&self) -> Result<()> {
        if self.waits == Waits::Allowed { Ok(()) } else { Err(Failure::WouldWait) }
    }

    pub(super) const fn is_root(&self) -> bool {
        self.user.uid == 0
    }
}

/// An entry of a directory.
pub(super) struct Entry {
    pub(super) file: Arc<Descriptor>,
    pub(super) handle: Handle,
    pub(super) attributes: Attributes,
}

/// A directory with everything below it.
#[derive(Debug)]
pub(crate) struct LocalTree {
    pub(super) root: Arc<Descriptor>,
    /// The first bytes of the handles of all files.
    head: [u8; HEAD],
    /// The server's id for the filesystem.
    fsid: u64,
    pub(super) descriptors: DescriptorCache,
    /// The last search by name had no file to open, so the next one probably has none.
    opens_nothing: AtomicBool,
    pub(super) open_dirs: OpenDirs,
    /// The directory /proc/self/fd, where it is mounted.
    proc: Option<OwnedFd>,
    sink: Option<Arc<dyn AttributeSink>>,
    /// The new handles, which get their seals later.
    pub(super) seals: Option<Arc<SealQueue>>,
    is_in_memory: bool,
}

impl LocalTree {
    /// The tree below `root`, a directory open for reading, with this handle and filesystem id. At most
    /// `budget` files are kept open. `None` if clients can't make the handles of the files.
    pub(crate) fn new(
        root: OwnedFd,
        handle: &Handle,
        fsid: u64,
        budget: usize,
        sink: Option<Arc<dyn AttributeSink>>,
    ) -> Option<Self> {
        let head = handle.head()?;
        let is_in_memory = is_in_memory(&root);
        Some(Self {
            head,
            fsid,
            descriptors: DescriptorCache::new(budget),
            opens_nothing: AtomicBool::new(false),
            open_dirs: OpenDirs::new(&root),
            proc: rustix::fs::open(
                c"/proc/self/fd",
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
            .ok(),
            root: Arc::new(Descriptor {
                file: root,
                identity: FileIdentity::new(&[handle.identity()])?,
                is_directory: true,
                handle: Mutex::default(),
            }),
            sink,
            seals: None,
            is_in_memory,
        })
    }

    /// Whether the filesystem is in memory, so that no system call waits for a disk.
    pub(crate) const fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// Closes what wasn't used since the last call.
    pub(crate) fn close_idle(&self) {
        self.descriptors.close_idle();
        self.open_dirs.close_idle();
    }

    /// The file of a handle.
    pub(super) fn find(&self, call: Call<'_>, handle: &Handle) -> Result<Arc<Descriptor>> {
        match self.known(handle) {
            Some(known) => Ok(known),
            None => self.reopen(call, handle),
        }
    }

    /// The file of a handle, if it is open.
    fn known(&self, handle: &Handle) -> Option<Arc<Descriptor>> {
        let identity = handle.identity();
        if *identity == *self.root.identity {
            return Some(Arc::clone(&self.root));
        }
        self.descriptors.get(identity)
    }

    /// The directory in which the file of a handle was found last, if that is open, and the file's name in
    /// it, which may belong to another file by now. System calls that take no `O_PATH` descriptor take less
    /// time by a name than by an entry of /proc/self/fd.
    pub(super) fn place(&self, handle: &Handle) -> Option<(Arc<Descriptor>, CString)> {
        let (directory, name) = handle.place()?;
        Some((self.known(&directory)?, CString::new(Vec::from(name)).ok()?))
    }

    /// Opens a file again by the names of its handle and of the directories above, as far as these are
    /// closed. Fails if one of the names belongs to another file now.
    fn reopen(&self, call: Call<'_>, handle: &Handle) -> Result<Arc<Descriptor>> {
        let mut way = Vec::new();
        let mut file = handle.clone();
        let mut from = loop {
            let (directory, name) = file.place().ok_or(Failure::NotLocal)?;
            way.push((file, name));
            if let Some(known) = self.known(&directory) {
                break known;
            }
            if way.len() >= MAX_REOPENED {
                return Err(Failure::NotLocal);
            }
            file = directory;
        };
        while let Some((file, name)) = way.pop() {
            let name = CString::new(Vec::from(name)).map_err(|_| Failure::NotLocal)?;
            let opened = self.open_path(call, &from, &name).map_err(|failure| match failure {
                Failure::WouldWait => failure,
                // The server finds the file without the directories above it.
                _ => Failure::NotLocal,
            })?;
            let identity = self.identity(&KernelHandle::of(&opened, c"")?)?;
            if *identity != *file.identity() {
                return Err(Failure::NotLocal);
            }
            let handle = Mutex::new(file.downgrade());
            from =
                self.descriptors.insert(Descriptor { file: opened, identity, is_directory: false, handle });
        }
        Ok(from)
    }

    /// Opens a name without following a symbolic link, for use as a [`Descriptor`].
    pub(super) fn open_path(&self, call: Call<'_>, directory: &Descriptor, name: &CStr) -> Result<OwnedFd> {
        let resolve = STRICT_RESOLVE | call.waits.resolve_flags();
        let open = || openat2(directory, name, PATH_ONLY, Mode::empty(), resolve);
        match self.with_room(open) {
            Err(Errno::AGAIN) if call.waits == Waits::Forbidden => Err(Failure::WouldWait),
            other => Ok(other?),
        }
    }

    /// Opens a file. If no descriptor is left, it is tried again with fewer in the cache.
    pub(super) fn with_room<T>(&self, open: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.descriptors.halve();
                open()
            }
            other => other,
        }
    }

    /// The entry `name` of a directory.
    pub(super) fn entry(
        &self,
        call: Call<'_>,
        directory: (&Descriptor, &Handle),
        name: &CStr,
    ) -> Result<Entry> {
        // One system call less if the name doesn't exist or the file is known, and one too many otherwise.
        if call.waits == Waits::Allowed && self.opens_nothing.load(Relaxed) {
            let kernel = KernelHandle::of(directory.0, name)?;
            if let Some(file) = self.descriptors.get(&self.identity(&kernel)?) {
                let attributes = self.live(&file)?;
                let handle = self.handle_of(&file, directory.1, name)?;
                return Ok(Entry { file, handle, attributes });
            }
            self.opens_nothing.store(false, Relaxed);
        }
        let file = self.open_path(call, directory.0, name).inspect_err(|failure| {
            if *failure == Failure::Status(Status::NoEntry) {
                self.opens_nothing.store(true, Relaxed);
            }
        })?;
        let attributes = self.attributes_of(&file)?;
        let identity = self.identity(&KernelHandle::of(&file, c"")?)?;
        let file = match self.descriptors.get(&identity) {
            Some(known) => {
                self.opens_nothing.store(true, Relaxed);
                known
            }
            None => self.descriptors.insert(Descriptor {
                file,
                identity,
                is_directory: attributes.kind == FileKind::Directory,
                handle: Mutex::default(),
            }),
        };
        let handle = self.handle_of(&file, directory.1, name)?;
        Ok(Entry { file, handle, attributes })
    }

    /// The handle of a file that was found by this name: the one in use, if there is one.
    pub(super) fn handle_of(&self, file: &Descriptor, directory: &Handle, name: &CStr) -> Result<Handle> {
        let mut last = file.handle.lock();
        if let Some(handle) = last.as_ref().and_then(WeakHandle::upgrade) {
            drop(last);
            handle.moved(directory, name.to_bytes());
            return Ok(handle);
        }
        let handle = self.handle(&file.identity, directory, name)?;
        *last = handle.downgrade();
        Ok(handle)
    }

    /// The descriptor of an entry, if the cache has one.
    pub(super) fn cached_entry(&self, directory: &Descriptor, name: &CStr) -> Option<Arc<Descriptor>> {
        if self.descriptors.is_empty() {
            return None;
        }
        let kernel = KernelHandle::of(directory, name).ok()?;
        self.descriptors.get(&self.identity(&kernel).ok()?)
    }

    /// As [`LocalTree::cached_entry`]; the caller may know the file.
    pub(super) fn hinted_entry(
        &self,
        directory: &Descriptor,
        name: &CStr,
        hint: NameHint<'_>,
    ) -> Option<Arc<Descriptor>> {
        match hint {
            NameHint::Unknown => self.cached_entry(directory, name),
            NameHint::Nothing => None,
            NameHint::File(handle) => self.descriptors.get(handle.identity()),
        }
    }

    /// The identity in the handle of a file.
    pub(super) fn identity(&self, kernel: &KernelHandle) -> Result<FileIdentity> {
        let kind = u8::try_from(kernel.kind()).map_err(|_| Failure::NotLocal)?;
        FileIdentity::new(&[&self.head, &[kind], kernel.as_bytes()]).ok_or(Failure::NotLocal)
    }

    /// A new handle of the file of this identity, which was found by this name.
    pub(super) fn handle(&self, identity: &[u8], directory: &Handle, name: &CStr) -> Result<Handle> {
        let (kind, kernel) = (i32::from(identity[HEAD]), &identity[HEAD + 1..]);
        let handle = Handle::in_tree(self.head, kind, kernel, (directory, name.to_bytes()))
            .ok_or(Failure::NotLocal)?;
        if let Some(seals) = &self.seals {
            seals.push(&handle);
        }
        Ok(handle)
    }

    /// A file's attributes.
    pub(super) fn attributes_of(&self, file: impl AsFd) -> rustix::io::Result<Attributes> {
        Ok(Attributes::examine(self.fsid, || fstat(&file))?.1)
    }

    /// The attributes of what a name in a directory belongs to.
    pub(super) fn attributes_at(
        &self,
        directory: &Descriptor,
        name: &CStr,
    ) -> rustix::io::Result<Attributes> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        Ok(Attributes::examine(self.fsid, || statat(directory, name, flags))?.1)
    }

    /// A file's attributes; `Stale`, and no descriptor any longer, if its last name is gone.
    pub(super) fn live(&self, file: &Descriptor) -> Result<Attributes> {
        let attributes = self.attributes_of(file)?;
        if attributes.nlink == 0 {
            self.descriptors.remove(&file.identity);
            return Err(Status::Stale.into());
        }
        Ok(attributes)
    }

    /// Turns `NoEntry` into `Stale` if the directory itself is gone.
    pub(super) fn gone_or<T>(&self, directory: &Descriptor, result: Result<T>) -> Result<T> {
        match result {
            Err(Failure::Status(Status::NoEntry)) => self.live(directory).and(Err(Status::NoEntry.into())),
            other => other,
        }
    }

    /// Runs a change of the file or directory of a handle, and reports its attributes from before and after.
    /// Returns the latter, too.
    pub(super) fn changing<T>(
        &self,
        call: Call<'_>,
        handle: &Handle,
        change: impl FnOnce(&Arc<Descriptor>, &Attributes) -> Result<T>,
    ) -> Result<(T, rustix::io::Result<Attributes>)> {
        let asked = Instant::now();
        let file = self.find(call, handle)?;
        let before = match self.live(&file) {
            Ok(before) => before,
            Err(failure) => {
                self.report(handle, None, None, asked);
                return Err(failure);
            }
        };
        let result = change(&file, &before);
        let after = self.attributes_of(&file);
        self.report(handle, Some(&before), after.ok(), asked);
        Ok((result?, after))
    }

    /// As [`LocalTree::changing`], for a change of a directory's names: without a sink nobody needs the
    /// directory's attributes.
    pub(super) fn changing_names<T>(
        &self,
        call: Call<'_>,
        directory: &Handle,
        change: impl FnOnce(&Arc<Descriptor>) -> Result<T>,
    ) -> Result<T> {
        if self.sink.is_none() {
            return change(&self.find(call, directory)?);
        }
        self.changing(call, directory, |at, _| change(at)).map(|(result, _)| result)
    }

    /// Reports attributes to the session's attribute sink.
    pub(super) fn report(
        &self,
        file: &Handle,
        before: Option<&Attributes>,
        attributes: Option<Attributes>,
        asked: Instant,
    ) {
        if let Some(sink) = &self.sink {
            let before = before.map(|before| PreOpAttributes::Times {
                size: before.size,
                mtime: before.mtime,
                ctime: before.ctime,
            });
            sink.attributes(file, &AttributeUpdate { before, attributes, asked });
        }
    }

    /// Tells the attribute sink a file's access control lists, which were read after these attributes.
    pub(super) fn report_acls(
        &self,
        file: &Handle,
        attributes: &Attributes,
        acls: &PosixAcls,
        asked: Instant,
    ) {
        if let Some(sink) = &self.sink {
            sink.acls(file, attributes, &ReplyAcls::Posix(acls.clone()), asked);
        }
    }

    /// As [`LocalTree::report`] for a file that was found or made.
    pub(super) fn report_found(&self, found: &Found, asked: Instant) {
        self.report(&found.handle, None, found.attributes, asked);
    }

    /// Opens a file again with these flags and [`NO_WAIT`], whatever its names are now.
    pub(super) fn open_again(&self, file: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
        let (proc, number) = self.proc_entry(file.as_fd())?;
        let flags = flags | NO_WAIT;
        Ok(self.with_room(|| openat(proc, number.as_c_str(), flags, Mode::empty()))?)
    }

    /// A file's entry in /proc/self/fd, for system calls that take no `O_PATH` descriptor.
    pub(super) fn proc_entry(&self, file: BorrowedFd<'_>) -> Result<(&OwnedFd, DecInt)> {
        let proc = self.proc.as_ref().ok_or(Failure::NotLocal)?;
        Ok((proc, DecInt::new(file.as_raw_fd())))
    }
}

/// The name of a directory entry. The server answers for names that are none, and for `.` and `..`.
pub(super) fn entry_name(name: &[u8]) -> Result<CString> {
    if matches!(name, b"" | b"." | b"..") || name.len() > MAX_NAME || name.contains(&b'/') {
        return Err(Failure::NotLocal);
    }
    CString::new(name).map_err(|_| Failure::NotLocal)
}
