//! LOOKUP, FORGET and READLINK, and the requests that make, rename and remove names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Access, Create, Found, NameHint, Node as SpecialFile, SetAttributes, Status};
use futures_util::future::join;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::attributes::ALL_RIGHTS;
use super::negative_names::ListingMark;
use super::{Filesystem, NameQuery, RequestContext};
use crate::fuse::reply::{FuseReply, decode_device};
use crate::fuse::request::{NewMode, RenameArgs};
use crate::inode::{AclResult, Inode, InodeState};
use crate::settings::LookupCache;
use crate::users::User;

fn with_mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

impl Filesystem {
    pub(super) async fn lookup(&self, request: &RequestContext, name: &[u8]) -> Result<FuseReply, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        if !self.should_fetch_acl(&directory, request.received) {
            return self.lookup_in(request, &directory, &user, name).await;
        }
        let fetch = self.fetch_acl(&user, &directory);
        Box::pin(join(fetch, self.lookup_in(request, &directory, &user, name))).await.1
    }

    async fn lookup_in(
        &self,
        request: &RequestContext,
        directory: &Arc<Inode>,
        user: &Arc<User>,
        name: &[u8],
    ) -> Result<FuseReply, Errno> {
        if let Some(reply) = self.cached_lookup(request, directory, user, name).await {
            return Ok(reply);
        }
        if self.is_known_missing(request, directory, user, name).await {
            return self.no_entry(directory);
        }
        let query = NameQuery::new(directory, name);
        match user.session.lookup(&directory.handle, name).await {
            Ok(found) => self.entry_reply(request, user, &found, &query).await,
            Err(error) if error.status() == Some(Status::NoEntry) => self.no_entry(directory),
            Err(error) => Err(self.errno_for(directory, &error)),
        }
    }

    /// The reply that a name doesn't exist.
    fn no_entry(&self, directory: &Inode) -> Result<FuseReply, Errno> {
        let valid = match self.options.lookup_cache {
            LookupCache::All => self.name_validity(directory, Instant::now()),
            LookupCache::Positive | LookupCache::None => Duration::ZERO,
        };
        if valid.is_zero() { Err(Errno::NOENT) } else { Ok(FuseReply::default().no_entry(valid)) }
    }

    /// The user's right to search a directory, if it is known.
    fn cached_search_right(
        &self,
        request: &RequestContext,
        state: &InodeState,
        user: &Arc<User>,
    ) -> Option<Access> {
        if self.is_searchable_by_all(state, request.received) {
            Some(Access::LOOKUP)
        } else {
            state.access.get(user, Access::LOOKUP, request.received)
        }
    }

    /// Whether the user may search a directory. An ACCESS costs as much as a LOOKUP, but serves all names.
    async fn may_search(&self, user: &Arc<User>, directory: &Arc<Inode>, cached: Option<Access>) -> bool {
        let granted = match cached {
            Some(granted) => Ok(granted),
            None => Box::pin(self.fetch_access(user, directory, Access::LOOKUP)).await,
        };
        granted == Ok(Access::LOOKUP)
    }

    /// Whether it is known without the server that a name doesn't exist, and the user may know that.
    async fn is_known_missing(
        &self,
        request: &RequestContext,
        directory: &Arc<Inode>,
        user: &Arc<User>,
        name: &[u8],
    ) -> bool {
        // For a longer name the server has another error.
        if self.path_conf.get().is_none_or(|conf| name.len() > conf.name_max as usize) {
            return false;
        }
        let cached = {
            let state = directory.lock();
            let (version, now) = (state.attributes.version(), request.received);
            if self.options.lookup_cache != LookupCache::All
                || state.attributes.valid(now, &self.options.attributes).is_zero()
                || !self.negative_names.excludes(directory.number, version, name, now)
            {
                return false;
            }
            self.cached_search_right(request, &state, user)
        };
        self.may_search(user, directory, cached).await
    }

    /// Enters all names of a directory of this version, which was made or listed since `mark`.
    pub(super) async fn learn_all_names<'a>(
        &self,
        directory: &Inode,
        version: u64,
        mark: ListingMark,
        names: impl Iterator<Item = &'a [u8]>,
    ) {
        let now = Instant::now();
        let valid = {
            let state = directory.lock();
            if state.attributes.version() == version {
                state.attributes.valid(now, &self.options.attributes)
            } else {
                Duration::ZERO
            }
        };
        if valid.is_zero() || self.options.lookup_cache != LookupCache::All {
            return;
        }
        // A filesystem that ignores case finds names that the listing doesn't have.
        if self.path_conf().await.is_some_and(|conf| !conf.case_insensitive && conf.case_preserving) {
            self.negative_names.insert(directory.number, (version, now + valid), mark, names);
        }
    }

    /// The reply to a LOOKUP without the server: the name's file is known, the directory's attributes are
    /// valid and show no foreign change since, and the user may search the directory. The kernel asks for
    /// names that it knows in directories that not everybody may search ([`Filesystem::name_validity`]), and
    /// after the directory's attributes had expired.
    async fn cached_lookup(
        &self,
        request: &RequestContext,
        directory: &Arc<Inode>,
        user: &Arc<User>,
        name: &[u8],
    ) -> Option<FuseReply> {
        if self.options.lookup_cache == LookupCache::None {
            return None;
        }
        let (version, cached) = {
            let state = directory.lock();
            if state.attributes.valid(request.received, &self.options.attributes).is_zero() {
                return None;
            }
            (state.attributes.version(), self.cached_search_right(request, &state, user))
        };
        let inode = self.paths.get_current(directory.number, name, version)?;
        let attributes = self.cached_attributes(&inode, request.received)?;
        if !self.may_search(user, directory, cached).await || !self.inodes.reference_again(&inode) {
            return None;
        }
        self.kernel.revocation.wait_for_entries(&inode).await;
        let now = Instant::now();
        let times = self.cache_times(directory, &inode, now);
        self.paths.extend(&inode, (directory.number, name), now + times.entry);
        Some(self.file_entry(inode, attributes, times).reply())
    }

    /// The reply with a file that the server has found or made.
    async fn entry_reply(
        &self,
        request: &RequestContext,
        user: &User,
        found: &Found,
        query: &NameQuery<'_>,
    ) -> Result<FuseReply, Errno> {
        let entry = self.entry_of_found(&user.session, found, query, request.received).await?;
        self.kernel.revocation.wait_for_entries(&entry.inode).await;
        Ok(entry.reply())
    }

    /// As [`Filesystem::entry_reply`], for the result of a call that makes a file.
    async fn made_reply(
        &self,
        request: &RequestContext,
        user: &User,
        made: client::Result<Found>,
        query: &NameQuery<'_>,
    ) -> Result<FuseReply, Errno> {
        self.entry_reply(request, user, &made.map_err(|error| self.errno(&error))?, query).await
    }

    pub(super) async fn read_link(&self, request: &RequestContext) -> Result<FuseReply, Errno> {
        let (inode, user) = (self.inode(request)?, self.user(request));
        let target = user.session.read_link(&inode.handle).await;
        target.map(FuseReply).map_err(|error| self.errno_for(&inode, &error))
    }

    pub(super) async fn make_dir(
        &self,
        request: &RequestContext,
        name: &[u8],
        mode: NewMode,
    ) -> Result<FuseReply, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        let query = self.begin_create(&directory, name);
        let mark = self.negative_names.mark();
        let session = user.session.with_umask(mode.umask);
        let asked = Instant::now();
        let made = session
            .make_dir_asking(&directory.handle, name, &with_mode(mode.mode), ALL_RIGHTS)
            .await
            .map_err(|error| self.errno(&error))?;
        let reply = self.entry_reply(request, &user, &made.found, &query).await?;
        if let Some(new) = self.inodes.find(&made.found.handle) {
            // The version of a new inode is 0: without a foreign change since, the directory is empty, and
            // the rights are what the reply says.
            {
                let mut state = new.lock();
                if let Some(granted) = made.access.filter(|_| state.attributes.version() == 0) {
                    self.learn_access(&user, &mut state, granted);
                }
            }
            if let Some(acl) = &made.acl {
                self.learn_acl(&new, 0, AclResult::of(acl), asked);
            }
            self.learn_all_names(&new, 0, mark, std::iter::empty()).await;
        }
        Ok(reply)
    }

    pub(super) async fn symlink(
        &self,
        request: &RequestContext,
        name: &[u8],
        target: &[u8],
    ) -> Result<FuseReply, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        let query = self.begin_create(&directory, name);
        let made = user.session.symlink(&directory.handle, name, target, &with_mode(0o777)).await;
        self.made_reply(request, &user, made, &query).await
    }

    pub(super) async fn make_node(
        &self,
        request: &RequestContext,
        name: &[u8],
        kind: FileType,
        mode: NewMode,
        rdev: u32,
    ) -> Result<FuseReply, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        let query = self.begin_create(&directory, name);
        let (major, minor) = decode_device(rdev);
        let special = match kind {
            FileType::Fifo => Some(SpecialFile::Fifo),
            FileType::CharacterDevice => Some(SpecialFile::Character(major, minor)),
            FileType::BlockDevice => Some(SpecialFile::Block(major, minor)),
            FileType::Socket => Some(SpecialFile::Socket),
            _ => None,
        };
        let (set, session) = (with_mode(mode.mode), user.session.with_umask(mode.umask));
        let made = match special {
            Some(special) => session.make_node(&directory.handle, name, special, &set).await,
            None => session.create(&directory.handle, name, &Create::Guarded(set)).await,
        };
        self.made_reply(request, &user, made, &query).await
    }

    pub(super) async fn link(
        &self,
        request: &RequestContext,
        from: u64,
        name: &[u8],
    ) -> Result<FuseReply, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        let file = self.inode_of(from)?;
        let query = self.begin_create(&directory, name);
        let linked = user.session.link(&file.handle, &directory.handle, name).await;
        linked.map_err(|error| self.errno_for(&file, &error))?;
        let attributes = self.current_attributes(&user.session, &file, request.received).await?;
        let found = Found { handle: file.handle.clone(), attributes: Some(attributes) };
        self.entry_reply(request, &user, &found, &query).await
    }

    pub(super) async fn unlink(&self, request: &RequestContext, name: &[u8]) -> Result<FuseReply, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        let removed = self.paths.get(directory.number, name);
        if removed.as_ref().is_some_and(|inode| inode.lock().opens.is_open())
            && Box::pin(self.hide(&directory, name, &user)).await?
        {
            return Ok(FuseReply::default());
        }
        let hint = removed.as_ref().map_or(NameHint::Unknown, |inode| NameHint::File(&inode.handle));
        let result = user.session.remove_hinted(&directory.handle, (name, hint)).await;
        result.map_err(|error| self.errno(&error))?;
        self.paths.remove(directory.number, name);
        Ok(FuseReply::default())
    }

    pub(super) async fn remove_dir(&self, request: &RequestContext, name: &[u8]) -> Result<FuseReply, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        self.wait_for_removals_in(directory.number, name).await;
        user.session.remove_dir(&directory.handle, name).await.map_err(|error| self.errno(&error))?;
        self.paths.remove(directory.number, name);
        Ok(FuseReply::default())
    }

    pub(super) async fn rename(
        &self,
        request: &RequestContext,
        args: &RenameArgs,
    ) -> Result<FuseReply, Errno> {
        if args.flags != 0 {
            // NFSv3 has no RENAME_NOREPLACE and no RENAME_EXCHANGE.
            return Err(Errno::INVAL);
        }
        let (directory, to, user) = (self.inode(request)?, self.inode_of(args.to)?, self.user(request));
        let (name, to_name) = (&args.name[..], &args.to_name[..]);
        let is_same = directory.number == to.number && name == to_name;
        let mut hidden = None;
        let target = self.paths.get(to.number, to_name);
        if let Some(target) = &target {
            if !is_same && target.lock().opens.is_open() {
                hidden = Box::pin(self.hide_target(&directory, name, &to, to_name, &user)).await?;
            }
            // It may be a directory.
            Box::pin(self.wait_for_removals_in(to.number, to_name)).await;
        }
        let moved = self.paths.get(directory.number, name);
        let version = self.begin_create(&to, to_name).version;
        let moved_hint = moved.as_ref().map_or(NameHint::Unknown, |inode| NameHint::File(&inode.handle));
        // The kernel looks a target up before it renames.
        let target_hint = target.as_ref().filter(|_| hidden.is_none());
        let target_hint = target_hint.map_or(NameHint::Nothing, |inode| NameHint::File(&inode.handle));
        let from_name = (&directory.handle, name, moved_hint);
        let renamed = user.session.rename_hinted(from_name, (&to.handle, to_name, target_hint)).await;
        if let Err(error) = renamed {
            if let Some(hidden) = hidden {
                Box::pin(self.unhide(&hidden, &to, to_name)).await;
            }
            return Err(self.errno(&error));
        }
        self.paths.rename((directory.number, name), (to.number, to_name), Some(version));
        if let Some(inode) = moved {
            inode.handle.moved(&to.handle, to_name);
        }
        Ok(FuseReply::default())
    }

    pub(crate) fn forget(&self, node: u64, count: u64) {
        if let Some(inode) = self.inodes.forget(node, count) {
            self.paths.forget(&inode);
            self.negative_names.forget(node);
        }
    }
}
