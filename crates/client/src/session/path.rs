//! Paths: resolution name by name, or by NFSv4 of as many names as one call can find.
//!
//! `..` goes back to the directory before, and never above the session's root. A symbolic link that begins
//! with '/' is relative to the server's root. It can be followed if it stays below the mounted directory.

use super::Session;
use crate::error::{Error, Result, Status};
use crate::types::{FileKind, Found, Handle};

/// The maximum number of symbolic links in a path, as in Linux (MAXSYMLINKS).
const MAX_LINKS: usize = 40;

/// The maximum number of names in a path, those of links included.
const MAX_NAMES: usize = 4096;

/// Whether a symbolic link at the end of a path is followed. Links in the middle always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Follow {
    /// The result is the link's target.
    Yes,
    /// The result is the link.
    No,
}

/// A walk down from the session's root.
#[derive(Debug, Clone)]
pub(crate) struct PathWalk {
    /// The directories below the root; the last step may be any kind of file.
    steps: Vec<Found>,
    links: usize,
    /// The first step is a directory whose parents are unknown.
    has_unknown_parent: bool,
}

impl PathWalk {
    /// At the root.
    pub(crate) const fn new() -> Self {
        Self { steps: Vec::new(), links: 0, has_unknown_parent: false }
    }

    /// At a directory whose parents are unknown: the server is asked for its `..`.
    pub(crate) fn at(directory: Handle) -> Self {
        Self {
            steps: vec![Found { handle: directory, attributes: None }],
            links: 0,
            has_unknown_parent: true,
        }
    }

    /// The last step; `None` at the root.
    pub(crate) fn end(&self) -> Option<&Found> {
        self.steps.last()
    }
}

/// The names of a path, without `.` and empty ones.
fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

impl Session {
    /// Resolves `path`, relative to the session's root.
    ///
    /// # Errors
    /// The server's or the call's; [`Error::Loop`].
    pub async fn walk(&self, path: &[u8], follow: Follow) -> Result<Found> {
        let mut walk = PathWalk::new();
        self.walk_from(&mut walk, path, path, follow).await.map_err(|error| error.about(|| shown(path)))?;
        match walk.steps.last() {
            Some(found) => Ok(found.clone()),
            None => Ok(Found { handle: self.root(), attributes: None }),
        }
    }

    /// Resolves `path` except for its last name. Returns the directory's handle and that name, which need not
    /// exist. The name is empty for the root itself.
    ///
    /// # Errors
    /// As [`Session::walk`].
    pub async fn walk_parent(&self, path: &[u8]) -> Result<(Handle, Vec<u8>)> {
        let mut all: Vec<&[u8]> = names(path).collect();
        // A path that ends in ".." has no last name.
        let last = if all.last() == Some(&&b".."[..]) { None } else { all.pop() };
        let parent = all.join(&b'/');
        let found = self.walk(&parent, Follow::Yes).await?;
        Ok((found.handle, last.unwrap_or_default().to_vec()))
    }

    /// Continues `walk` with `path`. Its end must be a directory unless `path` has no names. `whole` is for
    /// errors.
    pub(crate) async fn walk_from(
        &self,
        walk: &mut PathWalk,
        path: &[u8],
        whole: &[u8],
        follow: Follow,
    ) -> Result<()> {
        // Names still to resolve, the next one last.
        let mut todo: Vec<Vec<u8>> = names(path).rev().map(<[u8]>::to_vec).collect();
        let mut count = 0;
        while let Some(name) = todo.pop() {
            count += 1;
            if count > MAX_NAMES {
                return Err(Error::Status { object: shown(whole), status: Status::NameTooLong });
            }
            if name == b".." {
                match &mut walk.steps[..] {
                    [only] if walk.has_unknown_parent => *only = self.lookup(&only.handle, b"..").await?,
                    _ => drop(walk.steps.pop()),
                }
                continue;
            }
            let directory = walk.steps.last().map_or_else(|| self.root(), |found| found.handle.clone());
            let downwards = todo.iter().rev().map(Vec::as_slice).take_while(|name| *name != b"..");
            let downwards: Vec<&[u8]> = std::iter::once(&name[..]).chain(downwards).collect();
            let mut found = self.lookup_path(&directory, &downwards).await?;
            let Some(mut last) = found.pop() else { continue };
            todo.truncate(todo.len() - found.len());
            count += found.len();
            walk.steps.append(&mut found);
            if last.attributes.is_none() {
                last.attributes = Some(self.attributes(&last.handle).await?);
            }
            let is_link = last.attributes.is_some_and(|attributes| attributes.kind == FileKind::Symlink);
            if !is_link || (todo.is_empty() && follow == Follow::No) {
                walk.steps.push(last);
                continue;
            }
            walk.links += 1;
            if walk.links > MAX_LINKS {
                return Err(Error::Loop { path: shown(whole), max: MAX_LINKS });
            }
            let target = self.read_link(&last.handle).await?;
            let target = if target.first() == Some(&b'/') {
                walk.steps.clear();
                walk.has_unknown_parent = false;
                self.inside(&target)
                    .ok_or_else(|| Error::Status { object: shown(whole), status: Status::NoEntry })?
            } else {
                &target
            };
            todo.extend(names(target).rev().map(<[u8]>::to_vec));
        }
        Ok(())
    }

    /// The part of an absolute path behind the mounted path; `None` if it isn't below that.
    pub(crate) fn inside<'a>(&self, target: &'a [u8]) -> Option<&'a [u8]> {
        let mounted = self.inner.mounted.strip_suffix(b"/").unwrap_or(&self.inner.mounted);
        let rest = target.strip_prefix(mounted)?;
        (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_paths() {
        let all = |path: &'static [u8]| names(path).collect::<Vec<_>>();
        assert_eq!(all(b"//a/./b//.."), [&b"a"[..], b"b", b".."]);
        assert!(all(b"/").is_empty());
        assert!(all(b"").is_empty());
    }
}
