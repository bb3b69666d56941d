//! A mounted filesystem on each transport: passed through, served from granted files, over the wire.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};

use client::Operation;
use samehost_mount::{Direct, LookupCache, MountOptions};
use support::{Served, TRANSPORTS_AND_VERSIONS, Transport, pattern, shell_as, wait_for};

#[test]
fn written_data_is_read_back_on_every_transport() {
    let served = Served::start();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        let data = pattern(1, 3_000_000);
        fs::write(mounted.path("file"), &data).unwrap();
        assert_eq!(fs::read(mounted.path("file")).unwrap(), data);
        assert_eq!(fs::read(served.export().join("file")).unwrap(), data, "{transport:?}");
        let file = OpenOptions::new().read(true).write(true).open(mounted.path("file")).unwrap();
        file.write_all_at(b"in the middle", 1_234_567).unwrap();
        file.sync_all().unwrap();
        let mut middle = [0; 13];
        file.read_exact_at(&mut middle, 1_234_567).unwrap();
        assert_eq!(&middle, b"in the middle");
        file.set_len(10).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10);
        drop(file);
        let report = mounted.mount.report();
        let wire = &report.counters.wire;
        let lane = &report.counters.lane;
        match transport {
            Transport::Passed => {
                assert!(
                    report.kernel.opens_passed_through >= 3 && report.kernel.opens_refused == 0,
                    "{report:?}"
                );
                assert_eq!((wire.reads, wire.writes, lane.reads, lane.writes), (0, 0, 0, 0));
            }
            Transport::Served => {
                assert_eq!((report.kernel.opens_passed_through, wire.reads, wire.writes), (0, 0, 0));
                assert!(lane.writes > 0 && report.not_passed.is_some());
            }
            Transport::Wire | Transport::Wire3 => {
                assert!(wire.writes > 0 && lane.writes == 0 && wire.commits > 0)
            }
        }
        fs::remove_file(mounted.path("file")).unwrap();
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    let served = Served::start();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        for (how, name) in [("removed", "gone"), ("replaced", "other")] {
            fs::write(mounted.path(name), b"old").unwrap();
            let mut open = OpenOptions::new().read(true).write(true).open(mounted.path(name)).unwrap();
            if how == "removed" {
                fs::remove_file(mounted.path(name)).unwrap();
                assert!(!mounted.path(name).exists());
            } else {
                fs::write(mounted.path("new"), b"new").unwrap();
                fs::rename(mounted.path("new"), mounted.path(name)).unwrap();
                assert_eq!(fs::read(mounted.path(name)).unwrap(), b"new");
            }
            open.write_all(b"still here").unwrap();
            open.seek(SeekFrom::Start(0)).unwrap();
            let mut all = String::new();
            open.read_to_string(&mut all).unwrap();
            assert_eq!(all, "still here", "{how} {transport:?}");
            assert_eq!(open.metadata().unwrap().len(), 10);
            drop(open);
            let _ = fs::remove_file(mounted.path(name));
        }
        wait_for("the hidden names to go", || fs::read_dir(served.export()).unwrap().next().is_none());
    }
}

#[test]
fn a_file_created_without_write_permission_can_be_written() {
    let served = Served::start();
    fs::set_permissions(served.export(), fs::Permissions::from_mode(0o777)).unwrap();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        let script = format!(
            "set -e; cd {}; umask 022; (set -C; umask 0333; echo data > ro); ls -l ro; cat ro; python3 -c \
             'import os; fd=os.open(\"x\", os.O_RDWR|os.O_CREAT|os.O_EXCL, 0o444); os.write(fd, \
             b\"object\"); os.fchmod(fd, 0o400); os.ftruncate(fd, 3)'; cat x; ! sh -c 'echo more >> x'",
            mounted.root().display()
        );
        let (said, ok) = shell_as(4321, 4321, "", &script);
        assert!(ok && said.contains("obj"), "{transport:?}: {said}");
        assert_eq!(fs::metadata(mounted.path("x")).unwrap().uid(), 4321);
        fs::remove_file(mounted.path("x")).unwrap();
        fs::remove_file(mounted.path("ro")).unwrap();
    }
}

