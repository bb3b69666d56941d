//! Sessions for the operands of a command, and the client's errors in words for its user.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use client::{Credential, Error, FileKind, Follow, Found, Handle, Options, Session, Status, Url};

use crate::cli::{Global, RoadArgs};
use crate::exit::{Exit, Failure};
use crate::human;

/// How long a session may take to come up. Once it is up a hard one waits for ever, but a URL that never
/// named an NFS server shouldn't. The URL's option `retry` gives it more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes sessions, one for each directory that operands name, and keeps them for the next operand.
///
/// Bounded by the number of operands: nothing that a server sends adds to it.
pub struct Connector {
    options: Options,
    sessions: RefCell<HashMap<String, Session>>,
}

/// A directory on a server and a name in it, which may or may not exist.
#[derive(Clone)]
pub struct Spot {
    /// A session with that server.
    pub session: Session,
    /// The directory.
    pub directory: Handle,
    /// The name.
    pub name: Vec<u8>,
}

impl Connector {
    /// A connector with the options of the command line. Options in a URL win over these.
    pub fn new(global: &Global, road: &RoadArgs) -> Self {
        Self { options: options(global, road), sessions: RefCell::default() }
    }

    /// The options that sessions are made with.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// A session for `url`, mounted at it or above it.
    pub async fn session(&self, url: &Url) -> Result<Session, Failure> {
        let key = url.to_string();
        if let Some(session) = self.sessions.borrow().get(&key) {
            return Ok(session.clone());
        }
        let mut options = self.options.clone();
        url.apply(&mut options).map_err(|error| Failure::usage(&key, error))?;
        let session = Session::connect(url, options).await.map_err(|error| failure(url, error))?;
        self.sessions.borrow_mut().insert(key, session.clone());
        Ok(session)
    }

    /// The file that `url` names.
    pub async fn find(&self, url: &Url, follow: Follow) -> Result<(Session, Found), Failure> {
        let (session, found) = self.look(url, follow).await?;
        Ok((session, found.map_err(|error| failure(url, error))?))
    }

    /// As [`Connector::find`]; what the server says of the path is for the caller to explain.
    pub async fn look(&self, url: &Url, follow: Follow) -> Result<(Session, client::Result<Found>), Failure> {
        let session = self.session(url).await?;
        // A slash at the end asks for the directory behind a link, as everywhere on Unix.
        let follow = if url.path().ends_with(b"/") { Follow::Yes } else { follow };
        if follow == Follow::No
            && session.target().is_empty()
            && let Some(link) = self.link(url).await
        {
            return Ok(link);
        }
        let found = session.walk(session.target(), follow).await;
        Ok((session, found))
    }

    /// The symbolic link that `url` names, if it is one: some servers mount what a link leads to.
    async fn link(&self, url: &Url) -> Option<(Session, client::Result<Found>)> {
        // Where the directory above isn't exported `url` is an export, and exports are no links.
        let spot = self.spot(url).await.ok()?;
        let found = spot.session.lookup(&spot.directory, &spot.name).await.ok()?;
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => spot.session.attributes(&found.handle).await.ok()?,
        };
        (attributes.kind == FileKind::Symlink).then_some((spot.session, Ok(found)))
    }

    /// The directory that holds what `url` names, and the name in it; the name need not exist.
    pub async fn spot(&self, url: &Url) -> Result<Spot, Failure> {
        let (parent, name) = split(url)?;
        let session = self.session(&parent).await.map_err(|failure| top_of_export(failure, url))?;
        let found =
            session.walk(session.target(), Follow::Yes).await.map_err(|error| failure(&parent, error))?;
        Ok(Spot { session, directory: found.handle, name })
    }

    /// Says goodbye to every server. That it doesn't hear it changes nothing.
    pub async fn close(self) {
        for session in self.sessions.into_inner().into_values() {
            session.close().await;
        }
    }
}

/// The URL of the directory above, and the last name.
fn split(url: &Url) -> Result<(Url, Vec<u8>), Failure> {
    let path = url.path();
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = &path[start..end];
    if matches!(name, b"" | b"." | b"..") {
        return Err(Failure::usage(url.to_string(), "names no entry of a directory")
            .next("name the file or directory itself, without '.' or '..' at the end"));
    }
    Ok((url.with_path(&path[..start]), name.to_vec()))
}

