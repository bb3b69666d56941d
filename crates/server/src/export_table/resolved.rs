//! The directories that exports' paths lead to.
//!
//! A path may lead through symbolic links, so its text doesn't tell where the directory lies. Which exports
//! lie in which, what crosses into what, and which exports are the same is decided by the resolved paths, as
//! exportfs(8) does it. Links are followed when the exports are read. A link that changes later has no effect
//! until they are read again.
//!
//! Whoever can replace a link on the way chooses what is exported the next time. So no link is followed that
//! clients of an export may change ([`changeable_link`]). Names of directories need no such rule:
//! `store::nested_exports` keeps those on the way to an export from being renamed.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use exports::{Export, Exports};
use rustix::fs::{CWD, Mode, OFlags, openat};

/// How many symbolic links a path may lead through, as in the kernel.
const MAX_LINKS: usize = 40;

/// The directory that a path leads to.
#[derive(Debug, Clone)]
pub(super) struct ResolvedPath {
    /// Its path without symbolic links.
    pub path: PathBuf,
    /// Device and inode number.
    identity: (u64, u64),
    /// The symbolic links on the way.
    links: Vec<PathBuf>,
}

/// Why an export isn't served although its path leads to a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathObstacle {
    /// The reason.
    pub reason: String,
    /// What to do about it.
    pub next: String,
}

impl fmt::Display for PathObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.next)
    }
}

/// The exports that a server wouldn't serve because of symbolic links on their paths.
pub fn path_obstacles(exports: &Exports) -> Vec<(&Path, PathObstacle)> {
    let all: Vec<_> = exports.list().iter().map(|export| (export, ResolvedPath::of(export.path()))).collect();
    let exported: Vec<_> =
        all.iter().map(|(export, resolved)| (*export, location(export, resolved.as_ref()))).collect();
    let (mut served, mut obstacles): (Vec<(&Path, &Path)>, _) = (Vec::new(), Vec::new());
    for (export, resolved) in &all {
        let Some(resolved) = resolved else { continue };
        let other = served.iter().find(|(path, _)| *path == resolved.path);
        let obstacle = changeable_link(export, Some(resolved), &exported)
            .or_else(|| other.map(|(_, other)| same_directory(other)));
        match obstacle {
            Some(obstacle) => obstacles.push((export.path(), obstacle)),
            None => served.push((&resolved.path, export.path())),
        }
    }
    obstacles
}

/// The path of an exported directory without symbolic links; as written if it leads nowhere.
pub(super) fn location<'e>(export: &'e Export, resolved: Option<&'e ResolvedPath>) -> &'e Path {
    resolved.map_or(export.path(), |resolved| &resolved.path)
}

/// Why an export isn't served: it has the same directory as the export with the path `other`, which is.
pub(super) fn same_directory(other: &Path) -> PathObstacle {
    PathObstacle {
        reason: format!("it is the same directory as {}", other.display()),
        next: "write the clients of both in one line".to_owned(),
    }
}

impl ResolvedPath {
    /// Follows `path`, which is absolute. `None` where it leads to no directory, or this process may not
    /// follow it.
    pub fn of(path: &Path) -> Option<Self> {
        let (mut at, mut links) = (PathBuf::from("/"), Vec::new());
        // The names that are left, the last one first.
        let mut left: Vec<OsString> = Vec::new();
        put_before(&mut left, path);
        while let Some(name) = left.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            if !next.symlink_metadata().ok()?.is_symlink() {
                at = next;
                continue;
            }
            if links.len() == MAX_LINKS {
                return None;
            }
            let text = next.read_link().ok()?;
            links.push(open(&at)?.1.join(name));
            if text.is_absolute() {
                at = PathBuf::from("/");
            }
            put_before(&mut left, &text);
        }
        let (directory, path) = open(&at)?;
        let found = directory.metadata().ok()?;
        Some(Self { path, identity: (found.dev(), found.ino()), links })
    }

    /// Whether both are the same directory at the same path.
    pub fn is_same(&self, other: &Self) -> bool {
        self.path == other.path && self.identity == other.identity
    }
}

/// A directory, and the path by which the kernel knows it.
fn open(path: &Path) -> Option<(File, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = File::from(openat(CWD, path, flags, Mode::empty()).ok()?);
    let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()?;
    Some((directory, path))
}

/// Adds the names of `path` to those that are left.
fn put_before(left: &mut Vec<OsString>, path: &Path) {
    left.extend(path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    }));
}

/// Why `export` isn't served: its path leads through a symbolic link in one of the `exported` directories,
/// whose clients may replace it. Each has its resolved path.
pub(super) fn changeable_link(
    export: &Export,
    resolved: Option<&ResolvedPath>,
    exported: &[(&Export, &Path)],
) -> Option<PathObstacle> {
    let resolved = resolved?;
    let around = |link: &Path| {
        let is_around = |(export, path): &&(&Export, &Path)| !export.read_only() && link.starts_with(path);
        exported.iter().find(is_around).map(|(export, _)| export)
    };
    let (link, outer) = resolved.links.iter().find_map(|link| Some((link, around(link)?)))?;
    let clients = if outer.path() == export.path() {
        "its own clients".to_owned()
    } else {
        format!("clients of {}", outer.path().display())
    };
    Some(PathObstacle {
        reason: format!(
            "{clients} may change the symbolic link {} on its path, and so what is exported",
            link.display()
        ),
        next: format!("write {} in the exports instead", resolved.path.display()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_and_named() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let at = |name: &str| base.join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        for (text, name) in [
            ("a/b", "relative"),
            ("../../a/./b/..", "a/b/up"),
            (at("relative").to_str().unwrap(), "chain"),
            ("loop", "loop"),
            ("missing", "dangling"),
            ("file", "to-file"),
        ] {
            symlink(text, at(name)).unwrap();
        }
        let resolved = |name: &str| ResolvedPath::of(&at(name)).map(|found| (found.path, found.links));
        assert_eq!(resolved("a/b"), Some((at("a/b"), vec![])));
        assert_eq!(resolved("relative"), Some((at("a/b"), vec![at("relative")])));
        assert_eq!(resolved("chain"), Some((at("a/b"), vec![at("chain"), at("relative")])));
        assert_eq!(resolved("relative/up/b"), Some((at("a/b"), vec![at("relative"), at("a/b/up")])));
        for name in ["loop", "dangling", "to-file", "file", "missing", "loop/a"] {
            assert_eq!(resolved(name), None, "{name}");
        }
        assert_eq!(ResolvedPath::of(Path::new("/")).unwrap().path, Path::new("/"));
        let [one, other] = ["relative", "chain"].map(|name| ResolvedPath::of(&at(name)).unwrap());
        assert!(one.is_same(&other));
    }
}
