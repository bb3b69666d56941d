//! GETATTR, SETATTR, ACCESS and STATFS.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use client::{Access, Attributes, FileKind, SetAttributes, SetTime, Timestamp};
use rustix::io::Errno;

use super::{Call, Filesystem};
use crate::fuse::abi::fattr;
use crate::fuse::answer::Answer;
use crate::fuse::request::SetAttr;
use crate::inodes::Node;
use crate::passthrough::Hold;
use crate::users::User;

/// Everything that can be asked of a file or a directory: one call tells for all purposes.
const ALL: Access = Access(0x3f);

/// access(2)'s bits.
const R_OK: u32 = 4;
const W_OK: u32 = 2;
const X_OK: u32 = 1;

impl Filesystem {
    pub(crate) async fn get_attributes(&self, call: &Call, fh: Option<u64>) -> Result<Answer, Errno> {
        let node = self.node(call)?;
        let asked = Instant::now();
        if let Some(attributes) = self.good(&node, asked) {
            return Ok(Answer::with_capacity(104).attr(&attributes, self.tell(&node, asked)));
        }
        let attributes = match fh.and_then(|fh| self.files.get(fh)) {
            Some(open) => open.file.attributes().await,
            None => self.user(call).session.attributes(&node.handle).await,
        };
        let attributes = attributes.map_err(|error| self.errno_of(&node, &error))?;
        self.learn(&node, attributes, asked);
        self.drop_stale_data(&node);
        // What was learned may be newer than what was asked for.
        let attributes = node.attributes().unwrap_or(attributes);
        Ok(Answer::with_capacity(104).attr(&attributes, self.tell(&node, Instant::now())))
    }

    /// Attributes that the server needn't be asked for: the kernel forgets them with every write, but the
    /// replies to those have told them; and of a file that is open and granted its descriptor tells them.
    pub(super) fn good(&self, node: &Node, now: Instant) -> Option<Attributes> {
        let state = node.state.lock();
        match state.mode.backing().cloned() {
            Some(backing) => {
                drop(state);
                backing.file.attributes_now()?.ok()
            }
            None if state.cache.is_good(now, &self.options.attributes) && !node.read_since.load(Relaxed) => {
                state.cache.attributes().copied()
            }
            None => {
                let granted = state.granted?;
                drop(state);
                self.files.get(granted)?.file.attributes_now()?.ok()
            }
        }
    }

    /// Asks after files that are kept open and that the kernel caches, when their attributes' time is over: a
    /// reader who doesn't open the file again, nor asks for its attributes, sees within that time what others
    /// have written (nfs(5), acregmax).
    pub(crate) async fn refresh_open_files(&self) {
        for open in self.files.list() {
            let (node, now) = (&open.node, Instant::now());
            let due = {
                let state = node.state.lock();
                open.hold == Hold::Cached && !state.cache.is_good(now, &self.options.attributes)
            };
            // If the server can't be asked now, nothing new is known; whoever uses the file will hear of it.
            if due && let Ok(attributes) = open.file.attributes().await {
                self.learn(node, attributes, now);
                self.drop_stale_data(node);
            }
        }
    }

    /// Has the kernel forget data that somebody else has changed meanwhile. Elsewhere: the kernel may wait
    /// for a read that is to be answered first.
    fn drop_stale_data(&self, node: &Arc<Node>) {
        let stale = {
            let mut state = node.state.lock();
            state.opens > 0 && state.cache.take_stale()
        };
        if stale {
            let (device, number) = (self.device.clone(), node.number);
            tokio::task::spawn_blocking(move || device.get_ref().forget_attributes(number, true));
        }
    }

