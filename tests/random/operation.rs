//! File operations, and their random choice.

use std::path::PathBuf;

use rustix::fs::OFlags;

/// Number of files open at the same time.
pub const SLOTS: usize = 6;

/// Pseudo-random numbers (xorshift64*).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Any seed is valid.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn slot(&mut self) -> usize {
        self.below(SLOTS as u64) as usize
    }

    /// There are few names, so that operations meet the same ones; any of them may be a file, a directory, a
    /// link, or missing, but some are directories more often.
    fn path(&mut self) -> PathBuf {
        let depth = [0, 0, 0, 0, 0, 1, 1, 1, 2, 3][self.below(10) as usize];
        let above = (0..depth).map(|_| ["D", "E"][self.below(2) as usize]).collect::<PathBuf>();
        above.join(["a", "b", "c", "d", "D", "E"][self.below(6) as usize])
    }

    fn directory(&mut self) -> PathBuf {
        let path = self.path();
        if self.one_in(4) { path } else { path.with_file_name(["D", "E"][self.below(2) as usize]) }
    }

    /// Mostly small, sometimes beyond a page, a READ, or the end of the file.
    fn offset(&mut self) -> u64 {
        match self.below(10) {
            0..6 => self.below(10_000),
            6..9 => self.below(300_000),
            _ => self.below(40) * 131_072 + self.below(3),
        }
    }

    fn len(&mut self) -> usize {
        match self.below(12) {
            0..8 => self.below(5_000) as usize,
            8..11 => self.below(70_000) as usize,
            _ => self.below(1_200_000) as usize,
        }
    }
}

/// One operation.
#[derive(Debug, Clone)]
pub enum Operation {
    Open {
        slot: usize,
        path: PathBuf,
        flags: OFlags,
        mode: u32,
    },
    Close {
        slot: usize,
    },
    Write {
        slot: usize,
        offset: u64,
        len: usize,
        seed: u64,
    },
    /// write(2): at the file offset, or at the end with O_APPEND.
    WriteAtCursor {
        slot: usize,
        len: usize,
        seed: u64,
    },
    Read {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Truncate {
        slot: usize,
        len: u64,
    },
    TruncatePath {
        path: PathBuf,
        len: u64,
    },
    Sync {
        slot: usize,
    },
    Lstat {
        path: PathBuf,
    },
    Fstat {
        slot: usize,
    },
    List {
        path: PathBuf,
    },
    ReadFile {
        path: PathBuf,
    },
    MakeDirectory {
        path: PathBuf,
        mode: u32,
    },
    RemoveDirectory {
        path: PathBuf,
    },
    Unlink {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Symlink {
        target: PathBuf,
        path: PathBuf,
    },
    ReadLink {
        path: PathBuf,
    },
    Chmod {
        path: PathBuf,
        mode: u32,
    },
    Fchmod {
        slot: usize,
        mode: u32,
    },
    Times {
        path: PathBuf,
        seconds: u32,
    },
    Copy {
        from: usize,
        to: usize,
        offset: u64,
        len: usize,
    },
}

impl Operation {
    /// A random operation.
    pub fn any(random: &mut Random) -> Self {
        let slot = random.slot();
        let seed = random.below(1 << 30);
        match random.below(100) {
            0..14 => Self::Open { slot, path: random.path(), flags: flags(random), mode: mode(random) },
            14..18 => Self::Close { slot },
            18..34 => Self::Write { slot, offset: random.offset(), len: random.len(), seed },
            34..38 => Self::WriteAtCursor { slot, len: random.len(), seed },
            38..52 => Self::Read { slot, offset: random.offset(), len: random.len() },
            52..55 => Self::Truncate { slot, len: random.offset() },
            55..57 => Self::TruncatePath { path: random.path(), len: random.offset() },
            57..59 => Self::Sync { slot },
            59..64 => Self::Lstat { path: random.path() },
            64..66 => Self::Fstat { slot },
            66..69 => Self::List { path: random.directory() },
            69..73 => Self::ReadFile { path: random.path() },
            73..77 => Self::MakeDirectory { path: random.directory(), mode: mode(random) | 0o700 },
            77..79 => Self::RemoveDirectory { path: random.directory() },
            79..84 => Self::Unlink { path: random.path() },
            84..89 => Self::Rename { from: random.path(), to: random.path() },
            89..92 => Self::Link { from: random.path(), to: random.path() },
            92..94 => Self::Symlink { target: random.path(), path: random.path() },
            94..95 => Self::ReadLink { path: random.path() },
            95..97 => Self::Chmod { path: random.path(), mode: mode(random) },
            97..98 => Self::Fchmod { slot, mode: mode(random) },
            98..99 => Self::Times { path: random.path(), seconds: seed as u32 },
            _ => Self::Copy { from: slot, to: random.slot(), offset: random.offset(), len: random.len() },
        }
    }
}

fn mode(random: &mut Random) -> u32 {
    random.below(0o1000) as u32
}

fn flags(random: &mut Random) -> OFlags {
    let mut flags = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR][random.below(4) as usize];
    if random.below(5) > 0 {
        flags |= OFlags::CREATE;
        flags.set(OFlags::EXCL, random.one_in(8));
    }
    flags.set(OFlags::TRUNC, random.one_in(5));
    flags.set(OFlags::APPEND, random.one_in(6));
    flags.set(OFlags::DSYNC, random.one_in(10));
    flags.set(OFlags::NOFOLLOW, random.one_in(10));
    flags
}
