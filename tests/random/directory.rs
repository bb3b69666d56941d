//! A directory in which operations run, and their results.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::{Errno, Result};

use super::operation::{Operation, SLOTS};

/// The result of an operation, as far as both directories must agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Nothing,
    Count(usize),
    Bytes(Vec<u8>),
    Stat { kind: FileType, mode: u32, size: Option<i64>, mtime: Option<i64> },
    Names(Vec<String>),
}

/// A directory with its open files.
pub struct Directory {
    root: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
}

/// A short description of a result.
pub fn describe(result: &Result<Outcome>) -> String {
    match result {
        Ok(Outcome::Bytes(bytes)) => {
            let sum = bytes.iter().fold(0_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
            let at = bytes.iter().position(|byte| *byte != 0);
            format!("{} bytes, sum {sum:08x}, first nonzero byte at {at:?}", bytes.len())
        }
        other => format!("{other:?}"),
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    samehost_tests::scratch::pattern(seed, len)
}

fn stat_of(stat: &Stat) -> Outcome {
    let kind = FileType::from_raw_mode(stat.st_mode);
    Outcome::Stat {
        kind,
        mode: stat.st_mode & 0o7777,
        size: (kind != FileType::Directory).then_some(stat.st_size),
        // Only if it was set by an operation.
        mtime: Some(stat.st_mtime).filter(|time| *time < 1_200_000_000),
    }
}

impl Directory {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), slots: Default::default() }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    fn slot(&self, slot: usize) -> Result<&OwnedFd> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    /// Runs an operation.
    pub fn run(&mut self, operation: &Operation) -> Result<Outcome> {
        let nothing = |result: Result<()>| result.map(|()| Outcome::Nothing);
        match operation {
            Operation::Open { slot, path, flags, mode } => {
                let flags = *flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
                self.slots[*slot] = Some(sys::open(self.at(path), flags, Mode::from_raw_mode(*mode))?);
                Ok(Outcome::Nothing)
            }
            Operation::Close { slot } => {
                self.slots[*slot] = None;
                Ok(Outcome::Nothing)
            }
            Operation::Write { slot, offset, len, seed } => {
                rustix::io::pwrite(self.slot(*slot)?, &bytes(*seed, *len), *offset).map(Outcome::Count)
            }
            Operation::WriteAtCursor { slot, len, seed } => {
                rustix::io::write(self.slot(*slot)?, &bytes(*seed, *len)).map(Outcome::Count)
            }
            Operation::Read { slot, offset, len } => {
                let mut buffer = vec![0; *len];
                let count = rustix::io::pread(self.slot(*slot)?, &mut buffer[..], *offset)?;
                buffer.truncate(count);
                Ok(Outcome::Bytes(buffer))
            }
            Operation::Truncate { slot, len } => nothing(sys::ftruncate(self.slot(*slot)?, *len)),
            Operation::TruncatePath { path, len } => {
                let fd = sys::open(self.at(path), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
                nothing(sys::ftruncate(&fd, *len))
            }
            Operation::Sync { slot } => nothing(sys::fsync(self.slot(*slot)?)),
            Operation::Lstat { path } => sys::lstat(self.at(path)).map(|stat| stat_of(&stat)),
            Operation::Fstat { slot } => sys::fstat(self.slot(*slot)?).map(|stat| stat_of(&stat)),
            Operation::List { path } => {
                let fd = sys::open(self.at(path), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
                names(fd).map(Outcome::Names)
            }
            Operation::ReadFile { path } => {
                let path = self.at(path);
                if sys::stat(&path)?.st_size > 1 << 26 {
                    return Ok(Outcome::Nothing);
                }
                let read = std::fs::read(path);
                read.map(Outcome::Bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
            Operation::MakeDirectory { path, mode } => {
                nothing(sys::mkdir(self.at(path), Mode::from_raw_mode(*mode)))
            }
            Operation::RemoveDirectory { path } => nothing(sys::rmdir(self.at(path))),
            Operation::Unlink { path } => nothing(sys::unlink(self.at(path))),
            Operation::Rename { from, to } => nothing(sys::rename(self.at(from), self.at(to))),
            Operation::Link { from, to } => nothing(sys::link(self.at(from), self.at(to))),
            Operation::Symlink { target, path } => nothing(sys::symlink(target, self.at(path))),
            Operation::ReadLink { path } => {
                sys::readlink(self.at(path), Vec::new()).map(|target| Outcome::Bytes(target.into_bytes()))
            }
            Operation::Chmod { path, mode } => nothing(sys::chmod(self.at(path), Mode::from_raw_mode(*mode))),
            Operation::Fchmod { slot, mode } => {
                nothing(sys::fchmod(self.slot(*slot)?, Mode::from_raw_mode(*mode)))
            }
            Operation::Times { path, seconds } => {
                let time = Timespec { tv_sec: i64::from(*seconds), tv_nsec: 5 };
                let times = Timestamps { last_access: time, last_modification: time };
                nothing(sys::utimensat(sys::CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW))
            }
            Operation::Copy { from, to, offset, len } => self.copy(*from, *to, *offset, *len),
        }
    }

    /// copy_file_range(2), and without support read and write.
    fn copy(&self, from: usize, to: usize, offset: u64, len: usize) -> Result<Outcome> {
        let (source, target) = (self.slot(from)?, self.slot(to)?);
        let (mut at, mut written) = (0, offset);
        match sys::copy_file_range(source, Some(&mut at), target, Some(&mut written), len) {
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::NOSYS) => {
                let mut buffer = vec![0; len];
                let count = rustix::io::pread(source, &mut buffer[..], 0)?;
                rustix::io::pwrite(target, &buffer[..count], offset).map(Outcome::Count)
            }
            other => other.map(Outcome::Count),
        }
    }

    /// Whether a file is open that has been unlinked.
    pub fn has_unlinked_open_files(&self) -> bool {
        self.slots.iter().flatten().any(is_unlinked)
    }

    /// The inode numbers of the open files.
    pub fn open_files(&self) -> Vec<u64> {
        self.slots.iter().flatten().filter_map(|fd| Some(sys::fstat(fd).ok()?.st_ino)).collect()
    }

    /// Closes open files that have been unlinked.
    pub fn close_unlinked_files(&mut self) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(is_unlinked) {
                *slot = None;
            }
        }
    }
}

/// On a local filesystem its link count is zero; on a mount it has a hidden name.
fn is_unlinked(fd: &OwnedFd) -> bool {
    let stat = sys::fstat(fd);
    let path = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd)));
    let deleted = path.is_ok_and(|path| {
        path.to_string_lossy().contains(" (deleted)") || path.to_string_lossy().contains("/.nfs")
    });
    deleted || stat.is_ok_and(|stat| stat.st_nlink == 0)
}

