//! Opens: from a name or a handle to an open file.
//!
//! Over a lane one message does it all: lookup or creation, access check, attributes and grant. Over the wire
//! an OPEN does it by NFSv4, and a LOOKUP or CREATE by NFSv3. The latter needs no ACCESS, because with
//! AUTH_SYS the server checks every READ and WRITE.
//!
//! A file with a grant isn't opened over the wire: the server counts the grant as an open, and share
//! reservations and delegations of other clients take it into account. If the grant ends, the file is opened
//! over the wire before its next I/O.

use lane::{CreateMode, NewFile};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};

use crate::counters::{add, bump};
use crate::error::{Error, Result, Status};
use crate::file::File;
use crate::lane::{LaneOpen, OpenPurpose, OpenedFile, OpenedInTree, WireState};
use crate::open_prefetch::OpenTarget;
use crate::operations::{FileTarget, OpenPlan, OpenReply, Operations as _};
use crate::options::OpenOptions;
use crate::session::{Follow, PathWalk, Session};
use crate::types::{Attributes, Create, DirEntry, FileKind, Found, Handle, SetAttributes, SetTime};

/// The maximum number of attempts of an open that creates a file while another client creates and removes the
/// same name.
const MAX_ATTEMPTS: usize = 8;

/// Sets both times to the server's clock.
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

