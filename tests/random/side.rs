//! A directory in which operations are done, and what can be told of it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::{Errno, Result};

use super::operation::{Operation, SLOTS};

/// What an operation told, as far as both sides must agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Nothing,
    Count(usize),
    Bytes(Vec<u8>),
    Stat { kind: FileType, mode: u32, size: Option<i64>, mtime: Option<i64> },
    Names(Vec<String>),
}

/// One directory with its open files.
pub struct Side {
    root: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
}

/// Whether both sides said the same.
pub fn alike(expected: &Result<Told>, got: &Result<Told>) -> bool {
    expected == got
}

/// In a few words.
pub fn told(result: &Result<Told>) -> String {
    match result {
        Ok(Told::Bytes(bytes)) => {
            let sum = bytes.iter().fold(0_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
            let at = bytes.iter().position(|byte| *byte != 0);
            format!("{} bytes, sum {sum:08x}, the first that is not 0 at {at:?}", bytes.len())
        }
        other => format!("{other:?}"),
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    samehost_tests::scratch::pattern(seed, len)
}

fn stat_of(stat: &Stat) -> Told {
    let kind = FileType::from_raw_mode(stat.st_mode);
    Told::Stat {
        kind,
        mode: stat.st_mode & 0o7777,
        size: (kind != FileType::Directory).then_some(stat.st_size),
        // A time that was set, and none of now.
        mtime: Some(stat.st_mtime).filter(|time| *time < 1_200_000_000),
    }
}

impl Side {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), slots: Default::default() }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    fn slot(&self, slot: usize) -> Result<&OwnedFd> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    /// Does it.
    pub fn run(&mut self, operation: &Operation) -> Result<Told> {
        let nothing = |result: Result<()>| result.map(|()| Told::Nothing);
        match operation {
            Operation::Open { slot, path, flags, mode } => {
                let flags = *flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
                self.slots[*slot] = Some(sys::open(self.at(path), flags, Mode::from_raw_mode(*mode))?);
                Ok(Told::Nothing)
            }
            Operation::Close { slot } => {
                self.slots[*slot] = None;
                Ok(Told::Nothing)
            }
            Operation::Write { slot, offset, len, seed } => {
                rustix::io::pwrite(self.slot(*slot)?, &bytes(*seed, *len), *offset).map(Told::Count)
            }
            Operation::Put { slot, len, seed } => {
                rustix::io::write(self.slot(*slot)?, &bytes(*seed, *len)).map(Told::Count)
            }
            Operation::Read { slot, offset, len } => {
                let mut buffer = vec![0; *len];
                let count = rustix::io::pread(self.slot(*slot)?, &mut buffer[..], *offset)?;
                buffer.truncate(count);
                Ok(Told::Bytes(buffer))
            }
            Operation::Cut { slot, len } => nothing(sys::ftruncate(self.slot(*slot)?, *len)),
            Operation::CutPath { path, len } => {
                let fd = sys::open(self.at(path), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
                nothing(sys::ftruncate(&fd, *len))
            }
            Operation::Sync { slot } => nothing(sys::fsync(self.slot(*slot)?)),
            Operation::Look { path } => sys::lstat(self.at(path)).map(|stat| stat_of(&stat)),
            Operation::LookInside { slot } => sys::fstat(self.slot(*slot)?).map(|stat| stat_of(&stat)),
            Operation::List { path } => {
                let fd = sys::open(self.at(path), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
                names(fd).map(Told::Names)
            }
            Operation::Contents { path } => {
                let path = self.at(path);
                if sys::stat(&path)?.st_size > 1 << 26 {
                    return Ok(Told::Nothing);
                }
                let read = std::fs::read(path);
                read.map(Told::Bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
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
                sys::readlink(self.at(path), Vec::new()).map(|target| Told::Bytes(target.into_bytes()))
            }
            Operation::Mode { path, mode } => nothing(sys::chmod(self.at(path), Mode::from_raw_mode(*mode))),
            Operation::ModeInside { slot, mode } => {
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

    /// copy_file_range(2), and where there is none what a program does instead.
    fn copy(&self, from: usize, to: usize, offset: u64, len: usize) -> Result<Told> {
        let (source, target) = (self.slot(from)?, self.slot(to)?);
        let (mut at, mut written) = (0, offset);
        match sys::copy_file_range(source, Some(&mut at), target, Some(&mut written), len) {
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::NOSYS) => {
                let mut buffer = vec![0; len];
                let count = rustix::io::pread(source, &mut buffer[..], 0)?;
                rustix::io::pwrite(target, &buffer[..count], offset).map(Told::Count)
            }
            other => other.map(Told::Count),
        }
    }

    /// Whether a file is open that has no name any more.
    pub fn holds_nameless(&self) -> bool {
        self.slots.iter().flatten().any(is_nameless)
    }

    /// The inodes of what is open.
    pub fn open_files(&self) -> Vec<u64> {
        self.slots.iter().flatten().filter_map(|fd| Some(sys::fstat(fd).ok()?.st_ino)).collect()
    }

    /// Closes such files.
    pub fn close_nameless(&mut self) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(is_nameless) {
                *slot = None;
            }
        }
    }
}

/// On a local filesystem there is no link any more; on a mount it has another name.
fn is_nameless(fd: &OwnedFd) -> bool {
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

/// In what two trees differ, in few words, and whether in more than the number of a file's links: an NFS
/// client's files keep one until the last close is done. Links that aren't known on the first side don't
/// count.
pub fn difference(one: &Tree, other: &Tree) -> Option<(String, bool)> {
    let names: std::collections::BTreeSet<&PathBuf> = one.keys().chain(other.keys()).collect();
    let same = |a: &Entry, b: &Entry| a.told == b.told && a.contents == b.contents;
    let differ = |path: &&&PathBuf| match (one.get(**path), other.get(**path)) {
        (Some(a), Some(b)) => !same(a, b) || a.links.is_some() && a.links != b.links,
        _ => true,
    };
    let path = *names.iter().find(differ)?;
    let words = |tree: &Tree| match tree.get(path) {
        None => "missing".to_owned(),
        Some(entry) => format!("{:?}, {:?} links, {} bytes", entry.told, entry.links, entry.contents.len()),
    };
    let (at, more) = match (one.get(path), other.get(path)) {
        (Some(a), Some(b)) => (a.contents.iter().zip(&b.contents).position(|(a, b)| a != b), !same(a, b)),
        _ => (None, true),
    };
    let all = format!("{}: {} and {}, contents differ at {at:?}", path.display(), words(one), words(other));
    Some((all, more))
}

/// A file in a tree.
pub struct Entry {
    told: Told,
    links: Option<u64>,
    contents: Vec<u8>,
}

/// What is in a directory.
pub type Tree = BTreeMap<PathBuf, Entry>;

/// Everything in a directory: names, kinds, modes, contents, and links but for the `open` files (by inode).
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
                    std::fs::read(&whole).expect("root may read")
                }
                FileType::Symlink => sys::readlink(&whole, Vec::new()).expect("a link").into_bytes(),
                _ => Vec::new(),
            };
            if kind == FileType::Directory {
                todo.push(path.clone());
            }
            let links = (!open.contains(&stat.st_ino)).then_some(stat.st_nlink);
            found.insert(path, Entry { told: stat_of(&stat), links, contents });
        }
    }
    found
}
