//! Names: LOOKUP, FORGET, READLINK, and what makes, moves and removes names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Access, Create, FileKind, Found, Node as Special, SetAttributes, Status};
use futures_util::future::join;
use rustix::io::Errno;

use super::complete::Mark;
use super::{Call, Filesystem, Place};
use crate::fuse::answer::{Answer, Valid, undevice};
use crate::inodes::Node;
use crate::settings::LookupCache;
use crate::users::User;

/// A file type's bits in a mode.
const TYPE: u32 = 0o170_000;

fn mode_of(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode & 0o7777), ..SetAttributes::default() }
}

impl Filesystem {
    pub(crate) async fn lookup(&self, call: &Call, name: &[u8]) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        if !self.is_worth_asking(&directory, call.asked) {
            return self.look_up(call, &directory, &user, name).await;
        }
        let asking = self.ask_who_searches(&user, &directory);
        Box::pin(join(asking, self.look_up(call, &directory, &user, name))).await.1
    }

    async fn look_up(
        &self,
        call: &Call,
        directory: &Arc<Node>,
        user: &Arc<User>,
        name: &[u8],
    ) -> Result<Answer, Errno> {
        if let Some(answer) = self.known_entry(call, directory, user, name).await {
            return Ok(answer);
        }
        if self.is_lacking(call, directory, user, name).await {
            return self.no_entry(directory);
        }
        let place = Place::of(directory, name);
        match user.session.lookup(&directory.handle, name).await {
            Ok(found) => self.entry(call, user, &found, &place).await,
            Err(error) if error.status() == Some(Status::NoEntry) => self.no_entry(directory),
            Err(error) => Err(self.errno_of(directory, &error)),
        }
    }

    /// Answers that there is no such name.
    fn no_entry(&self, directory: &Node) -> Result<Answer, Errno> {
        let valid = match self.options.lookup_cache {
            LookupCache::All => self.name_valid(directory, Instant::now()),
            LookupCache::Positive | LookupCache::None => Duration::ZERO,
        };
        if valid.is_zero() { Err(Errno::NOENT) } else { Ok(Answer::default().no_entry(valid)) }
    }

    /// Whether it is known, without the server, that there is no such name, and that the user may know it.
    async fn is_lacking(&self, call: &Call, directory: &Arc<Node>, user: &Arc<User>, name: &[u8]) -> bool {
        // About a longer one the server has something else to say.
        if self.path_conf.get().is_none_or(|conf| name.len() > conf.name_max as usize) {
            return false;
        }
        let may_search = {
            let state = directory.state.lock();
            let (version, asked) = (state.cache.version(), call.asked);
            if self.options.lookup_cache != LookupCache::All
                || state.cache.valid(asked, &self.options.attributes).is_zero()
                || !self.complete.lacks(directory.number, version, name, asked)
            {
                return false;
            }
            if self.is_open_to_all(&state, asked) {
                Some(Access::LOOKUP)
            } else {
                state.rights(user, Access::LOOKUP, asked)
            }
        };
        match may_search {
            Some(granted) => granted == Access::LOOKUP,
            // As dear as the LOOKUP, but it will do for all names.
            None => self.ask_rights(user, directory, Access::LOOKUP).await == Ok(Access::LOOKUP),
        }
    }

    /// A directory has all these names and no other: it was made or listed since `mark`, being of this
    /// version.
    pub(super) async fn know_all<'a>(
        &self,
        directory: &Node,
        version: u64,
        mark: Mark,
        names: impl Iterator<Item = &'a [u8]>,
    ) {
        let now = Instant::now();
        let valid = {
            let state = directory.state.lock();
            if state.cache.version() == version {
                state.cache.valid(now, &self.options.attributes)
            } else {
                Duration::ZERO
            }
        };
        if valid.is_zero() || self.options.lookup_cache != LookupCache::All {
            return;
        }
        // Elsewhere a name may be there by another one.
        if self.path_conf().await.is_some_and(|conf| !conf.case_insensitive && conf.case_preserving) {
            self.complete.know(directory.number, (version, now + valid), mark, names);
        }
    }

    /// Answers a LOOKUP without the server: it has said what the name is, the directory is believed not to
    /// have changed since, and the user may search it. The kernel asks although it knows where not everybody
    /// may (see [`Filesystem::name_valid`]), and when the directory's attributes were too old for a while.
    async fn known_entry(
        &self,
        call: &Call,
        directory: &Arc<Node>,
        user: &Arc<User>,
        name: &[u8],
    ) -> Option<Answer> {
        if self.options.lookup_cache == LookupCache::None {
            return None;
        }
        let (version, may_search) = {
            let state = directory.state.lock();
            if state.cache.valid(call.asked, &self.options.attributes).is_zero() {
                return None;
            }
            let rights = state.rights(user, Access::LOOKUP, call.asked);
            let open = self.is_open_to_all(&state, call.asked);
            let may_search = if open { Some(Access::LOOKUP) } else { rights };
            (state.cache.version(), may_search)
        };
        let node = self.places.known(directory.number, name, version)?;
        let attributes = self.good(&node, call.asked)?;
        let may_search = match may_search {
            Some(granted) => granted,
            // As dear as the LOOKUP, but it will do for all names.
            None => self.ask_rights(user, directory, Access::LOOKUP).await.ok()?,
        };
        if may_search != Access::LOOKUP || !self.inodes.tell_again(&node) {
            return None;
        }
        self.shut_before(&node).await;
        let now = Instant::now();
        let valid =
            Valid { entry: self.entry_valid(directory, &node, now), attributes: self.tell(&node, now) };
        Some(Answer::with_capacity(128).entry(node.number, &attributes, valid))
    }

    /// Answers with what stands for a name.
    async fn entry(
        &self,
        call: &Call,
        user: &User,
        found: &Found,
        place: &Place<'_>,
    ) -> Result<Answer, Errno> {
        let (node, attributes, valid) = self.introduce(&user.session, found, place, call.asked).await?;
        self.shut_before(&node).await;
        Ok(Answer::with_capacity(128).entry(node.number, &attributes, valid))
    }

    /// As [`Filesystem::entry`], for a name that the server was asked to make.
    async fn made(
        &self,
        call: &Call,
        user: &User,
        made: client::Result<Found>,
        place: &Place<'_>,
    ) -> Result<Answer, Errno> {
        self.entry(call, user, &made.map_err(|error| self.errno(&error))?, place).await
    }

    pub(crate) async fn read_link(&self, call: &Call) -> Result<Answer, Errno> {
        let (node, user) = (self.node(call)?, self.user(call));
        user.session.read_link(&node.handle).await.map(Answer).map_err(|error| self.errno_of(&node, &error))
    }

    pub(crate) async fn make_dir(&self, call: &Call, name: &[u8], mode: u32) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        let place = self.new_place(&directory, name);
        let mark = self.complete.mark();
        let made = user.session.make_dir(&directory.handle, name, &mode_of(mode)).await;
        let handle = made.as_ref().ok().map(|found| found.handle);
        let answer = self.made(call, &user, made, &place).await?;
        if let Some(new) = handle.and_then(|handle| self.inodes.find(&handle)) {
            // As its node began: nobody else has been in it.
            self.know_all(&new, 0, mark, std::iter::empty()).await;
        }
        Ok(answer)
    }

    pub(crate) async fn symlink(&self, call: &Call, name: &[u8], target: &[u8]) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        let place = self.new_place(&directory, name);
        let made = user.session.symlink(&directory.handle, name, target, &mode_of(0o777)).await;
        self.made(call, &user, made, &place).await
    }

    pub(crate) async fn make_node(
        &self,
        call: &Call,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        let place = self.new_place(&directory, name);
        let (major, minor) = undevice(rdev);
        let special = match mode & TYPE {
            0 | 0o100_000 => None,
            0o010_000 => Some(Special::Fifo),
            0o020_000 => Some(Special::Character(major, minor)),
            0o060_000 => Some(Special::Block(major, minor)),
            0o140_000 => Some(Special::Socket),
            _ => return Err(Errno::INVAL),
        };
        let set = mode_of(mode);
        let made = match special {
            Some(special) => user.session.make_node(&directory.handle, name, special, &set).await,
            None => user.session.create(&directory.handle, name, &Create::Guarded(set)).await,
        };
        self.made(call, &user, made, &place).await
    }

    pub(crate) async fn link(&self, call: &Call, from: u64, name: &[u8]) -> Result<Answer, Errno> {
        let (directory, user, file) = (self.node(call)?, self.user(call), self.node_of(from)?);
        let place = self.new_place(&directory, name);
        let linked = user.session.link(&file.handle, &directory.handle, name).await;
        linked.map_err(|error| self.errno_of(&file, &error))?;
        let attributes = self.fresh(&user.session, &file, call.asked).await?;
        let found = Found { handle: file.handle, attributes: Some(attributes) };
        self.entry(call, &user, &found, &place).await
    }

    pub(crate) async fn unlink(&self, call: &Call, name: &[u8]) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        if self.hide(&directory, name, &user).await? {
            return Ok(Answer::default());
        }
        user.session.remove(&directory.handle, name).await.map_err(|error| self.errno(&error))?;
        self.places.removed(directory.number, name);
        Ok(Answer::default())
    }

    pub(crate) async fn remove_dir(&self, call: &Call, name: &[u8]) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        self.settle_hidden(directory.number, name).await;
        user.session.remove_dir(&directory.handle, name).await.map_err(|error| self.errno(&error))?;
        self.places.removed(directory.number, name);
        Ok(Answer::default())
    }

    pub(crate) async fn rename(
        &self,
        call: &Call,
        name: &[u8],
        to: u64,
        to_name: &[u8],
        flags: u32,
    ) -> Result<Answer, Errno> {
        if flags != 0 {
            // NFSv3 has no RENAME_NOREPLACE and no RENAME_EXCHANGE.
            return Err(Errno::INVAL);
        }
        let (directory, to, user) = (self.node(call)?, self.node_of(to)?, self.user(call));
        let same = directory.number == to.number && name == to_name;
        let hidden =
            if same { None } else { self.hide_target(&directory, name, &to, to_name, &user).await? };
        // What is replaced may be a directory.
        self.settle_hidden(to.number, to_name).await;
        let version = self.new_place(&to, to_name).version;
        let renamed = user.session.rename(&directory.handle, name, &to.handle, to_name).await;
        if let Err(error) = renamed {
            if let Some(hidden) = hidden {
                self.unhide(&hidden, &to, to_name).await;
            }
            return Err(self.errno(&error));
        }
        self.places.moved((directory.number, name), (to.number, to_name), Some(version));
        Ok(Answer::default())
    }

    pub(crate) fn forget(&self, number: u64, count: u64) {
        if let Some(node) = self.inodes.forget(number, count) {
            self.places.forgotten(&node);
            self.complete.forgotten(number);
        }
    }

    /// Whether a node is of a directory, as far as is known.
    pub(super) fn is_directory(node: &Node) -> bool {
        node.kind() == Some(FileKind::Directory)
    }
}
