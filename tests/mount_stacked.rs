//! A mount of a share on a stacked filesystem (overlayfs): the kernel refuses passthrough for its files, and
//! directory cookies are valid only while the server keeps the directory open.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_tests::{Mount, Scratch, Serve, Server, need_root, run, run_ok, wait_for};

/// Number of files, with names so long that a listing takes many pages.
const FILES: usize = 6000;

/// A server of an overlayfs of two directories in memory.
struct Stacked {
    server: Server,
    merged: PathBuf,
    scratch: Scratch,
}

impl Stacked {
    fn new() -> Self {
        need_root();
        let scratch = Scratch::in_memory();
        let [lower, upper, work, merged] =
            ["lower", "upper", "work", "merged"].map(|name| scratch.mkdir(name));
        fs::write(lower.join("file"), "what the server has").expect("own directory");
        fs::create_dir(lower.join("many")).expect("own directory");
        for number in 0..FILES {
            fs::write(lower.join("many").join(name(number)), "").expect("own directory");
        }
        let layers =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        run_ok(Command::new("mount").args(["-t", "overlay", "-o", &layers, "overlay"]).arg(&merged));
        let server = Serve::openly(&merged).start();
        Self { server, merged, scratch }
    }

    fn mount(&self, options: &str) -> Mount {
        Mount::new(&self.server, &self.merged, options)
    }
}

impl Drop for Stacked {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("--lazy").arg(self.scratch.join("merged")));
    }
}

fn name(number: usize) -> String {
    format!("{number:0200}")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_status_shows_the_data_path_and_its_reason() {
    let mut stacked = Stacked::new();
    let mount = stacked.mount("lane=auto");
    let served = "lane, served by the mount's process";
    let is_served = |when: &str| {
        let status = mount.status().expect("a mount");
        let reason = status["reasons"][0].as_str().unwrap_or_default().to_owned();
        assert!(status["road"] == served && reason.contains("stacked"), "{when}: {status}");
    };
    assert_eq!(read(&mount.join("file")), "what the server has");
    is_served("after an open");
    stacked.server.restart();
    // The mount looks for a lane when there is a request.
    wait_for("the new lane", || {
        assert_eq!(read(&mount.join("file")), "what the server has");
        (mount.status()?["local"] == true).then_some(())
    });
    is_served("after a restart of the server");
    mount.set_lane("off");
    mount.wait_for_data_path("wire");
    let reasons = mount.status().expect("a mount")["reasons"].to_string();
    assert!(reasons.contains("switched off") && !reasons.contains("stacked"), "{reasons}");
}

#[test]
fn a_listing_continues_after_the_server_has_lost_its_directory_position() {
    let mut stacked = Stacked::new();
    for options in ["lane=off", "lane=auto"] {
        let mount = stacked.mount(options);
        let mut listing = fs::read_dir(mount.join("many")).expect("a directory");
        let mut names: Vec<String> = Vec::new();
        let mut read = |count: usize| {
            names.extend(listing.by_ref().take(count).map(|entry| {
                entry
                    .unwrap_or_else(|error| panic!("{options}: {error}"))
                    .file_name()
                    .into_string()
                    .expect("ASCII")
            }));
            names.len()
        };
        // More than the C library and the kernel read ahead.
        for before in [500, 4500] {
            read(before);
            stacked.server.restart();
        }
        assert_eq!(read(usize::MAX), FILES, "{options}");
        let all: BTreeSet<String> = names.into_iter().collect();
        assert_eq!(all, (0..FILES).map(name).collect(), "{options}");
    }
}
