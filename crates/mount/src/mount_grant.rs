//! The export's own mount on top of the FUSE filesystem.
//!
//! Where the server grants it, a detached clone of the export's mount is attached on the root of the FUSE
//! filesystem, and nothing of Samehost is in the way of anything. The FUSE filesystem stays mounted beneath.
//! When the server recalls the grant, the clone is detached lazily: new opens reach the FUSE filesystem, and
//! open files and working directories on the clone live on. With the next grant another clone goes up.
//!
//! 1. The clone goes up only while the FUSE filesystem is on top at the mountpoint and nothing is mounted
//!    below it, which the clone would hide.
//! 2. This process keeps no descriptor of a clone that is attached: umount(8) would call it busy. The clone
//!    is recognised by its number in the mount table.
//! 3. If the clone leaves the mount table without this process, an administrator has unmounted it. The FUSE
//!    filesystem is then unmounted, too, lazily if it is in use.
//! 4. Applications have changed files through the clone, which the FUSE filesystem's caches don't know. They
//!    are emptied before the clone is detached.
//! 5. Filesystems that were mounted below the clone are mounted at the same paths of the FUSE filesystem
//!    before the clone is detached.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::{Handle, MountGrant, Session};
use parking_lot::Mutex;
use rustix::io::Errno;
use sys::attached_mount::{self, AttachedOptions};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, watch};

use crate::filesystem::Filesystem;
use crate::fuse::attach;
use crate::mountinfo::{self, MountEntry};
use crate::privileges;
use crate::settings::{Direct, LookupCache, MountOptions};

/// Whether the export's own mount is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountGrantState {
    /// It is.
    Attached,
    /// It isn't, with the reason.
    Absent(String),
}

/// What is at the mountpoint.
#[derive(Debug)]
enum Place {
    /// The FUSE filesystem.
    Fuse,
    /// A clone on top of it.
    Clone {
        /// Its number in the mount table.
        id: u64,
        /// The root of the FUSE filesystem, which no path leads to.
        fuse: Arc<OwnedFd>,
    },
    /// Nothing of this process any more.
    Unmounted,
}

/// The mountpoint of a filesystem that takes mount grants.
#[derive(Debug)]
pub(crate) struct MountGrants {
    at: PathBuf,
    filesystem: Arc<Filesystem>,
    /// The number of the FUSE filesystem's mount.
    fuse: u64,
    /// Locked while something is attached or detached.
    place: Mutex<Place>,
    state: Mutex<MountGrantState>,
    /// The first request has been answered.
    settled: watch::Sender<bool>,
    /// The place was changed by an unmount.
    wake: Notify,
}

/// The outcome of an attempt to get a clone and to attach it.
enum Attempt {
    Attached(MountGrant),
    Refused(client::MountRefusal),
    /// The mountpoint doesn't allow it.
    Obstructed(String),
    Unmounted,
}

impl MountGrants {
    /// Requests the mount of `directory`, as long as `filesystem` is served at `at`: until `ended` has a
    /// reason. If its options rule mount grants out, the error is the reason in words.
    pub(crate) fn start(
        at: &Path,
        filesystem: Arc<Filesystem>,
        directory: Handle,
        mut ended: watch::Receiver<Option<String>>,
    ) -> Result<Arc<Self>, String> {
        if let Some(reason) = obstacle(filesystem.options()) {
            return Err(reason.to_owned());
        }
        let fuse = attached_mount::top(at).and_then(attached_mount::mount_id);
        let fuse = fuse.ok().flatten().ok_or("this kernel doesn't number mounts (Linux 5.8)")?;
        let table = MountTable::open().map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
        let grants = Arc::new(Self {
            at: at.to_owned(),
            filesystem,
            fuse,
            place: Mutex::new(Place::Fuse),
            state: Mutex::new(MountGrantState::Absent("the server hasn't answered yet".to_owned())),
            settled: watch::Sender::new(false),
            wake: Notify::new(),
        });
        let keeper = Arc::clone(&grants);
        tokio::spawn(async move {
            tokio::select! {
                () = keeper.keep(&directory, &table) => {}
                _ = ended.wait_for(Option::is_some) => {}
            }
            keeper.settled.send_replace(true);
        });
        Ok(grants)
    }

    pub(crate) fn state(&self) -> MountGrantState {
        self.state.lock().clone()
    }

