//! An application: a process that opens, locks, reads and writes files, one command at a time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use crate::TIMEOUT;

/// Opens files in a directory and does what it reads, one command a line. Prints the result of each.
const APPLICATION: &str = r"
import errno, fcntl, os, signal, sys
fds = {}
def interrupt(*_):
    raise InterruptedError(errno.EINTR, 'interrupted')
signal.signal(signal.SIGUSR1, interrupt)
for line in sys.stdin:
    what, name, *rest = line.split()
    try:
        result = 'ok'
        if what == 'open':
            fds[name] = os.open(os.path.join(sys.argv[1], name), os.O_RDWR | os.O_CREAT)
        elif what == 'lock':
            fcntl.lockf(fds[name], fcntl.LOCK_EX | (0 if int(rest[0]) else fcntl.LOCK_NB))
        elif what == 'flock':
            fcntl.flock(fds[name], fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif what == 'unlock':
            fcntl.lockf(fds[name], fcntl.LOCK_UN)
        elif what == 'read':
            result = os.pread(fds[name], 100, 0).decode()
        elif what == 'write':
            os.pwrite(fds[name], rest[0].encode(), 0)
            os.fsync(fds[name])
        elif what == 'fill':
            for block in range(int(rest[0])):
                os.pwrite(fds[name], bytes([block % 251]) * 65536, block * 65536)
        elif what == 'sync':
            os.fsync(fds[name])
        elif what == 'stream':
            for block in range(int(rest[0])):
                os.pwrite(fds[name], bytes([block % 251]) * 65536, block * 65536)
                if block % 8 == 7:
                    os.fsync(fds[name])
                    print(block, flush=True)
        print(result, flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
";

/// A running application, killed when dropped.
///
/// Its commands: `open NAME`, `lock NAME WAITS` (0 or 1; fcntl(2)), `unlock NAME`, `flock NAME` (flock(2)),
/// `read NAME`, `write NAME TEXT`, `fill NAME BLOCKS`, which writes numbered blocks ([`Application::block`]),
/// `sync NAME`, and `stream NAME BLOCKS`, which writes such blocks and tells of every eighth, synced. The
/// results are `ok`, what was read, or the name of an error. SIGUSR1 has a handler: what waits ends with
/// `EINTR`.
#[derive(Debug)]
pub struct Application {
    child: Child,
    commands: ChildStdin,
    results: Receiver<String>,
}

impl Application {
    /// The bytes of a block of a stream.
    pub const BLOCK: usize = 64 << 10;

    /// Starts one whose files are in this directory.
    ///
    /// # Panics
    /// When Python can't be started.
    pub fn new(directory: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", APPLICATION]).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let commands = child.stdin.take().expect("its input");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (send, results) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(send.send(line))));
        Self { child, commands, results }
    }

    /// The content of a block of a stream.
    pub fn block(number: usize) -> Vec<u8> {
        vec![(number % 251) as u8; Self::BLOCK]
    }

    /// Begins a command.
    ///
    /// # Panics
    /// When the application has ended.
    pub fn begin(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("a running application");
    }

    /// Waits for the next result.
    ///
    /// # Panics
    /// When there is none within [`TIMEOUT`].
    pub fn result(&self) -> String {
        self.results.recv_timeout(TIMEOUT).expect("a result")
    }

    /// Runs a command; its result.
    ///
    /// # Panics
    /// As [`Application::result`].
    pub fn run(&mut self, command: &str) -> String {
        self.begin(command);
        self.result()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the last command has no result yet.
    pub fn is_waiting(&self) -> bool {
        matches!(self.results.try_recv(), Err(TryRecvError::Empty))
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
