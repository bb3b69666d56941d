//! From a name to an open file.
//!
//! Over a lane one message does it: lookup or creation, access check, attributes and grant. Over the wire a
//! LOOKUP or CREATE finds the file; ACCESS is not asked, for with AUTH_SYS the server checks every READ and
//! WRITE anyway.

use lane::{CreateMode, NewFile};
use rustix::fs::{AtFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW};

use crate::counters::bump;
use crate::error::{Error, Result, Status};
use crate::file::File;
use crate::lane::{LaneOpen, OpenPurpose, OpenedFile};
use crate::open_prefetch::OpenTarget;
use crate::options::OpenOptions;
use crate::session::{Follow, PathWalk, Session};
use crate::types::{Attributes, Create, FileKind, Found, Handle, SetAttributes, SetTime};

/// How often an open that creates goes round when somebody else creates and removes the same name.
const ROUNDS: usize = 8;

/// Both times are to be what the server's clock says.
const NOW: SetAttributes = SetAttributes {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: Some(SetTime::Now),
    mtime: Some(SetTime::Now),
};

/// A new file's mode.
fn mode_of(options: &OpenOptions) -> u32 {
    options.mode.unwrap_or(0o644)
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn refusal(name: &[u8], status: Status) -> Error {
    Error::Status { object: shown(name), status }
}

impl Session {
    /// Opens the file at `path`, from the session's root.
    ///
    /// # Errors
    /// The server's or the call's; with a required lane, [`Error::NoLane`].
    pub async fn open(&self, path: &[u8], options: &OpenOptions) -> Result<File> {
        let (directory, name) = self.walk_parent(path).await?;
        if name.is_empty() {
            return Err(refusal(path, Status::IsDirectory));
        }
        self.open_in(&directory, &name, path, options).await
    }

    /// Opens the file `name` in a directory: one round trip over a lane.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn open_at(&self, directory: &Handle, name: &[u8], options: &OpenOptions) -> Result<File> {
        self.open_in(directory, name, name, options).await
    }

    /// Opens the file with this handle, which errors will call `name`.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn open_handle(&self, file: &Handle, name: &[u8], options: &OpenOptions) -> Result<File> {
        self.open_found(&Found { handle: *file, attributes: None }, name, options, OpenPurpose::FirstOpen)
            .await
    }

    async fn open_in(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        if options.create_new {
            return self.create_exclusive(directory, name, path, options).await;
        }
        if !options.create {
            return self.open_existing(directory, name, path, options).await;
        }
        if let Some(opening) = self.create_on_lane(directory, name, CreateMode::Unchecked, options).await? {
            return self.opened(opening, path, options).await;
        }
        for _ in 0..ROUNDS {
            match self.create_guarded(directory, name, options).await {
                Ok(found) => return self.open_found(&found, path, options, OpenPurpose::AlreadyOpen).await,
                Err(error) if error.status() == Some(Status::Exists) => {}
                Err(error) => return Err(error.about(|| shown(path))),
            }
            match self.open_existing(directory, name, path, options).await {
                Err(error) if error.status() == Some(Status::NoEntry) => {}
                other => return other,
            }
        }
        // Somebody makes and removes the name in step with us.
        Err(refusal(path, Status::TryLater))
    }

    /// Opens a name that exists.
    async fn open_existing(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        if name.len() <= lane::request::MAX_NAME {
            if options.only_reads()
                && let Some(opening) = self
                    .inner
                    .lane
                    .take_prefetched(&self.caller.user, OpenTarget::Entry { directory, name })
                    .await
            {
                return self.opened(opening, path, options).await;
            }
            let target = lane::Target::Entry { directory: directory.as_bytes(), name };
            match self
                .inner
                .lane
                .open(&self.caller.user, target, path, (options.read, options.write), OpenPurpose::FirstOpen)
                .await?
            {
                LaneOpen::Granted(opening) => return self.opened(*opening, path, options).await,
                LaneOpen::Refused(lane::OpenStatus::Symlink) => {}
                LaneOpen::Refused(status) => {
                    if let Some(status) = lane_refusal(status) {
                        return Err(refusal(path, status));
                    }
                }
                LaneOpen::NoLane => {}
            }
        }
        let mut found = self.lookup(directory, name).await.map_err(|error| error.about(|| shown(path)))?;
        if found.attributes.is_none() {
            found.attributes = Some(self.attributes(&found.handle).await?);
        }
        if found.attributes.is_some_and(|attributes| attributes.kind == FileKind::Symlink) {
            if options.no_follow {
                return Err(Error::Loop { path: shown(path), max: 0 });
            }
            found = self.follow(directory, &found, path).await?;
        }
        self.open_found(&found, path, options, OpenPurpose::FirstOpen).await
    }

    /// Where a symbolic link in `directory` leads.
    async fn follow(&self, directory: &Handle, link: &Found, path: &[u8]) -> Result<Found> {
        let target = self.read_link(&link.handle).await?;
        let mut walk = PathWalk::at(*directory);
        let absolute = target.first() == Some(&b'/');
        let rest = if absolute {
            walk = PathWalk::new();
            self.inside(&target).ok_or_else(|| refusal(path, Status::NoEntry))?
        } else {
            &target[..]
        };
        self.walk_from(&mut walk, rest, path, Follow::Yes)
            .await
            .map_err(|error| error.about(|| shown(path)))?;
        walk.end().copied().ok_or_else(|| refusal(path, Status::IsDirectory))
    }

    /// Opens what was found.
    async fn open_found(
        &self,
        found: &Found,
        path: &[u8],
        options: &OpenOptions,
        purpose: OpenPurpose,
    ) -> Result<File> {
        match found.attributes.map(|attributes| attributes.kind) {
            None | Some(FileKind::Regular) => {}
            Some(FileKind::Directory) => return Err(refusal(path, Status::IsDirectory)),
            Some(_) => return Err(refusal(path, Status::Invalid)),
        }
        if options.only_reads()
            && let Some(opening) =
                self.inner.lane.take_prefetched(&self.caller.user, OpenTarget::File(&found.handle)).await
        {
            return self.opened(opening, path, options).await;
        }
        let mut refused = None;
        let target = lane::Target::Handle(found.handle.as_bytes());
        match self
            .inner
            .lane
            .open(&self.caller.user, target, path, (options.read, options.write), purpose)
            .await?
        {
            LaneOpen::Granted(opening) => return self.opened(*opening, path, options).await,
            LaneOpen::Refused(status) => {
                if let Some(status) = lane_refusal(status) {
                    return Err(refusal(path, status));
                }
                refused = Some(status);
            }
            LaneOpen::NoLane => {}
        }
        bump(&self.inner.counters.wire.opens);
        let opening =
            OpenedFile { handle: found.handle, attributes: found.attributes, granted: None, refused };
        self.opened(opening, path, options).await
    }

    async fn opened(&self, mut opening: OpenedFile, path: &[u8], options: &OpenOptions) -> Result<File> {
        let empty = opening.attributes.is_some_and(|attributes| attributes.size == 0);
        // What other opens have written over the wire becomes durable before the grant is used.
        let granted = opening.granted.take_if(|_| self.inner.uncommitted.find(&opening.handle).is_some());
        let file = File::new(self, opening, path, options);
        if let Some(granted) = granted {
            Box::pin(file.install_grant(granted)).await?;
        }
        if file.needs_direct_grant() {
            Box::pin(file.request_direct_grant()).await;
        }
        if options.truncate && options.write && !empty {
            file.set_len(0).await?;
        }
        Ok(file)
    }

    async fn create_guarded(&self, directory: &Handle, name: &[u8], options: &OpenOptions) -> Result<Found> {
        let set = SetAttributes { mode: Some(mode_of(options)), ..SetAttributes::default() };
        self.create(directory, name, &Create::Guarded(set)).await
    }

    /// EXCLUSIVE, which a retry can't spoil, over the lane or, with the same verifier, over the wire: a lane
    /// that ends may have made the file all the same. There the attributes come behind it, for the server may
    /// have kept the verifier in the times (RFC 1813 section 3.3.8), and the lane is asked at the same time:
    /// its owner may open a file whatever its mode.
    async fn create_exclusive(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        let mut verifier = [0; 8];
        getrandom::fill(&mut verifier).map_err(|error| Error::Local {
            object: "CREATE".to_owned(),
            source: std::io::Error::other(error),
        })?;
        if let Some(opening) =
            self.create_on_lane(directory, name, CreateMode::Exclusive(verifier), options).await?
        {
            return self.opened(opening, path, options).await;
        }
        let mut found = self.create(directory, name, &Create::Exclusive(verifier)).await?;
        let set = SetAttributes { mode: Some(mode_of(options)), ..NOW };
        let target = lane::Target::Handle(found.handle.as_bytes());
        let (set, asked) = futures_util::future::join(
            self.set_attributes(&found.handle, &set, None),
            self.inner.lane.open(
                &self.caller.user,
                target,
                path,
                (options.read, options.write),
                OpenPurpose::AlreadyOpen,
            ),
        )
        .await;
        found.attributes = set?;
        match asked {
            Ok(LaneOpen::Granted(mut opening)) => {
                // Its own may be from before they were set.
                opening.attributes = match found.attributes {
                    Some(attributes) => Some(attributes),
                    None => Some(self.attributes(&found.handle).await?),
                };
                self.opened(*opening, path, options).await
            }
            // A server that isn't root may need the mode first.
            _ => self.open_found(&found, path, options, OpenPurpose::AlreadyOpen).await,
        }
    }

    /// Has the lane make the file and open it, in one round trip. `None`: whatever the reason, the wire knows
    /// what to say.
    async fn create_on_lane(
        &self,
        directory: &Handle,
        name: &[u8],
        how: CreateMode,
        options: &OpenOptions,
    ) -> Result<Option<OpenedFile>> {
        let mode = mode_of(options);
        let new = NewFile { directory: directory.as_bytes(), name, mode, how };
        let made =
            self.inner.lane.create(&self.caller.user, directory, new, options.read, options.write).await?;
        let Some(mut opening) = made else { return Ok(None) };
        if let CreateMode::Exclusive(_) = how {
            // Until now the times were the verifier.
            opening.attributes = match set_times(&opening) {
                None => self.set_attributes(&opening.handle, &NOW, None).await?,
                known => known,
            };
            if opening.attributes.is_none() {
                opening.attributes = Some(self.attributes(&opening.handle).await?);
            }
        }
        Ok(Some(opening))
    }
}