    /// Waits until the first request is answered and the clone, if there is one, is attached; at most for
    /// `timeout`.
    pub(crate) async fn settled(&self, timeout: Duration) {
        let mut settled = self.settled.subscribe();
        let _ = tokio::time::timeout(timeout, settled.wait_for(|settled| *settled)).await;
    }

    /// Unmounts the clone and the FUSE filesystem. With `lazy` they are detached now, and end when nothing
    /// uses them any more.
    ///
    /// # Errors
    /// umount2(2)'s. `EBUSY`: one is in use, and this isn't lazy. The clone may be unmounted by then.
    pub(crate) fn unmount(&self, lazy: bool) -> io::Result<()> {
        let mut place = self.place.lock();
        let unmounted = match &*place {
            Place::Clone { id, .. } => match attached_mount::detach(&self.at, *id, lazy) {
                Ok(true) => Ok(()),
                // Something else is mounted on it.
                Ok(false) => Err(Errno::BUSY.into()),
                Err(error) => Err(error.into()),
            },
            Place::Fuse | Place::Unmounted => Ok(()),
        };
        if unmounted.is_ok() {
            *place = Place::Fuse;
        }
        let unmounted = unmounted.and_then(|()| attach::detach(&self.at, lazy));
        if unmounted.is_ok() {
            *place = Place::Unmounted;
        }
        self.wake.notify_one();
        unmounted
    }

    /// Attaches clones while they are granted, until nothing is mounted any more.
    async fn keep(self: &Arc<Self>, directory: &Handle, table: &MountTable) {
        let session = self.filesystem.session();
        loop {
            let attempt = self.attempt(session, directory).await;
            if let Attempt::Attached(_) = &attempt {
                tracing::info!(at = %self.at.display(), "the export's own mount is attached");
                *self.state.lock() = MountGrantState::Attached;
            }
            if let Attempt::Refused(client::MountRefusal { reason, .. }) | Attempt::Obstructed(reason) =
                &attempt
            {
                *self.state.lock() = MountGrantState::Absent(reason.clone());
            }
            self.settled.send_replace(true);
            match attempt {
                Attempt::Attached(grant) => {
                    if !self.stay(&grant, table).await {
                        return;
                    }
                }
                Attempt::Refused(refusal) => tokio::select! {
                    () = session.mount_refusal_over(&refusal) => {}
                    () = self.wake.notified() => {}
                },
                Attempt::Obstructed(_) => tokio::select! {
                    () = table.changed() => {}
                    () = self.wake.notified() => {}
                },
                Attempt::Unmounted => return,
            }
        }
    }

    async fn attempt(self: &Arc<Self>, session: &Session, directory: &Handle) -> Attempt {
        if let Err(obstacle) = self.blocking(Self::ready).await {
            return obstacle;
        }
        let mut grant = match session.mount_grant(directory).await {
            Ok(grant) => grant,
            Err(refusal) => return Attempt::Refused(refusal),
        };
        let Some(mount) = grant.take_mount() else { return Attempt::Unmounted };
        match self.blocking(move |grants| grants.attach(mount)).await {
            Ok(()) => Attempt::Attached(grant),
            Err(obstacle) => obstacle,
        }
    }

    /// Stays as it is until the clone has been detached; false if the FUSE filesystem has been unmounted,
    /// too.
    async fn stay(self: &Arc<Self>, grant: &MountGrant, table: &MountTable) -> bool {
        let mut recalled = false;
        loop {
            tokio::select! {
                () = grant.ended(), if !recalled => recalled = true,
                () = table.changed() => {}
                () = self.wake.notified() => {}
            }
            self.blocking(Self::check).await;
            if recalled {
                self.blocking(Self::recall).await;
            }
            match &*self.place.lock() {
                Place::Clone { .. } => {}
                Place::Fuse => return true,
                Place::Unmounted => return false,
            }
        }
    }

    /// Runs `work` on a thread that may block: an unmount may write back pages through this process.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let grants = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&grants)).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down, and drops this task.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Whether a clone can be attached. Opens nothing, as a descriptor would keep the filesystem busy.
    fn ready(&self) -> Result<(), Attempt> {
        self.options_if_free(&self.place.lock()).map(drop)
    }

