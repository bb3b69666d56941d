//! Set-id bits of a file that is written by a user who may not keep them: the kernel must drop its cached
//! mode.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use samehost_mount::MountOptions;
use support::{Mounted, Served, TRANSPORTS, shell_as};

const OWNER: u32 = 5000;
const WRITER: u32 = 4321;

/// Makes a copy of id(1) that belongs to [`OWNER`] and that everybody may write.
fn create_program(served: &Served, mode: u32) {
    let program = served.export().join("program");
    let _ = fs::remove_file(&program);
    // By cp(1): a child that another test forks could have a descriptor of this process open for writing, and
    // the kernel executes no such file.
    assert!(Command::new("cp").arg("/usr/bin/id").arg(&program).status().unwrap().success());
    std::os::unix::fs::chown(&program, Some(OWNER), Some(OWNER)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
}

fn mount(served: &Served, transport: support::Transport) -> Mounted {
    served.mount_with(transport, MountOptions { suid: true, ..MountOptions::default() })
}

/// Runs a Python script as the writer and returns its output. In it `path` is the program's path and `end`
/// its size, and `look()` prints its mode and the IDs that it runs as.
fn as_writer(program: &Path, script: &str) -> String {
    let script = format!(
        r#"python3 - <<'END'
import os, subprocess
path = "{}"
end = os.stat(path).st_size
def look():
    words = [["stat", "-c", "%A", path], [path, "-u"], [path, "-g"]]
    print(*(subprocess.run(word, capture_output=True, text=True).stdout.strip() for word in words))
{script}
END"#,
        program.display()
    );
    let (said, ok) = shell_as(WRITER, WRITER, "", &script);
    assert!(ok, "{said}");
    said.trim().to_owned()
}

#[test]
fn an_overwritten_program_does_not_run_as_its_owner() {
    let served = Served::start();
    for transport in TRANSPORTS {
        for (what, change) in [
            ("write", "fd = os.open(path, os.O_WRONLY); os.pwrite(fd, b'x', end); os.close(fd)"),
            ("append", "fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, b'x'); os.close(fd)"),
            ("truncate", "fd = os.open(path, os.O_WRONLY); os.ftruncate(fd, end + 1); os.close(fd)"),
            ("truncate by name", "os.truncate(path, end + 1)"),
        ] {
            create_program(&served, 0o6777);
            let mounted = mount(&served, transport);
            let said = as_writer(&mounted.path("program"), &format!("look()\n{change}\nlook()"));
            let before = format!("-rwsrwsrwx {OWNER} {OWNER}");
            let after = format!("-rwxrwxrwx {WRITER} {WRITER}");
            assert_eq!(said, format!("{before}\n{after}"), "{transport:?}, {what}");
        }
    }
}

/// The bits are set on the server while the file is open for writing, and passed through if possible.
#[test]
fn bits_set_while_the_file_is_open_are_cleared_by_the_next_write() {
    let served = Served::start();
    for transport in TRANSPORTS {
        create_program(&served, 0o777);
        let mounted = mount(&served, transport);
        let server_side = served.export().join("program");
        // A thread sets them on the server's side when the writer has opened the file.
        let ready = served.export().join("ready");
        let _ = fs::remove_file(&ready);
        fs::set_permissions(served.export(), fs::Permissions::from_mode(0o777)).unwrap();
        let said = std::thread::scope(|scope| {
            scope.spawn(|| {
                support::wait_for("the writer", || ready.exists());
                fs::set_permissions(&server_side, fs::Permissions::from_mode(0o6777)).unwrap();
                fs::remove_file(&ready).unwrap();
            });
            let script = format!(
                "import time\nfd = os.open(path, os.O_WRONLY)\nready = '{}'\nopen(ready, 'w').close()\n\
                 while os.path.exists(ready): time.sleep(0.01)\n\
                 os.stat(path)\nos.pwrite(fd, b'x', end)\nos.close(fd)\nlook()",
                ready.display()
            );
            as_writer(&mounted.path("program"), &script)
        });
        assert_eq!(said, format!("-rwxrwxrwx {WRITER} {WRITER}"), "{transport:?}");
        assert_eq!(fs::metadata(&server_side).unwrap().permissions().mode() & 0o7777, 0o777, "{transport:?}");
    }
}

#[test]
fn writes_by_root_keep_the_bits() {
    let served = Served::start();
    for transport in TRANSPORTS {
        create_program(&served, 0o4755);
        let mounted = mount(&served, transport);
        let program = mounted.path("program");
        let end = fs::metadata(&program).unwrap().len();
        let file = fs::OpenOptions::new().write(true).open(&program).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", end).unwrap();
        drop(file);
        assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o4755, "{transport:?}");
    }
}
