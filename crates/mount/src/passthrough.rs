//! How one open of a file is to be answered, given the ones that live: a pure state machine an inode, after
//! the kernel's rules (fs/fuse/iomode.c, Linux 6.9).
//!
//! 1. An inode is in one mode at a time: cached, or passed through to one backing file. A second backing
//!    file, or a cached open while a passed one lives, is `EIO` for the application; so is an open of a
//!    passed inode that doesn't name its backing file.
//! 2. Direct I/O goes beside either mode. Beside passthrough it must name the backing file, too: reads and
//!    writes then come to us, and only mmap(2) goes to the backing file.
//! 3. The kernel opens the backing file again for every such open, with the application's access mode and
//!    this process's credentials. Whoever answers must therefore have had a grant of that very access from
//!    the server; and a backing file from a read-only mount can't be opened for writing. A writer then gets
//!    another inode of the same file: the open is refused with `ESTALE`, which makes the kernel look the name
//!    up again.
//! 4. The mode ends with the last open that is in it.

/// How an open would like to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Passed through: the server has granted this access.
    Pass,
    /// Served by this process, through the kernel's cache.
    Cached,
    /// Served by this process, without it.
    Direct,
}

/// The backing file of an inode.
#[derive(Debug)]
pub(crate) struct Backing<B> {
    pub(crate) file: B,
    /// It can't be opened for writing.
    pub(crate) read_only: bool,
}

/// How it is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan<B> {
    /// Passed through to a backing file that is to be registered first; if that fails, cached.
    Register,
    /// Passed through to this one.
    Share(B),
    /// This one is named, but this process reads and writes.
    Beside(B),
    /// Through the kernel's cache.
    Cached,
    /// Without it.
    Direct,
    /// Not at all: the name must be looked up again, and then be another inode.
    Elsewhere,
}

/// An inode's mode.
#[derive(Debug, Default)]
pub(crate) enum Mode<B> {
    /// Nobody has it open, or only for direct I/O.
    #[default]
    Free,
    /// So many opens through the kernel's cache.
    Cached(u32),
    /// So many opens that name a backing file.
    Passed(Backing<B>, u32),
}

/// What an open counts as until it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// [`Mode::Cached`].
    Cached,
    /// [`Mode::Passed`].
    Passed,
    /// Nothing.
    None,
}

impl<B: Clone> Mode<B> {
    /// What to answer to an open.
    pub(crate) fn plan(&self, wish: Wish, write: bool) -> Plan<B> {
        match (self, wish) {
            (Self::Passed(backing, _), _) if backing.read_only && write => Plan::Elsewhere,
            (Self::Passed(backing, _), Wish::Pass) => Plan::Share(backing.file.clone()),
            (Self::Passed(backing, _), _) => Plan::Beside(backing.file.clone()),
            (_, Wish::Direct) => Plan::Direct,
            (Self::Free, Wish::Pass) => Plan::Register,
            (Self::Free, Wish::Cached) | (Self::Cached(_), _) => Plan::Cached,
        }
    }

    /// Whether opens live that go through the kernel's cache.
    pub(crate) const fn is_cached(&self) -> bool {
        matches!(self, Self::Cached(_))
    }

    /// The backing file, if opens live that name one.
    pub(crate) const fn backing(&self) -> Option<&B> {
        match self {
            Self::Passed(backing, _) => Some(&backing.file),
            Self::Free | Self::Cached(_) => None,
        }
    }

    /// An open is being answered as passed through to a new backing file. The mode must be free.
    pub(crate) fn pass(&mut self, backing: Backing<B>) -> Hold {
        *self = Self::Passed(backing, 1);
        Hold::Passed
    }

    /// An open is being answered by [`Plan::Share`] or [`Plan::Beside`].
    pub(crate) fn share(&mut self) -> Hold {
        match self {
            Self::Passed(_, opens) => {
                *opens += 1;
                Hold::Passed
            }
            _ => Hold::None,
        }
    }