    /// The present options of the FUSE filesystem, which a remount may have changed, if a clone can be
    /// attached.
    fn options_if_free(&self, place: &Place) -> Result<AttachedOptions, Attempt> {
        let obstructed = |reason: &str| Attempt::Obstructed(reason.to_owned());
        if !matches!(place, Place::Fuse) {
            return Err(Attempt::Unmounted);
        }
        let table =
            mountinfo::list().map_err(|error| obstructed(&format!("/proc/self/mountinfo: {error}")))?;
        if table.iter().any(|mounted| mounted.parent == self.fuse) {
            return Err(obstructed("other filesystems are mounted on the mountpoint or below"));
        }
        let fuse = table.iter().find(|mounted| mounted.id == self.fuse);
        fuse.map(options_of).ok_or_else(|| obstructed("the mountpoint isn't in the mount table"))
    }

    /// Attaches a clone.
    fn attach(&self, mount: OwnedFd) -> Result<(), Attempt> {
        let mut place = self.place.lock();
        let options = self.options_if_free(&place)?;
        let attached = attached_mount::top(&self.at).and_then(|fuse| {
            if attached_mount::mount_id(&fuse)? != Some(self.fuse) {
                return Err(Errno::BUSY);
            }
            let id = attached_mount::attach(mount, options, &fuse)?;
            Ok(Place::Clone { id, fuse: Arc::new(fuse) })
        });
        match attached {
            Ok(attached) => {
                *place = attached;
                Ok(())
            }
            Err(error) => Err(Attempt::Obstructed(format!("the mountpoint: {error}"))),
        }
    }

    /// Unmounts the FUSE filesystem if the clone has been unmounted.
    fn check(&self) {
        let mut place = self.place.lock();
        let Place::Clone { id, .. } = &*place else { return };
        let Ok(table) = mountinfo::list() else { return };
        if table.iter().any(|mounted| self.is_clone(mounted, *id)) {
            return;
        }
        tracing::info!(at = %self.at.display(), "unmounted");
        *place = Place::Unmounted;
        // The descriptor of the FUSE filesystem's root is closed. What isn't on top can't be unmounted.
        for lazy in [false, true] {
            match attached_mount::detach(&self.at, self.fuse, lazy) {
                Err(Errno::BUSY) if !lazy => {
                    tracing::warn!(at = %self.at.display(), "it is detached, and ends with its last user");
                }
                Err(error) => {
                    tracing::error!(at = %self.at.display(), %error, "it can't be unmounted");
                }
                Ok(_) => break,
            }
        }
    }

    fn is_clone(&self, mounted: &MountEntry, id: u64) -> bool {
        mounted.id == id && mounted.parent == self.fuse
    }

    /// Mounts a copy of the mount `mounted`, which is at `path` on the clone, at the same path of the FUSE
    /// filesystem. The error is the reason in words.
    ///
    /// The user who has mounted it may own the directories above, and put a link in their place between two
    /// lookups. So both paths are looked up without links, and the mount is recognised by its number.
    fn carry_over(&self, clone: u64, mounted: u64, path: &Path, fuse: &OwnedFd) -> Result<(), String> {
        // This one first: it may wait for the server, and a descriptor of the clone would keep that busy.
        let place = attached_mount::below(fuse, path)
            .map_err(|error| format!("on the FUSE filesystem: {}", in_words(error)))?;
        let root = attached_mount::top(&self.at).map_err(|error| format!("the mountpoint: {error}"))?;
        if attached_mount::mount_id(&root) != Ok(Some(clone)) {
            return Err("the export's mount isn't at the mountpoint any more".to_owned());
        }
        match attached_mount::attach_copy(mounted, root, path, place) {
            Ok(true) => Ok(()),
            Ok(false) => Err("another mount is at its path".to_owned()),
            Err(error) => Err(format!("its copy: {}", in_words(error))),
        }
    }

