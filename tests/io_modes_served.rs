//! The I/O modes of a running server: over the wire and the lane, on ext4, xfs and tmpfs, changed while the
//! server runs.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use client::blocking::Session;
use client::{LaneMode, OpenOptions, Options};
use io::Stability;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use samehost_tests::disk::Disk;
use samehost_tests::{Scratch, Serve, Server, need_root, run, run_ok, wait_for};
use serde_json::Value;

/// A filesystem whose image is in memory: the kernel is tested here, not the disk.
fn disk(kind: &str, mebibytes: u64) -> Disk {
    Disk::in_directory(kind, mebibytes, Path::new("/dev/shm"))
}

fn session(server: &Server, path: &Path, lane: LaneMode) -> Session {
    let options = Options::new().lane(lane).run_dir(server.run_dir());
    Session::connect(&server.url(path).parse().expect("a URL"), options).expect("connects")
}

fn ctl_io_mode(server: &Server, words: &[&str]) -> String {
    let mut all = vec!["ctl", "io-mode"];
    all.extend(words);
    run_ok(&mut server.client(&all))
}

/// The status of the export at `path`.
fn export(server: &Server, path: &Path) -> Value {
    let status = server.status();
    let exports = status.json()["exports"].as_array().expect("a list");
    exports.iter().find(|export| export["path"] == path.to_str().expect("text")).expect("exported").clone()
}

/// The number of a file's pages in the page cache.
fn cached_pages(file: &Path) -> u64 {
    let out =
        run_ok(Command::new("fincore").args(["--noheadings", "--bytes", "--output", "PAGES"]).arg(file));
    out.trim().parse().expect("a number")
}

fn serve_direct(directory: &Path) -> Serve {
    Serve::new(format!(
        "{} *(rw,insecure,no_root_squash,read_io=direct,write_io=direct)",
        directory.display()
    ))
}

