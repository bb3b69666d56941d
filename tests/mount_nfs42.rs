//! What system calls can do over NFSv4.2, by the programs that people use for it: each step runs on a mount
//! and in a plain directory, and prints the same.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use samehost_tests::disk::Disk;
use samehost_tests::process::{run_within, wait_for};
use samehost_tests::scratch::pattern;
use samehost_tests::{DataPath, Mount, Scratch, Serve, need_root, run_ok};

/// The longest time for one step; generous, so that slow machines pass.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);

/// The data paths of the mounts: NFS by itself, granted files, and a tree by /dev/fuse and over io_uring.
const DATA_PATHS: [&str; 4] = ["wire", "files", "tree", "tree_uring"];

/// What a shell script prints in a directory, errors included, and whether its last command succeeded.
fn output(dir: &Path, script: &str) -> String {
    let mut command = Command::new("sh");
    // Messages name the program and the file, not the directory.
    command.args(["-c", &format!("exec 2>&1; LC_ALL=C; export LC_ALL\n{script}\necho status $?")]);
    let output = run_within(command.current_dir(dir), STEP_TIMEOUT);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs every script in a plain directory and on mounts of another, by NFSv4.2, and compares what they print
/// and the files, of which `files` prints a summary.
fn compare(scripts: &[(&str, &str)], files: &str) {
    need_root();
    // Which filesystem it is must not depend on the machine.
    let disk = Disk::in_directory("ext4", 600, Path::new("/dev/shm"));
    for name in DATA_PATHS {
        let [export, plain] = ["export", "plain"].map(|kind| disk.path().join(format!("{kind}-{name}")));
        for directory in [&export, &plain] {
            std::fs::create_dir(directory).expect("a directory");
        }
        let path = DataPath::named(name);
        let server = path.serve(&export).start();
        let Some(mount) = path.mount(&server, &export, "vers=4.2") else { continue };
        for (what, script) in scripts {
            let expected = output(&plain, script);
            assert_eq!(output(mount.path(), script), expected, "{what}, {name}");
        }
        assert_eq!(output(&export, files), output(&plain, files), "{name}");
    }
}

#[test]
fn extended_attributes_are_those_of_a_local_directory() {
    compare(
        &[
            ("set and get", "touch f; setfattr -n user.a -v one f && getfattr -d f"),
            ("replace", "setfattr -n user.a -v two f && getfattr -n user.a f"),
            ("an empty value", "setfattr -n user.empty f && getfattr -n user.empty f"),
            ("a missing one", "getfattr -n user.none f"),
            ("remove", "setfattr -x user.a f && getfattr -d f"),
            ("remove a missing one", "setfattr -x user.a f"),
            ("of a directory", "mkdir d; setfattr -n user.dir -v 0x00ff d && getfattr -e hex -d d"),
            ("of a symbolic link", "ln -s f l; setfattr -h -n user.a -v x l; getfattr -h -n user.a l"),
            ("of a pipe", "mkfifo p; setfattr -n user.a -v x p; getfattr -n user.a p"),
            (
                "of a file that may not be written",
                "setpriv --reuid=4321 --clear-groups setfattr -n user.a -v x f",
            ),
            (
                "flags and sizes",
                "touch g; python3 -c '
import os
def attempt(call, *args):
    try:
        print(call.__name__, call(*args))
    except OSError as error:
        print(call.__name__, error.errno)
attempt(os.setxattr, \"g\", \"user.a\", b\"1\", os.XATTR_REPLACE)
attempt(os.setxattr, \"g\", \"user.a\", b\"1\", os.XATTR_CREATE)
attempt(os.setxattr, \"g\", \"user.a\", b\"2\", os.XATTR_CREATE)
attempt(os.setxattr, \"g\", \"user.a\", b\"3\", os.XATTR_REPLACE)
attempt(os.getxattr, \"g\", \"user.a\")
attempt(os.setxattr, \"g\", \"user.big\", bytes(2000))
attempt(lambda: len(os.getxattr(\"g\", \"user.big\")))
attempt(os.setxattr, \"g\", \"user.\" + 251 * \"x\", b\"1\")
attempt(os.setxattr, \"g\", \"user.\" + 250 * \"x\", b\"1\")
attempt(lambda: len(os.listxattr(\"g\")))
file = os.open(\"g\", os.O_RDWR)
os.unlink(\"g\")
attempt(os.getxattr, file, \"user.a\")
'",
            ),
            ("many", "touch m; for i in $(seq 1 60); do setfattr -n user.$i -v $i m; done; getfattr -d m"),
            ("copied by cp", "cp --preserve=xattr m n && getfattr -d n"),
            ("kept by tar", "tar --xattrs -cf m.tar m && rm m && tar --xattrs -xf m.tar && getfattr -d m"),
        ],
        "getfattr -R -d -m '^user\\.' . | grep -v '^# file' | sort",
    );
}

/// Prints the size of each file, a checksum, and where it has data.
const MAP: &str = r#"
import os, sys, zlib
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        size, at, data = os.fstat(file.fileno()).st_size, 0, []
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                data.append(error.errno)
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            data.append((start, at))
        file.seek(0)
        print(name, size, zlib.crc32(file.read()), data)
"#;

/// Copies between files and within them, and prints the results or errors.
const COPY: &str = r#"
import os
def copy(*args):
    try:
        print(args[2:], os.copy_file_range(*args))
    except OSError as error:
        print(args[2:], error.errno)
source, target = os.open("data", os.O_RDONLY), os.open("ranges", os.O_RDWR | os.O_CREAT)
writer = os.open("ranges", os.O_WRONLY)
copy(source, target, 100, 50, 0)
copy(source, target, 65536, 4096, 1 << 20)
copy(source, writer, 1 << 20, 1 << 20, 5)
copy(source, target, 1 << 30, (2 << 20) - 10, 0)
copy(source, target, 10, 2 << 20, 0)
copy(source, target, 10, 3 << 20, 0)
copy(source, target, 0, 0, 0)
copy(target, target, 8192, 0, 100_000)
copy(target, target, 8192, 0, 4096)
copy(writer, target, 10, 0, 0)
copy(target, source, 10, 0, 0)
"#;

#[test]
fn space_holes_and_copies_are_those_of_a_local_directory() {
    let scripts = Scratch::new();
    std::fs::write(scripts.join("map.py"), MAP).expect("a script");
    std::fs::write(scripts.join("copy.py"), COPY).expect("a script");
    let map = |files: &str| format!("python3 {} {files}", scripts.join("map.py").display());
    let copy = format!("python3 {}; {}", scripts.join("copy.py").display(), map("ranges"));
    std::fs::write(scripts.join("data"), pattern(7, 2 << 20)).expect("a file");
    let data = format!("cp {} data", scripts.join("data").display());
    compare(
        &[
            ("data", &data),
            ("allocate", &format!("fallocate -l 1M allocated && {}", map("allocated"))),
            ("allocate a part", &format!("fallocate -o 512K -l 1M allocated && {}", map("allocated"))),
            (
                "punch a hole",
                &format!("cp data holes; fallocate -p -o 64K -l 128K holes && {}", map("holes")),
            ),
            ("punch a hole beyond the end", &format!("fallocate -p -o 4M -l 64K holes && {}", map("holes"))),
            ("punch a part of a block", &format!("fallocate -p -o 1000001 -l 333 holes && {}", map("holes"))),
            ("zero a range", &format!("cp data zeros; fallocate -z -o 1M -l 2M zeros && {}", map("zeros"))),
            ("dig holes", "cp zeros dug && fallocate -d dug && cmp zeros dug"),
            ("a sparse file", &format!("truncate -s 5M sparse; cat data >> sparse; {}", map("sparse"))),
            ("cp", &format!("cp --sparse=always sparse copy && cmp sparse copy && {}", map("copy"))),
            (
                "cp within the server",
                &format!("cp --sparse=never sparse full && cmp sparse full && {}", map("full")),
            ),
            ("copy_file_range", &copy),
            (
                "a long copy, which the server may make asynchronously",
                &format!(
                    "seq 3000000 | head -c 20000000 > long; cp long longer; cmp long longer; {}",
                    map("longer")
                ),
            ),
            ("an empty file", &format!("touch empty; cp empty empty2; {}", map("empty empty2"))),
            (
                "no space change of a file that is read only",
                "exec 3< data; fallocate -l 4M /dev/fd/3 >/dev/null",
            ),
            (
                "tar",
                "tar --sparse -cf - sparse holes | (mkdir out && tar -C out -xf -)
                 cmp sparse out/sparse && cmp holes out/holes",
            ),
        ],
        &map("$(find . -type f | sort)"),
    );
}

/// Over the wire by NFSv4.2, holes aren't sent: READ_PLUS says how long they are.
#[test]
fn holes_are_read_as_holes() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    assert_eq!(
        output(&export, "truncate -s 20M f; echo data | dd of=f seek=20480 conv=notrunc status=none"),
        "status 0\n"
    );
    let server = Serve::openly(&export).start();
    for version in ["4.2", "4.1"] {
        let calls = |name| server.status().calls("wire", name);
        let before = ["NFS4.READ_PLUS", "NFS4.READ"].map(calls);
        let mount = Mount::new(&server, &export, &format!("lane=off,vers={version}"));
        let same = format!("cmp f {} && cmp {0} f", export.join("f").display());
        assert_eq!(output(mount.path(), &same), "status 0\n", "{version}");
        let [plus, plain] = ["NFS4.READ_PLUS", "NFS4.READ"].map(calls);
        assert_eq!((plus > before[0], plain > before[1]), (version == "4.2", version == "4.1"), "{version}");
    }
}

/// FUSE has no request for FICLONE: the kernel refuses it. copy_file_range(2) becomes a COPY, by which the
/// server's filesystem shares the blocks.
#[test]
fn copies_share_blocks_where_the_servers_filesystem_can() {
    need_root();
    let disk = Disk::new("xfs", 320);
    let export = disk.path().join("export");
    std::fs::create_dir(&export).expect("a directory");
    std::fs::write(export.join("data"), pattern(3, 4 << 20)).expect("a file");
    let plain = output(&export, "cp --reflink=always data plain");
    assert_eq!(plain, "status 0\n", "the filesystem can do it");
    for name in ["wire", "tree"] {
        let path = DataPath::named(name);
        let server = path.serve(&export).start();
        let Some(mount) = path.mount(&server, &export, "vers=4.2") else { continue };
        let refused = output(mount.path(), "cp --reflink=always data refused");
        assert!(refused.contains("Operation not supported"), "{name}: {refused}");
        assert_eq!(output(mount.path(), "cp data copy && cmp data copy"), "status 0\n", "{name}");
        let extents = output(&export, "filefrag -v copy");
        assert!(extents.contains("shared"), "{name}: {extents}");
        std::fs::remove_file(export.join("copy")).expect("removed");
    }
}

/// The server copies asynchronously. If the program is killed meanwhile, it stops.
#[test]
fn a_killed_program_cancels_its_copy() {
    const COPY: &str = "import os
source, target = os.open('from', os.O_RDONLY), os.open('to', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
while os.copy_file_range(source, target, 1 << 30):
    pass
";
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    assert_eq!(output(&export, "truncate -s 512M from"), "status 0\n");
    let server = Serve::openly(&export).start();
    let mount = Mount::new(&server, &export, "lane=off,vers=4.2");
    // A kill may come between two copies.
    let is_cancelled = (0..50).any(|_| {
        let mut command = Command::new("python3");
        let mut program = command.args(["-c", COPY]).current_dir(mount.path()).spawn().expect("python3");
        wait_for("the copy to begin", || {
            std::fs::metadata(export.join("to")).is_ok_and(|to| to.len() > 0).then_some(())
        });
        program.kill().expect("it is there or done");
        program.wait().expect("an end");
        std::fs::remove_file(export.join("to")).expect("removed");
        server.status().calls("wire", "NFS4.OFFLOAD_CANCEL") > 0
    });
    assert!(is_cancelled, "no copy was asynchronous, or none was cancelled");
}

#[test]
fn files_have_birth_times() {
    need_root();
    let disk = Disk::in_directory("ext4", 100, Path::new("/dev/shm"));
    let export = disk.path().join("export");
    std::fs::create_dir(&export).expect("a directory");
    std::fs::write(export.join("file"), "").expect("a file");
    let birth = |at: &Path| output(at, "stat -c '%W %w' file .");
    for name in DATA_PATHS {
        let path = DataPath::named(name);
        let server = path.serve(&export).start();
        for (version, is_told) in [("4.2", true), ("4.1", true), ("3", false)] {
            let options = format!("vers={version}");
            let Some(mount) = path.mount(&server, &export, &options) else { continue };
            assert_eq!(birth(mount.path()) == birth(&export), is_told, "{name}, {version}");
            assert_eq!(output(mount.path(), "stat -c %s file"), "0\nstatus 0\n", "{name}, {version}");
        }
    }
}

/// Copies between two files of one server leave the data there.
#[test]
fn samehost_cp_within_a_server_is_a_copy_by_the_server() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let data = pattern(5, 20 << 20);
    std::fs::write(export.join("data"), &data).expect("a file");
    let server = Serve::openly(&export).start();
    for version in ["4.2", "4.1"] {
        let url = |name: &str| format!("{}?vers={version}&lane=off", server.url(export.join(name)));
        let read = || server.status().calls("wire", "NFS4.READ");
        let before = read();
        run_ok(&mut server.client(&["cp", &url("data"), &url("copy")]));
        assert!(std::fs::read(export.join("copy")).expect("a file") == data, "{version}");
        assert_eq!(read() == before, version == "4.2", "{version}: the data stays on the server");
        std::fs::remove_file(export.join("copy")).expect("removed");
    }
}

/// NFSv3 and 4.1 have none, with a tree, too.
#[test]
fn older_versions_have_no_extended_attributes() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    std::fs::write(export.join("file"), "").expect("a file");
    let server = Serve::openly(&export).start();
    for (version, way) in [("3", "lane=off"), ("3", "lane=required"), ("4.1", "lane=required")] {
        let mount = Mount::new(&server, &export, &format!("{way},vers={version}"));
        for script in ["setfattr -n user.a -v 1 file", "getfattr -n user.a file"] {
            let said = output(mount.path(), script);
            assert!(said.contains("Operation not supported"), "{version}, {way}, {script}: {said}");
        }
    }
}

/// A file's access control list by the programs for NFSv4's, and the POSIX list that the server's filesystem
/// has.
#[test]
fn access_control_lists_are_read_and_written_by_nfs4_acl_tools() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let posix = |name: &str| output(&export, &format!("getfacl -cn {name}"));
    for (version, way) in [("4.2", "lane=off"), ("4.1", "lane=off"), ("4.2", "lane=required")] {
        let mount = Mount::new(&server, &export, &format!("{way},vers={version}"));
        let run = |script: &str| output(mount.path(), script);
        let case = format!("{version}, {way}");
        run("rm -rf f g d; touch f g; chmod 640 f; mkdir d");
        let list = run("nfs4_getfacl f");
        assert!(list.contains("A::OWNER@:rw") && list.ends_with("status 0\n"), "{case}: {list}");
        assert_eq!(run("nfs4_setfacl -a A::1234:RWX f"), "status 0\n", "{case}");
        let set = posix("f");
        assert!(set.contains("user:1234:rwx") && set.contains("other::---"), "{case}: {set}");
        assert!(run("nfs4_getfacl f").contains("A::1234:rwax"), "{case}");
        assert_eq!(run("stat -c %a f"), "670\nstatus 0\n", "{case}: the mask is the mode's group");
        assert_eq!(run("nfs4_getfacl f | grep -v '^#' | nfs4_setfacl -S - g"), "status 0\n", "{case}");
        assert_eq!(posix("g"), set, "{case}: a copy of the list");
        assert_eq!(run("nfs4_setfacl -a A:fdg:77:rx d && touch d/new"), "status 0\n", "{case}");
        let inherited = posix("d/new");
        assert!(inherited.contains("group:77:r-x"), "{case}: {inherited}");
        assert!(
            !run("nfs4_setfacl -a A::nobody-has-this-name@nowhere:r f").ends_with("status 0\n"),
            "{case}"
        );
        assert!(!run("setpriv --reuid=4321 --clear-groups nfs4_setfacl -a A::77:r f").ends_with(" 0\n"));
        assert_eq!(posix("f"), set, "{case}: refused lists change nothing");
        // The same list in the other form.
        assert_eq!(run("getfacl -cn f"), set, "{case}");
        assert_eq!(run("setfacl -m u:55:r f"), "status 0\n", "{case}");
        assert!(run("nfs4_getfacl f").contains("A::55:r"), "{case}");
    }
    let mount = Mount::new(&server, &export, "lane=off,vers=3");
    let said = output(mount.path(), "nfs4_getfacl f");
    assert!(said.contains("not supported"), "{said}");
}