    /// Detaches the clone, unless something else is mounted on its root: then new opens don't reach it, and
    /// it is detached when that has been unmounted.
    fn recall(&self) {
        let (id, fuse) = match &*self.place.lock() {
            Place::Clone { id, fuse } => (*id, Arc::clone(fuse)),
            Place::Fuse | Place::Unmounted => return,
        };
        let table = mountinfo::list().unwrap_or_else(|error| {
            tracing::error!(%error, "the mounts can't be read, and those below are detached, too");
            Vec::new()
        });
        let below = || table.iter().filter(|mounted| mounted.parent == id);
        if below().any(|mounted| mounted.at == self.at) {
            return;
        }
        // Names that are looked up from here on are current. It must come first: when the kernel finds a name
        // changed, it detaches what is mounted there.
        if self.filesystem.distrust_caches().is_err()
            && let Err(error) = attached_mount::reconfigure(&*fuse)
        {
            tracing::warn!(at = %self.at.display(), %error, "old names may be seen until they expire");
        }
        for mounted in below() {
            let Ok(path) = mounted.at.strip_prefix(&self.at) else { continue };
            // Not locked: the FUSE filesystem looks the path up, which may wait for the server.
            if let Err(reason) = self.carry_over(id, on_top(&table, mounted).id, path, &fuse) {
                let at = mounted.at.display();
                tracing::warn!(%at, reason, "it is detached with the export's mount");
            }
        }
        drop(fuse);
        let mut place = self.place.lock();
        if !matches!(&*place, Place::Clone { id: now, .. } if *now == id) {
            return;
        }
        match attached_mount::detach(&self.at, id, true) {
            Ok(true) => {
                *place = Place::Fuse;
                let reason = "the server has recalled it";
                tracing::info!(at = %self.at.display(), reason, "the export's own mount is detached");
                *self.state.lock() = MountGrantState::Absent(reason.to_owned());
            }
            Ok(false) => {}
            Err(error) => tracing::error!(at = %self.at.display(), %error, "it can't be detached"),
        }
    }
}

/// The last one of the mounts that are mounted on each other's root. An automounted filesystem is on top of
/// autofs, for example.
fn on_top<'a>(table: &'a [MountEntry], lowest: &'a MountEntry) -> &'a MountEntry {
    let mut top = lowest;
    while let Some(next) = table.iter().find(|mounted| mounted.parent == top.id && mounted.at == top.at) {
        top = next;
    }
    top
}

/// Why a path can't be taken.
fn in_words(error: Errno) -> String {
    match error {
        Errno::LOOP => "a symbolic link is in its path".to_owned(),
        Errno::XDEV => "another mount is in its path".to_owned(),
        error => error.to_string(),
    }
}

/// Why a mount with these options takes no mount grants. The clone has the server's own caches, so it can't
/// have others.
fn obstacle(options: &MountOptions) -> Option<&'static str> {
    [
        (!options.mount_grant, "mount grants are switched off (mountgrant=off)"),
        (options.sync || !options.attributes.on, "the export's own mount isn't synchronous (sync, noac)"),
        (options.lookup_cache != LookupCache::All, "the export's own mount caches names (lookupcache)"),
        (!options.passthrough, "the mount's process serves all files (nopassthrough)"),
        (
            options.direct != Direct::EndToEnd,
            "O_DIRECT would bypass the server's page cache (odirect=server)",
        ),
        (!options.allow_other, "the export's own mount is for all users (noallow_other)"),
        (!privileges::can_register_backing(), "this process isn't root of the host"),
    ]
    .into_iter()
    .find_map(|(applies, reason)| applies.then_some(reason))
}

/// The options of a mount, for another one on top of it.
fn options_of(mounted: &MountEntry) -> AttachedOptions {
    let has = |option: &str| mounted.options.iter().any(|one| one == option);
    AttachedOptions {
        read_only: has("ro"),
        set_id: !has("nosuid"),
        devices: !has("nodev"),
        no_exec: has("noexec"),
        no_symlinks: has("nosymfollow"),
        no_access_times: has("noatime"),
    }
}

/// Changes of the mount table of this process's namespace.
#[derive(Debug)]
struct MountTable(AsyncFd<File>);

impl MountTable {
    /// The unsafe successor of `with_interest` requires that a descriptor stays the same until the drop; a
    /// file's does.
    #[expect(deprecated, reason = "the successor is unsafe even for types that meet its requirement")]
    fn open() -> io::Result<Self> {
        AsyncFd::with_interest(File::open("/proc/self/mountinfo")?, Interest::PRIORITY).map(Self)
    }

    /// Waits for a change after the last one that was reported (proc_pid_mounts(5)).
    async fn changed(&self) {
        match self.0.ready(Interest::PRIORITY).await {
            Ok(mut ready) => ready.clear_ready(),
            // The runtime shuts down.
            Err(_) => std::future::pending().await,
        }
    }
}
