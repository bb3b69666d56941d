//! OPEN, CREATE and RELEASE: from a request to an open file, and which way its bytes will go.
//!
//! The server is asked at every open: for a grant of exactly the access that is wanted, over the lane, or
//! with ACCESS over the wire. Either answer brings the attributes, and with them whether the kernel's cached
//! data is still good (close-to-open).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use client::{Access, Attributes, File, OpenOptions, Road, Session, SetAttributes};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::hidden::Going;
use super::{Call, Filesystem};
use crate::backing::{self, Backing};
use crate::fuse::abi::{self, fopen};
use crate::fuse::answer::Answer;
use crate::inodes::{Node, State};
use crate::open::OpenFile;
use crate::passthrough::{self, Hold, Plan, Wish};
use crate::requests::Untold;
use crate::settings::Direct;
use crate::users::User;

/// Opened to be executed: include/linux/fs.h, `__FMODE_EXEC`.
const FMODE_EXEC: u32 = 0x20;

/// What open(2) was asked for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    flags: OFlags,
    read: bool,
    write: bool,
    execute: bool,
    /// Emptying the file takes its set-id bits away.
    kill: bool,
}

impl Wanted {
    fn of(flags: u32, how: u32) -> Result<Self, Errno> {
        let (read, write) = match flags & OFlags::ACCMODE.bits() {
            mode if mode == OFlags::RDONLY.bits() => (true, false),
            mode if mode == OFlags::WRONLY.bits() => (false, true),
            mode if mode == OFlags::RDWR.bits() => (true, true),
            _ => return Err(Errno::INVAL),
        };
        let execute = flags & FMODE_EXEC != 0;
        let kill = how & abi::OPEN_KILL_SUIDGID != 0;
        Ok(Self { flags: OFlags::from_bits_retain(flags), read, write, execute, kill })
    }

    const fn has(&self, flag: OFlags) -> bool {
        self.flags.contains(flag)
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::new().read(self.read).write(self.write).no_follow(true)
    }

    /// Whether a grant alone says that this is allowed. An NFS server lets an owner read and write whatever
    /// the mode says, for it doesn't know what was open before the mode was changed, and lets a file be read
    /// that may be run; open(2) doesn't.
    fn is_plain(&self, user: &User, attributes: &Attributes) -> bool {
        let read = if self.execute { 1 } else { 4 * u32::from(self.read) };
        let write = if self.write || self.has(OFlags::TRUNC) { 2 } else { 0 };
        user.may_by_mode(attributes, read | write)
    }

    fn rights(&self) -> Access {
        let mut rights = Access(0);
        if self.execute {
            rights = rights | Access::EXECUTE;
        } else if self.read {
            rights = rights | Access::READ;
        }
        if self.write {
            rights = rights | Access::MODIFY | Access::EXTEND;
        } else if self.has(OFlags::TRUNC) {
            rights = rights | Access::MODIFY;
        }
        rights
    }
}

/// When the kernel was told the attributes that it may believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Before the open.
    Before,
    /// By the answer that opens the file.
    Now,
}

/// How an open is answered: the flags for the kernel, the backing file, what it counts as.
struct Way {
    flags: u32,
    backing: Option<Arc<Backing>>,
    hold: Hold,
}

impl Filesystem {
    pub(crate) async fn open(&self, call: &Call, flags: u32, how: u32) -> Result<Answer, Errno> {
        let (node, user, wanted) = (self.node(call)?, self.user(call), Wanted::of(flags, how)?);
        let name = node.state.lock().places.first().map(|(_, name)| name.clone());
        let name = name.as_deref().unwrap_or_default();
        let asked = Instant::now();
        let file = user.session.open_handle(&node.handle, name, &wanted.options()).await;
        let file = file.map_err(|error| self.errno_of(&node, &error))?;
        let is_plain = file.opened_as().is_some_and(|attributes| wanted.is_plain(&user, &attributes));
        let granted = file.road() == Road::Lane;
        if !granted || !is_plain {
            let rights = wanted.rights();
            // A grant brought the attributes, and with other ones the rights were forgotten.
            let known = if granted { node.state.lock().rights(&user, rights, asked) } else { None };
            let has = match known {
                Some(has) => has,
                None => self.ask_rights(&user, &node, rights).await?,
            };
            if has != rights {
                return Err(Errno::ACCESS);
            }
        }
        if wanted.has(OFlags::TRUNC) {
            self.empty(&user, &node, &file, &wanted).await?;
        }
        self.fresh(&user.session, &node, asked).await?;
        let (fh, way) = self.settle(&node, file, &wanted, Told::Before)?;
        Ok(Answer::with_capacity(16).open(fh, way.flags, way.number()))
    }

