//! Locks by vers=4.2: fcntl(2), flock(2) and those of open file descriptions, between two mounts and with
//! processes on the server's host.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use client::{Operation, Version};
use samehost_mount::{LocalLocks, MountOptions};
use support::{BOUND, Mounted, Served, Transport, wait_for};

/// Reads commands, one a line, and prints what became of each.
const LOCKER: &str = r"
import errno, fcntl, os, signal, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR)
class Alarm(Exception): pass
def alarm(number, frame): raise Alarm()
signal.signal(signal.SIGALRM, alarm)
def lock(how, kind, waits):
    if how == 'flock':
        kinds = {'ex': fcntl.LOCK_EX, 'sh': fcntl.LOCK_SH, 'un': fcntl.LOCK_UN}
        fcntl.flock(fd, kinds[kind] | (0 if waits else fcntl.LOCK_NB))
        return
    kinds = {'ex': fcntl.F_WRLCK, 'sh': fcntl.F_RDLCK, 'un': fcntl.F_UNLCK}
    numbers = {('posix', 0): fcntl.F_SETLK, ('posix', 1): fcntl.F_SETLKW, ('ofd', 0): 37, ('ofd', 1): 38}
    asked = struct.pack('hhqqi4x', kinds[kind], 0, 0, 0, 0)
    fcntl.fcntl(fd, numbers[how, waits], asked)
