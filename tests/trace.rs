//! Trace events as an administrator uses them: as probes in the program, for perf and bpftrace, and in the
//! log.

use std::fs;
use std::path::Path;
use std::process::Command;

use client::blocking::Session;
use client::{LaneMode, OpenOptions, Options, Url};
use samehost_tests::disk::Disk;
use samehost_tests::samehost::binary;
use samehost_tests::scratch::pattern;
use samehost_tests::{Scratch, Serve, Server, need_root, run, run_ok};

/// The notes that perf and bpftrace read: they name each probe, its address, its semaphore and its arguments.
/// The test computes the file offset as perf does, and there must be the instruction on which perf puts its
/// breakpoint.
#[test]
fn every_event_is_a_probe_of_the_program() {
    const NOP: u8 = 0x90;
    let program = fs::read(binary()).expect("it was built");
    let notes = run_ok(Command::new("readelf").arg("--notes").arg(binary()));
    let sections = run_ok(Command::new("readelf").args(["--sections", "--wide"]).arg(binary()));
    let hexadecimal =
        |word: &str| usize::from_str_radix(word.trim_start_matches("0x").trim_end_matches(','), 16);
    let base = sections.lines().find(|line| line.contains(" .stapsdt.base ")).expect("probes have a base");
    let words: Vec<&str> = base.split(" .stapsdt.base ").nth(1).expect("found").split_whitespace().collect();
    let [address, offset] = [1, 2].map(|i| hexadecimal(words[i]).expect("a number"));
    for event in io::trace::EVENTS {
        let name = format!("Name: {event}");
        assert_eq!(
            notes.lines().filter(|line| line.trim() == name).count(),
            1,
            "one address for each event: {event}"
        );
        let at = notes.lines().position(|line| line.trim() == name).unwrap_or_else(|| panic!("no {event}"));
        let around: Vec<&str> = notes.lines().skip(at - 1).take(4).map(str::trim).collect();
        assert!(around[0].ends_with("Provider: samehost"), "{around:?}");
        let addresses: Vec<&str> = around[2].split_whitespace().collect();
        let [location, note_base, semaphore] =
            [1, 3, 5].map(|i| hexadecimal(addresses[i]).expect("a number"));
        assert_eq!(note_base, address);
        assert_ne!(semaphore, 0, "{event} would do its work without a listener");
        assert_eq!(program[location - address + offset], NOP, "{event}: perf would miss it");
        // Three registers or stack slots.
        let arguments = around[3].strip_prefix("Arguments: ").expect("arguments");
        assert_eq!(arguments.split_whitespace().filter(|word| word.contains('@')).count(), 3, "{arguments}");
    }
}

/// The event of a log line.
fn event_of_line(line: &str) -> Option<&'static str> {
    io::trace::EVENTS.iter().copied().find(|event| line.contains(&format!(" {event} ")))
}

/// The log of one file that is written once, committed and read once: the names of the events, and the text.
fn events(export: &Path, mode: &str, length: usize, offset: u64) -> (Vec<&'static str>, String) {
    let server = Serve::openly(export)
        .through(["env", "SAMEHOST_LOG=samehost_io=trace"])
        .arguments(["--read-io", mode, "--write-io", mode])
        .start();
    let url: Url = server.url(export).parse().expect("a URL");
    let options = Options::new().lane(LaneMode::Off).run_dir(server.run_dir());
    let session = Session::connect(&url, options).expect("the server is there");
    let file = session.open(b"file", &OpenOptions::replacing().read(true)).expect("makes it");
    file.write_at(&pattern(1, length), offset).expect("writes");
    file.commit().expect("commits");
    let mut buffer = vec![0; 1000];
    let rest = buffer.len().min(length + offset as usize - 4096);
    assert_eq!(file.read_at(&mut buffer, 4096).expect("reads"), rest);
    let hash = format!("fh_hash={:#010x}", io::trace::handle_hash(file.handle().as_bytes()));
    drop((file, session));
    let log = fs::read_to_string(server.scratch().join("server.log")).expect("own directory");
    (log.lines().filter(|line| line.contains(&hash)).filter_map(event_of_line).collect(), log)
}

#[test]
fn the_log_shows_the_events_of_a_call() {
    need_root();
    let scratch = Scratch::new();
    let (seen, log) = events(&scratch.mkdir("export"), "buffered", 5000, 0);
    let write = ["write_start", "write_opened", "write_vector", "write_io_done", "write_done"];
    let read = ["read_start", "read_vector", "read_io_done", "read_done"];
    assert_eq!(seen, [&write[..], &["commit_start", "commit_done"], &read].concat(), "{log}");
    assert!(log.contains("offset=4096 length=904") && log.contains("offset=0 length=5000"), "{log}");
}

#[test]
fn the_log_shows_the_segments_of_direct_io() {
    need_root();
    let disk = Disk::new("ext4", 64);
    let (seen, log) = events(disk.path(), "direct", 20_000, 100);
    let segments = ["write_vector", "write_direct", "write_vector"];
    let write = [&["write_start", "write_opened"], &segments[..], &["write_io_done", "write_done"]].concat();
    let read = ["read_start", "read_direct", "read_io_done", "read_done"];
    assert_eq!(seen, [&write[..], &["commit_start", "commit_done"], &read].concat(), "{log}");
}

/// The log of a `samehost` command with its own I/O over the lane: the names of the events, and the text.
fn events_of(server: &Server, words: &[&str]) -> (Vec<&'static str>, String) {
    let mut command = server.client(words);
    let out = run(command.args(["--lane", "required"]).env("SAMEHOST_LOG", "samehost_io=trace"));
    let log = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{words:?}: {log}");
    (log.lines().filter_map(event_of_line).collect(), log)
}

#[test]
fn the_clients_log_shows_its_io_over_the_lane() {
    need_root();
    let (disk, scratch) = (Disk::new("ext4", 64), Scratch::new());
    let server = Serve::openly(disk.path()).start();
    let (from, url) = (scratch.join("from"), server.url(disk.path().join("f")));
    fs::write(&from, pattern(1, 20_000)).expect("own directory");
    let (wrote, log) = events_of(&server, &["cp", from.to_str().expect("text"), &url]);
    let all = ["write_vector", "write_io_done", "commit_start", "commit_done"];
    assert_eq!(wrote, all, "{log}");
    assert!(log.contains("write_io_done fh_hash=0x") && log.contains("offset=0 length=20000"), "{log}");
    let (wrote, log) = events_of(&server, &["cp", "--no-commit", from.to_str().expect("text"), &url]);
    assert_eq!(wrote, all[..2], "{log}");
    for (mode, segment) in [("buffered", "read_vector"), ("direct", "read_direct")] {
        run_ok(&mut server.client(&["ctl", "io-mode", "read", mode]));
        let (read, log) = events_of(&server, &["cat", &url]);
        assert_eq!((read[0], read.last()), (segment, Some(&"read_io_done")), "{log}");
        // A read that came short is repeated behind its bytes: only an empty one is the end of the file.
        assert!(read.iter().all(|event| [segment, "read_io_done"].contains(event)), "{log}");
        assert!(log.contains("offset=0 length=20000"), "{log}");
    }
    assert_eq!(server.status().data_calls(), 0, "no I/O by the server");
}