    /// O_TRUNC, which comes without the right to write through the descriptor, too.
    async fn empty(&self, user: &User, node: &Node, file: &File, wanted: &Wanted) -> Result<(), Errno> {
        if wanted.write {
            self.cut(node, file, 0, wanted.kill).await?;
        } else {
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            let done = user.session.set_attributes(&node.handle, &set, None).await;
            self.forget_set_id(node);
            done.map_err(|error| self.errno(&error))?;
        }
        node.state.lock().cache.write(Instant::now());
        Ok(())
    }

    pub(crate) async fn create(
        &self,
        call: &Call,
        name: &[u8],
        (flags, how): (u32, u32),
        mode: u32,
    ) -> Result<Answer, Errno> {
        let (directory, user, wanted) = (self.node(call)?, self.user(call), Wanted::of(flags, how)?);
        let options = wanted
            .options()
            .create(true)
            .create_new(wanted.has(OFlags::EXCL))
            .truncate(wanted.has(OFlags::TRUNC))
            .mode(mode & 0o7777);
        let place = self.new_place(&directory, name);
        let file = user.session.open_at(&directory.handle, name, &options).await;
        let file = file.map_err(|error| self.errno(&error))?;
        let attributes = self.attributes_of_new(&user.session, &file).await?;
        let (node, attributes, mut valid) = self.meet(&file.handle(), &attributes, &place, call.asked);
        let (fh, way) = match self.settle(&node, file, &wanted, Told::Now) {
            Ok(settled) => settled,
            Err(errno) => {
                self.forget(node.number, 1);
                return Err(errno);
            }
        };
        if way.hold == Hold::Passed && wanted.write {
            // As in `tell`: it wasn't passed through yet.
            valid.attributes = Duration::ZERO;
        }
        let answer = Answer::with_capacity(144).entry(node.number, &attributes, valid);
        Ok(answer.open(fh, way.flags, way.number()))
    }

    async fn attributes_of_new(&self, session: &Session, file: &File) -> Result<Attributes, Errno> {
        if let Some(attributes) = file.opened_as() {
            return Ok(attributes);
        }
        session.attributes(&file.handle()).await.map_err(|error| self.errno(&error))
    }

    /// Decides how the open is answered, and enters it into the tables. Nothing here waits: the answer
    /// follows at once.
    fn settle(&self, node: &Arc<Node>, file: File, wanted: &Wanted, told: Told) -> Result<(u64, Way), Errno> {
        let mut state = node.state.lock();
        let way = self.way(node, &mut state, &file, wanted)?;
        // The kernel would go on believing the old size, or, where it writes by itself, the old times.
        let first_writer = way.hold == Hold::Passed && wanted.write && state.kernel_writers == 0;
        if state.cache.is_told_otherwise() || first_writer && told == Told::Before && state.cache.is_told() {
            let _ = self.device.get_ref().forget_attributes(node.number, false);
        }
        state.opens += 1;
        if wanted.write {
            state.cache.open_writer();
            state.kernel_writers += u32::from(way.hold == Hold::Passed);
        }
        let mappable = wanted.read && wanted.write && way.hold == Hold::Cached;
        state.mappable += u32::from(mappable);
        let granted = file.road() == Road::Lane;
        let open = OpenFile { node: node.clone(), file, hold: way.hold, write: wanted.write, mappable };
        let fh = self.files.insert(open);
        if granted {
            state.granted = Some(fh);
        }
        drop(state);
        Ok((fh, way))
    }

    fn way(&self, node: &Arc<Node>, state: &mut State, file: &File, wanted: &Wanted) -> Result<Way, Errno> {
        let granted = file.road() == Road::Lane;
        let direct = wanted.has(OFlags::DIRECT) && self.options.direct == Direct::Server;
        // The kernel would take set-id bits away, whoever writes, and go on believing in them.
        let set_id = state.has_set_id();
        // And it doesn't know that every write is to be durable when it returns.
        let unfit = wanted.write && (set_id || self.options.sync);
        let served = if wanted.write && wanted.has(OFlags::APPEND) {
            // The end of the file is where the server has it, not where the kernel believes it.
            Wish::Direct
        } else {
            Wish::Cached
        };
        let pass = granted && !direct && !unfit && !state.mode.is_cached() && self.passing.is_allowed();
        let mut plan = state.mode.plan(if pass { Wish::Pass } else { served }, wanted.write);
        if plan == Plan::Register {
            match self.register(state, file) {
                Some(way) => return Ok(way),
                None => plan = state.mode.plan(served, wanted.write),
            }
        }
        match plan {
            Plan::Share(backing) => {
                // From now on the kernel writes to the file, too.
                file.pass_granted(|_| ());
                self.passing.passed();
                let hold = state.mode.share();
                Ok(Way { flags: fopen::PASSTHROUGH | fopen::NOFLUSH, backing: Some(backing), hold })
            }
            Plan::Beside(backing) => {
                let hold = state.mode.share();
                let flags = fopen::PASSTHROUGH | fopen::DIRECT_IO;
                Ok(Way { flags, backing: Some(backing), hold })
            }
            Plan::Register | Plan::Cached => Ok(cached(node, state, wanted)),
            Plan::Direct => Ok(Way { flags: fopen::DIRECT_IO, backing: None, hold: Hold::None }),
            Plan::Elsewhere => {
                self.inodes.replace(node);
                Err(Errno::STALE)
            }
        }
    }

