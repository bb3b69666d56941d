//! A disk that fails on demand: its image lies on a tmpfs whose size can be reduced.
//!
//! All blocks of the image are allocated, so writes work as on any disk. To make a file fail, its blocks are
//! punched out of the image and the tmpfs is shrunk to exactly the remaining size: write-back to that file
//! gets `ENOSPC` from the device, as on a thin volume that is full, while journal, metadata and all other
//! files keep working. Enlarging the tmpfs repairs the disk.
//!
//! Not one page of room may be left: the loop driver of Linux 6.18 reports a request of which a part could be
//! written as done.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::Scratch;
use crate::process::{run, run_ok};

/// The unit of extents, in bytes.
const BLOCK: u64 = 512;

/// A mounted filesystem that can be made to fail. Unmounted when dropped.
#[derive(Debug)]
pub struct FailingDisk {
    device: PathBuf,
    mountpoint: PathBuf,
    size: u64,
    scratch: Scratch,
}

impl FailingDisk {
    /// Makes a filesystem of `kind` ("ext4", "xfs") and mounts it with `options` (mount(8), or empty).
    ///
    /// # Panics
    /// When it can't be created or mounted.
    pub fn new(kind: &str, options: &str) -> Self {
        let scratch = Scratch::new();
        let (megabytes, arguments): (u64, &[&str]) = match kind {
            "ext4" => (64, &["-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]),
            "xfs" => (320, &["-K"]),
            other => panic!("no recipe for {other}"),
        };
        let (device, mountpoint) = (scratch.mkdir("device"), scratch.mkdir("mounted"));
        let size = megabytes << 20;
        let disk = Self { device, mountpoint, size, scratch };
        run_ok(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o"])
                .arg(disk.room(2 * size))
                .arg("none")
                .arg(&disk.device),
        );
        File::create(disk.image()).and_then(|image| image.set_len(size)).expect("own directory");
        run_ok(Command::new(format!("mkfs.{kind}")).arg("-q").args(arguments).arg(disk.image()));
        let options = if options.is_empty() { "loop".to_owned() } else { format!("loop,{options}") };
        run_ok(Command::new("mount").args(["-o", &options]).arg(disk.image()).arg(&disk.mountpoint));
        disk
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// The device's image in its present state: what a crash of the machine would leave if the device had no
    /// cache of its own.
    pub fn image(&self) -> PathBuf {
        self.device.join("image")
    }

    fn room(&self, bytes: u64) -> String {
        format!("size={bytes}")
    }

    fn resize(&self, bytes: u64) {
        let options = format!("remount,{}", self.room(bytes));
        run_ok(Command::new("mount").args(["-o", &options]).arg(&self.device));
    }

    /// Makes write-back to `file` fail from now on. All of its blocks must have been written before.
    ///
    /// # Panics
    /// When its blocks can't be found, or the device isn't full afterwards.
    pub fn fail(&self, file: &Path) {
        let opened = File::open(file).expect("it is there");
        // The first call may report an earlier failure.
        let _ = rustix::fs::syncfs(&opened);
        rustix::fs::syncfs(&opened).expect("the disk works");
        let image = File::options().write(true).open(self.image()).expect("own file");
        fallocate(&image, FallocateFlags::empty(), 0, self.size).expect("there is room");
        for (_, at, length) in self.extents(file) {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&image, hole, at, length).expect("tmpfs supports it");
        }
        let now = statvfs(&self.device).expect("it is mounted");
        self.resize((now.f_blocks - now.f_bfree) * now.f_frsize);
        let now = statvfs(&self.device).expect("it is mounted");
        assert_eq!(now.f_bfree, 0, "the device would report success for what it can't store");
    }

    /// Repairs the disk.
    pub fn heal(&self) {
        self.resize(2 * self.size);
    }

    /// The contents of `file` on the device, bypassing the page cache.
    ///
    /// # Panics
    /// When its blocks can't be found.
    pub fn contents(&self, file: &Path) -> Vec<u8> {
        let image = File::open(self.image()).expect("own file");
        let mut contents = vec![0; fs::metadata(file).expect("it is there").len() as usize];
        for (from, at, length) in self.extents(file) {
            let end = (from + length).min(contents.len() as u64) as usize;
            image.read_exact_at(&mut contents[from as usize..end], at).expect("it is that large");
        }
        contents
    }

    /// A file's extents: offset in the file, offset in the image, length.
    fn extents(&self, file: &Path) -> Vec<(u64, u64, u64)> {
        let text = run_ok(Command::new("filefrag").args(["-e", &format!("-b{BLOCK}")]).arg(file));
        let number = |field: &str| field.trim().split("..").next().and_then(|n| n.trim().parse::<u64>().ok());
        let extents: Vec<_> = text
            .lines()
            .filter_map(|line| {
                let fields: Vec<&str> = line.split(':').collect();
                number(fields.first()?)?;
                let [from, at, length] = [1, 2, 3].map(|i| fields.get(i).and_then(|field| number(field)));
                Some((from? * BLOCK, at? * BLOCK, length? * BLOCK))
            })
            .collect();
        assert!(!extents.is_empty(), "no blocks in:\n{text}");
        extents
    }

    /// Mounts a copy of the device's present state, as a machine finds it after a crash.
    ///
    /// # Panics
    /// When it can't be mounted.
    pub fn after_a_crash(&self) -> CrashedDisk {
        let image = self.device.join("crashed");
        fs::copy(self.image(), &image).expect("there is room");
        CrashedDisk::mount(&image, &self.scratch)
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.mountpoint));
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.device));
    }
}

/// A copy of a disk, mounted. Unmounted when dropped.
#[derive(Debug)]
pub struct CrashedDisk {
    mountpoint: PathBuf,
}

impl CrashedDisk {
    fn mount(image: &Path, scratch: &Scratch) -> Self {
        let mountpoint = scratch.mkdir("after");
        // XFS refuses to mount a second filesystem with the same UUID.
        let xfs =
            run(Command::new("blkid").args(["-o", "value", "-s", "TYPE"]).arg(image)).stdout == b"xfs\n";
        let options = if xfs { "loop,nouuid" } else { "loop" };
        run_ok(Command::new("mount").args(["-o", options]).arg(image).arg(&mountpoint));
        Self { mountpoint }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }
}

impl Drop for CrashedDisk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.mountpoint));
    }
}