#[test]
fn calls_have_the_callers_credential_with_all_groups() {
    let served = Served::start();
    fs::write(served.export().join("group"), b"for the group").unwrap();
    fs::set_permissions(served.export().join("group"), fs::Permissions::from_mode(0o660)).unwrap();
    std::os::unix::fs::chown(served.export().join("group"), Some(0), Some(777)).unwrap();
    fs::create_dir(served.export().join("private")).unwrap();
    fs::write(served.export().join("private/inside"), b"readable by all, in a private directory").unwrap();
    fs::set_permissions(served.export().join("private"), fs::Permissions::from_mode(0o700)).unwrap();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        let read = |uid, groups: &str, name: &str| {
            shell_as(uid, uid, groups, &format!("cat {}", mounted.path(name).display())).1
        };
        assert!(read(1000, "5,777", "group"), "{transport:?}");
        assert!(!read(1000, "5", "group") && !read(1000, "", "group"), "{transport:?}");
        assert!(read(0, "", "private/inside"));
        assert!(
            !read(1000, "", "private/inside"),
            "{transport:?}: the kernel had the names cached for another user"
        );
        assert!(!shell_as(1000, 1000, "", &format!("ls {}", mounted.path("private").display())).1);
        assert!(!shell_as(1000, 1000, "", &format!("test -w {}", mounted.path("group").display())).1);
        assert!(shell_as(1000, 1000, "777", &format!("test -w {}", mounted.path("group").display())).1);
    }
}

#[test]
fn revoked_search_permission_takes_effect_at_once() {
    let served = Served::start();
    let mounted = served.mount(Transport::Wire);
    // Another user's process, which prints for each path whether it exists.
    let look = "while read -r path; do if [ -e \"$path\" ]; then echo yes; else echo no; fi; done";
    let mut looker = Command::new("setpriv")
        .args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", look])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ask = looker.stdin.take().unwrap();
    let mut answers = BufReader::new(looker.stdout.take().unwrap()).lines();
    let mut sees = |path: &std::path::Path| {
        writeln!(ask, "{}", path.display()).unwrap();
        answers.next().unwrap().unwrap() == "yes"
    };
    for round in 0..50 {
        let directory = mounted.path(&format!("directory-{round}"));
        let deep = directory.join("deep/file");
        fs::create_dir_all(directory.join("deep")).unwrap();
        fs::write(&deep, b"").unwrap();
        (0..20).for_each(|number| fs::write(directory.join(number.to_string()), b"").unwrap());
        assert!(sees(&deep) && sees(&directory.join("7")), "round {round}");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!sees(&deep) && !sees(&directory.join("7")), "round {round}: by names that the kernel knew");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(sees(&deep), "round {round}");
    }
    drop((ask, answers));
    looker.wait().unwrap();
    // Removing or renaming a directory meanwhile blocks nothing.
    let busy = mounted.path("busy");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                fs::create_dir(&busy).unwrap();
                fs::write(busy.join("file"), b"").unwrap();
                fs::remove_file(busy.join("file")).unwrap();
                fs::rename(&busy, mounted.path("moved")).unwrap();
                fs::remove_dir(mounted.path("moved")).unwrap();
            }
        });
        scope.spawn(|| {
            for round in 0..400_u32 {
                // The directory may not exist at this moment.
                let _ = fs::set_permissions(
                    &busy,
                    fs::Permissions::from_mode(if round & 1 == 0 { 0o644 } else { 0o755 }),
                );
            }
        });
    });
}

