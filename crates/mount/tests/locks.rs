//! Locks by vers=4.2: fcntl(2), flock(2) and those of open file descriptions, between two mounts and with
//! processes on the server's host.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use client::{Operation, Version};
use samehost_mount::{LocalLocks, LookupCache, MountOptions};
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
        elif words[0] == 'fsync':
            os.fsync(fd)
        elif words[0] == 'share':
            child = os.fork()
            if not child:
                signal.pause()
            print(child, flush=True)
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

/// Without a GETATTR in between, which would make the kernel ask again.
#[test]
fn a_lock_shows_what_others_have_appended() {
    for transport in [Transport::Wire, Transport::Passed] {
        let served = Served::start();
        let file = served.export().join("file");
        fs::write(&file, "").unwrap();
        let (one, two) = (by_v4(&served, transport), by_v4(&served, transport));
        let mut lockers =
            [Locker::new(&one.path("file")), Locker::new(&two.path("file")), Locker::new(&file)];
        for turn in 1..=30 {
            let text = "x".repeat(turn);
            for (command, expected) in
                [("posix ex 1", "ok"), (&format!("write {text}"), "ok"), ("posix un 0", "ok")]
            {
                assert_eq!(lockers[turn % 3].run(command), expected);
            }
            let reader = &mut lockers[(turn + 1) % 3];
            assert_eq!(reader.run("posix sh 1"), "ok");
            assert_eq!(reader.run("read"), text, "{turn}, {transport:?}");
            assert_eq!(reader.run("posix un 0"), "ok");
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

/// flock(1) opens its file for reading only, and again for writing if it is told so.
#[test]
fn commands_exclude_each_other_by_flock() {
    let served = Served::start();
    let mounted = by_v4(&served, Transport::Passed);
    let script = r"
        for i in $(seq 50); do flock --nonblock $0 true || exit; done
        flock --shared $0 flock --nonblock $0 true || echo excluded by a shared lock
        flock $0 flock --nonblock --shared $0 true || echo excluded by an exclusive lock";
    let output = Command::new("sh").args(["-c", script]).arg(mounted.path("lock")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "excluded by a shared lock\nexcluded by an exclusive lock\n");
}

/// The kernel tells the mount of a close(2) when that has returned.
#[test]
fn a_lock_of_a_closed_description_is_not_reported() {
    let served = Served::start();
    fs::write(served.export().join("file"), "x").unwrap();
    let mounted = by_v4(&served, Transport::Passed);
    let script = r"
import fcntl, os, struct, sys
asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)
other = os.open(sys.argv[1], os.O_RDWR)
for round in range(300):
    fd = os.open(sys.argv[1], os.O_RDWR)
    fcntl.fcntl(fd, 37, asked)
    os.close(fd)
    kind, = struct.unpack_from('h', fcntl.fcntl(other, 36, asked))
    assert kind == fcntl.F_UNLCK, round
print('never')";
    assert_eq!(python(script, &mounted.path("file"), &[]), "never");
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

/// RFC 8881 section 10.3.2. Data that was only written would be written again after the restart.
#[test]
fn what_a_lock_protected_is_durable_when_it_ends() {
    let mut served = Served::start();
    fs::write(served.export().join("file"), b"before").unwrap();
    let (one, two) = (by_v4(&served, Transport::Wire), by_v4(&served, Transport::Wire));
    let (mut a, mut b) = (Locker::new(&one.path("file")), Locker::new(&two.path("file")));
    for (locker, text) in [(&mut a, "first_"), (&mut b, "second")] {
        for command in ["posix ex 1", &format!("write {text}"), "posix un 0"] {
            assert_eq!(locker.run(command), "ok");
        }
    }
    assert_eq!(b.run("fsync"), "ok");
    served.kill();
    served.restart();
    assert_eq!(a.run("fsync"), "ok");
    assert_eq!(fs::read(served.export().join("file")).unwrap(), b"second");
}

/// The file stays open in a child of the process, so only FLUSH tells of the process's end.
#[test]
fn the_locks_of_a_killed_process_end_although_the_file_stays_open() {
    let served = Served::start();
    fs::write(served.export().join("file"), b"before").unwrap();
    let (one, two) = (by_v4(&served, Transport::Wire), by_v4(&served, Transport::Wire));
    for _ in 0..10 {
        let (mut a, mut b) = (Locker::new(&one.path("file")), Locker::new(&two.path("file")));
        assert_eq!(a.run("posix ex 0"), "ok");
        let child = a.run("share");
        // FLUSH has to wait for the server.
        assert_eq!(a.run("write locked"), "ok");
        a.kill();
        b.begin("posix ex 1");
        assert_eq!(b.answer(), "ok");
        assert!(Command::new("kill").args(["-9", &child]).status().unwrap().success());
    }
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

/// Runs a Python script, and returns what it prints.
fn python(script: &str, file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("python3").args(["-c", script]).arg(file).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Runs a Python script on a file of both mounts at the same time. Its last argument is the mount's number.
fn run_by_both(script: &str, mounts: [&Mounted; 2], file: &str, arguments: &[&str]) {
    std::thread::scope(|scope| {
        for (number, mounted) in ["0", "1"].iter().zip(mounts) {
            scope.spawn(move || python(script, &mounted.path(file), &[arguments, &[number]].concat()));
        }
    });
}

/// Every journal mode: the journal is a file, in memory, a write-ahead log, or there is none (`off`, with
/// which a transaction that a crash has cut can't be undone). Connections by two mounts share a write-ahead
/// log by an exclusive lock only (sqlite.org/wal.html).
#[test]
fn sqlite_counts_right_by_two_mounts_at_once() {
    const ROUNDS: usize = 10;
    let create = r"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('pragma locking_mode=exclusive')
db.execute('pragma journal_mode=' + sys.argv[2])
for table in ['counter (n)', 'log (n integer primary key, text)']:
    db.execute('create table ' + table)
db.execute('insert into counter values (0)')
db.commit()
";
    let script = r"
import random, sqlite3, sys, time
path, mode, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
# Two that want the exclusive lock and have a shared one would wait for each other.
timeout = 0 if mode == 'wal' else 600
def count(db):
    if mode == 'wal':
        db.execute('pragma locking_mode=exclusive')
    assert db.execute('pragma journal_mode=' + mode).fetchone()[0] == mode
    db.execute('begin immediate')
    count = db.execute('select n from counter').fetchone()[0]
    db.execute('update counter set n = ?', (count + 1,))
    db.execute('insert into log values (?, ?)', (count, 'x' * 500))
    db.execute('commit')
done = 0
while done < rounds:
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    try:
        count(db)
        done += 1
    except sqlite3.OperationalError as error:
        if 'locked' not in str(error):
            raise
    db.close()
    if mode == 'wal':
        time.sleep(random.uniform(0, 0.02))
";
    let check = r"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('pragma locking_mode=exclusive')
for what in ['pragma integrity_check', 'select n from counter', 'select count(*) from log']:
    print(db.execute(what).fetchone()[0])
";
    for transport in [Transport::Wire, Transport::Passed] {
        let served = Served::start();
        let (one, two) = (by_v4(&served, transport), by_v4(&served, transport));
        for mode in ["delete", "truncate", "persist", "memory", "wal", "off"] {
            python(create, &one.path(mode), &[mode]);
            run_by_both(script, [&one, &two], mode, &[mode, &ROUNDS.to_string()]);
            let said = python(check, &two.path(mode), &[]);
            assert_eq!(said, format!("ok\n{0}\n{0}", 2 * ROUNDS), "{mode}, {transport:?}");
        }
    }
}

/// Python's `mailbox` locks as mail programs do: by fcntl(2), and by a link to a file of its own.
#[test]
fn a_mail_spool_has_every_message_of_two_writers() {
    const MESSAGES: usize = 20;
    let script = r"
import mailbox, sys, time
path, messages, writer = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for number in range(messages):
    box = mailbox.mbox(path)
    while True:
        try:
            box.lock()
            break
        except mailbox.ExternalClashError:
            time.sleep(0.01)
    box.add('From: ' + writer + '\nSubject: ' + str(number) + '\n\n' + 'x' * 500 + '\n')
    box.close()
";
    let check = r"
import mailbox, sys
seen = []
for mail in mailbox.mbox(sys.argv[1]):
    assert mail.get_payload().strip() == 'x' * 500
    seen.append((mail['from'], int(mail['subject'])))
assert sorted(seen) == [(writer, number) for writer in '01' for number in range(int(sys.argv[2]))], seen
";
    let messages = MESSAGES.to_string();
    for transport in [Transport::Wire, Transport::Passed] {
        let served = Served::start();
        let (one, two) = (by_v4(&served, transport), by_v4(&served, transport));
        fs::write(one.path("spool"), b"").unwrap();
        run_by_both(script, [&one, &two], "spool", &[&messages]);
        for path in [one.path("spool"), two.path("spool"), served.export().join("spool")] {
            python(check, &path, &[&messages]);
        }
    }
}

/// git's locks are files that it creates exclusively and renames. Each of two writers has a work tree with a
/// branch, by a mount of its own, and both add to the branch main.
#[test]
fn git_has_every_commit_of_two_mounts_at_once() {
    const COMMITS: usize = 8;
    let git = |at: &Path, script: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(at).env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["GIT_AUTHOR", "GIT_COMMITTER"] {
            command.env(format!("{who}_NAME"), "a").env(format!("{who}_EMAIL"), "a@example.org");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}: {}", at.display(), String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    for transport in [Transport::Wire, Transport::Passed] {
        let served = Served::start();
        // `git gc --auto` looks objects/17 up. If that is missing, the kernel may go on believing so while
        // the other mount makes it (nfs(5), lookupcache).
        let options = || MountOptions { lookup_cache: LookupCache::Positive, ..MountOptions::default() };
        let [one, two] = [0, 1].map(|_| served.mount_by(Version::V4_2, transport, options()));
        git(
            one.root(),
            "git init -q -b main repository; cd repository; git commit -q --allow-empty -m first
             for writer in 0 1; do git worktree add -q ../$writer -b branch-$writer; done",
        );
        std::thread::scope(|scope| {
            for (writer, mounted) in [&one, &two].into_iter().enumerate() {
                // The repository has the paths of the mount that has made it.
                let script = format!(
                    "export GIT_DIR=$PWD/repository/.git/worktrees/{writer} GIT_WORK_TREE=$PWD/{writer}
                     cd {writer}
                     for number in $(seq {COMMITS}); do
                         echo $number >file-$number
                         git add file-$number
                         git commit -q -m $number
                         until old=$(git rev-parse main) &&
                               new=$(git commit-tree -p $old -m $number HEAD^{{tree}}) &&
                               git update-ref refs/heads/main $new $old 2>/dev/null; do
                             sleep 0.01
                         done
                     done"
                );
                let git = &git;
                scope.spawn(move || git(mounted.root(), &script));
            }
        });
        for at in [one.path("repository"), two.path("repository"), served.export().join("repository")] {
            git(&at, "git fsck --strict --no-progress");
            for (branch, commits) in [("branch-0", COMMITS), ("branch-1", COMMITS), ("main", 2 * COMMITS)] {
                let count = git(&at, &format!("git rev-list --count {branch}"));
                assert_eq!(count, (commits + 1).to_string(), "{branch}, {transport:?}");
            }
        }
    }
}
