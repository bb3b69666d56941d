//! Log lines in the journal: the server sends them with their fields to the journal's socket when its
//! standard error leads to the journal. The test's own socket stands for the journal's.

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

use samehost_tests::samehost::reachable_binary;
use samehost_tests::{Daemon, Scratch, TIMEOUT, need_root, run_ok, wait_for};

/// The fields of one datagram of the journal's native protocol.
fn fields(datagram: &[u8]) -> HashMap<String, String> {
    let mut fields = HashMap::new();
    let mut rest = datagram;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if let Some(equals) = line.iter().position(|byte| *byte == b'=') {
            fields.insert(text(&line[..equals]), text(&line[equals + 1..]));
            rest = after;
        } else {
            // A name alone: the length of the value (64 bits, little-endian), the value, a newline.
            let (length, after) = after.split_first_chunk::<8>().expect("a length");
            let length = usize::try_from(u64::from_le_bytes(*length)).expect("a length");
            fields.insert(text(line), text(&after[..length]));
            rest = &after[length + 1..];
        }
    }
    fields
}

/// A server whose standard error leads to the journal, and the test's socket as the journal.
struct Service {
    scratch: Scratch,
    export: PathBuf,
    journal: UnixDatagram,
    samehost: PathBuf,
    url: String,
    _server: Daemon,
}

impl Service {
    /// Starts one with this filter of its log.
    fn start(filter: &str) -> Self {
        need_root();
        let scratch = Scratch::new();
        let (export, directory) = (scratch.mkdir("export"), scratch.mkdir("journal"));
        let journal = UnixDatagram::bind(directory.join("socket")).expect("a socket");
        journal.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let samehost = reachable_binary(&scratch);
        // systemd sets JOURNAL_STREAM to the device and inode of the stream at standard error.
        let script = format!(
            "set -e\nmount -t tmpfs tmpfs /run\nmkdir -p /run/systemd/journal\nmount --bind {} \
             /run/systemd/journal\nexport JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2)\nexport \
             SAMEHOST_LOG={filter}\nexec {} serve --listen 127.0.0.1:0 --no-rpcbind --run-dir {scratch}/run \
             --state-dir {scratch}/state --export '{} 127.0.0.1(rw,no_root_squash,insecure)'",
            directory.display(),
            samehost.display(),
            export.display(),
            scratch = scratch.path().display(),
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        let server = Daemon::start("the server", &mut command, &scratch.join("log")).expect("it starts");
        let address = server.served_address();
        let url = format!("nfs://{address}{}", export.display());
        Self { scratch, export, journal, samehost, url, _server: server }
    }

    /// Runs a command for a path in the export, which must succeed.
    fn run(&self, arguments: &[&str], path: &str) {
        let mut command = Command::new(&self.samehost);
        command.args(arguments).arg(format!("{}{path}", self.url));
        run_ok(command.env("SAMEHOST_RUN_DIR", self.scratch.join("run")));
    }
}

#[test]
fn a_service_logs_to_the_journal_with_fields() {
    let service = Service::start("warn,audit=info");
    service.run(&["probe"], "");
    let mut buffer = vec![0; 64 << 10];
    let mut next = || {
        let length = service.journal.recv(&mut buffer).expect("a line for the journal");
        fields(&buffer[..length])
    };
    let mut find = |message: &str| {
        loop {
            let fields = next();
            if fields.get("MESSAGE").is_some_and(|text| text == message) {
                return fields;
            }
        }
    };
    let mounted = find("mounted");
    let of = |name: &str| mounted.get(name).map_or("", String::as_str);
    assert_eq!((of("EXPORT"), of("ROAD")), (&*service.export.display().to_string(), "wire"), "{mounted:?}");
    assert!(of("CLIENT").starts_with("127.0.0.1:"), "{mounted:?}");
    assert_eq!((of("MESSAGE_ID").len(), of("SYSLOG_IDENTIFIER")), (32, "samehost"), "{mounted:?}");
    assert_eq!((of("PRIORITY"), of("TARGET")), ("5", "audit"), "{mounted:?}");
    assert!(of("CODE_FILE").ends_with(".rs") && of("CODE_LINE").parse::<u32>().is_ok(), "{mounted:?}");
    assert_eq!(find("lane established").get("ROAD").map(String::as_str), Some("lane"));
    // Standard error has no line: they would be in the journal twice.
    let stderr = fs::read_to_string(service.scratch.join("log")).expect("the log");
    assert!(!stderr.contains("mounted"), "{stderr}");
}

/// As if the journal were stopped: nothing reads its socket.
#[test]
fn no_call_waits_for_a_journal_that_takes_no_lines() {
    let service = Service::start("debug");
    let room = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").expect("proc(5)");
    let reads = room.trim().parse::<usize>().expect("a number") + 100;
    fs::write(service.export.join("file"), vec![1; reads * 1024]).expect("own directory");
    // Each READ has two lines, and is answered.
    service.run(&["cat", "--lane", "off", "--rsize", "1024"], "/file");
    service.journal.set_nonblocking(true).expect("fcntl(2)");
    let mut buffer = vec![0; 64 << 10];
    // The first line for which there is room again has the number.
    wait_for("the number of lost lines", || {
        let mut lost = 0;
        while let Ok(length) = service.journal.recv(&mut buffer) {
            let fields = fields(&buffer[..length]);
            lost = lost.max(fields.get("LOST").map_or(0, |number| number.parse().expect("a number")));
        }
        service.run(&["stat", "--lane", "off"], "/file");
        (lost >= reads).then_some(())
    });
}