for line in sys.stdin:
    words = line.split()
    try:
        if words[0] == 'close':
            os.close(os.open(sys.argv[1], os.O_RDONLY))
        elif words[0] == 'read':
            print(os.pread(fd, 100, 0).decode(), flush=True)
            continue
        elif words[0] == 'write':
            os.pwrite(fd, words[1].encode(), 0)
        elif words[0] == 'alarm':
            signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
            try:
                lock(words[1], words[2], 1)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0, 0)
        else:
            lock(words[0], words[1], int(words[2]))
        print('ok', flush=True)
    except Alarm:
        print('interrupted', flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
";

/// A process that locks a file.
struct Locker {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
}

impl Locker {
    fn new(path: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", LOCKER])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (say, answers) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(say.send(line)));
        });
        Self { child, commands, answers }
    }

    fn begin(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    fn answer(&self) -> String {
        self.answers.recv_timeout(BOUND).expect("an answer")
    }

    fn run(&mut self, command: &str) -> String {
        self.begin(command);
        self.answer()
    }

    fn is_waiting(&self) -> bool {
        matches!(self.answers.try_recv(), Err(TryRecvError::Empty))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn by_v4(served: &Served, transport: Transport) -> Mounted {
    served.mount_by(Version::V4_2, transport, MountOptions::default())
}

/// Begins a lock that has to wait, and returns once the server has refused it.
fn begin_wait(locker: &mut Locker, mounted: &Mounted, command: &str) {
    let sent = || mounted.mount.session().counters().calls(Operation::Lock);
    let before = sent();
    locker.begin(command);
    wait_for("a waiting lock", || sent() >= before + 3);
    assert!(locker.is_waiting());
}

#[test]
fn locks_of_all_kinds_exclude_another_mount_and_local_processes() {
    for transport in [Transport::Wire, Transport::Passed] {
        let served = Served::start();
        fs::write(served.export().join("file"), b"before").unwrap();
        let (one, two) = (by_v4(&served, transport), by_v4(&served, Transport::Wire));
        let mut local = Locker::new(&served.export().join("file"));
        for how in ["posix", "flock", "ofd"] {
            let (mut a, mut b) = (Locker::new(&one.path("file")), Locker::new(&two.path("file")));
            assert_eq!(a.run(&format!("{how} ex 0")), "ok");
            assert_eq!(b.run(&format!("{how} sh 0")), "EAGAIN", "{how}, another mount");
            assert_eq!(local.run("posix sh 0"), "EAGAIN", "{how}, a local process");
            assert_eq!(a.run("write mine__"), "ok");
            begin_wait(&mut b, &two, &format!("{how} sh 1"));
            // fcntl(2)'s locks end with any close of the file, the others don't.
            assert_eq!(a.run("close"), "ok");
            if how == "posix" {
                assert_eq!(b.answer(), "ok");
            } else {
                assert_eq!(local.run("posix sh 0"), "EAGAIN", "{how}");
                assert!(b.is_waiting());
                assert_eq!(a.run(&format!("{how} un 0")), "ok");
                assert_eq!(b.answer(), "ok");
            }
            // What the holder wrote is read, although the kernel may have had the file's data before.
            assert_eq!(b.run("read"), "mine__");
            assert_eq!(b.run(&format!("{how} un 0")), "ok");
            assert_eq!(local.run("posix ex 0"), "ok");
            assert_eq!(local.run("write before"), "ok");
            assert_eq!(a.run(&format!("{how} ex 0")), "EAGAIN", "{how}");
            assert_eq!(local.run("posix un 0"), "ok");
            assert_eq!(b.run(&format!("{how} ex 0")), "ok");
            assert_eq!(b.run("read"), "before");
        }
    }
}

#[test]
fn a_dying_process_gives_its_locks_back_and_a_signal_ends_a_wait() {
    let served = Served::start();
    fs::write(served.export().join("file"), b"before").unwrap();
    let (one, two) = (by_v4(&served, Transport::Wire), by_v4(&served, Transport::Wire));
    for how in ["posix", "flock", "ofd"] {
        let (mut a, mut b) = (Locker::new(&one.path("file")), Locker::new(&two.path("file")));
        assert_eq!(a.run(&format!("{how} ex 0")), "ok");
        assert_eq!(b.run(&format!("alarm {how} ex")), "interrupted");
        begin_wait(&mut b, &two, &format!("{how} ex 1"));
        a.kill();
        assert_eq!(b.answer(), "ok", "{how}");
        // A killed waiter leaves nothing.
        let mut c = Locker::new(&one.path("file"));
        begin_wait(&mut c, &one, &format!("{how} ex 1"));
        c.kill();
        assert_eq!(b.run(&format!("{how} un 0")), "ok");
        assert_eq!(Locker::new(&served.export().join("file")).run("posix ex 0"), "ok", "{how}");
    }
}

#[test]
fn locks_outlive_a_killed_server() {
    let mut served = Served::start();
    fs::write(served.export().join("file"), b"before").unwrap();
    let (one, two) = (by_v4(&served, Transport::Wire), by_v4(&served, Transport::Wire));
    let mut a = Locker::new(&one.path("file"));
    assert_eq!(a.run("posix ex 0"), "ok");
    served.kill();
    served.restart();
    assert_eq!(a.run("write mine__"), "ok");
    let mut b = Locker::new(&two.path("file"));
    assert_eq!(b.run("posix sh 0"), "EAGAIN");
    assert_eq!(a.run("read"), "mine__");
    assert_eq!(a.run("posix un 0"), "ok");
    assert_eq!(b.run("posix sh 0"), "ok");
}

#[test]
fn local_locks_stay_on_this_host() {
    let served = Served::start();
    fs::write(served.export().join("file"), b"before").unwrap();
    let all = LocalLocks { posix: true, flock: true };
    let options = |local_locks| MountOptions { local_locks, ..MountOptions::default() };
    let one = served.mount_by(Version::V4_2, Transport::Wire, options(all));
    let flock_only = LocalLocks { posix: false, flock: true };
    let two = served.mount_by(Version::V4_2, Transport::Wire, options(flock_only));
    let three = served.mount_by(Version::V3, Transport::Wire, MountOptions::default());
    let mut lockers = [&one, &two, &three].map(|mounted| Locker::new(&mounted.path("file")));
    for how in ["posix", "flock"] {
        for locker in &mut lockers {
            assert_eq!(locker.run(&format!("{how} ex 0")), "ok", "{how}");
        }
    }
    // One of them has reached the server.
    assert_eq!(Locker::new(&served.export().join("file")).run("posix ex 0"), "EAGAIN");
}

#[test]
fn sqlite_counts_right_by_two_mounts_at_once() {
    const ROUNDS: usize = 10;
    let script = r"
import sqlite3, sys
path, mode, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, timeout=600, isolation_level=None)
assert db.execute('pragma journal_mode=' + mode).fetchone()[0] == mode
for _ in range(rounds):
    db.execute('begin immediate')
    count = db.execute('select n from counter').fetchone()[0]
    db.execute('update counter set n = ?', (count + 1,))
    db.execute('insert into log values (?, ?)', (count, 'x' * 500))
    db.execute('commit')
";
    for transport in [Transport::Wire, Transport::Passed] {
        let served = Served::start();
        let (one, two) = (by_v4(&served, transport), by_v4(&served, transport));
        for mode in ["delete", "truncate", "persist"] {
            let create = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n\
                 db.executescript('create table counter (n); insert into counter values (0);\
                 create table log (n integer primary key, text);')";
            let made = Command::new("python3").args(["-c", create]).arg(one.path(mode)).status().unwrap();
            assert!(made.success());
            let children = [&one, &two].map(|mounted| {
                let mut command = Command::new("python3");
                command.args(["-c", script]).arg(mounted.path(mode)).args([mode, &ROUNDS.to_string()]);
                command.spawn().unwrap()
            });
            for mut child in children {
                assert!(child.wait().unwrap().success(), "{mode}, {transport:?}");
            }
            let check = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n\
                 print(db.execute('pragma integrity_check').fetchone()[0],\
                 db.execute('select n from counter').fetchone()[0],\
                 db.execute('select count(*) from log').fetchone()[0])";
            let said = Command::new("python3").args(["-c", check]).arg(two.path(mode)).output().unwrap();
            let said = String::from_utf8_lossy(&said.stdout);
            assert_eq!(said.trim(), format!("ok {0} {0}", 2 * ROUNDS), "{mode}, {transport:?}");
        }
    }
}
