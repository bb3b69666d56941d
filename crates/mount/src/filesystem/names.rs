//! Names: LOOKUP, FORGET, READLINK, and what makes, moves and removes names.

use std::time::{Duration, Instant};

use client::{Create, FileKind, Found, Node as Special, SetAttributes, Status};
use rustix::io::Errno;

use super::{Call, Filesystem};
use crate::fuse::answer::{Answer, undevice};
use crate::settings::LookupCache;

/// A file type's bits in a mode.
const TYPE: u32 = 0o170_000;

fn mode_of(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode & 0o7777), ..SetAttributes::default() }
}

impl Filesystem {
    pub(crate) async fn lookup(&self, call: &Call, name: &[u8]) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        match user.session.lookup(&directory.handle, name).await {
            Ok(found) => self.entry(call, &found, name).await,
            Err(error) if error.status() == Some(Status::NoEntry) => {
                let valid = match self.options.lookup_cache {
                    LookupCache::All => self.name_valid(&directory, Instant::now()),
                    LookupCache::Positive | LookupCache::None => Duration::ZERO,
                };
                if valid.is_zero() { Err(Errno::NOENT) } else { Ok(Answer::default().no_entry(valid)) }
            }
            Err(error) => Err(self.errno(&error)),
        }
    }

    /// Answers with what stands for `name` in the directory that was asked about.
    async fn entry(&self, call: &Call, found: &Found, name: &[u8]) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        let (node, attributes, valid) =
            self.introduce(&user.session, found, (&directory, name), call.asked).await?;
        Ok(Answer::with_capacity(128).entry(node.number, &attributes, valid))
    }

    pub(crate) async fn read_link(&self, call: &Call) -> Result<Answer, Errno> {
        let (node, user) = (self.node(call)?, self.user(call));
        user.session.read_link(&node.handle).await.map(Answer).map_err(|error| self.errno(&error))
    }

    pub(crate) async fn make_dir(&self, call: &Call, name: &[u8], mode: u32) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        let made = user.session.make_dir(&directory.handle, name, &mode_of(mode)).await;
        self.entry(call, &made.map_err(|error| self.errno(&error))?, name).await
    }

    pub(crate) async fn symlink(&self, call: &Call, name: &[u8], target: &[u8]) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
        let made = user.session.symlink(&directory.handle, name, target, &mode_of(0o777)).await;
        self.entry(call, &made.map_err(|error| self.errno(&error))?, name).await
    }

    pub(crate) async fn make_node(
        &self,
        call: &Call,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Answer, Errno> {
        let (directory, user) = (self.node(call)?, self.user(call));
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
        self.entry(call, &made.map_err(|error| self.errno(&error))?, name).await
    }

    pub(crate) async fn link(&self, call: &Call, from: u64, name: &[u8]) -> Result<Answer, Errno> {
        let (directory, user, file) = (self.node(call)?, self.user(call), self.node_of(from)?);
        let linked = user.session.link(&file.handle, &directory.handle, name).await;
        linked.map_err(|error| self.errno(&error))?;
        let attributes = self.fresh(&user.session, &file, call.asked).await?;
        let found = Found { handle: file.handle, attributes: Some(attributes) };
        self.entry(call, &found, name).await
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
        let renamed = user.session.rename(&directory.handle, name, &to.handle, to_name).await;
        if let Err(error) = renamed {
            if let Some(hidden) = hidden {
                self.unhide(&hidden, &to, to_name).await;
            }
            return Err(self.errno(&error));
        }
        self.places.moved((directory.number, name), (to.number, to_name));
        Ok(Answer::default())
    }

    pub(crate) fn forget(&self, number: u64, count: u64) {
        if let Some(node) = self.inodes.forget(number, count) {
            self.places.forgotten(&node);
        }
    }

    /// Whether a node is of a directory, as far as is known.
    pub(super) fn is_directory(node: &crate::inodes::Node) -> bool {
        node.kind() == Some(FileKind::Directory)
    }
}
