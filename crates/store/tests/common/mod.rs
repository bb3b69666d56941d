//! Helpers for the store's tests. They need root, because the store acts as users.
#![allow(dead_code)] // each test file uses its own part

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::os::unix::fs::PermissionsExt;

use store::{HandleKey, Identity, Node, Store, StoreOptions, UserContext, WriteVerifier};

/// A directory on tmpfs to export, with access for everyone, removed at the end.
pub struct Export {
    pub dir: tempfile::TempDir,
    pub verifier: Arc<WriteVerifier>,
}

impl Export {
    /// On tmpfs, which has file handles on all kernels, or at the path in `SAMEHOST_STORE_TESTS`, for testing
    /// another filesystem.
    pub fn new() -> Export {
        let parent = std::env::var_os("SAMEHOST_STORE_TESTS").unwrap_or_else(|| "/dev/shm".into());
        Export::at(Path::new(&parent))
    }

    pub fn at(parent: &Path) -> Export {
        store::restore_process_ids();
        assert!(rustix::process::geteuid().is_root(), "the store's tests need root");
        rustix::process::umask(rustix::fs::Mode::empty());
        let dir = tempfile::tempdir_in(parent).expect("a scratch directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("chmod");
        Export { dir, verifier: Arc::new(WriteVerifier::new()) }
    }

    pub fn options(&self) -> StoreOptions {
        StoreOptions {
            path: self.dir.path().to_owned(),
            export_id: 7,
            key: HandleKey::new([42; 16]),
            read_only: false,
            subtree_check: false,
            verifier: Arc::clone(&self.verifier),
            limits: store::DescriptorLimits::default(),
            reserved_name: None,
        }
    }

    pub fn open(&self) -> Store {
        self.open_with(|_| {})
    }

    pub fn open_with(&self, change: impl FnOnce(&mut StoreOptions)) -> Store {
        store::restore_process_ids();
        let mut options = self.options();
        change(&mut options);
        Store::open(options).expect("the store opens")
    }

    /// With the thread's current ids.
    pub fn open_as_is(&self) -> Store {
        Store::open(self.options()).expect("the store opens")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

pub fn user(uid: u32) -> Identity {
    Identity { uid, gid: uid, groups: vec![] }
}

pub fn root() -> Identity {
    user(0)
}

/// Runs `work` as a local process on the server would, without the store.
pub fn local<T>(work: impl FnOnce() -> T) -> T {
    store::restore_process_ids();
    work()
}

pub fn root_of(context: &UserContext<'_>, store: &Store) -> Arc<Node> {
    context.node(store.root().as_bytes()).expect("the root is there")
}

/// All names after a cookie, without "." and "..", `page` entries per call.
pub fn names(context: &UserContext<'_>, dir: &Node, page: usize) -> Vec<Vec<u8>> {
    let (mut all, mut cursor, mut verifier) = (Vec::new(), 0, [0; 8]);
    loop {
        let (mut taken, mut cookie) = (0, cursor);
        let mut each = |entry: store::DirEntry<'_>| {
            if taken == page {
                return ControlFlow::Break(());
            }
            taken += 1;
            cookie = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                all.push(entry.name.to_vec());
            }
            ControlFlow::Continue(())
        };
        let from = cursor;
        let end = context.read_dir(dir, from, verifier, &mut each).expect("reads the directory");
        cursor = cookie;
        if end.eof {
            return all;
        }
        verifier = end.verifier;
    }
}

/// Runs `work` on a thread with all ids of an ordinary user, as in a server started by that user.
pub fn as_ordinary_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    std::thread::scope(|scope| {
        scope
            .spawn(move || {
                let (user, group) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(uid));
                set_thread_groups(&[]).expect("root may");
                set_thread_res_gid(group, group, group).expect("root may");
                set_thread_res_uid(user, user, user).expect("root may");
                work()
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A filesystem mounted for one test.
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn tmpfs(at: PathBuf) -> Mounted {
        Mounted::new(at, "tmpfs", "size=8m,mode=777").expect("root may mount a tmpfs")
    }

    /// `None` when the kernel or the container doesn't allow it.
    pub fn new(at: PathBuf, kind: &str, options: &str) -> Option<Mounted> {
        let options = std::ffi::CString::new(options).expect("no NUL");
        let flags = rustix::mount::MountFlags::empty();
        local(|| rustix::mount::mount("none", &at, kind, flags, Some(options.as_c_str())))
            .ok()
            .map(|()| Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = local(|| rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH));
    }
}

/// Waits until the kernel's coarse clock, the source of most time stamps, has advanced past the current time.
pub fn wait_for_clock_tick() {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Realtime);
    while clock_gettime(ClockId::RealtimeCoarse) <= now {
        std::thread::yield_now();
    }
}
