//! A file on a disk that is slow and then fails, at the test's command: a FUSE filesystem whose root is that
//! file. It needs root.

use std::{
    ffi::CString,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::{AsRawFd as _, OwnedFd},
    sync::Arc,
    thread::JoinHandle,
};

use parking_lot::{Condvar, Mutex};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::rig::SOON;

/// The size of the file, in bytes. All of them are [`BYTE`].
pub const SIZE: u64 = 1 << 20;

/// Each byte of the file.
pub const BYTE: u8 = 7;

/// Reads from here on are slow, and may fail.
pub const SLOW_FROM: u64 = 128 << 10;

/// What the disk does with reads from [`SLOW_FROM`] on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Slow {
    /// They wait.
    #[default]
    Wait,
    Read,
    Fail,
}

#[derive(Debug, Default)]
struct State {
    slow: Slow,
    /// A slow read has arrived.
    arrived: bool,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

/// The file. Unmounted when dropped.
#[derive(Debug)]
pub struct SlowFile {
    shared: Shared,
    mountpoint: tempfile::NamedTempFile,
    served: Option<JoinHandle<()>>,
}

impl SlowFile {
    /// Mounts it.
    pub fn new() -> Self {
        let mountpoint = tempfile::NamedTempFile::new().unwrap();
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=100000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("slow", mountpoint.path(), "fuse", MountFlags::empty(), &*options).expect("needs root");
        let shared = Shared::default();
        let served = Some(std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || serve(device, &shared)
        }));
        Self { shared, mountpoint, served }
    }

    /// Opens it for reading.
    pub fn open(&self) -> OwnedFd {
        let file = File::open(self.mountpoint.path()).unwrap();
        // The kernel asks for the size only now, and sendfile doesn't.
        assert_eq!(file.metadata().unwrap().len(), SIZE);
        file.into()
    }

    /// Waits until a slow read has arrived at the disk.
    pub fn wait_for_reader(&self) {
        let (state, changed) = &*self.shared;
        let waited = changed.wait_while_for(&mut state.lock(), |state| !state.arrived, SOON);
        assert!(!waited.timed_out(), "nobody reads");
    }

    /// Lets the slow reads succeed, those that wait and later ones.
    pub fn deliver(&self) {
        self.set(Slow::Read);
    }

    /// Lets the slow reads fail with `EIO`, those that wait and later ones.
    pub fn fail(&self) {
        self.set(Slow::Fail);
    }

    fn set(&self, slow: Slow) {
        self.shared.0.lock().slow = slow;
        self.shared.1.notify_all();
    }
}

impl Drop for SlowFile {
    fn drop(&mut self) {
        self.fail();
        let _ = unmount(self.mountpoint.path(), UnmountFlags::DETACH);
        // It ends when the last descriptor is closed.
        drop(self.served.take().filter(JoinHandle::is_finished).map(JoinHandle::join));
    }
}

/// Opcodes of linux/fuse.h.
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;

/// Serves the filesystem until it is unmounted and no file is open.
fn serve(mut device: File, shared: &Shared) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length) = device.read(&mut buffer) {
        let request = &buffer[..length];
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
        let mut body = Vec::new();
        let mut put = |words: &[u32]| words.iter().for_each(|word| body.extend(word.to_ne_bytes()));
        let error = match word(4) {
            INIT => {
                // Version 7.31, read-ahead, no flags, requests in the background, the largest write.
                put(&[7, 31, 128 << 10, 0, 12 << 16 | 16, 4096]);
                put(&[0; 10]);
                0
            }
            GETATTR => {
                // Valid for an hour. Inode 1, its size in bytes and in blocks; no times; a regular file.
                put(&[3600, 0, 0, 0, 1, 0, SIZE as u32, 0, (SIZE / 512) as u32, 0]);
                put(&[0; 9]);
                put(&[0o100_444, 1, 0, 0, 0, 4096, 0]);
                0
            }
            OPEN => {
                put(&[0; 4]);
                0
            }
            READ => {
                let (offset, length) = (long(48), word(56));
                let slow = offset + u64::from(length) > SLOW_FROM;
                if slow && wait(shared) == Slow::Fail {
                    rustix::io::Errno::IO.raw_os_error()
                } else {
                    body.resize(u64::from(length).min(SIZE.saturating_sub(offset)) as usize, BYTE);
                    0
                }
            }
            // FORGET, BATCH_FORGET and INTERRUPT have no reply.
            2 | 36 | 42 => continue,
            // FLUSH, RELEASE and others.
            _ => rustix::io::Errno::NOSYS.raw_os_error(),
        };
        let mut reply = Vec::new();
        reply.extend((16 + body.len() as u32).to_ne_bytes());
        reply.extend((-error).to_ne_bytes());
        reply.extend(long(8).to_ne_bytes());
        reply.extend(body);
        // It fails if the caller has been interrupted.
        let _ = device.write(&reply);
    }
}

/// Waits until the test has said what becomes of a slow read.
fn wait(shared: &Shared) -> Slow {
    let (state, changed) = &**shared;
    let mut state = state.lock();
    state.arrived = true;
    changed.notify_all();
    changed.wait_while(&mut state, |state| state.slow == Slow::Wait);
    state.slow
}
