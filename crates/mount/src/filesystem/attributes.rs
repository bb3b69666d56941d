//! GETATTR, STATX, SETATTR, ACCESS and STATFS.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Access, Attributes, Session, Version};
use futures_util::future::join;
use rustix::io::Errno;

use super::{Filesystem, RequestContext};
use crate::fuse::reply::FuseReply;
use crate::fuse::request::SetAttrArgs;
use crate::inode::{Inode, InodeState, IoHold};
use crate::users::User;

/// All rights of ACCESS: one call fills the cache for every purpose.
pub(super) const ALL_RIGHTS: Access = Access(0x3f);

/// access(2)'s bits.
const R_OK: u32 = 4;
const W_OK: u32 = 2;
const X_OK: u32 = 1;

impl Filesystem {
    pub(super) async fn get_attributes(
        &self,
        request: &RequestContext,
        fh: Option<u64>,
    ) -> Result<FuseReply, Errno> {
        let (attributes, valid) = self.fetch_attributes(request, &self.inode(request)?, fh).await?;
        Ok(self.attributes_reply(attributes, valid))
    }

    /// The kernel sends this for statx(2) with `STATX_BTIME`. NFSv3 has no birth times: `ENOSYS`, upon which
    /// the kernel sends GETATTR instead.
    pub(super) async fn statx(&self, request: &RequestContext, fh: Option<u64>) -> Result<FuseReply, Errno> {
        if self.session.version() == Version::V3 {
            return Err(Errno::NOSYS);
        }
        let (inode, user) = (self.inode(request)?, self.user(request));
        // A file without a name, for instance, is known by its descriptor only: an error isn't kept.
        let birth = async { user.session.birth_time(&inode.handle).await.ok().flatten() };
        let (fetched, birth) = join(self.fetch_attributes(request, &inode, fh), birth).await;
        let (attributes, valid) = fetched?;
        Ok(FuseReply::with_capacity(288).statx(&self.numbers.renumber(attributes), birth, valid))
    }

    /// The attributes of a file, and for how long the kernel may cache them.
    async fn fetch_attributes(
        &self,
        request: &RequestContext,
        inode: &Arc<Inode>,
        fh: Option<u64>,
    ) -> Result<(Attributes, Duration), Errno> {
        self.session.settle(&inode.handle).await;
        let asked = Instant::now();
        if let Some(attributes) = self.cached_attributes(inode, asked) {
            self.note_known_attributes(inode, asked);
            return Ok((attributes, self.report_attributes(inode, asked)));
        }
        let user = self.user(request);
        let attributes = match Self::delegated_attributes(&user.session, inode) {
            Some(attributes) if !inode.is_atime_stale() => attributes,
            _ => {
                if fh.is_none()
                    && let Some(attributes) = Box::pin(self.listed_attributes(&user, inode)).await
                {
                    self.invalidate_stale_data(inode);
                    return Ok((attributes, self.report_attributes(inode, Instant::now())));
                }
                let attributes = match fh.and_then(|fh| self.files.get(fh)) {
                    Some(open) => Box::pin(open.file.attributes()).await,
                    None => user.session.attributes(&inode.handle).await,
                };
                attributes.map_err(|error| self.errno_for(inode, &error))?
            }
        };
        self.update_attributes(inode, attributes, asked);
        self.invalidate_stale_data(inode);
        // The cache may be newer than this reply.
        let attributes = inode.attributes().unwrap_or(attributes);
        Ok((attributes, self.report_attributes(inode, Instant::now())))
    }

    /// The reply to GETATTR and SETATTR, with attributes from the server.
    fn attributes_reply(&self, attributes: Attributes, valid: Duration) -> FuseReply {
        FuseReply::with_capacity(104).attr(&self.numbers.renumber(attributes), valid)
    }

    /// Attributes that need no GETATTR. The kernel drops its own with every write, but the replies to WRITEs
    /// carry new ones; and the descriptor of an open granted file tells them.
    pub(super) fn cached_attributes(&self, inode: &Inode, now: Instant) -> Option<Attributes> {
        let state = inode.lock();
        match state.opens.io_mode.backing().cloned() {
            Some(backing) => {
                drop(state);
                backing.file.attributes_now()?.ok()
            }
            None if state.attributes.is_current(now, &self.options.attributes) && !inode.is_atime_stale() => {
                state.attributes.get().copied()
            }
            None => {
                let granted = state.opens.last_granted()?;
                drop(state);
                self.files.get(granted)?.file.attributes_now()?.ok()
            }
        }
    }

    /// Attributes that are true because the file is delegated to this client, but for the access time.
    pub(super) fn delegated_attributes(session: &Session, inode: &Inode) -> Option<Attributes> {
        let since = session.delegated_since(&inode.handle)?;
        inode.lock().attributes.unchanged_here_since(since).copied()
    }

    /// Fetches the attributes of open files that the kernel caches, when they expire. A process that keeps a
    /// file open and doesn't stat it sees foreign writes within that time (nfs(5), acregmax).
    pub(crate) async fn refresh_open_files(&self) {
        for open in self.files.list() {
            let (inode, now) = (&open.inode, Instant::now());
            let is_due = open.hold == IoHold::Cached
                && !inode.lock().attributes.is_current(now, &self.options.attributes)
                && Self::delegated_attributes(&self.session, inode).is_none();
            // A failure is left to the next request that uses the file.
            if is_due && let Ok(attributes) = open.file.attributes().await {
                self.update_attributes(inode, attributes, now);
                self.invalidate_stale_data(inode);
            }
        }
    }