/// How a file is created that `options` allow to be.
fn how_to_create(options: &OpenOptions) -> Option<Create> {
    let set = SetAttributes { mode: Some(mode_of(options)), ..SetAttributes::default() };
    match options {
        OpenOptions { create_new: true, .. } => Some(Create::Guarded(set)),
        OpenOptions { create: true, .. } => Some(Create::Unchecked(set)),
        _ => None,
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn refusal(name: &[u8], status: Status) -> Error {
    Error::Status { object: shown(name), status }
}

/// What has the name that was to be opened.
enum Named {
    File(File),
    /// A symbolic link, and the options don't forbid to follow it.
    Link(Found),
}

/// What is left to be done for a file that has been opened.
struct RestOfOpen {
    /// A grant that can't be used at once.
    granted: Option<(lane::Grant, u64, [u8; 8])>,
    truncates: bool,
}

impl Session {
    /// Opens the file at `path`, relative to the session's root.
    ///
    /// # Errors
    /// The server's or the call's; with a required lane, [`Error::NoLane`] and [`Error::NoGrant`].
    pub async fn open(&self, path: &[u8], options: &OpenOptions) -> Result<File> {
        let (directory, name) = self.walk_parent(path).await?;
        if name.is_empty() {
            return Err(not_regular(path, FileKind::Directory));
        }
        self.open_in(&directory, &name, path, options).await
    }

    /// Opens the file `name` in a directory. Over a lane that is one round trip.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn open_at(&self, directory: &Handle, name: &[u8], options: &OpenOptions) -> Result<File> {
        self.open_in(directory, name, name, options).await
    }

    /// Opens the file with this handle. Errors name it `name`.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn open_handle(&self, file: &Handle, name: &[u8], options: &OpenOptions) -> Result<File> {
        if let Some(opening) = self.open_in_tree_now(FileTarget::File(file), name, options)? {
            return self.opened(opening, name, options).await;
        }
        Box::pin(self.open_handle_anywhere(file, name, options)).await
    }

    /// Opens a regular file that a listing of `directory` has shown, and creates none. In a directory tree of
    /// the server's host, an entry that came without a handle ([`Plus::Attributes`](crate::Plus)) is opened
    /// by one system call. Its name may belong to another file by now:
    /// [`File::attributes_at_open`] are those of the file that was opened.
    ///
    /// # Errors
    /// As [`Session::open`], and [`Error::Loop`] for a symbolic link.
    pub async fn open_listed(
        &self,
        directory: &Handle,
        entry: &DirEntry,
        options: &OpenOptions,
    ) -> Result<File> {
        let name = &entry.name[..];
        if let Some(file) = &entry.handle {
            return self.open_handle(file, name, options).await;
        }
        let target = FileTarget::Entry { directory, name, listed: entry.kind };
        if let Some(opening) = self.open_in_tree_now(target, name, options)? {
            return self.opened(opening, name, options).await;
        }
        let existing = OpenOptions { create: false, create_new: false, no_follow: true, ..*options };
        self.open_at(directory, name, &existing).await
    }

    async fn open_handle_anywhere(&self, file: &Handle, name: &[u8], options: &OpenOptions) -> Result<File> {
        let found = Found { handle: file.clone(), attributes: None };
        self.open_found(&found, None, name, options, OpenPurpose::FirstOpen).await
    }

    async fn open_in(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        let how = how_to_create(options);
        let target = match &how {
            Some(how) => FileTarget::New { directory, name, how },
            None => FileTarget::Entry { directory, name, listed: None },
        };
        if let Some(opening) = self.open_in_tree_now(target, path, options)? {
            return self.opened(opening, path, options).await;
        }
        Box::pin(self.open_anywhere(directory, name, path, options)).await
    }

    /// Opens a file in the tree. `None`: it has to wait, or there must be another way.
    fn open_in_tree_now(
        &self,
        target: FileTarget<'_>,
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<Option<OpenedFile>> {
        let access = (options.read, options.write);
        let opened = self.inner.lane.open_in_tree_now(&self.caller.user, target, access);
        opened.map_err(|error| error.about(|| shown(path)))
    }

    async fn open_anywhere(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        let mut exists = false;
        if let Some(how) = how_to_create(options) {
            let target = FileTarget::New { directory, name, how: &how };
            match self.open_in_tree(target, path, options).await? {
                Some(OpenedInTree::File(opening)) => return self.opened(*opening, path, options).await,
                Some(OpenedInTree::Other(_)) => exists = true,
                None => {}
            }
        }
        if options.create_new {
            return self.create_exclusive(directory, name, path, options).await;
        }
        if !options.create {
            return self.open_existing(directory, name, path, options).await;
        }
        if !exists
            && let Some(opening) =
                self.create_on_lane(directory, name, CreateMode::Unchecked, options).await?
        {
            return self.opened(opening, path, options).await;
        }
        for _ in 0..MAX_ATTEMPTS {
            let opened = match self.create_guarded(directory, name, path, options, exists).await {
                Ok(Some((found, state))) => {
                    let purpose = OpenPurpose::AlreadyOpen;
                    self.open_found(&found, state, path, options, purpose).await.map(Named::File)
                }
                Ok(None) => self.open_named(directory, name, path, options).await,
                // The server can't tell what has become of its new file.
                Err(error) if error.status() == Some(Status::Stale) => Err(error),
                Err(error) => return Err(error),
            };
            match opened {
                Ok(Named::File(file)) => return Ok(file),
                // A server creates no file in the place of a link, nor where it leads to (RFC 8881 section
                // 18.16.3: NFS4ERR_SYMLINK). If there is none, its target has to be made first.
                Ok(Named::Link(link)) => return self.open_target(directory, &link, path, options).await,
                // Another client has removed it meanwhile, or the directory.
                Err(error) if matches!(error.status(), Some(Status::NoEntry | Status::Stale)) => {}
                Err(error) => return Err(error),
            }
            exists = false;
        }
        self.attributes(directory).await.map_err(|error| error.about(|| shown(path)))?;
        // Another client creates and removes the name at the same rate.
        Err(refusal(path, Status::TryLater))
    }

    /// Opens or creates a file in the tree.
    async fn open_in_tree(
        &self,
        target: FileTarget<'_>,
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<Option<OpenedInTree>> {
        let access = (options.read, options.write);
        let opened = self.inner.lane.open_in_tree(&self.caller.user, target, access).await;
        opened.map_err(|error| error.about(|| shown(path)))
    }

    /// Opens an existing file, or the one that a link leads to.
    async fn open_existing(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        match self.open_named(directory, name, path, options).await? {
            Named::File(file) => Ok(file),
            Named::Link(link) => self.open_target(directory, &link, path, options).await,
        }
    }

    /// Opens the file that has a name, unless that is a link to be followed.
    async fn open_named(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<Named> {
        let target = FileTarget::Entry { directory, name, listed: None };
        let opened = self.open_in_tree(target, path, options).await?;
        if let Some(OpenedInTree::File(opening)) = opened {
            return self.opened(*opening, path, options).await.map(Named::File);
        }
        // A name of another type was found, or a symbolic link.
        let mut is_regular = opened.is_none();
        let mut refused = None;
        if opened.is_none() && name.len() <= lane::request::MAX_NAME {
            if options.only_reads()
                && let Some(opening) = self
                    .inner
                    .lane
                    .take_prefetched(&self.caller.user, OpenTarget::Entry { directory, name })
                    .await
            {
                return self.opened(opening, path, options).await.map(Named::File);
            }
            self.caller.seal(&[directory]).await?;
            let on_lane = lane::Target::Entry { directory: directory.as_bytes(), name };
            let access = (options.read, options.write);
            match self
                .inner
                .lane
                .open(&self.caller.user, on_lane, path, access, OpenPurpose::FirstOpen)
                .await?
            {
                LaneOpen::Granted(opening) => {
                    return self.opened(*opening, path, options).await.map(Named::File);
                }
                LaneOpen::Refused(lane::OpenStatus::Symlink) => is_regular = false,
                LaneOpen::Refused(status) => {
                    if let Some(error) = lane_refusal(path, status) {
                        return Err(error);
                    }
                    refused = Some(status);
                }
                LaneOpen::NoLane => {}
            }
        }
        let (mut found, state) = if is_regular {
            self.open_on_wire(target, path, options).await?
        } else {
            (self.lookup(directory, name).await.map_err(|error| error.about(|| shown(path)))?, None)
        };
        if found.attributes.is_none() {
            found.attributes = Some(self.attributes(&found.handle).await?);
        }
        if found.attributes.is_some_and(|attributes| attributes.kind == FileKind::Symlink) {
            if options.no_follow {
                return Err(Error::Loop { path: shown(path), max: 0 });
            }
            return Ok(Named::Link(found));
        }
        if is_regular {
            check_regular(&found, path)?;
            bump(&self.inner.counters.wire.opens);
            let opening = OpenedFile { refused, state, ..OpenedFile::new(found.handle, found.attributes) };
            return self.opened(opening, path, options).await.map(Named::File);
        }
        self.open_found(&found, None, path, options, OpenPurpose::FirstOpen).await.map(Named::File)
    }

    /// Opens the file that a symbolic link in `directory` leads to.
    async fn open_target(
        &self,
        directory: &Handle,
        link: &Found,
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        let found = self.follow(directory, link, path).await?;
        self.open_found(&found, None, path, options, OpenPurpose::FirstOpen).await
    }

    /// Opens a file over the wire, and finds it if it isn't regular. There is no state if the server didn't
    /// say which file it has created.
    async fn open_on_wire(
        &self,
        target: FileTarget<'_>,
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<(Found, Option<WireState>)> {
        let (FileTarget::File(file)
        | FileTarget::Entry { directory: file, .. }
        | FileTarget::New { directory: file, .. }) = target;
        match target {
            FileTarget::File(file) => self.settle_pending(|pending| pending == file).await,
            FileTarget::Entry { name, .. } | FileTarget::New { name, .. } => self.settle_named(&[name]).await,
        }
        let content = if self.inner.lane.is_established() { 0 } else { options.content };
        let plan = OpenPlan { read: options.read, write: options.write, content };
        let opened = self.caller.perform(&[file], |nfs, user| nfs.open(user, target, plan)).await;
        let OpenReply { found, access, state: open, content } =
            opened.map_err(|error| error.about(|| shown(path)))?;
        if let Some(content) = &content {
            bump(&self.inner.counters.wire.reads);
            add(&self.inner.counters.wire.bytes_read, content.len() as u64);
        }
        match (found, target) {
            (Some(found), _) => Ok((found, Some(WireState { open, access, content }))),
            (None, FileTarget::Entry { directory, name, .. } | FileTarget::New { directory, name, .. }) => {
                Ok((self.lookup(directory, name).await?, None))
            }
            (None, FileTarget::File(file)) => Ok((Found { handle: file.clone(), attributes: None }, None)),
        }
    }

    /// The target of a symbolic link in `directory`.
    async fn follow(&self, directory: &Handle, link: &Found, path: &[u8]) -> Result<Found> {
        let target = self.read_link(&link.handle).await?;
        let mut walk = PathWalk::at(directory.clone());
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
        walk.end().cloned().ok_or_else(|| not_regular(path, FileKind::Directory))
    }

    /// Opens a file whose handle is known, and which is open over the wire if there is a `state`. One that is
    /// already open was created by this open.
    async fn open_found(
        &self,
        found: &Found,
        state: Option<WireState>,
        path: &[u8],
        options: &OpenOptions,
        purpose: OpenPurpose,
    ) -> Result<File> {
        check_regular(found, path)?;
        let is_new = purpose == OpenPurpose::AlreadyOpen;
        match self.open_in_tree(FileTarget::File(&found.handle), path, options).await? {
            Some(OpenedInTree::File(opening)) => {
                return self.opened(OpenedFile { state, is_new, ..*opening }, path, options).await;
            }
            Some(OpenedInTree::Other(kind)) => return Err(not_regular(path, kind)),
            None => {}
        }
        if options.only_reads()
            && let Some(opening) =
                self.inner.lane.take_prefetched(&self.caller.user, OpenTarget::File(&found.handle)).await
        {
            return self.opened(OpenedFile { state, is_new, ..opening }, path, options).await;
        }
        let mut refused = None;
        self.caller.seal(&[&found.handle]).await?;
        let target = lane::Target::Handle(found.handle.as_bytes());
        match self
            .inner
            .lane
            .open(&self.caller.user, target, path, (options.read, options.write), purpose)
            .await?
        {
            LaneOpen::Granted(opening) => {
                return self.opened(OpenedFile { state, is_new, ..*opening }, path, options).await;
            }
            LaneOpen::Refused(status) => {
                if let Some(error) = lane_refusal(path, status) {
                    return Err(error);
                }
                refused = Some(status);
            }
            LaneOpen::NoLane => {}
        }
        bump(&self.inner.counters.wire.opens);
        let (attributes, state) = match state {
            Some(state) => (found.attributes, Some(state)),
            None => {
                let target = FileTarget::File(&found.handle);
                let (now, state) = self.open_on_wire(target, path, options).await?;
                (now.attributes.or(found.attributes), state)
            }
        };
        let opening =
            OpenedFile { refused, state, is_new, ..OpenedFile::new(found.handle.clone(), attributes) };
        self.opened(opening, path, options).await
    }

    /// The file of an open, and what is left to be done before it can be used.
    fn begin_open(
        &self,
        mut opening: OpenedFile,
        path: &[u8],
        options: &OpenOptions,
    ) -> (File, Option<Box<RestOfOpen>>) {
        // Other opens may have data that the server doesn't have yet.
        let empty = opening.attributes.is_some_and(|attributes| attributes.size == 0)
            && self.inner.uncommitted.find(&opening.handle).is_none();
        let truncates = options.truncate && options.write && !empty;
        // Uncommitted writes of other opens must be durable before the grant is used.
        let granted = opening.granted.take_if(|_| self.inner.uncommitted.find(&opening.handle).is_some());
        let file = File::new(self, opening, path, options);
        let has_rest = granted.is_some() || truncates || file.needs_direct_grant();
        (file, has_rest.then(|| Box::new(RestOfOpen { granted, truncates })))
    }

    async fn opened(&self, opening: OpenedFile, path: &[u8], options: &OpenOptions) -> Result<File> {
        let (file, rest) = self.begin_open(opening, path, options);
        let Some(rest) = rest else { return Ok(file) };
        Box::pin(Self::finish_open(file, rest)).await
    }

    async fn finish_open(file: File, rest: Box<RestOfOpen>) -> Result<File> {
        let RestOfOpen { granted, truncates } = *rest;
        if let Some(granted) = granted {
            Box::pin(file.install_grant(granted)).await?;
        }
        if file.needs_direct_grant() {
            Box::pin(file.request_direct_grant()).await;
        }
        if truncates {
            file.set_len(0).await?;
        }
        Ok(file)
    }

    /// Creates a file over the wire, unless the name exists, as the caller may know.
    async fn create_guarded(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
        exists: bool,
    ) -> Result<Option<(Found, Option<WireState>)>> {
        if exists {
            return Ok(None);
        }
        let set = SetAttributes { mode: Some(mode_of(options)), ..SetAttributes::default() };
        let target = FileTarget::New { directory, name, how: &Create::Guarded(set) };
        match self.open_on_wire(target, path, options).await {
            Ok(created) => Ok(Some(created)),
            Err(error) if error.status() == Some(Status::Exists) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a file with an EXCLUSIVE create, which can be repeated safely: over the lane or, with the same
    /// verifier, over the wire. The lane may have ended after the server created the file.
    ///
    /// Over the wire a SETATTR follows, because the server may keep the verifier in the times (RFC 1813
    /// section 3.3.8). The request for a grant is made at the same time: a file's owner may open it whatever
    /// its mode.
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
        let target =
            FileTarget::New { directory, name, how: &Create::Exclusive { verifier, mode: mode_of(options) } };
        let (mut found, state) = self.open_on_wire(target, name, options).await?;
        if options.times_later && options.write && self.may_set_times_later() {
            return self.open_with_times_later(found, state, path, options).await;
        }
        let mode = self.caller.user.masked(mode_of(options));
        let set = SetAttributes { mode: (!self.server_applies_umask()).then_some(mode), ..NOW };
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
                // The grant's attributes may be from before the SETATTR.
                opening.attributes = match found.attributes {
                    Some(attributes) => Some(attributes),
                    None => Some(self.attributes(&found.handle).await?),
                };
                self.opened(OpenedFile { state, is_new: true, ..*opening }, path, options).await
            }
            // A server that isn't root may be unable to open the file before its mode is set.
            _ => self.open_found(&found, state, path, options, OpenPurpose::AlreadyOpen).await,
        }
    }

    /// Whether the only attributes that an exclusive create leaves to be set are times, and they need not be
    /// set at once: nobody else on this host reaches the file without this client.
    fn may_set_times_later(&self) -> bool {
        self.caller.wire.protocol.sets_behind_data()
            && self.server_applies_umask()
            && !self.inner.lane.is_established()
    }

    /// Opens a file that was created exclusively. Its times are the server's time of the create, and the
    /// server gets them later.
    async fn open_with_times_later(
        &self,
        mut found: Found,
        state: Option<WireState>,
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        let mut times = NOW;
        if let Some(attributes) = &mut found.attributes {
            let created = attributes.ctime;
            (attributes.atime, attributes.mtime) = (created, created);
            (times.atime, times.mtime) = (Some(SetTime::To(created)), Some(SetTime::To(created)));
        }
        let opened = self.open_found(&found, state, path, options, OpenPurpose::AlreadyOpen).await;
        if found.attributes.is_none() || !opened.as_ref().is_ok_and(|file| file.set_later(times)) {
            self.set_attributes(&found.handle, &times, None).await?;
        }
        opened
    }

    /// Creates and opens a file over the lane, in one round trip. After `None` the caller does it over the
    /// wire.
    async fn create_on_lane(
        &self,
        directory: &Handle,
        name: &[u8],
        how: CreateMode,
        options: &OpenOptions,
    ) -> Result<Option<OpenedFile>> {
        let mode = self.caller.user.masked(mode_of(options));
        self.caller.seal(&[directory]).await?;
        let new = NewFile { directory: directory.as_bytes(), name, mode, how };
        let made =
            self.inner.lane.create(&self.caller.user, directory, new, options.read, options.write).await?;
        let Some(mut opening) = made else { return Ok(None) };
        if let CreateMode::Exclusive(_) = how {
            opening.is_new = true;
            // The times are the verifier until they are set.
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

fn not_regular(path: &[u8], kind: FileKind) -> Error {
    Error::NotRegular { object: shown(path), kind }
}

/// Only regular files are opened.
fn check_regular(found: &Found, path: &[u8]) -> Result<()> {
    match found.attributes.map(|attributes| attributes.kind) {
        None | Some(FileKind::Regular) => Ok(()),
        Some(kind) => Err(not_regular(path, kind)),
    }
}

/// The wire's error for a refusal of the lane; `None` where only the wire can tell.
fn lane_refusal(path: &[u8], status: lane::OpenStatus) -> Option<Error> {
    let status = match status {
        lane::OpenStatus::Access => Status::Access,
        lane::OpenStatus::ReadOnly => Status::ReadOnly,
        lane::OpenStatus::Stale => Status::Stale,
        lane::OpenStatus::BadHandle => Status::BadHandle,
        lane::OpenStatus::NotFound => Status::NoEntry,
        lane::OpenStatus::NotDirectory => Status::NotDirectory,
        lane::OpenStatus::IsDirectory => return Some(not_regular(path, FileKind::Directory)),
        _ => return None,
    };
    Some(refusal(path, status))
}

/// Sets a new file's times to the present through the grant. Returns the attributes afterwards, or `None` if
/// this process isn't permitted to set them.
fn set_times(opening: &OpenedFile) -> Option<Attributes> {
    let (grant, ..) = opening.granted.as_ref()?;
    let known = opening.attributes?;
    let file = grant.try_get()?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::futimens(&file, &Timestamps { last_access: now, last_modification: now }).ok()?;
    let (_, now) = Attributes::examine(known.fsid, || rustix::fs::fstat(&file)).ok()?;
    // Another user namespace has other numbers for the owners, so the server's are kept.
    let Attributes { atime, mtime, ctime, change, .. } = now;
    Some(Attributes { atime, mtime, ctime, change, ..known })
}
