//! A mounted filesystem as its owner sees it: started, asked, unmounted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::{AttributeUpdate, LaneMode, Session, Url};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::attribute_sink::InodeUpdater;
use crate::backing::Refusal;
use crate::error::Error;
use crate::filesystem::Filesystem;
use crate::fuse::abi::{self, init};
use crate::fuse::answer::{Agreed, Answer};
use crate::fuse::attach::{self, Appearance};
use crate::fuse::device::Device;
use crate::fuse::request::{Header, Operation};
use crate::inodes::Inodes;
use crate::privileges;
use crate::report::{Changes, Passing, Report};
use crate::requests::Requests;
use crate::settings::MountOptions;

/// Bytes of the largest READ and WRITE.
const TRANSFER: u32 = 1 << 20;

/// Room for the header and the arguments of a WRITE, and what a kernel may put before its data.
const HEADROOM: usize = 4096;

/// Bytes that the kernel reads ahead: so many READs of the largest size are under way at once.
const READAHEAD: u32 = 4 << 20;

/// Between two looks at the files that are kept open; their attributes' times say which of them are asked
/// about.
const REFRESH: Duration = Duration::from_secs(1);

/// How long the server may take to hear of what was closed last, when the filesystem is unmounted.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Requests that nobody waits for (read-ahead, asynchronous direct I/O) at once.
const BACKGROUND: u16 = 64;

/// What we ask the kernel for where it has it.
const WANTED: u64 = init::ASYNC_READ
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

/// A mounted filesystem. Dropping it leaves it mounted as long as its runtime runs.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
    filesystem: Arc<Filesystem>,
    requests: Arc<Requests>,
    changes: Arc<Changes>,
    ended: watch::Receiver<Option<String>>,
}

impl Mount {
    /// Connects to the server and mounts what `url` names, a directory, on the directory `at`. When this
    /// returns, it can be used. It must be called on a runtime of [`crate::runtime`], which carries
    /// everything from then on: on threads that have CAP_FSETID, set-id bits would survive the writes of
    /// those who may not keep them.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn start(
        url: &Url,
        mut session: client::Options,
        options: MountOptions,
        at: &Path,
    ) -> Result<Self, Error> {
        let (inodes, changes) = (Arc::<Inodes>::default(), Arc::<Changes>::default());
        let sink =
            InodeUpdater { inodes: inodes.clone(), times: options.attributes, changes: changes.clone() };
        session.attribute_sink = Some(Arc::new(sink));
        let session = Session::connect(url, session).await?;
        let found = session.walk(session.target(), client::Follow::Yes).await?;
        let asked = Instant::now();
        let attributes = session.attributes(&found.handle).await?;
        if attributes.kind != client::FileKind::Directory {
            return Err(Error::NotDirectory(url.to_string()));
        }
        let root = inodes.plant(found.handle);
        let seen = AttributeUpdate { before: None, attributes: Some(attributes), asked };
        root.learn(&seen, Instant::now(), &options.attributes);
        changes.note(&session.lane());

        let device = Device::new(attach::attach(at, &appearance(&options))?);
        // From here on a mount that can't be served must go again; and nothing is waited for, so that whoever
        // drops this future has either no mount or one that is served.
        let shaken = shake_hands(&device, &options);
        let served = shaken.and_then(|agreed| {
            nonblocking(&device).map_err(Error::Watch)?;
            watch_device(device).map(|device| (agreed, device)).map_err(Error::Watch)
        });
        let (agreed, device) = match served {
            Ok(served) => served,
            Err(error) => {
                let _ = attach::detach(at, true);
                return Err(error);
            }
        };
        // That it can't be raised (in a container, say) costs speed on the wire and nothing else.
        let _ = raise_read_ahead(at);
        let passing = Passing::new(why_not_passing(&options, &agreed));
        let device = Arc::new(device);
        let filesystem = Arc::new(Filesystem::new(session, options, device, inodes, passing));
        let requests = Requests::new(filesystem.clone());
        let (end, ended) = watch::channel(None);
        let served = requests.clone();
        tokio::spawn(async move {
            let longest = agreed.max_write as usize + HEADROOM;
            let why = match served.serve(longest).await {
                Ok(()) => "unmounted".to_owned(),
                Err(error) => format!("/dev/fuse: {error}"),
            };
            if tokio::time::timeout(LAST_WORDS, served.wind_up()).await.is_err() {
                tracing::warn!(
                    "unmounted before the server has heard of everything: hidden names may be left behind"
                );
            }
            end.send_replace(Some(why));
        });
        if filesystem.options.attributes.on {
            tokio::spawn(refresh(Arc::downgrade(&filesystem)));
        }
        Ok(Self { at: at.to_owned(), filesystem, requests, changes, ended })
    }

    /// Waits until it is unmounted, by whomever, and says how it ended.
    pub async fn wait(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "the runtime is going".to_owned(),
        }
    }

    /// Unmounts it; with `lazy` it goes out of sight now, and ends when nothing of it is in use any more.
    ///
    /// # Errors
    /// umount2(2)'s: `EBUSY`, if it is in use and this isn't lazy.
    pub fn unmount(&self, lazy: bool) -> std::io::Result<()> {
        attach::detach(&self.at, lazy)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// The session with the server, as whoever mounted it.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.filesystem.session
    }

    /// Whether to use the lane from now on. What is passed through stays so until it is closed.
    pub fn set_lane_mode(&self, mode: LaneMode) {
        self.filesystem.session.set_lane_mode(mode);
    }

    /// What it says about itself.
    #[must_use]
    pub fn report(&self) -> Report {
        let (not_passed, opens_passed, opens_refused) = self.filesystem.passing.state();
        let (requests, under_way) = self.requests.count();
        Report {
            lane: self.filesystem.session.lane(),
            not_passed,
            opens_passed,
            opens_refused,
            open_files: self.filesystem.files.len(),
            inodes: self.filesystem.inodes.len(),
            requests,
            under_way,
            changes: self.changes.list(),
            counters: self.filesystem.session.counters(),
        }
    }
}

