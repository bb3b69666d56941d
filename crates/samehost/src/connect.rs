//! Sessions for the operands of a command, and the client's errors as failures with a next step.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use client::{Error, FileKind, Follow, Found, Handle, Options, Session, Status, Url};

use crate::cli::{Global, SessionArgs};
use crate::exit::{Exit, Failure};
use crate::human;

/// How long one attempt to connect may take. A connected hard session waits for ever, but a URL that never
/// named an NFS server shouldn't. A command makes one attempt; the URL's option `retry` asks for more.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);

/// A cache of sessions, one for each directory that operands name. Its size is bounded by the number of
/// operands.
pub struct Connector {
    options: Options,
    sessions: RefCell<HashMap<String, Session>>,
}

/// A directory on a server and a name in it, which need not exist.
#[derive(Clone)]
pub struct TargetName {
    /// A session with the server.
    pub session: Session,
    /// The directory.
    pub directory: Handle,
    /// The name.
    pub name: Vec<u8>,
}

impl Connector {
    /// A connector with the options of the command line. Options in a URL win over these.
    pub fn new(global: &Global, session: &SessionArgs) -> Self {
        Self { options: options(global, session), sessions: RefCell::default() }
    }

    /// The options of new sessions.
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

    /// Looks up the file that `url` names.
    pub async fn find(&self, url: &Url, follow: Follow) -> Result<(Session, Found), Failure> {
        let (session, found) = self.look(url, follow).await?;
        Ok((session, found.map_err(|error| failure(url, error))?))
    }

    /// As [`Connector::find`], with the server's error for the path.
    pub async fn look(&self, url: &Url, follow: Follow) -> Result<(Session, client::Result<Found>), Failure> {
        let session = self.session(url).await?;
        // A trailing slash names the directory behind a link (path_resolution(7)).
        let follow = if url.path().ends_with(b"/") { Follow::Yes } else { follow };
        if follow == Follow::No
            && session.target().is_empty()
            && let Some(link) = self.link(url).await
        {
            return Ok(link);
        }
        let found = session.walk(session.target(), follow).await;
        let found = match found {
            Ok(found) if names_directory(url) => require_directory(&session, url, found).await,
            found => found,
        };
        Ok((session, found))
    }

    /// The symbolic link that `url` names, if it is one. Some servers mount the target of a link.
    async fn link(&self, url: &Url) -> Option<(Session, client::Result<Found>)> {
        // If the directory above isn't exported, `url` is an export, and exports aren't links.
        let target = self.target_name(url).await.ok()?;
        let found = target.session.lookup(&target.directory, &target.name).await.ok()?;
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => target.session.attributes(&found.handle).await.ok()?,
        };
        (attributes.kind == FileKind::Symlink).then_some((target.session, Ok(found)))
    }

    /// The directory that contains what `url` names, and the name in it, which need not exist.
    pub async fn target_name(&self, url: &Url) -> Result<TargetName, Failure> {
        let (parent, name) = split(url)?;
        let session = self.session(&parent).await.map_err(|failure| parent_failure(failure, url))?;
        let found =
            session.walk(session.target(), Follow::Yes).await.map_err(|error| failure(&parent, error))?;
        Ok(TargetName { session, directory: found.handle, name })
    }

    /// Closes all sessions; a server that is down doesn't have to hear it.
    pub async fn close(self) {
        for session in self.sessions.into_inner().into_values() {
            session.close().await;
        }
    }
}

/// Whether the path of a URL can only be that of a directory (path_resolution(7)).
pub fn names_directory(url: &Url) -> bool {
    url.path().ends_with(b"/") || url.path().ends_with(b"/.")
}

/// The error for `url`, which names a directory but belongs to something else.
pub fn not_a_directory(url: &Url) -> Error {
    Error::Status { object: url.to_string(), status: Status::NotDirectory }
}

async fn require_directory(session: &Session, url: &Url, found: Found) -> client::Result<Found> {
    let attributes = match found.attributes {
        Some(attributes) => attributes,
        None => session.attributes(&found.handle).await?,
    };
    if attributes.kind == FileKind::Directory {
        Ok(Found { attributes: Some(attributes), ..found })
    } else {
        Err(not_a_directory(url))
    }
}

/// The URL of the parent directory, and the last name.
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

/// The failure if mounting the parent was refused: `url` is most likely an export itself.
fn parent_failure(failure: Failure, url: &Url) -> Failure {
    if failure.exit != Exit::Failed {
        return failure;
    }
    Failure::new(url.to_string(), "the directory above it isn't exported to this host").next(
        "name something inside an export: an exported directory itself can't be made, moved or removed over \
         NFS",
    )
}

fn options(global: &Global, session: &SessionArgs) -> Options {
    session.options.clone().run_dir(&global.run_dir).attempt_timeout(ATTEMPT_TIMEOUT)
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

/// The failure of a call for `url`, with the next step.
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
        Error::Moved { locations, .. } => Failure::new(object, "its filesystem is on another server")
            .next(format!("use it from there: {}", locations.join(", "))),
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
        _ => Failure::new(object, error),
    }
}

fn next_step(status: Status) -> Option<&'static str> {
    match status {
        Status::Access => {
            Some("check the mode of the file and of the directories above it; root may be squashed")
        }
        Status::NotPermitted => Some("only the owner may do this; root may be squashed (no_root_squash)"),
        Status::ReadOnly => Some("export it with rw; directories above exports can't be changed"),
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
