//! OPEN, CREATE and RELEASE.
//!
//! Every OPEN asks the server: over the lane for a grant of exactly the wanted access, over the wire with
//! ACCESS, which NFSv4 sends together with its OPEN. Either reply has the attributes. They say whether the
//! kernel's cached data is still valid (close-to-open consistency).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use client::{Access, Attributes, DataPath, File, OpenOptions, Session, SetAttributes};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::silly_rename::HiddenRemoval;
use super::{ContentAtOpen, FileEntry, Filesystem, Outcome, RequestContext, UndeliveredOpen};
use crate::backing::{self, Backing};
use crate::fuse::abi::fopen;
use crate::fuse::reply::FuseReply;
use crate::fuse::request::{NewMode, OpenArgs};
use crate::inode::{BackingFile, Inode, InodeState, IoHold, IoPlan, IoWish};
use crate::open_table::OpenFile;
use crate::settings::Direct;
use crate::users::User;

/// The kernel must look the file up again, and get another inode for it.
struct OtherInodeNeeded;

impl OpenArgs {
    const fn has(&self, flag: OFlags) -> bool {
        self.flags.contains(flag)
    }

    fn truncates(&self) -> bool {
        self.has(OFlags::TRUNC)
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::new().read(self.read).write(self.write).no_follow(true)
    }

    /// Whether the mode alone permits this open, so that a grant needs no ACCESS besides. An NFS server lets
    /// an owner read and write whatever the mode says, because it doesn't know which files were open before a
    /// chmod(2), and lets an executable file be read; open(2) does neither.
    fn is_permitted_by_mode(&self, user: &User, attributes: &Attributes) -> bool {
        let read = if self.execute { 1 } else { 4 * u32::from(self.read) };
        let write = if self.write || self.truncates() { 2 } else { 0 };
        user.is_permitted_by_mode(attributes, read | write)
    }

    /// The rights that ACCESS must grant.
    fn rights(&self) -> Access {
        let mut rights = Access(0);
        if self.execute {
            rights = rights | Access::EXECUTE;
        } else if self.read {
            rights = rights | Access::READ;
        }
        if self.write {
            rights = rights | Access::MODIFY | Access::EXTEND;
        } else if self.truncates() {
            rights = rights | Access::MODIFY;
        }
        rights
    }
}

/// When the kernel was told the attributes that it may have cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttributesReported {
    BeforeOpen,
    ByThisReply,
}

/// The reply to an open: flags for the kernel, the backing file, and the part in the inode's I/O mode.
struct OpenReply {
    flags: u32,
    backing: Option<Arc<Backing>>,
    hold: IoHold,
}

impl OpenReply {
    fn append_to(&self, reply: FuseReply, fh: u64) -> FuseReply {
        reply.open(fh, self.flags, self.backing.as_ref().map_or(0, |backing| backing.number))
    }
}

/// An open whose last process has closed it, with what is left to do.
#[derive(Debug)]
pub(crate) struct ClosingFile {
    open: Arc<OpenFile>,
    hidden: Option<HiddenRemoval>,
}

impl Filesystem {
    pub(super) async fn open(&self, request: &RequestContext, args: &OpenArgs) -> Result<Outcome, Errno> {
        let (inode, user) = (self.inode(request)?, self.user(request));
        let name = inode.lock().names.first().map(|(_, name)| name).unwrap_or_default();
        // Processes of this host see each other's writes before close(2), too.
        self.session.settle(&inode.handle).await;
        let asked = Instant::now();
        let room = self.room_for_content(&inode, args);
        let options = args.options().content(room.as_ref().map_or(0, |room| room.len));
        let file = user.session.open_handle(&inode.handle, &name, &options).await;
        let file = file.map_err(|error| self.errno_for(&inode, &error))?;
        let is_permitted =
            file.attributes_at_open().is_some_and(|attributes| args.is_permitted_by_mode(&user, &attributes));
        let is_granted = file.data_path() == DataPath::Lane;
        if !is_granted || !is_permitted {
            let rights = args.rights();
            // A grant brought the attributes. If they differed from the cached ones, the rights were dropped.
            let cached = if is_granted {
                inode.lock().access.get(&user, rights, asked)
            } else {
                file.access_at_open().map(|access| Access(access.0 & rights.0))
            };
            self.check_access(&user, &inode, rights, cached).await?;
        }
        if args.truncates() {
            Box::pin(self.truncate_at_open(&user, &inode, &file, args)).await?;
        }
        self.current_attributes(&user.session, &inode, asked).await?;
        let content = file.take_content().zip(room).map(|(data, room)| room.hold(data)).unwrap_or_default();
        let (fh, open) = self.enter_open(&inode, (file, content), args, AttributesReported::BeforeOpen)?;
        let reply = open.append_to(FuseReply::with_capacity(16), fh);
        Ok(Outcome { opened: Some(UndeliveredOpen::File(fh)), ..Outcome::from(reply) })
    }

