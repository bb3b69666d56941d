//! The mount: from a URL to a served filesystem, its report, and the unmount.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{AttributeUpdate, LaneMode, Session, Url};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use tokio::sync::watch;

use crate::attribute_sink::InodeUpdater;
use crate::backing::Refusal;
use crate::device_readers;
use crate::error::Error;
use crate::filesystem::{Filesystem, RemoteLocks};
use crate::fuse::abi::{self, init};
use crate::fuse::attach::{self, AttachOptions};
use crate::fuse::device::{Device, WatchedDevice};
use crate::fuse::reply::{FuseReply, Negotiated};
use crate::fuse::request::{ControlOperation, DecodeError, FuseRequest, Init, Operation};
use crate::inode::{InodeNumbers, InodeTable};
use crate::mount_grant::{MountGrantState, MountGrants};
use crate::passthrough::Passthrough;
use crate::privileges;
use crate::queues::{self, PreparedQueues};
use crate::report::{FuseTransport, LaneHistory, MountCounters, MountReport};
use crate::requests::Requests;
use crate::settings::{MountOptions, UringMode};

/// Bytes of the largest READ and WRITE.
const MAX_TRANSFER: u32 = 1 << 20;

/// Bytes for the header and the arguments of a WRITE, and for extensions before its data.
const HEADROOM: usize = 4096;

/// Bytes that the kernel reads ahead: four READs of the largest size.
const READAHEAD: u32 = 4 << 20;

/// The interval at which open files are checked for expired attributes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// How long an unmount waits for the last calls to the server.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Background requests at once: asynchronous direct I/O, and RELEASE. The kernel keeps further ones back, so
/// a RELEASE behind that many comes after requests that the process makes later.
const MAX_BACKGROUND: u16 = 256;

/// Background requests with which the kernel reads no further ahead.
const CONGESTION_THRESHOLD: u16 = 48;

/// INIT flags that are requested if the kernel offers them.
const INIT_FLAGS: u64 = init::ASYNC_READ
    | init::ATOMIC_O_TRUNC
    | init::BIG_WRITES
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::HANDLE_KILLPRIV_V2
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP
    | init::NO_EXPORT_SUPPORT;

/// What distinguishes the mount on a directory from others of the host, containers included: the directory's
/// path, and its number in the filesystem that it is in.
fn mount_point_id(at: &Path) -> Option<String> {
    let stat = rustix::fs::stat(at).ok()?;
    Some(format!("{:x}:{:x}:{}", stat.st_dev, stat.st_ino, at.display()))
}

/// A mounted filesystem. After a drop it stays mounted as long as its runtime runs.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
    filesystem: Arc<Filesystem>,
    requests: Arc<Requests>,
    transport: FuseTransport,
    history: Arc<LaneHistory>,
    /// Or why there are none.
    grants: Result<Arc<MountGrants>, String>,
    ended: watch::Receiver<Option<String>>,
}

