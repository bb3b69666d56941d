//! Small real filesystems on loop devices.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Scratch;
use crate::process::{run, run_ok};

/// A mounted filesystem in a file. Unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    mountpoint: PathBuf,
    scratch: Scratch,
}

impl Disk {
    /// Makes a filesystem of `kind` ("ext4", "xfs", "btrfs") of `megabytes` MiB and mounts it.
    ///
    /// # Panics
    /// When it can't be created or mounted.
    pub fn new(kind: &str, megabytes: u64) -> Self {
        Self::in_directory(kind, megabytes, &std::env::temp_dir())
    }

    /// As [`Disk::new`], with the image in a directory of the caller's choice.
    ///
    /// # Panics
    /// When it can't be created or mounted.
    pub fn in_directory(kind: &str, megabytes: u64, parent: &Path) -> Self {
        let scratch = Scratch::under(parent);
        let mountpoint = scratch.mkdir("mounted");
        let disk = Self { mountpoint, scratch };
        make_image(kind, megabytes, &disk.image());
        disk.mount();
        disk
    }

    /// Mounts a copy of an image. What its last writer has left in the journal is recovered in the copy.
    ///
    /// # Panics
    /// When it can't be copied or mounted.
    pub fn copy_of(image: &Path) -> Self {
        let scratch = Scratch::new();
        let disk = Self { mountpoint: scratch.mkdir("mounted"), scratch };
        run_ok(Command::new("cp").arg("--sparse=always").arg(image).arg(disk.image()));
        disk.mount();
        disk
    }

    /// As [`Disk::new`], on preallocated memory (tmpfs), so that writers to the disk aren't charged for it.
    ///
    /// # Panics
    /// When it can't be created or mounted.
    pub fn in_memory(kind: &str, megabytes: u64) -> Self {
        let disk = Self::in_directory(kind, megabytes, Path::new("/dev/shm"));
        let image = File::options().write(true).open(disk.image()).expect("own file");
        let all = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&image, all, 0, megabytes << 20).expect("there is memory");
        disk
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Changes a byte of a file's block on the device, so that reading the block fails with `EIO`. The disk
    /// is a btrfs, which has checksums of the data. No other block may have the same contents, and no file
    /// may be open. Afterwards nothing is in the page cache.
    ///
    /// # Panics
    /// When the block isn't found, or can be read afterwards.
    pub fn damage(&self, file: &Path, offset: u64) {
        let read = || {
            let mut block = [0; BLOCK];
            File::open(file).and_then(|file| file.read_exact_at(&mut block, offset)).map(|()| block)
        };
        let contents = read().expect("it is that long");
        self.remount();
        let image = File::options().read(true).write(true).open(self.image()).expect("own file");
        let blocks = image.metadata().expect("own file").len() / BLOCK as u64;
        let mut found = [0; BLOCK];
        let at = (0..blocks).map(|number| number * BLOCK as u64).find(|at| {
            image.read_exact_at(&mut found, *at).expect("it is that long");
            found == contents
        });
        image.write_all_at(&[!contents[0]], at.expect("it is on the device")).expect("own file");
        let error = read().expect_err("its checksum is another");
        assert_ne!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        self.remount();
    }

    fn image(&self) -> PathBuf {
        self.scratch.join("image")
    }

    fn mount(&self) {
        run_ok(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(&self.mountpoint));
    }

    fn remount(&self) {
        run_ok(Command::new("umount").arg(&self.mountpoint));
        self.mount();
    }
}

/// Makes a filesystem of `kind`, of `megabytes` MiB, in a new file.
///
/// # Panics
/// When it can't be made.
pub fn make_image(kind: &str, megabytes: u64, image: &Path) {
    File::create(image).and_then(|file| file.set_len(megabytes << 20)).expect("own directory");
    run_ok(Command::new(format!("mkfs.{kind}")).arg("-q").arg(image));
}

/// The size of a block, in bytes.
pub const BLOCK: usize = 4096;

/// A frozen filesystem: changes block (fsfreeze(8)). Thaws when dropped, and also when this process is
/// killed, because a frozen disk would eventually block the whole machine.
#[derive(Debug)]
pub struct Frozen(Child);

impl Frozen {
    /// Freezes a disk.
    ///
    /// # Panics
    /// When it can't be frozen.
    pub fn new(disk: &Disk) -> Self {
        let script = "fsfreeze --freeze \"$0\" && echo frozen; read -r line; fsfreeze --unfreeze \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(disk.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = Self(command.spawn().expect("a shell"));
        let mut said = [0; 6];
        let said = guard.0.stdout.as_mut().expect("a pipe").read_exact(&mut said).map(|()| said);
        assert_eq!(said.expect("it reports that it has frozen"), *b"frozen");
        guard
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.mountpoint));
    }
}
