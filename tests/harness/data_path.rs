//! The data paths of a mount, from the table tests/data-paths.txt, and tests that run over each of them.

use std::path::Path;

use serde_json::Value;

use crate::{Mount, Serve, Server, UringSwitch, run_ok, wait_for};

const TABLE: &str = include_str!("../data-paths.txt");

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPath {
    /// Its name.
    pub name: &'static str,
    lane: &'static str,
    export_option: &'static str,
    mount_options: &'static str,
    /// Whether names and attributes come from a tree.
    pub has_tree: bool,
    /// The path of newly opened files as the status shows it.
    pub status: &'static str,
}

impl DataPath {
    /// All of them, as the table has them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.lines().filter(|line| !line.starts_with('#')).map(Self::parse)
    }

    fn parse(row: &'static str) -> Self {
        let (words, status) =
            row.split_once("  lane, ").map_or((row, "wire"), |(words, _)| (words, &row[words.len() + 2..]));
        let words: Vec<&str> = words.split_whitespace().collect();
        let &[name, lane, export_option, mount_options, tree, ..] = words.as_slice() else {
            panic!("a row of the table of data paths: {row}")
        };
        Self { name, lane, export_option, mount_options, has_tree: tree == "tree", status }
    }

    /// The one of that name.
    ///
    /// # Panics
    /// When the table has none.
    pub fn named(name: &str) -> Self {
        Self::all().find(|path| path.name == name).unwrap_or_else(|| panic!("no data path {name:?}"))
    }

    /// A server of a directory whose mounts can have this data path. Every user of this machine has all
    /// rights.
    pub fn serve(&self, export: &Path) -> Serve {
        let options = format!("rw,insecure,no_root_squash,{}", self.export_option);
        Serve::new(format!("{} *({options})", export.display())).arguments(["--lane", self.lane])
    }

    /// Whether it needs a lane.
    pub fn has_lane(&self) -> bool {
        self.status != "wire"
    }

    /// Whether applications use the server's filesystem itself, with its own rules.
    pub fn is_local_filesystem(&self) -> bool {
        self.status == "lane, mounted"
    }

    /// Mounts `export` of `server`, with further options. `None`, with a note, if this kernel doesn't have
    /// the data path.
    ///
    /// # Panics
    /// As [`DataPath::mount_by`].
    pub fn mount(&self, server: &Server, export: &Path, options: &str) -> Option<Mount> {
        self.mount_by(Mount::unmounted(server), |mount, own| {
            let options = if options.is_empty() { own.to_owned() } else { format!("{own},{options}") };
            run_ok(&mut mount.command(&server.url(export), &options));
        })
    }

    /// Lets `run` mount, with the options that it is given, while the kernel's switch of FUSE over io_uring
    /// is on if the data path needs it. `None`, with a note, if this kernel doesn't have it.
    ///
    /// # Panics
    /// When the mount has another data path.
    pub fn mount_by(&self, mount: Mount, run: impl FnOnce(&Mount, &str)) -> Option<Mount> {
        self.with_options(|options| run(&mount, options))?;
        self.assert_status(&wait_for("the status of the mount", || mount.status()));
        Some(mount)
    }

    /// Calls `run` with the mount's options, while the kernel's switch of FUSE over io_uring is on if the
    /// data path needs it. `None`, with a note, if this kernel doesn't have it.
    pub fn with_options<T>(&self, run: impl FnOnce(&str) -> T) -> Option<T> {
        let _on = if self.is_over_uring() { Some(UringSwitch::set(true)?) } else { None };
        Some(run(self.mount_options))
    }

    /// Asserts that a mount has this data path.
    ///
    /// # Panics
    /// When its status says another one.
    pub fn assert_status(&self, status: &Value) {
        let transport = if self.is_over_uring() { "io_uring" } else { "/dev/fuse" };
        assert!(
            status["road"] == self.status
                && status["tree"] == self.has_tree
                && status["transport"] == transport,
            "{self:?}: {status}"
        );
    }

    fn is_over_uring(&self) -> bool {
        self.mount_options.contains("uring=required")
    }
}

/// Declares a module with a test for each data path: a function that takes the [`DataPath`].
#[macro_export]
macro_rules! test_each_data_path {
    ($module:ident, $check:ident) => {
        $crate::test_each_data_path! {
            $module,
            $check,
            [wire, files, wire_v4, files_v4, served, tree, tree_served, tree_uring, mount_grant]
        }
    };
    ($module:ident, $check:ident, [$($name:ident),*]) => {
        mod $module {
            $(#[test]
            fn $name() {
                super::$check(&$crate::DataPath::named(stringify!($name)));
            })*

            #[test]
            fn all_data_paths_are_tested() {
                let tested = [$(stringify!($name)),*];
                assert!($crate::DataPath::all().map(|path| path.name).eq(tested));
            }
        }
    };
}
