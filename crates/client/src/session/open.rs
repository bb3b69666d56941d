//! From a name to an open file.
//!
//! Over a lane one message does it: lookup, access check, attributes and grant. Over the wire a LOOKUP finds the file; ACCESS
//! is not asked, for with AUTH_SYS the server checks every READ and WRITE anyway.

use std::sync::atomic::Ordering::Relaxed;

use proto::nfs3::Procedure;

use super::path::Way;
use super::{Follow, Session};
use crate::ahead::Wanted;
use crate::convert::lane_refusal;
use crate::counters::bump;
use crate::error::{Error, Result, Status};
use crate::file::{File, Opening};
use crate::lane::Answer;
use crate::options::OpenOptions;
use crate::types::{Create, FileKind, Found, Handle, SetAttributes, SetTime};

/// How often an open that creates goes round when somebody else creates and removes the same name.
const ROUNDS: usize = 8;

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
        self.open_found(&Found { handle: *file, attributes: None }, name, options).await
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
        let names_are_new = &self.inner.names_are_new;
        for _ in 0..ROUNDS {
            // A lane opens what exists in one message, and then making it first would be one too many; for a new name
            // it saves one. Whoever makes one file makes more: the last name tells what the next will be.
            if options.create && (!self.inner.lane.is_up() || names_are_new.load(Relaxed)) {
                match self.create_guarded(directory, name, options).await {
                    Ok(found) => return self.open_found(&found, path, options).await,
                    Err(error) if error.status() == Some(Status::Exists) => {
                        names_are_new.store(false, Relaxed);
                    }
                    Err(error) => return Err(error.about(|| shown(path))),
                }
            }
            match self.open_existing(directory, name, path, options).await {
                Err(error) if options.create && error.status() == Some(Status::NoEntry) => {
                    names_are_new.store(true, Relaxed);
                }
                other => return other,
            }
            match self.create_guarded(directory, name, options).await {
                Ok(found) => return self.open_found(&found, path, options).await,
                Err(error) if error.status() == Some(Status::Exists) => {}
                Err(error) => return Err(error.about(|| shown(path))),
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
                && let Some(opening) = self.look_ahead(Wanted::Entry { directory, name }).await
            {
                return self.opened(opening, path, options).await;
            }
            let target = lane::Target::Entry { directory: directory.as_bytes(), name };
            match self.ask_lane(target, path, options.read, options.write).await? {
                Answer::Granted(opening) => return self.opened(*opening, path, options).await,
                Answer::Refused(lane::Status::Symlink) => {}
                Answer::Refused(status) => {
                    if let Some(status) = lane_refusal(status) {
                        return Err(refusal(path, status));
                    }
                }
                Answer::None => {}
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
        self.open_found(&found, path, options).await
    }

    /// Where a symbolic link in `directory` leads.
    async fn follow(&self, directory: &Handle, link: &Found, path: &[u8]) -> Result<Found> {
        let target = self.read_link(&link.handle).await?;
        let mut way = Way::at(*directory);
        let absolute = target.first() == Some(&b'/');
        let rest = if absolute {
            way = Way::new();
            self.inside(&target).ok_or_else(|| refusal(path, Status::NoEntry))?
        } else {
            &target[..]
        };
        self.go(&mut way, rest, path, Follow::Yes).await.map_err(|error| error.about(|| shown(path)))?;
        way.end().copied().ok_or_else(|| refusal(path, Status::IsDirectory))
    }

    /// Opens what was found.
    async fn open_found(&self, found: &Found, path: &[u8], options: &OpenOptions) -> Result<File> {
        match found.attributes.map(|attributes| attributes.kind) {
            None | Some(FileKind::Regular) => {}
            Some(FileKind::Directory) => return Err(refusal(path, Status::IsDirectory)),
            Some(_) => return Err(refusal(path, Status::Invalid)),
        }
        if options.only_reads()
            && let Some(opening) = self.look_ahead(Wanted::File(&found.handle)).await
        {
            return self.opened(opening, path, options).await;
        }
        let mut refused = None;
        match self
            .ask_lane(lane::Target::Handle(found.handle.as_bytes()), path, options.read, options.write)
            .await?
        {
            Answer::Granted(opening) => return self.opened(*opening, path, options).await,
            Answer::Refused(status) => {
                if let Some(status) = lane_refusal(status) {
                    return Err(refusal(path, status));
                }
                refused = Some(status);
            }
            Answer::None => {}
        }
        bump(&self.inner.live.wire.opens);
        let opening = Opening { handle: found.handle, attributes: found.attributes, granted: None, refused };
        self.opened(opening, path, options).await
    }

    async fn opened(&self, mut opening: Opening, path: &[u8], options: &OpenOptions) -> Result<File> {
        let empty = opening.attributes.is_some_and(|attributes| attributes.size == 0);
        // What other opens have written over the wire becomes durable before the grant is used.
        let granted = opening.granted.take_if(|_| self.inner.unstable.find(&opening.handle).is_some());
        let file = File::new(self, opening, path, options);
        if let Some(granted) = granted {
            Box::pin(file.take_grant(granted)).await?;
        }
        if file.wants_direct() {
            Box::pin(file.take_direct()).await;
        }
        if options.truncate && options.write && !empty {
            file.set_len(0).await?;
        }
        Ok(file)
    }

    async fn create_guarded(&self, directory: &Handle, name: &[u8], options: &OpenOptions) -> Result<Found> {
        let set = SetAttributes { mode: Some(options.mode.unwrap_or(0o644)), ..SetAttributes::default() };
        self.create(directory, name, &Create::Guarded(set)).await
    }

    /// EXCLUSIVE, which a retry can't spoil; the attributes come behind it, for the server may have kept the verifier in
    /// the times (RFC 1813 section 3.3.8), and the lane is asked at the same time: its owner may open a file whatever its mode.
    async fn create_exclusive(
        &self,
        directory: &Handle,
        name: &[u8],
        path: &[u8],
        options: &OpenOptions,
    ) -> Result<File> {
        let mut verifier = [0; 8];
        getrandom::fill(&mut verifier).map_err(|error| Error::Local {
            object: Procedure::Create.name().to_owned(),
            source: std::io::Error::other(error),
        })?;
        let mut found = self.create(directory, name, &Create::Exclusive(verifier)).await?;
        let set = SetAttributes {
            mode: Some(options.mode.unwrap_or(0o644)),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::Now),
            ..SetAttributes::default()
        };
        let target = lane::Target::Handle(found.handle.as_bytes());
        let (set, asked) = futures_util::future::join(
            self.set_attributes(&found.handle, &set, None),
            self.ask_lane(target, path, options.read, options.write),
        )
        .await;
        found.attributes = set?;
        match asked {
            Ok(Answer::Granted(mut opening)) => {
                // Its own may be from before they were set.
                opening.attributes = match found.attributes {
                    Some(attributes) => Some(attributes),
                    None => Some(self.attributes(&found.handle).await?),
                };
                self.opened(*opening, path, options).await
            }
            // A server that isn't root may need the mode first.
            _ => self.open_found(&found, path, options).await,
        }
    }
}