    /// Registers a granted file; `None` if the kernel doesn't take it.
    fn register(&self, state: &mut State, file: &File) -> Option<Way> {
        let registered =
            file.pass_granted(|fd| (Backing::register(&self.device, file, fd), backing::is_read_only(fd)));
        match registered? {
            (Ok(backing), read_only) => {
                self.passing.passed();
                let backing = Arc::new(backing);
                let hold = state.mode.pass(passthrough::Backing { file: backing.clone(), read_only });
                Some(Way { flags: fopen::PASSTHROUGH | fopen::NOFLUSH, backing: Some(backing), hold })
            }
            (Err(refusal), _) => {
                self.passing.refused(refusal);
                None
            }
        }
    }

    /// The kernel didn't hear of what was opened.
    pub(crate) async fn take_back(&self, what: Untold) {
        match what {
            Untold::File(fh) => self.close(fh).await,
            Untold::NewFile(node, fh) => {
                self.close(fh).await;
                self.forget(node, 1);
            }
            Untold::Directory(fh) => drop(self.release_dir(fh)),
        }
    }

    async fn close(&self, fh: u64) {
        if let Ok(Some(closing)) = self.release(fh) {
            self.finish(closing).await;
        }
    }

    /// The last process has closed an open. Nobody waits for that, but whoever is told of what comes behind
    /// it (an rmdir, say) must find it closed: so this much happens before anything else is read, and doesn't
    /// wait. The rest is for [`Filesystem::finish`].
    pub(crate) fn release(&self, fh: u64) -> Result<Option<Closing>, Errno> {
        let Some(open) = self.files.remove(fh) else { return Err(Errno::BADF) };
        if !open.write && !self.options.noatime && open.file.attributes_now().is_some() {
            // The last that the granted file can tell of its time of access.
            open.node.read_since.store(false, Relaxed);
        }
        let mut state = open.node.state.lock();
        let backing = state.mode.release(open.hold);
        state.mappable -= u32::from(open.mappable);
        if open.write {
            state.kernel_writers -= u32::from(open.hold == Hold::Passed);
            if open.hold == Hold::Passed {
                // The kernel may have written, and nobody heard of it.
                state.cache.write(Instant::now());
            }
            state.cache.close_writer();
        }
        state.opens -= 1;
        let hidden = if state.opens == 0 { state.hidden.take() } else { None };
        drop(state);
        drop(backing);
        let hidden = hidden.map(|hidden| self.hidden.begin(hidden));
        // The last close of a file that was written may wait for a disk.
        Ok((open.write || hidden.is_some()).then_some(Closing { open, hidden }))
    }

    /// What is left to do when the last process has closed an open.
    pub(crate) async fn finish(&self, closing: Closing) {
        let Closing { open, hidden } = closing;
        if open.write {
            // The last chance to hear without asking the server what went to a granted file.
            let _ = open.file.attributes_now();
        }
        if let Err(error) = open.file.flush().await {
            // FLUSH has come and reported what it could; this came behind it (mmap).
            tracing::warn!(%error, "data written after the last close is lost");
        }
        if let Some(going) = hidden {
            let node = open.node.clone();
            // Whoever closes a file last that has no name any more frees its blocks: let that be the server.
            drop(open);
            self.remove_hidden(&node, going).await;
        }
    }

    /// Closes everything that is open: the filesystem is unmounted, and the kernel doesn't say any more what
    /// was closed last.
    pub(crate) async fn close_all(&self) {
        for fh in self.files.numbers() {
            self.close(fh).await;
        }
    }
}

/// An open that is being closed.
#[derive(Debug)]
pub(crate) struct Closing {
    open: Arc<OpenFile>,
    hidden: Option<Going>,
}

impl Way {
    fn number(&self) -> u32 {
        self.backing.as_ref().map_or(0, |backing| backing.number)
    }
}

fn cached(node: &Node, state: &mut State, wanted: &Wanted) -> Way {
    let mut keep_data = state.cache.keep_data();
    if wanted.write && wanted.has(OFlags::DIRECT) && state.opens == 0 {
        // The pages would have to be dropped with each write.
        keep_data = false;
        node.pages.empty();
    }
    let keep = if keep_data { fopen::KEEP_CACHE } else { 0 };
    let flush = if wanted.write { 0 } else { fopen::NOFLUSH };
    Way { flags: keep | flush, backing: None, hold: state.mode.cache() }
}