    /// Makes the kernel drop data that a foreign change has made stale.
    fn invalidate_stale_data(&self, inode: &Inode) {
        let is_stale = {
            let mut state = inode.lock();
            state.opens.is_open() && state.attributes.take_stale_data()
        };
        if is_stale {
            self.kernel.invalidate_data(inode);
        }
    }

    pub(super) async fn set_attributes(
        &self,
        request: &RequestContext,
        args: &SetAttrArgs,
    ) -> Result<FuseReply, Errno> {
        let (inode, user) = (self.inode(request)?, self.user(request));
        let mut set = args.set;
        if let Some(size) = set.size {
            inode.lock().attributes.note_write(Instant::now());
            // ftruncate(2) needs a file open for writing, whatever the mode is by now.
            if let Some(open) = args.fh.and_then(|fh| self.files.get(fh)).filter(|open| open.write) {
                Box::pin(self.truncate(&inode, &open.file, size, args.kill_set_id)).await?;
                set.size = None;
            } else {
                // A server lets the owner truncate the file whatever the mode is; truncate(2) doesn't.
                let cached = inode.lock().access.get(&user, Access::MODIFY, request.received);
                self.check_access(&user, &inode, Access::MODIFY, cached).await?;
            }
        }
        if args.set.size.is_none() && (set.atime.is_some() || set.mtime.is_some()) {
            self.kernel.write_back_mappings(&inode).await;
        }
        if args.set.size.is_none()
            && !set.is_empty()
            && let Some(attributes) = self.set_attributes_later(&user, &inode, &set)
        {
            return Ok(self.attributes_reply(attributes, Duration::ZERO));
        }
        let asked = Instant::now();
        let attributes = if set.is_empty() {
            None
        } else {
            let open = inode.lock().opens.last_granted().and_then(|fh| self.files.get(fh));
            // The descriptor of a new file is at hand, another one would have to be opened.
            let result = match open.and_then(|open| open.file.set_attributes_now(&user.session, &set)) {
                Some(result) => result.map(Some),
                None => user.session.set_attributes(&inode.handle, &set, None).await,
            };
            result.map_err(|error| self.errno_for(&inode, &error))?
        };
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => user.session.attributes(&inode.handle).await.map_err(|error| self.errno(&error))?,
        };
        self.update_attributes(&inode, attributes, asked);
        self.kernel.revocation.wait_for_own_names(&inode).await;
        let valid = self.report_attributes(&inode, Instant::now());
        Ok(self.attributes_reply(attributes, valid))
    }

    pub(super) async fn access(&self, request: &RequestContext, mask: u32) -> Result<FuseReply, Errno> {
        let (inode, user) = (self.inode(request)?, self.user(request));
        let is_directory = inode.is_directory();
        let mut wanted = Access(0);
        if mask & R_OK != 0 {
            wanted = wanted | Access::READ;
        }
        if mask & W_OK != 0 {
            wanted = wanted | Access::MODIFY | Access::EXTEND;
            if is_directory {
                wanted = wanted | Access::DELETE;
            }
        }
        if mask & X_OK != 0 {
            wanted = wanted | if is_directory { Access::LOOKUP } else { Access::EXECUTE };
        }
        let cached = inode.lock().access.get(&user, wanted, request.received);
        self.check_access(&user, &inode, wanted, cached).await?;
        Ok(FuseReply::default())
    }

    /// Fails with `EACCES` unless the user has all the rights `wanted`: by the cache's answer, or else the
    /// server's.
    pub(super) async fn check_access(
        &self,
        user: &Arc<User>,
        inode: &Arc<Inode>,
        wanted: Access,
        cached: Option<Access>,
    ) -> Result<(), Errno> {
        let granted = match cached {
            Some(granted) => granted,
            None => Box::pin(self.fetch_access(user, inode, wanted)).await?,
        };
        if granted == wanted { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Asks the server for all rights of a user and caches the answer. Returns those that are `wanted`.
    pub(super) async fn fetch_access(
        &self,
        user: &Arc<User>,
        inode: &Arc<Inode>,
        wanted: Access,
    ) -> Result<Access, Errno> {
        let granted = user.session.access(&inode.handle, ALL_RIGHTS).await;
        let granted = granted.map_err(|error| self.errno_for(inode, &error))?;
        self.learn_access(user, &mut inode.lock(), ALL_RIGHTS, granted);
        Ok(Access(granted.0 & wanted.0))
    }

    /// Caches the server's answer which of the rights `asked` a user has.
    pub(super) fn learn_access(
        &self,
        user: &Arc<User>,
        state: &mut InodeState,
        asked: Access,
        granted: Access,
    ) {
        let now = Instant::now();
        let valid = state.attributes.valid(now, &self.options.attributes);
        state.access.insert(user, asked, granted, now + valid);
    }

    pub(super) async fn stat_fs(&self, request: &RequestContext) -> Result<FuseReply, Errno> {
        let (inode, user) = (self.inode(request)?, self.user(request));
        let stat = user.session.fs_stat(&inode.handle).await.map_err(|error| self.errno(&error))?;
        let name_max = self.path_conf().await.map_or(255, |conf| conf.name_max);
        Ok(FuseReply::with_capacity(80).statfs(&stat, name_max))
    }
}