/// Mounting the directory above was refused: then `url` is most likely an export itself.
fn top_of_export(failure: Failure, url: &Url) -> Failure {
    if failure.exit != Exit::Failed {
        return failure;
    }
    Failure::new(url.to_string(), "the directory above it isn't exported to this host").next(
        "name something inside an export: an exported directory itself can't be made, moved or removed over \
         NFS",
    )
}

fn options(global: &Global, road: &RoadArgs) -> Options {
    Options {
        lane: road.lane.into(),
        run_dir: global.run_dir.clone(),
        trusted_uids: road.trust_uid.clone(),
        hard: !road.soft,
        timeo: Duration::from_millis(u64::from(road.timeo) * 100),
        retrans: road.retrans,
        retry: PATIENCE,
        probe_throttle: road.localio_probe_throttle,
        nconnect: road.nconnect.into(),
        rsize: road.rsize,
        wsize: road.wsize,
        credential: road.user.as_ref().map_or_else(Credential::own, |user| Credential::Sys {
            uid: user.uid,
            gid: user.gid,
            groups: user.gids.clone(),
        }),
        ..Options::default()
    }
}

/// `url` with `name` behind its path.
pub fn child(url: &Url, name: &[u8]) -> Url {
    let mut path = url.path().to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    url.with_path(&path)
}

/// What the client says about `url`, with the next step.
pub fn failure(url: &Url, error: impl Borrow<Error>) -> Failure {
    explain(url.to_string(), url.host(), error.borrow())
}

fn explain(object: String, host: &str, error: &Error) -> Failure {
    match error {
        Error::Status { status, .. } => {
            let failure = Failure::new(object, status);
            match next_step(*status) {
                Some(step) => failure.next(step),
                None => failure,
            }
        }
        Error::Resolve { .. } => Failure::new(object, error)
            .exit(Exit::Unreachable)
            .next(format!("check the spelling of {host}, or use its address")),
        Error::Rpc { source, .. } => Failure::new(object, source)
            .exit(Exit::Unreachable)
            .next(format!("is an NFS server running on {host}, and is the port right and not blocked?")),
        Error::NoAnswer { after, .. } => {
            Failure::new(object, format!("no answer that makes sense for {}", human::duration(*after)))
                .exit(Exit::Unreachable)
                .next(format!(
                    "is it an NFS server that listens on this port of {host}? -v shows what was tried"
                ))
        }
        Error::NoLane { reasons, .. } => {
            let mut reason = "no lane came up and --lane required was given".to_owned();
            for each in reasons {
                reason.push_str("\n  ");
                reason.push_str(&human::name(each.as_bytes()));
            }
            Failure::new(object, reason).exit(Exit::NotLocal).next("use --lane auto to go over the wire")
        }
        Error::Mount { reason, .. } => Failure::new(object, reason),
        Error::Local { source, .. } => Failure::new(object, source),
        Error::Partly { source, .. } => explain(object, host, source),
        Error::Url(error) => Failure::usage(object, error),
        Error::NoGrant { .. } | Error::Loop { .. } | Error::Protocol { .. } | Error::NotOpenFor { .. } => {
            Failure::new(object, error)
        }
    }
}

fn next_step(status: Status) -> Option<&'static str> {
    match status {
        Status::Access => {
            Some("check the mode of the file and of the directories above it; root may be squashed")
        }
        Status::NotPermitted => Some("only the owner may do this; root may be squashed (no_root_squash)"),
        Status::ReadOnly => Some("export it with rw"),
        Status::NotEmpty => Some("use rm -r"),
        Status::Stale | Status::BadHandle => Some("name it again; it was removed or replaced on the server"),
        Status::NoSpace | Status::Quota => Some("make room; samehost df shows how much there is"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn a_path_is_split_before_its_last_name() {
        let (parent, name) = split(&url("nfs://h:7/a/b%20c//")).unwrap();
        assert_eq!((parent.to_string().as_str(), &name[..]), ("nfs://h:7/a/", &b"b c"[..]));
        let (parent, name) = split(&url("nfs://h/a")).unwrap();
        assert_eq!((parent.path(), &name[..]), (&b"/"[..], &b"a"[..]));
        for text in ["nfs://h", "nfs://h/", "nfs://h/a/.", "nfs://h/a/.."] {
            assert_eq!(split(&url(text)).unwrap_err().exit, Exit::Usage, "{text}");
        }
    }

    #[test]
    fn children_of_the_root_have_one_slash() {
        assert_eq!(child(&url("nfs://h"), b"x").path(), b"/x");
        assert_eq!(child(&url("nfs://h/a?soft"), b"%").to_string(), "nfs://h/a/%25?soft");
    }
}