#[test]
fn opens_of_every_kind_work_together_on_one_file() {
    let served = Served::start();
    for direct in [Direct::EndToEnd, Direct::Server] {
        let mounted =
            served.mount_with(Transport::Passed, MountOptions { direct, ..MountOptions::default() });
        fs::write(mounted.path("file"), vec![b'-'; 8192]).unwrap();
        let open = |read, write, flags| {
            let mut options = OpenOptions::new();
            options.read(read).write(write).custom_flags(flags).open(mounted.path("file")).unwrap()
        };
        let direct_flag = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let append = rustix::fs::OFlags::APPEND.bits().cast_signed();
        let (reader, writer) = (open(true, false, 0), open(false, true, 0));
        let (both, appender) = (open(true, true, 0), open(false, true, append));
        let unbuffered = open(true, true, direct_flag);
        writer.write_all_at(b"writer", 0).unwrap();
        both.write_all_at(b"both", 10).unwrap();
        (&appender).write_all(b"appended").unwrap();
        let mut page = Page([0; 4096]);
        assert_eq!(unbuffered.read_at(&mut page.0, 0).unwrap(), 4096);
        assert_eq!(&page.0[..16], b"writer----both--");
        page.0.fill(b'd');
        unbuffered.write_all_at(&page.0, 4096).unwrap();
        let mut all = Vec::new();
        (&reader).read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 8200);
        assert_eq!((&all[4096..4100], &all[8192..]), (&b"dddd"[..], &b"appended"[..]));
        for file in [reader, writer, both, appender, unbuffered] {
            drop(file);
        }
        assert_eq!(mounted.mount.report().kernel.opens_refused, 0);
        fs::remove_file(mounted.path("file")).unwrap();
    }
}

/// Aligned for O_DIRECT.
#[repr(align(4096))]
struct Page([u8; 4096]);

#[test]
fn a_file_with_a_read_only_backing_file_can_be_opened_for_writing() {
    let served = Served::with("all_squash,anonuid=1234,anongid=1234");
    fs::write(served.export().join("file"), b"before").unwrap();
    std::os::unix::fs::chown(served.export().join("file"), Some(1234), Some(1234)).unwrap();
    let mounted = served.mount(Transport::Passed);
    let mut reader = File::open(mounted.path("file")).unwrap();
    let writer = OpenOptions::new().read(true).write(true).open(mounted.path("file")).unwrap();
    writer.write_all_at(b"AFTER!", 0).unwrap();
    let mut all = String::new();
    reader.read_to_string(&mut all).unwrap();
    assert_eq!(all, "AFTER!");
    let second = File::open(mounted.path("file")).unwrap();
    assert_eq!(second.metadata().unwrap().ino(), reader.metadata().unwrap().ino());
    drop((reader, writer, second));
    fs::write(mounted.path("file"), b"again").unwrap();
    assert_eq!(fs::read(served.export().join("file")).unwrap(), b"again");
}

/// Without a lane a file that the kernel still writes to by itself is written to over the wire as well.
#[test]
fn a_file_that_stays_passed_through_shows_writes_over_the_wire_at_once() {
    let mut served = Served::start();
    let mounted = served.mount(Transport::Passed);
    let path = mounted.path("file");
    fs::write(&path, b"before").unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let passed = open();
    mounted.mount.set_lane_mode(client::LaneMode::Off);
    wait_for("the lane to end", || !mounted.mount.report().lane.local);
    let over_the_wire = open();
    let before = mounted.mount.report().counters.wire.writes;
    over_the_wire.write_all_at(b"first_", 0).unwrap();
    let mut read = [0; 6];
    passed.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"first_");
    assert!(mounted.mount.report().counters.wire.writes > before);
    passed.write_all_at(b"second", 0).unwrap();
    passed.sync_all().unwrap();
    // What a restarted server may have lost is written again, but not what it has made durable.
    served.kill();
    served.restart();
    drop(over_the_wire);
    drop(passed);
    assert_eq!(fs::read(served.export().join("file")).unwrap(), b"second");
}

#[test]
fn data_is_coherent_from_close_to_open() {
    let served = Served::start();
    for (one, other) in [
        (Transport::Wire, Transport::Wire),
        (Transport::Wire, Transport::Passed),
        (Transport::Served, Transport::Wire),
    ] {
        let (one, other) = (served.mount(one), served.mount(other));
        fs::write(one.path("file"), b"first").unwrap();
        for round in 0..20 {
            let (from, to) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
            assert!(fs::metadata(to.path("file")).is_ok());
            let text = format!("round {round} {}", "x".repeat(round * 500));
            fs::write(from.path("file"), &text).unwrap();
            assert_eq!(fs::read_to_string(to.path("file")).unwrap(), text);
            let mut appender = OpenOptions::new().append(true).open(to.path("file")).unwrap();
            appender.write_all(b"+").unwrap();
            drop(appender);
            assert_eq!(fs::read_to_string(from.path("file")).unwrap(), text + "+");
        }
        fs::remove_file(one.path("file")).unwrap();
    }
}