impl Mount {
    /// Connects to the server and mounts the directory that `url` names on the directory `at`. The mount is
    /// usable when this returns.
    ///
    /// It must run on a runtime of [`crate::runtime`], which serves the mount from then on: on threads with
    /// CAP_FSETID, set-id bits would survive writes by users who may not keep them.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn start(
        url: &Url,
        mut session: client::Options,
        options: MountOptions,
        at: &Path,
    ) -> Result<Self, Error> {
        let (inodes, history) = (Arc::<InodeTable>::default(), Arc::<LaneHistory>::default());
        let sink =
            InodeUpdater { inodes: inodes.clone(), times: options.attributes, history: history.clone() };
        session.attribute_sink = Some(Arc::new(sink));
        session.delegations.get_or_insert(true);
        let ids: Vec<_> = session.unique_id.take().into_iter().chain(mount_point_id(at)).collect();
        session.unique_id = (!ids.is_empty()).then(|| ids.join("/"));
        let session = Session::connect(url, session).await?;
        let found = session.walk(session.target(), client::Follow::Yes).await?;
        let asked = Instant::now();
        let attributes = session.attributes(&found.handle).await?;
        if attributes.kind != client::FileKind::Directory {
            return Err(Error::NotDirectory(url.to_string()));
        }
        let directory = found.handle.clone();
        let root = inodes.insert_root(found.handle);
        let update = AttributeUpdate { before: None, attributes: Some(attributes), asked };
        root.update(&update, Instant::now(), &options.attributes);
        history.note(&session.lane());

        let device = Device::new(attach::attach(at, &attach_options(&options))?);
        // From here on a mount that can't be served must be detached. Nothing here waits, so a caller that
        // drops this future has either no mount or a served one.
        let detached = DetachOnDrop(at);
        let (negotiated, prepared) = negotiate(&device, &options, &session)?;
        nonblocking(&device).map_err(Error::Watch)?;
        let device = Arc::new(device);
        let watched = device.watch().map_err(Error::Watch)?;
        let passthrough = Passthrough::new(passthrough_obstacle(&options, &negotiated));
        let uring = options.uring;
        let remote_locks = RemoteLocks {
            posix: negotiated.flags & init::POSIX_LOCKS != 0,
            flock: negotiated.flags & init::FLOCK_LOCKS != 0,
        };
        let numbers = InodeNumbers::new(&attributes);
        let filesystem =
            Filesystem::new(session, options, device, inodes, passthrough, remote_locks, numbers);
        let filesystem = Arc::new(filesystem);
        let requests = Requests::new(filesystem.clone());
        let started = prepared.and_then(|prepared| {
            let started = prepared.start(&requests, &tokio::runtime::Handle::current());
            started.map_err(|errno| format!("the kernel refuses an io_uring queue: {errno}"))
        });
        let (queues, transport) = match started {
            Ok(queues) => (Some(queues), FuseTransport::Uring),
            Err(reason) if uring == UringMode::Required => return Err(Error::NoUring(reason)),
            Err(reason) => (None, FuseTransport::Device { reason }),
        };
        std::mem::forget(detached);
        // A failure (in a container, say) costs speed on the wire only.
        let _ = raise_read_ahead(at);
        let (end, ended) = watch::channel(None);
        let served = requests.clone();
        if let Some(queues) = &queues {
            filesystem.set_queues(queues);
        }
        tokio::spawn(async move {
            let max_len = negotiated.max_write as usize + HEADROOM;
            let reason = serve(&served, watched, max_len).await;
            if tokio::time::timeout(FINISH_TIMEOUT, served.finish()).await.is_err() {
                tracing::warn!("unmounted before all calls were done: hidden names may be left behind");
            }
            // The queues' threads end, and with them the rings.
            drop(queues);
            end.send_replace(Some(reason));
        });
        if filesystem.options().attributes.on {
            tokio::spawn(refresh(Arc::downgrade(&filesystem)));
        }
        let grants = MountGrants::start(at, filesystem.clone(), directory, ended.clone());
        Ok(Self { at: at.to_owned(), filesystem, requests, transport, history, grants, ended })
    }

    /// Waits until the filesystem is unmounted. Returns the reason in words.
    pub async fn wait(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "the runtime shuts down".to_owned(),
        }
    }

    /// Waits until the server has granted or refused its own mount; at most for `timeout`.
    pub async fn settled(&self, timeout: Duration) {
        if let Ok(grants) = &self.grants {
            grants.settled(timeout).await;
        }
    }

    /// Unmounts the filesystem, and the export's own mount if that is attached. With `lazy` it is detached
    /// now, and ends when nothing uses it any more.
    ///
    /// # Errors
    /// umount2(2)'s. `EBUSY`: it is in use, and this isn't lazy.
    pub fn unmount(&self, lazy: bool) -> std::io::Result<()> {
        match &self.grants {
            Ok(grants) => grants.unmount(lazy),
            Err(_) => attach::detach(&self.at, lazy),
        }
    }

    /// The mountpoint.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// The session with the server, as the user who mounted.
    #[must_use]
    pub fn session(&self) -> &Session {
        self.filesystem.session()
    }

    /// Sets whether to use the lane from now on. Files that are passed through stay so until they are closed.
    pub fn set_lane_mode(&self, mode: LaneMode) {
        self.filesystem.session().set_lane_mode(mode);
    }

    /// The status of the mount.
    #[must_use]
    pub fn report(&self) -> MountReport {
        let (not_passed, opens_passed_through, opens_refused) = self.filesystem.passthrough().results();
        let (open_files, inodes) = self.filesystem.count();
        let session = self.filesystem.session();
        let (requests, under_way) = self.requests.count();
        MountReport {
            transport: self.transport.clone(),
            lane: session.lane(),
            not_passed,
            mount_grant: match &self.grants {
                Ok(grants) => grants.state(),
                Err(reason) => MountGrantState::Absent(reason.clone()),
            },
            kernel: MountCounters {
                open_files: open_files as u64,
                opens_passed_through,
                opens_refused,
                inodes: inodes as u64,
                requests,
                requests_under_way: under_way as u64,
            },
            changes: self.history.list(),
            counters: session.counters(),
        }
    }
}

