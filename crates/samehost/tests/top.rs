//! `samehost top` in a pseudo-terminal and for scripts, and `samehost status --watch`.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use common::{Server, TIMEOUT, run, samehost};
use serde_json::Value;

/// The columns and rows of the terminal.
const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// A program in a pseudo-terminal, made by script(1).
struct Terminal {
    child: Child,
    output: Receiver<Vec<u8>>,
    /// All that the program has written.
    written: String,
}

impl Terminal {
    fn start(server: &Server, command: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_samehost");
        let line = format!("stty cols {COLUMNS} rows {ROWS}; exec {program} {command}");
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("SAMEHOST_RUN_DIR", server.run_dir())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        let (sender, output) = sync_channel(1024);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, output, written: String::new() }
    }

    /// The rows that a terminal would show: text at the cursor, which `CSI row ; column H` moves.
    fn screen(&self) -> Vec<String> {
        let mut cells = vec![[' '; COLUMNS]; ROWS];
        let (mut row, mut column) = (0, 0);
        let mut characters = self.written.chars();
        while let Some(character) = characters.next() {
            if character == '\x1b' {
                if characters.next() != Some('[') {
                    continue;
                }
                let mut parameters = String::new();
                let end = characters.by_ref().find(|c| {
                    parameters.push(*c);
                    c.is_ascii_alphabetic()
                });
                if end == Some('H') {
                    let mut numbers =
                        parameters.trim_end_matches('H').split(';').map(|n| n.parse().unwrap_or(1));
                    row = numbers.next().unwrap_or(1_usize) - 1;
                    column = numbers.next().unwrap_or(1_usize) - 1;
                }
            } else if !character.is_control() && row < ROWS && column < COLUMNS {
                cells[row][column] = character;
                column += 1;
            }
        }
        cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    /// Waits until the program has written something that makes `condition` true.
    fn wait_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !condition(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            let bytes = self.output.recv_timeout(left);
            let bytes = bytes.unwrap_or_else(|error| panic!("{error}: no {what:?} in {:#?}", self.screen()));
            self.written.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    /// Waits until the screen shows `words` in a row.
    fn wait_for(&mut self, words: &str) {
        self.wait_until(words, |terminal| terminal.screen().iter().any(|row| row.contains(words)));
    }

    /// Waits for a control sequence.
    fn wait_for_sequence(&mut self, sequence: &str) {
        self.wait_until(sequence, |terminal| terminal.written.contains(sequence));
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).expect("the terminal reads");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn top_draws_on_a_terminal_takes_keys_and_restores_it() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server, "top -d 0.1");
    terminal.wait_for("samehost top: 1 server, 0 mounts");
    terminal.wait_for("CLIENTS by calls");
    terminal.press("e");
    terminal.wait_for("EXPORTS");
    terminal.wait_for(server.export().to_str().expect("UTF-8"));
    let bar = terminal.screen().pop().expect("a row");
    assert!(bar.starts_with("c clients") && bar.ends_with("q quit"), "{bar}");
    terminal.press("?");
    terminal.wait_for("reverse the order");
    // The alternate screen of xterm, which leaves the former contents alone.
    terminal.wait_for_sequence("\x1b[?1049h");
    terminal.press("q");
    terminal.wait_for_sequence("\x1b[?1049l");
    assert_eq!(common::wait(&mut terminal.child), Some(0));
}

/// crossterm alone would try to read from it for ever.
#[test]
fn top_ends_when_its_terminal_is_gone() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server, "top -d 0.1");
    terminal.wait_for("CLIENTS by calls");
    let script = terminal.child.id();
    let children = fs::read_to_string(format!("/proc/{script}/task/{script}/children")).expect("proc(5)");
    let executable = Path::new("/proc").join(children.trim()).join("exe");
    assert!(executable.read_link().expect("it runs").ends_with("samehost"));
    terminal.child.kill().expect("own child");
    let deadline = Instant::now() + TIMEOUT;
    // A dead process has no executable, even if nobody has waited for it.
    while executable.read_link().is_ok() {
        assert!(Instant::now() < deadline, "it goes on without a terminal");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn top_and_status_write_for_scripts() {
    let server = Server::start();
    let once = server.run(&["top", "--once", "-d", "0.1"]).exits(0);
    for words in
        ["samehost top: 1 server", "servers: wire", "CLIENTS by calls", "EXPORTS", "No process counts"]
    {
        assert!(once.text().contains(words), "no {words:?} in {}", once.text());
    }
    assert!(!once.text().contains('\x1b'), "{}", once.text());
    let json = server.run(&["top", "--once", "--json", "-d", "0.1"]).exits(0);
    let view: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((view["servers"].as_u64(), &view["missing_lanes"]), (Some(1), &serde_json::json!([])));
    assert_eq!(view["data_paths"][1]["bytes_read"], Value::Null, "nothing counts it: {view}");
    assert!(view["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.1), "{view}");
    server.run(&["top"]).exits(2).complains(&["no terminal", "--once"]);
    server.run(&["top", "-d", "0"]).exits(2).complains(&["from 0.1 to 3600"]);
    let empty = tempfile::tempdir().expect("a directory");
    run(samehost(["top", "--once", "-d", "0.1", "--run-dir"]).arg(empty.path())).exits(4);
}

#[test]
fn status_is_watched_line_by_line() {
    let server = Server::start();
    let mut command = samehost(["status", "--json", "--watch=0.1"]);
    let mut child = command
        .env("SAMEHOST_RUN_DIR", server.run_dir())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("another line").expect("a line");
        let status: Value = serde_json::from_str(&line).expect("JSON in one line");
        assert_eq!(status["servers"].as_array().map(Vec::len), Some(1), "{line}");
    }
    // It ends with its reader.
    drop(lines);
    let deadline = Instant::now() + TIMEOUT;
    while child.try_wait().expect("the child").is_none() {
        assert!(Instant::now() < deadline, "it goes on without a reader");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut terminal = Terminal::start(&server, "status --watch=0.1");
    terminal.wait_for_sequence("\x1b[H\x1b[2J");
    terminal.wait_for_sequence("listens on");
}