/// Random writes and reads, over the lane or the wire, compared with a model in the end.
fn compare_with_a_model(server: &Server, directory: &Path, lane: LaneMode, cases: u32) {
    let session = session(server, directory, lane);
    let options = OpenOptions::new();
    let path = directory.join("model");
    let file = session.open(b"model", &options.read(true).write(true).create(true)).expect("opens");
    let mut model: Vec<u8> = Vec::new();
    let model_of = std::cell::RefCell::new(&mut model);
    let step =
        (0..3u8, 0u64..600_000, prop_oneof![0usize..3_000, 0usize..140_000, Just(65_536usize)], 0..3u8);
    let aligned = prop_oneof![Just(1u64), Just(512), Just(4096)];
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    TestRunner::new(config)
        .run(&(step, aligned, any::<u8>()), |((what, offset, length, stability), grain, seed)| {
            let mut model = model_of.borrow_mut();
            let (offset, length) = (offset / grain * grain, length / grain as usize * grain as usize);
            if what == 0 {
                let mut bytes = vec![0; length];
                let count = file.read_at(&mut bytes, offset).expect("reads");
                let at = (offset as usize).min(model.len());
                prop_assert!(
                    bytes[..count] == model[at..(at + length).min(model.len())],
                    "{offset} {length}"
                );
                return Ok(());
            }
            let data: Vec<u8> =
                (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            let stability =
                [Stability::Unstable, Stability::DataSync, Stability::FileSync][usize::from(stability)];
            file.write_stable(data.clone().into(), offset, stability).expect("writes");
            if length > 0 {
                let (at, end) = (offset as usize, offset as usize + length);
                let longer = model.len().max(end);
                model.resize(longer, 0);
                model[at..end].copy_from_slice(&data);
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{}: {failure}", directory.display()));
    file.commit().expect("commits");
    assert!(std::fs::read(path).expect("there") == model, "{}", directory.display());
    // The steps may include no read that reaches the data.
    let mut bytes = vec![0; model.len()];
    assert_eq!(file.read_at(&mut bytes, 0).expect("reads"), model.len());
    assert!(bytes == model, "{}", directory.display());
}

#[test]
fn direct_io_over_the_wire_is_correct_and_copies_no_payload() {
    need_root();
    for (kind, mebibytes) in [("ext4", 64), ("xfs", 320)] {
        let disk = disk(kind, mebibytes);
        let server = serve_direct(disk.path()).start();
        compare_with_a_model(&server, disk.path(), LaneMode::Off, 96);
        let export = export(&server, disk.path());
        assert_eq!(export["copied_writes"], 0, "{kind}: payloads were received at their aligned address");
        assert_eq!(export["io_notes"], Value::Array(vec![]), "{kind}");
    }
}

#[test]
fn direct_io_over_the_wire_bypasses_the_page_cache() {
    need_root();
    let disk = disk("ext4", 64);
    let server = serve_direct(disk.path()).start();
    let scratch = Scratch::new();
    let (from, back) = (scratch.join("from"), scratch.join("back"));
    let data: Vec<u8> = (0..8 << 20).map(|at: u32| (at >> 7) as u8).collect();
    std::fs::write(&from, &data).expect("own directory");
    let url = server.url(disk.path().join("f"));
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let file = disk.path().join("f");
    run_ok(&mut server.client(&["cp", "--lane", "off", &text(&from), &url]));
    assert_eq!(cached_pages(&file), 0, "after the write");
    run_ok(&mut server.client(&["cp", "--lane", "off", &url, &text(&back)]));
    assert_eq!(cached_pages(&file), 0, "after the read");
    assert!(std::fs::read(&back).expect("own directory") == data);
    assert_eq!(export(&server, disk.path())["copied_writes"], 0);
    // The same with buffered reads, to verify that `cached_pages` counts. The kernel may reclaim pages
    // at any time (DAMON does without memory pressure), so the count need not be that of the whole file.
    ctl_io_mode(&server, &[&text(disk.path()), "read", "buffered"]);
    run_ok(&mut server.client(&["cp", "--lane", "off", &url, &text(&back)]));
    assert!(cached_pages(&file) > 0, "buffered reads leave pages behind");
}

#[test]
fn modes_change_while_the_server_runs_and_the_status_shows_them() {
    need_root();
    let disk = disk("ext4", 32);
    let shown = |server: &Server| {
        let io = export(server, disk.path())["io"].clone();
        (io["read"].as_str().expect("text").to_owned(), io["write"].as_str().expect("text").to_owned())
    };
    let words = |read: &str, write: &str| (read.to_owned(), write.to_owned());
    let server = Serve::openly(disk.path()).arguments(["--read-io", "dontcache"]).start();
    assert_eq!(shown(&server), words("dontcache", "buffered"));
    assert!(ctl_io_mode(&server, &["write", "direct"]).contains("write mode direct"));
    let path = disk.path().to_str().expect("text").to_owned();
    ctl_io_mode(&server, &[&path, "read", "direct"]);
    assert_eq!(shown(&server), words("direct", "direct"));
    server.reload();
    compare_with_a_model(&server, disk.path(), LaneMode::Off, 8);
    assert_eq!(shown(&server), words("direct", "direct"), "a reload keeps what was set");
    ctl_io_mode(&server, &[&path, "read", "default"]);
    ctl_io_mode(&server, &["write", "default"]);
    assert_eq!(shown(&server), words("dontcache", "buffered"));
    for (bad, reason) in [
        (vec!["/elsewhere", "read", "direct"], "exports it"),
        (vec!["read", "quickly"], "buffered, dontcache or direct"),
        (vec!["sideways", "direct"], "neither read nor write"),
    ] {
        let mut all = vec!["ctl", "io-mode"];
        all.extend(bad);
        let out = run(&mut server.client(&all));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(reason), "{all:?}: {said}");
    }
}

#[test]
fn a_filesystem_without_direct_io_falls_back_and_the_status_says_so() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a scratch directory");
    let other = tempfile::tempdir_in("/dev/shm").expect("another");
    let server = Serve::openly(directory.path())
        .export(format!("{} *(rw,insecure)", other.path().display()))
        .arguments(["--read-io", "direct", "--write-io", "dontcache"])
        .start();
    let notes = || export(&server, directory.path())["io_notes"].to_string();
    assert_eq!(notes(), "[]", "no I/O has been attempted yet");
    compare_with_a_model(&server, directory.path(), LaneMode::Off, 24);
    let said = notes();
    assert!(said.contains("dontcache falls back") && said.contains("tells no alignment"), "{said}");
    let text = run_ok(&mut server.client(&["status"]));
    assert!(text.contains("dontcache falls back to buffered"), "{text}");
    // What is found out through one export holds for all exports of the filesystem.
    assert_eq!(export(&server, other.path())["io_notes"].to_string(), said);
}

#[test]
fn a_read_beyond_the_end_in_any_mode_is_short() {
    need_root();
    let disk = disk("xfs", 320);
    let server = serve_direct(disk.path()).start();
    let path = disk.path().join("short");
    std::fs::write(&path, [7; 1000]).expect("there is room");
    let session = session(&server, disk.path(), LaneMode::Off);
    let file = session.open(b"short", &OpenOptions::new().read(true)).expect("opens");
    for mode in ["buffered", "dontcache", "direct"] {
        ctl_io_mode(&server, &[disk.path().to_str().expect("text"), "read", mode]);
        for (offset, length, expected) in
            [(0, 4096, 1000), (990, 100, 10), (1000, 1, 0), (5000, 512, 0), (512, 512, 488)]
        {
            let mut bytes = vec![0; length];
            assert_eq!(
                file.read_at(&mut bytes, offset).expect("reads"),
                expected,
                "{mode} {offset} {length}"
            );
            assert!(bytes[..expected].iter().all(|byte| *byte == 7));
        }
    }
    let local = std::fs::File::open(&path).expect("there");
    assert_eq!(local.read_at(&mut [0; 2000], 0).expect("reads"), 1000);
}

#[test]
fn the_lane_uses_the_same_modes() {
    need_root();
    for (kind, mebibytes) in [("ext4", 64), ("xfs", 320)] {
        let disk = disk(kind, mebibytes);
        let server = serve_direct(disk.path()).start();
        compare_with_a_model(&server, disk.path(), LaneMode::Required, 96);
        assert_eq!(server.status().data_calls(), 0, "all data over the lane");
        // Whole blocks in aligned memory bypass the page cache.
        let session = session(&server, disk.path(), LaneMode::Required);
        let file =
            session.open(b"big", &OpenOptions::new().read(true).write(true).create(true)).expect("opens");
        let mut data = io::AlignedBuffer::new(1 << 20);
        data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at >> 9) as u8);
        file.write_at(&data, 0).expect("writes");
        file.write_at(&data, 1 << 20).expect("writes");
        file.commit().expect("commits");
        let mut back = vec![0; 1 << 20];
        assert_eq!(file.read_at(&mut back, 1 << 20).expect("reads"), 1 << 20);
        assert!(back == *data);
        assert_eq!(cached_pages(&disk.path().join("big")), 0, "{kind}");
        // A change of the mode recalls the open file's grant and gives a new one.
        ctl_io_mode(&server, &[disk.path().to_str().expect("text"), "read", "buffered"]);
        ctl_io_mode(&server, &[disk.path().to_str().expect("text"), "write", "buffered"]);
        wait_for("a buffered read over the lane", || {
            assert_eq!(file.read_at(&mut back, 0).expect("reads"), 1 << 20);
            (cached_pages(&disk.path().join("big")) > 0 && file.data_path() == client::DataPath::Lane)
                .then_some(())
        });
        assert!(back == *data);
        file.close().expect("closes");
    }
}