/// Has a look at the files that are kept open, as long as there is a filesystem.
async fn refresh(filesystem: Weak<Filesystem>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let Some(filesystem) = filesystem.upgrade() else { return };
        filesystem.refresh_open_files().await;
    }
}

fn appearance(options: &MountOptions) -> Appearance {
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
    Appearance { source: options.source.clone(), flags, allow_other: options.allow_other }
}

/// The kernel reads at most 128 KiB ahead on a filesystem unless it is told otherwise, whatever INIT has
/// settled.
fn raise_read_ahead(at: &Path) -> std::io::Result<()> {
    // What the kernel has at hand: it needn't ask us.
    let stat = rustix::fs::statx(rustix::fs::CWD, at, AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
    let (major, minor) = (stat.stx_dev_major, stat.stx_dev_minor);
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), (READAHEAD / 1024).to_string())
}

/// A device never changes its descriptor and closes it when it is dropped, which is what the successor of
/// this function has promised to it, by `unsafe`.
#[expect(deprecated, reason = "the successor is unsafe for all types, also for those it needn't be")]
fn watch_device(device: Device) -> std::io::Result<AsyncFd<Device>> {
    AsyncFd::with_interest(device, Interest::READABLE | Interest::ERROR)
}

fn nonblocking(device: &Device) -> std::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(device)?;
    Ok(rustix::fs::fcntl_setfl(device, flags | OFlags::NONBLOCK)?)
}

/// Reads INIT, which the kernel sends first, and settles what both can.
fn shake_hands(device: &Device, options: &MountOptions) -> Result<Agreed, Error> {
    let failed = |what: &str, errno: Errno| Error::Kernel(format!("{what}: {errno}"));
    let mut buffer = vec![0; TRANSFER as usize + HEADROOM];
    loop {
        let len = match device.read(&mut buffer) {
            Ok(len) => len,
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(errno) => return Err(failed("reading INIT", errno)),
        };
        let message = &buffer[..len];
        let header = Header::of(message).map_err(|errno| failed("INIT's header", errno))?;
        let Ok(Operation::Init { major, minor, max_readahead, flags }) = Operation::of(&header, message)
        else {
            let _ = device.refuse(header.unique, Errno::IO);
            return Err(Error::Kernel("it didn't begin with INIT".to_owned()));
        };
        if major > abi::MAJOR {
            // It asks again in our version.
            let ours: Vec<u8> = [abi::MAJOR, abi::MINOR].iter().flat_map(|word| word.to_ne_bytes()).collect();
            device.answer(header.unique, &ours).map_err(|errno| failed("answering INIT", errno))?;
            continue;
        }
        if (major, minor) < (abi::MAJOR, abi::OLDEST_MINOR) {
            let _ = device.refuse(header.unique, Errno::PROTO);
            return Err(Error::Kernel(format!(
                "it speaks version {major}.{minor}, and {}.{} is the oldest that will do",
                abi::MAJOR,
                abi::OLDEST_MINOR
            )));
        }
        let mut wanted = WANTED;
        if options.passthrough {
            wanted |= init::PASSTHROUGH;
        }
        if !options.attributes.on {
            // Every read asks for the attributes first, and forgets the data if they have changed: noac wants
            // it so. Else it would cost a file that is written and read its whole cache with every write.
            wanted |= init::AUTO_INVAL_DATA;
        }
        let flags = flags & wanted;
        let agreed = Agreed {
            flags,
            max_readahead: max_readahead.max(READAHEAD),
            max_write: if flags & init::MAX_PAGES == 0 { 32 * 4096 } else { TRANSFER },
            max_background: BACKGROUND,
        };
        let answer = Answer::default().init(&agreed);
        device.answer(header.unique, &answer.0).map_err(|errno| failed("answering INIT", errno))?;
        return Ok(agreed);
    }
}

fn why_not_passing(options: &MountOptions, agreed: &Agreed) -> Option<String> {
    if !options.passthrough {
        Some("passthrough is switched off for this mount".to_owned())
    } else if agreed.flags & init::PASSTHROUGH == 0 {
        Some("this kernel has no FUSE passthrough (Linux 6.9 with CONFIG_FUSE_PASSTHROUGH)".to_owned())
    } else if !privileges::may_pass() {
        // The first open would tell, but who asks before that should hear it, too.
        Some(Refusal::from(Errno::PERM).reason)
    } else {
        None
    }
}
