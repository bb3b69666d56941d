//! The kernel's I/O mode of one inode: a state machine that plans the reply to each open so that the kernel
//! accepts it (fs/fuse/iomode.c, Linux 6.9).
//!
//! 1. An inode is in one mode at a time: cached, or passed through to one backing file. The kernel fails an
//!    open with `EIO` if it names a second backing file, if it is cached while a passed-through open exists,
//!    or if it doesn't name the backing file of a passed-through inode.
//! 2. Direct I/O is possible in either mode. On a passed-through inode it must name the backing file, too:
//!    reads and writes then come to this process, and only mmap(2) uses the backing file.
//! 3. The kernel reopens the backing file for every such open, with the application's access mode and this
//!    process's credentials. So the server must have granted that very access, and a backing file on a
//!    read-only mount can't be opened for writing. A writer then gets another inode of the same file: the
//!    open fails with `ESTALE`, which makes the kernel look the name up again.
//! 4. The mode ends with its last open.

/// The preferred reply to an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoWish {
    /// Passed through. The server has granted this access.
    Pass,
    /// Served by this process, through the kernel's page cache.
    Cached,
    /// Served by this process, past the page cache.
    Direct,
}

/// The backing file of an inode.
#[derive(Debug)]
pub(crate) struct BackingFile<B> {
    pub(crate) file: B,
    /// It can't be opened for writing.
    pub(crate) read_only: bool,
}

/// How to reply to an open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IoPlan<B> {
    /// Passed through to a backing file, which the caller registers first; cached if that fails.
    Register,
    /// Passed through to this backing file.
    Share(B),
    /// Direct I/O served by this process; the reply names this backing file.
    DirectWith(B),
    /// Through the kernel's page cache.
    Cached,
    /// Direct I/O served by this process.
    Direct,
    /// Refused: the kernel has to look the name up again and get another inode.
    Replace,
}

/// An inode's I/O mode.
#[derive(Debug, Default)]
pub(crate) enum IoMode<B> {
    /// No opens, or only direct ones.
    #[default]
    Free,
    /// The number of opens through the kernel's page cache.
    Cached(u32),
    /// The backing file, and the number of opens that name it.
    Passed(BackingFile<B>, u32),
}

/// An open's part in the I/O mode until it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoHold {
    /// Counted in [`IoMode::Cached`].
    Cached,
    /// Counted in [`IoMode::Passed`].
    Passed,
    /// Not counted.
    None,
}

impl<B: Clone> IoMode<B> {
    /// Plans the reply to an open.
    pub(crate) fn plan(&self, wish: IoWish, write: bool) -> IoPlan<B> {
        match (self, wish) {
            (Self::Passed(backing, _), _) if backing.read_only && write => IoPlan::Replace,
            (Self::Passed(backing, _), IoWish::Pass) => IoPlan::Share(backing.file.clone()),
            (Self::Passed(backing, _), _) => IoPlan::DirectWith(backing.file.clone()),
            (_, IoWish::Direct) => IoPlan::Direct,
            (Self::Free, IoWish::Pass) => IoPlan::Register,
            (Self::Free, IoWish::Cached) | (Self::Cached(_), _) => IoPlan::Cached,
        }
    }

    /// Whether there are opens through the kernel's page cache.
    pub(crate) const fn is_cached(&self) -> bool {
        matches!(self, Self::Cached(_))
    }

    /// The backing file of a passed-through inode.
    pub(crate) const fn backing(&self) -> Option<&B> {
        match self {
            Self::Passed(backing, _) => Some(&backing.file),
            Self::Free | Self::Cached(_) => None,
        }
    }

    /// Counts an open that is passed through to a new backing file. The mode must be free.
    pub(crate) fn pass(&mut self, backing: BackingFile<B>) -> IoHold {
        *self = Self::Passed(backing, 1);
        IoHold::Passed
    }

    /// Counts an open that was planned as [`IoPlan::Share`] or [`IoPlan::DirectWith`].
    pub(crate) fn share(&mut self) -> IoHold {
        match self {
            Self::Passed(_, opens) => {
                *opens += 1;
                IoHold::Passed
            }
            _ => IoHold::None,
        }
    }

    /// Counts a cached open.
    pub(crate) fn cache(&mut self) -> IoHold {
        match self {
            Self::Free => *self = Self::Cached(1),
            Self::Cached(opens) => *opens += 1,
            Self::Passed(..) => return IoHold::None,
        }
        IoHold::Cached
    }