/// Detaches a filesystem that can't be served.
struct DetachOnDrop<'a>(&'a Path);

impl Drop for DetachOnDrop<'_> {
    fn drop(&mut self) {
        let _ = attach::detach(self.0, true);
    }
}

/// Serves the filesystem until it is unmounted. Returns the reason of its end in words.
async fn serve(requests: &Arc<Requests>, device: WatchedDevice, max_len: usize) -> String {
    let read = device_readers::serve(requests, device, max_len);
    let served = if requests.filesystem().has_queues() {
        tokio::select! {
            served = read => served,
            never = requests.watch_callers() => match never {},
        }
    } else {
        read.await
    };
    match served {
        Ok(()) => "unmounted".to_owned(),
        Err(error) => format!("/dev/fuse: {error}"),
    }
}

/// Refreshes the attributes of open files as long as the filesystem exists.
async fn refresh(filesystem: Weak<Filesystem>) {
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        let Some(filesystem) = filesystem.upgrade() else { return };
        filesystem.refresh_open_files().await;
    }
}

fn attach_options(options: &MountOptions) -> AttachOptions {
    let mut flags = MountFlags::empty();
    for (set, flag) in [
        (options.read_only, MountFlags::RDONLY),
        (!options.suid, MountFlags::NOSUID),
        (!options.dev, MountFlags::NODEV),
        (!options.exec, MountFlags::NOEXEC),
        (!options.symfollow, MountFlags::NOSYMFOLLOW),
        (options.noatime, MountFlags::NOATIME),
    ] {
        flags.set(flag, set);
    }
    AttachOptions { source: options.source.clone(), flags, allow_other: options.allow_other }
}

/// Sets the read-ahead of the filesystem's backing device. The kernel's default is 128 KiB, whatever INIT has
/// negotiated.
fn raise_read_ahead(at: &Path) -> std::io::Result<()> {
    // Cached attributes: the kernel must not send a request now.
    let stat = rustix::fs::statx(rustix::fs::CWD, at, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    let (major, minor) = (stat.stx_dev_major, stat.stx_dev_minor);
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), (READAHEAD / 1024).to_string())
}

fn nonblocking(device: &Device) -> std::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(device)?;
    Ok(rustix::fs::fcntl_setfl(device, flags | OFlags::NONBLOCK)?)
}