#[test]
fn unchanged_files_are_read_from_the_page_cache() {
    let served = Served::start();
    let mounted = served.mount(Transport::Wire);
    fs::write(mounted.path("file"), pattern(3, 200_000)).unwrap();
    let reads = || mounted.mount.session().counters().calls(Operation::Read);
    fs::read(mounted.path("file")).unwrap();
    let first = reads();
    for _ in 0..5 {
        assert_eq!(fs::read(mounted.path("file")).unwrap(), pattern(3, 200_000));
    }
    assert_eq!(reads(), first);
    fs::write(served.export().join("file"), b"another client").unwrap();
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"another client");
}

#[test]
fn an_open_file_shows_foreign_writes_in_time() {
    let served = Served::start();
    fs::write(served.export().join("file"), b"first").unwrap();
    let mounted = served.mount(Transport::Wire);
    let file = File::open(mounted.path("file")).unwrap();
    let text = || {
        let mut text = [0; 5];
        file.read_exact_at(&mut text, 0).unwrap();
        text
    };
    assert_eq!(&text(), b"first");
    fs::write(served.export().join("file"), b"other").unwrap();
    wait_for("the other text", || &text() == b"other");
}

#[test]
fn writes_of_a_sync_mount_are_not_passed_through() {
    let served = Served::start();
    let mounted =
        served.mount_with(Transport::Passed, MountOptions { sync: true, ..MountOptions::default() });
    fs::write(mounted.path("file"), b"durable").unwrap();
    let before = mounted.mount.report().counters.lane.commits;
    let reader = File::open(mounted.path("file")).unwrap();
    let writer = OpenOptions::new().write(true).open(mounted.path("file")).unwrap();
    writer.write_all_at(b"DURABLE", 0).unwrap();
    assert!(mounted.mount.report().counters.lane.commits > before);
    let mut text = [0; 7];
    reader.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"DURABLE");
}