    /// Ends an open. Returns the backing file if this was the last open that named it.
    pub(crate) fn release(&mut self, hold: IoHold) -> Option<B> {
        let last = match (hold, &mut *self) {
            (IoHold::Cached, Self::Cached(opens)) | (IoHold::Passed, Self::Passed(_, opens)) => {
                *opens -= 1;
                *opens == 0
            }
            _ => false,
        };
        if !last {
            return None;
        }
        match std::mem::take(self) {
            Self::Passed(backing, _) => Some(backing.file),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The checks of fs/fuse/iomode.c.
    #[derive(Debug, Default)]
    struct Kernel {
        backing: Option<u32>,
        passed: u32,
        cached: u32,
    }

    impl Kernel {
        fn open(&mut self, names: Option<u32>, direct: bool) -> Result<(), &'static str> {
            match (self.backing, names) {
                (Some(_), None) => {
                    return Err("the inode is passed through, and the open names no backing file");
                }
                (Some(one), Some(other)) if one != other => return Err("another backing file"),
                (_, Some(_)) if self.cached > 0 => return Err("the inode is cached"),
                _ => {}
            }
            match names {
                Some(backing) => {
                    self.backing = Some(backing);
                    self.passed += 1;
                }
                None if !direct => self.cached += 1,
                None => {}
            }
            Ok(())
        }

        fn close(&mut self, named: bool, direct: bool) {
            if named {
                self.passed -= 1;
                if self.passed == 0 {
                    self.backing = None;
                }
            } else if !direct {
                self.cached -= 1;
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Open { wish: IoWish, write: bool, read_only: bool, fails: bool },
        Close(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let wish = prop_oneof![Just(IoWish::Pass), Just(IoWish::Cached), Just(IoWish::Direct)];
        let open = (wish, any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(wish, write, read_only, fails)| Step::Open { wish, write, read_only, fails });
        proptest::collection::vec(prop_oneof![open, any::<usize>().prop_map(Step::Close)], 1..60)
    }

    proptest! {
        #[test]
        fn the_kernel_accepts_every_planned_open(steps in steps()) {
            let (mut mode, mut kernel) = (IoMode::<(u32, bool)>::default(), Kernel::default());
            let mut opens: Vec<(IoHold, bool, bool)> = Vec::new();
            let mut next = 0;
            for step in steps {
                match step {
                    Step::Open { wish, write, read_only, fails } => {
                        // A read-only backing file is granted for reading alone.
                        let read_only = read_only && !write;
                        let (hold, names, direct) = match mode.plan(wish, write) {
                            IoPlan::Register if fails => (mode.cache(), None, false),
                            IoPlan::Register => {
                                next += 1;
                                let backing = BackingFile { file: (next, read_only), read_only };
                                (mode.pass(backing), Some((next, read_only)), false)
                            }
                            IoPlan::Share(file) => (mode.share(), Some(file), false),
                            IoPlan::DirectWith(file) => (mode.share(), Some(file), true),
                            IoPlan::Cached => (mode.cache(), None, false),
                            IoPlan::Direct => (IoHold::None, None, true),
                            IoPlan::Replace => continue,
                        };
                        prop_assert!(!names.is_some_and(|(_, read_only)| read_only && write));
                        let opened = kernel.open(names.map(|(number, _)| number), direct);
                        prop_assert_eq!(opened, Ok(()));
                        opens.push((hold, names.is_some(), direct));
                    }
                    Step::Close(which) if !opens.is_empty() => {
                        let (hold, named, direct) = opens.swap_remove(which % opens.len());
                        // The kernel takes an open out of its mode before it sends RELEASE.
                        kernel.close(named, direct);
                        let ended = mode.release(hold);
                        prop_assert_eq!(ended.is_some(), named && kernel.passed == 0);
                    }
                    Step::Close(_) => {}
                }
            }
        }
    }

    #[test]
    fn a_writer_of_a_read_only_backing_file_gets_another_inode() {
        let mut mode = IoMode::default();
        assert_eq!(mode.plan(IoWish::Pass, false), IoPlan::Register);
        let hold = mode.pass(BackingFile { file: 7, read_only: true });
        assert_eq!(mode.plan(IoWish::Pass, false), IoPlan::Share(7));
        assert_eq!(mode.plan(IoWish::Pass, true), IoPlan::Replace);
        assert_eq!(mode.plan(IoWish::Cached, true), IoPlan::Replace);
        assert_eq!(mode.release(hold), Some(7));
        assert_eq!(mode.plan(IoWish::Pass, true), IoPlan::Register);
    }

    #[test]
    fn a_cached_file_stays_cached_until_its_last_release() {
        let mut mode = IoMode::<u32>::default();
        let holds = [mode.cache(), mode.cache()];
        assert_eq!(mode.plan(IoWish::Pass, false), IoPlan::Cached);
        assert_eq!(mode.plan(IoWish::Direct, false), IoPlan::Direct);
        assert_eq!(holds.map(|hold| mode.release(hold)), [None, None]);
        assert_eq!(mode.plan(IoWish::Pass, false), IoPlan::Register);
    }
}