/// Reads INIT, the kernel's first request, and negotiates the version and the flags. Returns the io_uring
/// queues as well, or why there are none.
fn negotiate(
    device: &Device,
    options: &MountOptions,
    session: &Session,
) -> Result<(Negotiated, Result<PreparedQueues, String>), Error> {
    let failed = |what: &str, errno: Errno| Error::Kernel(format!("{what}: {errno}"));
    let mut buffer = vec![0; MAX_TRANSFER as usize + HEADROOM];
    loop {
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(errno) => return Err(failed("reading INIT", errno)),
        };
        let request = FuseRequest::decode(Bytes::copy_from_slice(&buffer[..len]));
        let unique = match &request {
            Ok(request) => request.header.unique,
            Err(DecodeError::Refused { unique, .. }) => *unique,
            Err(error) => return Err(Error::Kernel(error.to_string())),
        };
        let Ok(FuseRequest { operation: Operation::Control(ControlOperation::Init(offer)), .. }) = request
        else {
            let _ = device.reply_error(unique, Errno::IO);
            return Err(Error::Kernel("its first request isn't INIT".to_owned()));
        };
        let Init { major, minor, max_readahead, flags } = offer;
        if major > abi::MAJOR {
            // The kernel sends INIT again in this version.
            let version: Vec<u8> =
                [abi::MAJOR, abi::MINOR].iter().flat_map(|word| word.to_ne_bytes()).collect();
            device.reply(unique, &version).map_err(|errno| failed("replying to INIT", errno))?;
            continue;
        }
        if (major, minor) < (abi::MAJOR, abi::OLDEST_MINOR) {
            let _ = device.reply_error(unique, Errno::PROTO);
            return Err(Error::Kernel(format!(
                "it has version {major}.{minor}; the oldest supported one is {}.{}",
                abi::MAJOR,
                abi::OLDEST_MINOR
            )));
        }
        let has_locks = session.has_locks();
        let mut wanted = INIT_FLAGS;
        if session.server_applies_umask() {
            wanted |= init::DONT_MASK;
        }
        if options.passthrough {
            wanted |= init::PASSTHROUGH;
        }
        if has_locks && !options.local_locks.posix {
            wanted |= init::POSIX_LOCKS;
        }
        if has_locks && !options.local_locks.flock {
            wanted |= init::FLOCK_LOCKS;
        }
        if !options.attributes.on {
            // With noac every read fetches the attributes first and drops stale data. In other mounts the
            // flag would drop a file's whole cache with every write.
            wanted |= init::AUTO_INVAL_DATA;
        }
        let max_write = if flags & init::MAX_PAGES == 0 { 32 * 4096 } else { MAX_TRANSFER };
        // From the reply on the kernel waits for the queues.
        let queues = prepare_queues(device, flags, max_write, options.uring);
        match &queues {
            Ok(_) => wanted |= init::OVER_IO_URING,
            Err(reason) if options.uring == UringMode::Required => {
                return Err(Error::NoUring(reason.clone()));
            }
            Err(_) => {}
        }
        let negotiated = Negotiated {
            flags: flags & wanted,
            max_readahead: max_readahead.max(READAHEAD),
            max_write,
            max_background: MAX_BACKGROUND,
            congestion_threshold: CONGESTION_THRESHOLD,
        };
        let reply = FuseReply::default().init(&negotiated);
        device.reply(unique, &reply.0).map_err(|errno| failed("replying to INIT", errno))?;
        return Ok((negotiated, queues));
    }
}

/// The io_uring queues, or why there are none. `offered` are INIT's flags.
fn prepare_queues(
    device: &Device,
    offered: u64,
    max_write: u32,
    mode: UringMode,
) -> Result<PreparedQueues, String> {
    if mode == UringMode::Off {
        return Err("io_uring is switched off for this mount (uring=off)".to_owned());
    }
    if offered & init::OVER_IO_URING == 0 {
        return Err(queues::not_offered());
    }
    PreparedQueues::new(device, max_write as usize)
}

/// Why no file can be passed through, if that is known without an open.
fn passthrough_obstacle(options: &MountOptions, negotiated: &Negotiated) -> Option<String> {
    if !options.passthrough {
        Some("passthrough is switched off for this mount".to_owned())
    } else if negotiated.flags & init::PASSTHROUGH == 0 {
        Some("this kernel has no FUSE passthrough (Linux 6.9 with CONFIG_FUSE_PASSTHROUGH)".to_owned())
    } else if !privileges::can_register_backing() {
        Some(Refusal::from(Errno::PERM).reason)
    } else {
        None
    }
}