#[test]
fn a_large_directory_lists_every_entry_once_and_supports_seeking() {
    let served = Served::start();
    let dir = served.export().join("many");
    fs::create_dir(&dir).unwrap();
    const MANY: usize = 20_000;
    for number in 0..MANY {
        File::create(dir.join(format!("file-with-a-name-{number:05}"))).unwrap();
    }
    let mounted = served.mount(Transport::Wire);
    let names = |entries: fs::ReadDir| {
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(fs::read_dir(mounted.path("many")).unwrap()), names(fs::read_dir(&dir).unwrap()));
    let mut open = rustix::fs::Dir::read_from(File::open(mounted.path("many")).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(entry) = open.read() {
        let entry = entry.unwrap();
        all.push((entry.offset(), entry.file_name().to_owned()));
    }
    for at in [10, MANY - 1000, 100, MANY - 1] {
        open.seek(all[at].0).unwrap();
        let next = open.read().map(|entry| entry.unwrap().file_name().to_owned());
        assert_eq!(next.as_ref(), all.get(at + 1).map(|(_, name)| name), "behind entry {at}");
    }
    open.rewind();
    assert_eq!(open.read().unwrap().unwrap().file_name().to_owned(), all[0].1);

    // A reader during changes sees every entry that stays, once.
    let mut seen = std::collections::HashMap::new();
    for (number, entry) in fs::read_dir(mounted.path("many")).unwrap().enumerate() {
        *seen.entry(entry.unwrap().file_name()).or_insert(0) += 1;
        if number % 100 == 0 {
            File::create(mounted.path(&format!("many/new-{number}"))).unwrap();
            fs::remove_file(mounted.path(&format!("many/file-with-a-name-{:05}", MANY - 1 - number)))
                .unwrap();
        }
    }
    assert!(seen.values().all(|times| *times == 1));
    let stayed = |number: usize| !number.is_multiple_of(100);
    for number in (0..MANY).filter(|number| stayed(MANY - 1 - number)) {
        assert!(
            seen.contains_key(std::ffi::OsStr::new(&format!("file-with-a-name-{number:05}"))),
            "{number}"
        );
    }
    fs::remove_dir_all(mounted.path("many")).unwrap();
    assert!(!dir.exists());
}

#[test]
fn a_process_waiting_for_a_dead_server_can_be_killed() {
    let served = Served::without_tree();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        fs::write(mounted.path("file"), b"data").unwrap();
        served.freeze();
        let mut child = Command::new("sh")
            .args([
                "-c",
                &format!("trap : USR1; echo ready; stat {}/missing-{transport:?}", mounted.root().display()),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        wait_for("the request", || mounted.mount.report().kernel.requests_under_way > 0);
        let waiting = children(child.id());
        for pid in &waiting {
            // A signal that isn't fatal changes nothing; a later one still interrupts.
            let _ = Command::new("kill").args(["-WINCH", &pid.to_string()]).status();
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(mounted.mount.report().kernel.requests_under_way > 0);
        for pid in waiting {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for("the request to be aborted", || mounted.mount.report().kernel.requests_under_way == 0);
        served.thaw();
        assert_eq!(fs::read(mounted.path("file")).unwrap(), b"data");
        fs::remove_file(mounted.path("file")).unwrap();
    }
}

fn children(of: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_restart_of_the_server_is_transparent() {
    let mut served = Served::start();
    for clean in [true, false] {
        let mounted = served.mount(Transport::Passed);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
        let file = file.open(mounted.path("file")).unwrap();
        file.write_all_at(b"before", 0).unwrap();
        if clean {
            served.stop()
        } else {
            served.kill()
        }
        wait_for("the lane to go", || !mounted.mount.report().lane.local);
        // The kernel has the backing file open: its I/O continues.
        file.write_all_at(b"during", 6).unwrap();
        served.restart();
        file.write_all_at(b"after!", 12).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(mounted.path("file")).unwrap(), b"beforeduringafter!");
        wait_for("the lane to come back", || {
            let _ = fs::read(mounted.path("file"));
            mounted.mount.report().lane.local
        });
        let passed = mounted.mount.report().kernel.opens_passed_through;
        drop(file);
        wait_for("passthrough again", || {
            let _ = fs::read(mounted.path("file"));
            mounted.mount.report().kernel.opens_passed_through > passed
        });
    }
}

#[test]
fn unmounting_works_while_the_server_is_down() {
    let mut served = Served::start();
    let mounted = served.mount(Transport::Wire);
    fs::write(mounted.path("file"), b"data").unwrap();
    served.kill();
    mounted.mount.unmount(false).unwrap();
    assert_eq!(samehost_mount::mountinfo::find(mounted.root()).unwrap(), None);
}

#[test]
fn fallocate_lseek_and_copy_file_range_work_where_the_filesystem_has_them() {
    let served = Served::start();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
        let (file, copy) = (file.open(mounted.path("a")).unwrap(), file.open(mounted.path("b")).unwrap());
        file.write_all_at(b"head", 0).unwrap();
        file.write_all_at(b"tail", 1 << 20).unwrap();
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
        assert_eq!((hole <= (1 << 20) + 4, data), (true, 0));
        let copied =
            rustix::fs::copy_file_range(&file, Some(&mut (1 << 20)), &copy, Some(&mut 0), 4).unwrap();
        assert_eq!(copied, 4);
        assert_eq!(fs::read(mounted.path("b")).unwrap(), b"tail", "{transport:?}");
        let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 << 20);
        if transport == Transport::Wire3 {
            assert_eq!(allocated, Err(rustix::io::Errno::OPNOTSUPP));
        } else {
            allocated.unwrap();
            assert_eq!(file.metadata().unwrap().len(), 2 << 20);
        }
        drop((file, copy));
        fs::remove_file(mounted.path("a")).unwrap();
        fs::remove_file(mounted.path("b")).unwrap();
    }
}

#[test]
fn a_directory_is_removable_when_its_hidden_files_are_closed() {
    let served = Served::start();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        // In a process of its own, because processes that other tests start inherit this one's open files for
        // a moment.
        let script = format!(
            "import os, errno
os.chdir('{}')
for round in range(20):
    os.mkdir('dir')
    files = [open('dir/%d' % file, 'w') for file in range(8)]
    for file in range(8):
        os.remove('dir/%d' % file)
    if round == 0:
        try:
            os.rmdir('dir')
            raise SystemExit('they are open')
        except OSError as error:
            assert error.errno == errno.ENOTEMPTY, error
    for file in files:
        file.close()
    if round % 2:
        os.mkdir('other')
        os.rename('other', 'dir')
    os.rmdir('dir')",
            mounted.root().display()
        );
        let output = Command::new("python3").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{transport:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn an_unmount_removes_hidden_files() {
    let served = Served::start();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        let file = File::create(mounted.path("file")).unwrap();
        fs::remove_file(mounted.path("file")).unwrap();
        assert_eq!(fs::read_dir(served.export()).unwrap().count(), 1);
        mounted.mount.unmount(true).unwrap();
        drop(file);
        wait_for("the hidden name to go", || fs::read_dir(served.export()).unwrap().next().is_none());
    }
}

#[test]
fn names_in_an_unchanged_directory_are_looked_up_once() {
    let served = Served::start();
    let private = served.export().join("private");
    fs::create_dir(&private).unwrap();
    fs::write(private.join("file"), b"data").unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    for cache in [LookupCache::All, LookupCache::Positive, LookupCache::None] {
        let options = MountOptions { lookup_cache: cache, ..MountOptions::default() };
        let mounted = served.mount_with(Transport::Wire, options);
        let file = mounted.path("private/file");
        let lookups = || mounted.mount.session().counters().calls(Operation::Lookup);
        assert!(fs::symlink_metadata(&file).is_ok());
        let first = lookups();
        for _ in 0..10 {
            assert!(fs::symlink_metadata(&file).is_ok());
        }
        match cache {
            LookupCache::None => assert_eq!(lookups(), first + 20),
            LookupCache::All | LookupCache::Positive => assert_eq!(lookups(), first, "{cache:?}"),
        }
        // In a private directory every path walk is a LOOKUP.
        assert!(!shell_as(1000, 1000, "", &format!("cat {}", file.display())).1);
        // Changes through this mount update the cache.
        fs::rename(&file, mounted.path("private/moved")).unwrap();
        assert!(!file.exists() && mounted.path("private/moved").exists());
        fs::rename(mounted.path("private/moved"), &file).unwrap();
        // Foreign changes show when the directory's attributes are fetched again, at the latest by a listing.
        fs::remove_file(private.join("file")).unwrap();
        fs::write(private.join("new"), b"data").unwrap();
        assert_eq!(fs::read_dir(mounted.path("private")).unwrap().count(), 1);
        assert!(!file.exists(), "{cache:?}");
        fs::rename(private.join("new"), private.join("file")).unwrap();
    }
}

#[test]
fn a_stale_handle_makes_its_name_looked_up_again() {
    let served = Served::start();
    let private = served.export().join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        fs::write(private.join("file"), b"old").unwrap();
        assert_eq!(fs::read(mounted.path("private/file")).unwrap(), b"old");
        fs::write(private.join("new"), b"new").unwrap();
        fs::rename(private.join("new"), private.join("file")).unwrap();
        // The cached directory shows no change, but the server says that the handle is stale.
        assert_eq!(fs::read(mounted.path("private/file")).unwrap(), b"new", "{transport:?}");
    }
}

#[test]
fn set_id_bits_set_during_an_open_are_cleared_by_the_next_write() {
    let served = Served::start();
    fs::set_permissions(served.export(), fs::Permissions::from_mode(0o777)).unwrap();
    for transport in TRANSPORTS_AND_VERSIONS {
        let mounted = served.mount(transport);
        let script = format!(
            "python3 -c 'import os
fd = os.open(\"{0}\", os.O_RDWR | os.O_CREAT, 0o777)
os.write(fd, b\"before\")
os.chmod(\"{0}\", 0o6777)
os.write(fd, b\"after\")
print(oct(os.fstat(fd).st_mode & 0o7777))'",
            mounted.path("program").display()
        );
        let (said, ok) = shell_as(4321, 4321, "", &script);
        assert!(ok && said.trim() == "0o777", "{transport:?}: {said}");
        assert_eq!(fs::metadata(served.export().join("program")).unwrap().mode() & 0o7777, 0o777);
        fs::remove_file(served.export().join("program")).unwrap();
    }
}