    /// O_TRUNC, which doesn't require an open for writing.
    async fn truncate_at_open(
        &self,
        user: &User,
        inode: &Inode,
        file: &File,
        args: &OpenArgs,
    ) -> Result<(), Errno> {
        if args.write {
            self.truncate(inode, file, 0, args.kill_set_id).await?;
        } else {
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            let result = user.session.set_attributes(&inode.handle, &set, None).await;
            self.kernel.invalidate_set_id(inode);
            result.map_err(|error| self.errno(&error))?;
        }
        inode.lock().attributes.note_write(Instant::now());
        Ok(())
    }

    pub(super) async fn create(
        &self,
        request: &RequestContext,
        name: &[u8],
        mode: NewMode,
        args: &OpenArgs,
    ) -> Result<Outcome, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        let options = args
            .options()
            .create(true)
            .create_new(args.has(OFlags::EXCL))
            .times_later(!self.options.sync)
            .mode(mode.mode);
        let _change = self.listed_names.change(directory.number);
        let query = self.begin_create(request, &directory, name);
        let session = user.session.with_umask(mode.umask);
        let file = session.open_at(&directory.handle, name, &options).await.map_err(|error| match error {
            // The kernel found no such name before. It looks it up again after ESTALE, and knows what to do
            // with what isn't a regular file: where a link leads to is for the kernel to say.
            client::Error::NotRegular { .. } | client::Error::Loop { .. } => Errno::STALE,
            error => self.errno(&error),
        })?;
        let attributes = self.attributes_of_new(&user.session, &file).await?;
        let mut entry = self.entry(&file.handle(), &attributes, &query, request.received);
        let node = entry.inode.number;
        let begun = Box::pin(self.begin_with_existing(&user, &file, args, &mut entry)).await;
        if let Err(errno) = begun {
            self.forget(node, 1);
            return Err(errno);
        }
        let opened = (file, Mutex::default());
        let (fh, open) = match self.enter_open(&entry.inode, opened, args, AttributesReported::ByThisReply) {
            Ok(entered) => entered,
            Err(errno) => {
                self.forget(node, 1);
                return Err(errno);
            }
        };
        if open.hold == IoHold::Passed && args.write {
            // As in `report_attributes`, which came before this open was passed through.
            entry.times.attributes = Duration::ZERO;
        }
        let reply = FuseReply::with_capacity(144).entry(node, &entry.attributes, entry.times);
        let reply = open.append_to(reply, fh);
        Ok(Outcome { opened: Some(UndeliveredOpen::NewFile { node, fh }), ..Outcome::from(reply) })
    }

    /// The checks and the truncation of a file that was to be created, if it existed: another host has made
    /// it since the kernel has looked for the name. The kernel takes it for new, and so does neither.
    async fn begin_with_existing(
        &self,
        user: &Arc<User>,
        file: &File,
        args: &OpenArgs,
        entry: &mut FileEntry,
    ) -> Result<(), Errno> {
        let truncates = args.truncates() && entry.attributes.size > 0;
        // A file that is granted was opened by a kernel as the user.
        let is_granted = file.data_path() == DataPath::Lane;
        if file.is_new() || is_granted && !truncates {
            return Ok(());
        }
        let (inode, asked) = (&entry.inode, Instant::now());
        if !(is_granted && args.write) {
            self.check_access(
                user,
                inode,
                args.rights(),
                file.access_at_open().map(|access| Access(access.0 & args.rights().0)),
            )
            .await?;
        }
        if truncates {
            self.truncate_at_open(user, inode, file, args).await?;
            let now = self.current_attributes(&user.session, inode, asked).await?;
            entry.attributes = self.numbers.renumber(now);
        }
        Ok(())
    }

    async fn attributes_of_new(&self, session: &Session, file: &File) -> Result<Attributes, Errno> {
        if let Some(attributes) = file.attributes_at_open() {
            return Ok(attributes);
        }
        session.attributes(&file.handle()).await.map_err(|error| self.errno(&error))
    }

    /// Decides the reply to an open and enters the open into the tables. Nothing here waits: the reply
    /// follows at once.
    fn enter_open(
        &self,
        inode: &Arc<Inode>,
        (file, content): (File, Mutex<Option<ContentAtOpen>>),
        args: &OpenArgs,
        reported: AttributesReported,
    ) -> Result<(u64, OpenReply), Errno> {
        let mut state = inode.lock();
        let Ok(reply) = self.plan_open(inode, &mut state, &file, args) else {
            // The table's lock comes before an inode's.
            drop(state);
            self.inodes.replace(inode);
            return Err(Errno::STALE);
        };
        // The kernel must not keep an old size, nor, where it will write by itself, old times.
        let is_first_writer = reply.hold == IoHold::Passed && args.write && !state.opens.has_kernel_writer();
        if state.attributes.is_reported_otherwise()
            || is_first_writer && reported == AttributesReported::BeforeOpen && state.attributes.is_reported()
        {
            self.kernel.invalidate_attributes(inode);
            state.attributes.forget_report();
        }
        let is_granted = file.data_path() == DataPath::Lane;
        let mappable = args.read && args.write && reply.hold == IoHold::Cached;
        let open = OpenFile {
            inode: inode.clone(),
            outlives_its_name: file.outlives_its_name(),
            file,
            hold: reply.hold,
            read: args.read,
            write: args.write,
            mappable,
            content,
            had_lock: AtomicBool::new(false),
            closing: Mutex::default(),
        };
        state.open(&open);
        let fh = self.files.insert(open);
        if is_granted {
            state.opens.set_last_granted(fh);
        }
        drop(state);
        Ok((fh, reply))
    }

    fn plan_open(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        file: &File,
        args: &OpenArgs,
    ) -> Result<OpenReply, OtherInodeNeeded> {
        let is_granted = file.data_path() == DataPath::Lane;
        let is_direct = args.has(OFlags::DIRECT) && self.options.direct == Direct::Server;
        // The kernel would clear set-id bits for every writer and keep the cached ones. And it doesn't know
        // that with `sync` every write must be durable when it returns.
        let is_unfit = args.write && (state.has_set_id() || self.options.sync);
        let served = if args.write && args.has(OFlags::APPEND) {
            // The end of the file is where the server has it, not where the kernel has it cached.
            IoWish::Direct
        } else {
            IoWish::Cached
        };
        let pass = is_granted
            && !is_direct
            && !is_unfit
            && !state.opens.io_mode.is_cached()
            && self.passthrough.is_allowed();
        let wish = if pass { IoWish::Pass } else { served };
        let mut plan = state.opens.io_mode.plan(wish, args.write);
        if plan == IoPlan::Register {
            match self.register_backing(state, file, args.write) {
                Some(reply) => return Ok(reply),
                None => plan = state.opens.io_mode.plan(served, args.write),
            }
        }
        match plan {
            IoPlan::Share(backing) => {
                // From now on the kernel writes to the file, too.
                file.share_granted_fd(|_| ());
                self.passthrough.note_passed();
                let hold = state.opens.io_mode.share();
                let flags = fopen::PASSTHROUGH | self.no_flush();
                Ok(OpenReply { flags, backing: Some(backing), hold })
            }
            IoPlan::DirectWith(backing) => {
                let hold = state.opens.io_mode.share();
                let flags = fopen::PASSTHROUGH | fopen::DIRECT_IO;
                Ok(OpenReply { flags, backing: Some(backing), hold })
            }
            IoPlan::Register | IoPlan::Cached => Ok(self.open_cached(inode, state, args)),
            IoPlan::Direct => Ok(OpenReply { flags: fopen::DIRECT_IO, backing: None, hold: IoHold::None }),
            IoPlan::Replace => Err(OtherInodeNeeded),
        }
    }

    /// Registers a granted file, which is open for writing if `write` is set, as a backing file; `None` if
    /// the kernel refuses it.
    fn register_backing(&self, state: &mut InodeState, file: &File, write: bool) -> Option<OpenReply> {
        let registered = file.share_granted_fd(|fd| {
            let read_only = !write && backing::is_read_only(fd);
            (Backing::register(self.kernel.device(), file, fd), read_only)
        });
        match registered? {
            (Ok(backing), read_only) => {
                self.passthrough.note_passed();
                let backing = Arc::new(backing);
                let hold = state.opens.io_mode.pass(BackingFile { file: backing.clone(), read_only });
                let flags = fopen::PASSTHROUGH | self.no_flush();
                Some(OpenReply { flags, backing: Some(backing), hold })
            }
            (Err(refusal), _) => {
                self.passthrough.note_refused(refusal);
                None
            }
        }
    }

    /// Closes what a reply has opened that the kernel didn't take.
    pub(crate) async fn undo_open(&self, opened: UndeliveredOpen) {
        match opened {
            UndeliveredOpen::File(fh) => self.close(fh).await,
            UndeliveredOpen::NewFile { node, fh } => {
                self.close(fh).await;
                self.forget(node, 1);
            }
            UndeliveredOpen::Directory(fh) => drop(self.release_dir(fh)),
        }
    }

    /// Returns the references of a reply that the kernel didn't take: it won't send FORGET for them.
    pub(crate) fn return_references(&self, outcome: &Outcome) {
        for node in outcome.reply.nodes(outcome.entries) {
            self.forget(node, 1);
        }
    }

    async fn close(&self, fh: u64) {
        if let Ok(Some(closing)) = self.release(fh) {
            self.finish_close(closing).await;
        }
    }

    /// RELEASE: the last process has closed an open. This part doesn't wait and comes before any later
    /// request, which must find the file closed (an RMDIR, say). [`Filesystem::finish_close`] does the rest.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn release(&self, fh: u64) -> Result<Option<ClosingFile>, Errno> {
        let Some(open) = self.files.remove(fh) else { return Err(Errno::BADF) };
        if !open.write && !self.options.noatime && open.file.attributes_now().is_some() {
            // The granted file's last atime.
            open.inode.set_atime_stale(false);
        }
        let released = open.inode.lock().release(&open, Instant::now());
        drop(released.backing);
        if open.had_lock.load(Relaxed) {
            *open.closing.lock() = Some(self.closes.begin(open.inode.number));
        }
        let hidden = released.hidden.map(|hidden| self.hidden.begin_removal(hidden));
        // The last close of a file that was written may wait for a disk.
        Ok((open.write || hidden.is_some()).then_some(ClosingFile { open, hidden }))
    }

    /// The part of a close that may wait.
    pub(crate) async fn finish_close(&self, closing: ClosingFile) {
        let ClosingFile { open, hidden } = closing;
        if open.write {
            // Brings the attributes of a granted file into the cache for the last time.
            let _ = open.file.attributes_now();
        }
        if let Err(error) = open.file.flush().await {
            self.kernel.invalidate_data(&open.inode);
            // FLUSH has reported what it found; data of a mapping came after it.
            tracing::warn!(%error, "data of a file that has been closed is lost");
        }
        let inode = open.inode.clone();
        // The last close of a file without a name frees its blocks: that should happen in the server.
        drop(open);
        if let Some(removal) = hidden {
            self.remove_hidden(&inode, removal).await;
        }
    }

    /// Closes all files. At an unmount the kernel doesn't send RELEASE for them.
    pub(crate) async fn close_all(&self) {
        for fh in self.files.handles() {
            self.close(fh).await;
        }
    }

    /// The flag of opens that leave nothing to be done at close(2). With it the kernel wouldn't tell of a
    /// close(2), which ends the process's locks.
    const fn no_flush(&self) -> u32 {
        if self.remote_locks.posix { 0 } else { fopen::NOFLUSH }
    }

    fn open_cached(&self, inode: &Inode, state: &mut InodeState, args: &OpenArgs) -> OpenReply {
        let mut keep_data = state.attributes.open_cached();
        if !keep_data {
            inode.pages.forget_reads();
        }
        if args.write && args.has(OFlags::DIRECT) && !state.opens.is_open() {
            // The pages would have to be dropped with each write.
            keep_data = false;
            inode.pages.note_dropped();
        }
        let keep = if keep_data { fopen::KEEP_CACHE } else { 0 };
        let flush = if args.write { 0 } else { self.no_flush() };
        OpenReply { flags: keep | flush, backing: None, hold: state.opens.io_mode.cache() }
    }
}