    pub(crate) async fn set_attributes(&self, call: &Call, set: &SetAttr) -> Result<Answer, Errno> {
        let (node, user) = (self.node(call)?, self.user(call));
        let has = |bit| set.valid & bit != 0;
        let time = |given, now, (seconds, nanoseconds): (i64, u32)| match (has(given), has(now)) {
            (_, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::To(Timestamp { seconds, nanoseconds })),
            (false, false) => None,
        };
        let mut to = SetAttributes {
            mode: has(fattr::MODE).then_some(set.mode & 0o7777),
            uid: has(fattr::UID).then_some(set.uid),
            gid: has(fattr::GID).then_some(set.gid),
            size: has(fattr::SIZE).then_some(set.size),
            atime: time(fattr::ATIME, fattr::ATIME_NOW, set.atime),
            mtime: time(fattr::MTIME, fattr::MTIME_NOW, set.mtime),
        };
        if let Some(size) = to.size {
            node.state.lock().cache.write(Instant::now());
            // Whoever has the file open for writing may cut it, whatever its mode says by now.
            if let Some(open) = self.files.get(set.fh).filter(|open| has(fattr::FH) && open.write) {
                self.cut(&node, &open.file, size, has(fattr::KILL_SUIDGID)).await?;
                to.size = None;
            } else {
                self.may_cut(&node, &user, call).await?;
            }
        }
        if !has(fattr::SIZE) && (to.atime.is_some() || to.mtime.is_some()) {
            self.write_mappings_back(&node).await;
        }
        let asked = Instant::now();
        let attributes = if to.is_empty() {
            None
        } else {
            let done = user.session.set_attributes(&node.handle, &to, None).await;
            done.map_err(|error| self.errno_of(&node, &error))?
        };
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => user.session.attributes(&node.handle).await.map_err(|error| self.errno(&error))?,
        };
        self.learn(&node, attributes, asked);
        self.left(&node).await;
        Ok(Answer::with_capacity(104).attr(&attributes, self.tell(&node, Instant::now())))
    }

    pub(crate) async fn access(&self, call: &Call, mask: u32) -> Result<Answer, Errno> {
        let (node, user) = (self.node(call)?, self.user(call));
        let directory = node.kind() == Some(FileKind::Directory);
        let mut wanted = Access(0);
        if mask & R_OK != 0 {
            wanted = wanted | Access::READ;
        }
        if mask & W_OK != 0 {
            wanted = wanted | Access::MODIFY | Access::EXTEND;
            if directory {
                wanted = wanted | Access::DELETE;
            }
        }
        if mask & X_OK != 0 {
            wanted = wanted | if directory { Access::LOOKUP } else { Access::EXECUTE };
        }
        let valid = node.state.lock().rights(&user, wanted, call.asked);
        let granted = match valid {
            Some(granted) => granted,
            None => self.ask_rights(&user, &node, wanted).await?,
        };
        if granted == wanted { Ok(Answer::default()) } else { Err(Errno::ACCESS) }
    }

    /// Whether the user may cut the file by its name. A server lets its owner do that whatever the mode says;
    /// truncate(2) doesn't.
    async fn may_cut(&self, node: &Arc<Node>, user: &Arc<User>, call: &Call) -> Result<(), Errno> {
        let known = node.state.lock().rights(user, Access::MODIFY, call.asked);
        let has = match known {
            Some(has) => has,
            None => self.ask_rights(user, node, Access::MODIFY).await?,
        };
        if has == Access::MODIFY { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// Which of the rights `wanted` the user has, asked of the server now. The answer is remembered.
    pub(super) async fn ask_rights(
        &self,
        user: &Arc<User>,
        node: &Arc<Node>,
        wanted: Access,
    ) -> Result<Access, Errno> {
        let granted = user.session.access(&node.handle, ALL).await;
        let granted = granted.map_err(|error| self.errno_of(node, &error))?;
        let now = Instant::now();
        let mut state = node.state.lock();
        let valid = state.cache.valid(now, &self.options.attributes);
        state.learn_rights(user, ALL, granted, now + valid);
        Ok(Access(granted.0 & wanted.0))
    }

    pub(crate) async fn stat_fs(&self, call: &Call) -> Result<Answer, Errno> {
        let (node, user) = (self.node(call)?, self.user(call));
        let stat = user.session.fs_stat(&node.handle).await.map_err(|error| self.errno(&error))?;
        let name_max = self.path_conf().await.map_or(255, |conf| conf.name_max);
        Ok(Answer::with_capacity(80).statfs(&stat, name_max))
    }
}