fn names(fd: OwnedFd) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in sys::Dir::new(fd)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with(".nfs") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The first difference between two trees, and whether more than a link count differs: a file unlinked on a
/// mount keeps a link until its last close. Link counts that are `None` in the first tree are ignored.
pub fn difference(one: &Tree, other: &Tree) -> Option<(String, bool)> {
    let names: std::collections::BTreeSet<&PathBuf> = one.keys().chain(other.keys()).collect();
    let same = |a: &Entry, b: &Entry| a.stat == b.stat && a.contents == b.contents;
    let differ = |path: &&&PathBuf| match (one.get(**path), other.get(**path)) {
        (Some(a), Some(b)) => !same(a, b) || a.links.is_some() && a.links != b.links,
        _ => true,
    };
    let path = *names.iter().find(differ)?;
    let words = |tree: &Tree| match tree.get(path) {
        None => "missing".to_owned(),
        Some(entry) => format!("{:?}, {:?} links, {} bytes", entry.stat, entry.links, entry.contents.len()),
    };
    let (at, more) = match (one.get(path), other.get(path)) {
        (Some(a), Some(b)) => (a.contents.iter().zip(&b.contents).position(|(a, b)| a != b), !same(a, b)),
        _ => (None, true),
    };
    let all = format!("{}: {} and {}, contents differ at {at:?}", path.display(), words(one), words(other));
    Some((all, more))
}

/// A file of a tree.
pub struct Entry {
    stat: Outcome,
    links: Option<u64>,
    contents: Vec<u8>,
}

/// The files below a directory.
pub type Tree = BTreeMap<PathBuf, Entry>;

/// All files below a directory, with types, modes, contents, and link counts except of the `open` inodes.
pub fn tree(root: &Path, open: &[u64]) -> Tree {
    let mut found = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        let fd = sys::open(root.join(&dir), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        for name in names(fd.expect("a directory")).expect("its names") {
            if name == "." || name == ".." {
                continue;
            }
            let path = dir.join(name);
            let whole = root.join(&path);
            let stat = sys::lstat(&whole).expect("a file that is there");
            let kind = FileType::from_raw_mode(stat.st_mode);
            let contents = match kind {
                FileType::RegularFile if stat.st_size <= 1 << 26 => {
                    std::fs::read(&whole).expect("root is permitted")
                }
                FileType::Symlink => sys::readlink(&whole, Vec::new()).expect("a link").into_bytes(),
                _ => Vec::new(),
            };
            if kind == FileType::Directory {
                todo.push(path.clone());
            }
            let links = (!open.contains(&stat.st_ino)).then_some(stat.st_nlink);
            found.insert(path, Entry { stat: stat_of(&stat), links, contents });
        }
    }
    found
}
