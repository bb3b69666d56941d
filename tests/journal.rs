//! Log lines in the journal: the server sends them with their fields to the journal's socket when its
//! standard error leads to the journal. The test's own socket stands for the journal's.

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
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

#[test]
fn a_service_logs_to_the_journal_with_fields() {
    need_root();
    let scratch = Scratch::new();
    let (export, journal) = (scratch.mkdir("export"), scratch.mkdir("journal"));
    let socket = UnixDatagram::bind(journal.join("socket")).expect("a socket");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let samehost = reachable_binary(&scratch).display().to_string();
    let scratch_dir = scratch.path().display();
    // systemd sets JOURNAL_STREAM to the device and inode of the stream at standard error.
    let script = format!(
        "set -e\nmount -t tmpfs tmpfs /run\nmkdir -p /run/systemd/journal\nmount --bind {} \
         /run/systemd/journal\nexport JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2)\nexec {samehost} \
         serve --listen 127.0.0.1:0 --no-rpcbind --run-dir {scratch_dir}/run --state-dir \
         {scratch_dir}/state --export '{} 127.0.0.1(rw,no_root_squash,insecure)'",
        journal.display(),
        export.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let log = scratch.join("log");
    let server = Daemon::start("the server", &mut command, &log).expect("it starts");
    let address = wait_for("the ready line", || {
        let log = server.log();
        assert!(log.contains("ready") || !log.contains("samehost:"), "{log}");
        let (_, after) = log.split_once("ready: ")?.1.split_once(" on ")?;
        Some(after.split_once(';')?.0.to_owned())
    });
    let url = format!("nfs://{address}{}", export.display());
    run_ok(Command::new(&samehost).args(["probe", &url]).env("SAMEHOST_RUN_DIR", scratch.join("run")));
    let mut buffer = vec![0; 64 << 10];
    let mut next = || {
        let length = socket.recv(&mut buffer).expect("a line for the journal");
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
    assert_eq!((of("EXPORT"), of("ROAD")), (&*export.display().to_string(), "wire"), "{mounted:?}");
    assert!(of("CLIENT").starts_with("127.0.0.1:"), "{mounted:?}");
    assert_eq!((of("MESSAGE_ID").len(), of("SYSLOG_IDENTIFIER")), (32, "samehost"), "{mounted:?}");
    assert_eq!(of("PRIORITY"), "5", "{mounted:?}");
    assert_eq!(find("lane established").get("ROAD").map(String::as_str), Some("lane"));
    // Standard error has no line: they would be in the journal twice.
    let stderr = fs::read_to_string(&log).expect("the log");
    assert!(!stderr.contains("mounted"), "{stderr}");
}