/// The wire's status for a refusal of the lane; `None` where only the wire can tell.
const fn lane_refusal(status: lane::OpenStatus) -> Option<Status> {
    match status {
        lane::OpenStatus::Access => Some(Status::Access),
        lane::OpenStatus::ReadOnly => Some(Status::ReadOnly),
        lane::OpenStatus::Stale => Some(Status::Stale),
        lane::OpenStatus::BadHandle => Some(Status::BadHandle),
        lane::OpenStatus::NotFound => Some(Status::NoEntry),
        lane::OpenStatus::NotDirectory => Some(Status::NotDirectory),
        lane::OpenStatus::IsDirectory => Some(Status::IsDirectory),
        _ => None,
    }
}

/// Sets a new file's times to the present, as far as this process may do that to the file that it was
/// granted; its attributes then.
fn set_times(opening: &OpenedFile) -> Option<Attributes> {
    let (grant, ..) = opening.granted.as_ref()?;
    let known = opening.attributes?;
    let file = grant.try_get()?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::futimens(&file, &Timestamps { last_access: now, last_modification: now }).ok()?;
    let stat = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok()?;
    // Owners have other numbers in another user namespace: they are as the server says.
    let Attributes { atime, mtime, ctime, change, .. } = Attributes::of(&stat, known.fsid);
    Some(Attributes { atime, mtime, ctime, change, ..known })
}