    /// An open is being answered as cached.
    pub(crate) fn cache(&mut self) -> Hold {
        match self {
            Self::Free => *self = Self::Cached(1),
            Self::Cached(opens) => *opens += 1,
            Self::Passed(..) => return Hold::None,
        }
        Hold::Cached
    }

    /// An open is released. Returns the backing file if it was the last that named it.
    pub(crate) fn release(&mut self, hold: Hold) -> Option<B> {
        let last = match (hold, &mut *self) {
            (Hold::Cached, Self::Cached(opens)) | (Hold::Passed, Self::Passed(_, opens)) => {
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

    /// The kernel's side of it: what fs/fuse/iomode.c would say.
    #[derive(Debug, Default)]
    struct Kernel {
        backing: Option<u32>,
        passed: u32,
        cached: u32,
    }

    impl Kernel {
        fn open(&mut self, names: Option<u32>, direct: bool) -> Result<(), &'static str> {
            match (self.backing, names) {
                (Some(_), None) => return Err("the inode is passed through, and the open isn't"),
                (Some(one), Some(other)) if one != other => return Err("another backing file"),
                (_, Some(_)) if self.cached > 0 => return Err("cached opens live"),
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
        Open { wish: Wish, write: bool, read_only: bool, fails: bool },
        Close(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let wish = prop_oneof![Just(Wish::Pass), Just(Wish::Cached), Just(Wish::Direct)];
        let open = (wish, any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(wish, write, read_only, fails)| Step::Open { wish, write, read_only, fails });
        proptest::collection::vec(prop_oneof![open, any::<usize>().prop_map(Step::Close)], 1..60)
    }

    proptest! {
        #[test]
        fn no_open_is_answered_in_a_way_that_the_kernel_refuses(steps in steps()) {
            let (mut mode, mut kernel) = (Mode::<(u32, bool)>::default(), Kernel::default());
            let mut opens: Vec<(Hold, bool, bool)> = Vec::new();
            let mut next = 0;
            for step in steps {
                match step {
                    Step::Open { wish, write, read_only, fails } => {
                        // A read-only backing file is granted for reading alone.
                        let read_only = read_only && !write;
                        let (hold, names, direct) = match mode.plan(wish, write) {
                            Plan::Register if fails => (mode.cache(), None, false),
                            Plan::Register => {
                                next += 1;
                                let backing = Backing { file: (next, read_only), read_only };
                                (mode.pass(backing), Some((next, read_only)), false)
                            }
                            Plan::Share(file) => (mode.share(), Some(file), false),
                            Plan::Beside(file) => (mode.share(), Some(file), true),
                            Plan::Cached => (mode.cache(), None, false),
                            Plan::Direct => (Hold::None, None, true),
                            Plan::Elsewhere => continue,
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
    fn a_writer_beside_a_read_only_backing_file_goes_elsewhere() {
        let mut mode = Mode::default();
        assert_eq!(mode.plan(Wish::Pass, false), Plan::Register);
        let hold = mode.pass(Backing { file: 7, read_only: true });
        assert_eq!(mode.plan(Wish::Pass, false), Plan::Share(7));
        assert_eq!(mode.plan(Wish::Pass, true), Plan::Elsewhere);
        assert_eq!(mode.plan(Wish::Cached, true), Plan::Elsewhere);
        assert_eq!(mode.release(hold), Some(7));
        assert_eq!(mode.plan(Wish::Pass, true), Plan::Register);
    }

    #[test]
    fn a_cached_file_stays_cached_until_its_last_release() {
        let mut mode = Mode::<u32>::default();
        let holds = [mode.cache(), mode.cache()];
        assert_eq!(mode.plan(Wish::Pass, false), Plan::Cached);
        assert_eq!(mode.plan(Wish::Direct, false), Plan::Direct);
        assert_eq!(holds.map(|hold| mode.release(hold)), [None, None]);
        assert_eq!(mode.plan(Wish::Pass, false), Plan::Register);
    }
}
