//! LOOKUP, FORGET and READLINK, and the requests that make, rename and remove names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Access, Create, Found, NameHint, Node as SpecialFile, SetAttributes, Status};
use futures_util::future::join;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::attributes::ALL_RIGHTS;
use super::negative_names::{NamesMark, RequestingThread};
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
        let must_fetch_acl = self.should_fetch_acl(&directory, request.received);
        let known = match self.known_lookup(request, &directory, &user, name).await {
            None => Box::pin(self.listed_lookup(request, &directory, &user, name)).await,
            known => known,
        };
        if let Some(reply) = known {
            if must_fetch_acl {
                Box::pin(self.fetch_acl(&user, &directory)).await;
            }
            return reply;
        }
        let query = NameQuery::new(&directory, name);
        let lookup = user.session.lookup(&directory.handle, name);
        let found = if must_fetch_acl {
            // The list comes with the name: it decides for how long the kernel may cache the reply.
            Box::pin(join(self.fetch_acl(&user, &directory), lookup)).await.1
        } else {
            lookup.await
        };
        match found {
            Ok(found) => self.entry_reply(request, &user, &found, &query).await,
            Err(error) if error.status() == Some(Status::NoEntry) => self.no_entry(&directory),
            Err(error) => Err(self.errno_for(&directory, &error)),
        }
    }

    /// The reply to a LOOKUP that needs no LOOKUP of the server.
    async fn known_lookup(
        &self,
        request: &RequestContext,
        directory: &Arc<Inode>,
        user: &Arc<User>,
        name: &[u8],
    ) -> Option<Result<FuseReply, Errno>> {
        if let Some(reply) = self.cached_lookup(request, directory, user, name).await {
            return Some(Ok(reply));
        }
        // The kernel must not cache this answer: for other threads the name may exist.
        self.is_known_missing(request, directory, user, name).await.then_some(Err(Errno::NOENT))
    }

    /// The reply that a name doesn't exist.
    pub(super) fn no_entry(&self, directory: &Inode) -> Result<FuseReply, Errno> {
        let valid = match self.options.lookup_cache {
            LookupCache::All => self.name_validity(directory, Instant::now()),
            LookupCache::Positive | LookupCache::None => Duration::ZERO,
        };
        if valid.is_zero() { Err(Errno::NOENT) } else { Ok(FuseReply::default().no_entry(valid)) }
    }

    /// The user's right to search a directory, if it is known.
    pub(super) fn cached_search_right(
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

    /// The version of a directory whose attributes are valid, and the user's right to search it, if that is
    /// known.
    pub(super) fn current_version(
        &self,
        request: &RequestContext,
        directory: &Inode,
        user: &Arc<User>,
        now: Instant,
    ) -> Option<(u64, Option<Access>)> {
        let state = directory.lock();
        let is_valid = !state.attributes.valid(now, &self.options.attributes).is_zero();
        is_valid.then(|| (state.attributes.version(), self.cached_search_right(request, &state, user)))
    }

    /// Whether the user may search a directory. An ACCESS costs as much as a LOOKUP, but serves all names.
    pub(super) async fn may_search(
        &self,
        user: &Arc<User>,
        directory: &Arc<Inode>,
        cached: Option<Access>,
    ) -> bool {
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
                || !self.negative_names.excludes(
                    RequestingThread::of(request),
                    directory.number,
                    version,
                    name,
                )
            {
                return false;
            }
            self.cached_search_right(request, &state, user)
        };
        self.may_search(user, directory, cached).await
    }

    /// Enters a directory that the request has made since `mark`: it is empty.
    async fn note_made(&self, request: &RequestContext, directory: &Inode, mark: NamesMark) {
        let now = Instant::now();
        let valid = {
            let state = directory.lock();
            // The version of a new inode is 0: there was no foreign change since.
            if state.attributes.version() == 0 {
                state.attributes.valid(now, &self.options.attributes)
            } else {
                Duration::ZERO
            }
        };
        if valid.is_zero() || self.options.lookup_cache != LookupCache::All {
            return;
        }
        // A filesystem that ignores case finds names by other ones.
        if self.path_conf().await.is_some_and(|conf| !conf.case_insensitive && conf.case_preserving) {
            self.negative_names.insert(
                RequestingThread::of(request),
                directory.number,
                (0, now + valid),
                mark,
            );
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
        let (version, cached) = self.current_version(request, directory, user, request.received)?;
        let inode = self.paths.get_current(directory.number, name, version)?;
        let attributes = match self.cached_attributes(&inode, request.received) {
            Some(attributes) => {
                self.note_known_attributes(&inode, request.received);
                attributes
            }
            None => {
                let attributes = Box::pin(self.listed_attributes(user, &inode)).await?;
                // The listing may have shown that the directory has changed.
                self.paths.get_current(directory.number, name, directory.version())?;
                attributes
            }
        };
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
        let _change = self.listed_names.change(directory.number);
        let query = self.begin_create(request, &directory, name);
        let mark = self.negative_names.mark();
        let session = user.session.with_umask(mode.umask);
        let asked = Instant::now();
        let made = session
            .make_dir_asking(&directory.handle, name, &with_mode(mode.mode), ALL_RIGHTS)
            .await
            .map_err(|error| self.errno(&error))?;
        let reply = self.entry_reply(request, &user, &made.found, &query).await?;
        if let Some(new) = self.inodes.find(&made.found.handle) {
            // The version of a new inode is 0: without a foreign change since, the rights are what the reply
            // says.
            {
                let mut state = new.lock();
                if let Some(granted) = made.access.filter(|_| state.attributes.version() == 0) {
                    self.learn_access(&user, &mut state, ALL_RIGHTS, granted);
                }
            }
            if let Some(acl) = &made.acl {
                self.learn_acl(&new, 0, AclResult::of(acl), asked);
            }
            self.note_made(request, &new, mark).await;
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
        let _change = self.listed_names.change(directory.number);
        let query = self.begin_create(request, &directory, name);
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
        let _change = self.listed_names.change(directory.number);
        let query = self.begin_create(request, &directory, name);
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
        let _change = self.listed_names.change(directory.number);
        let query = self.begin_create(request, &directory, name);
        let linked = user.session.link(&file.handle, &directory.handle, name).await;
        linked.map_err(|error| self.errno_for(&file, &error))?;
        let attributes = self.current_attributes(&user.session, &file, request.received).await?;
        let found = Found { handle: file.handle.clone(), attributes: Some(attributes) };
        self.entry_reply(request, &user, &found, &query).await
    }

    pub(super) async fn unlink(&self, request: &RequestContext, name: &[u8]) -> Result<FuseReply, Errno> {
        let (directory, user) = (self.inode(request)?, self.user(request));
        let _change = self.listed_names.change(directory.number);
        let removed = self.paths.get(directory.number, name);
        if removed.as_ref().is_some_and(|inode| inode.lock().opens.needs_name())
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
        let _change = self.listed_names.change(directory.number);
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
        let _changes = [&directory, &to].map(|changed| self.listed_names.change(changed.number));
        let is_same = directory.number == to.number && name == to_name;
        let mut hidden = None;
        let target = self.paths.get(to.number, to_name);
        if let Some(target) = &target {
            if !is_same && target.lock().opens.needs_name() {
                hidden = Box::pin(self.hide_target(&directory, name, &to, to_name, &user)).await?;
            }
            // It may be a directory.
            Box::pin(self.wait_for_removals_in(to.number, to_name)).await;
        }
        let moved = self.paths.get(directory.number, name);
        let version = self.begin_create(request, &to, to_name).version;
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
            for (directory, name) in inode.lock().names.list() {
                self.listed_names.forget_name(directory, &name);
            }
            self.paths.forget(&inode);
            self.negative_names.forget(node);
            self.listed_names.forget(node);
        }
    }
}
