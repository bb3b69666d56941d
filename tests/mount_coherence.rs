//! Close-to-open consistency between the clients of one directory: a mount over each data path, and the Linux
//! kernel's client. What one of them has written and closed, named, or removed, the others see at their next
//! open, whatever they have cached.
//!
//! The guest is in charge: it lets each client make every change, and all clients check each result.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use samehost_tests::qemu::{self, Job};
use samehost_tests::{DataPath, Mount, Scratch, Serve, Server, need_root, wait_for};

/// Under emulation a guest boots in some seconds, and runs the plan in less than a minute.
const GUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Changes that are further apart have different time stamps, by which NFSv3 clients detect them.
const TICK: Duration = Duration::from_millis(20);

/// The guest's plan. `EXPORT` is replaced by the export's path, `CLIENTS` by the names of the mounts and
/// `kernel`.
const PLAN: &str = r#"
mount_export shared EXPORT rw && echo PASS mounted
top=/mnt/shared
clients="CLIENTS"

# does CLIENT VERB NAME WORD: runs it on that client; the reason of a failure goes to /tmp/why.
does() {
    if [ "$1" = kernel ]; then
        shift
        kernel "$@"
    else
        echo "HOST $*"
        read -r answer </dev/console
        [ "$answer" = ok ] || { echo "$answer" >/tmp/why; return 1; }
    fi
}

kernel() {
    file=$top/$2
    case $1 in
    write) printf %s "$3" >"$file" ;;
    append) printf %s "$3" >>"$file" ;;
    truncate) truncate -s "$3" "$file" ;;
    mode) chmod "$3" "$file" ;;
    replace) printf %s "$3" >"$file.new" && mv "$file.new" "$file" ;;
    remove) rm "$file" ;;
    is) saw=$(cat "$file") && [ "$saw" = "$3" ] ;;
    has-mode) exec 3<"$file" && saw=$(stat -L -c %a /proc/self/fd/3) && exec 3<&- && [ "$saw" = "$3" ] ;;
    gone) ! cat "$file" 2>/dev/null ;;
    esac || { echo "it is '$saw'" >/tmp/why; return 1; }
}

# round VERB WORD CHECK EXPECTED: after the writer's change all clients must find the expected state.
round() {
    does wire tick "$name" -
    does "$writer" "$1" "$name" "$2" || echo "FAIL $writer.$1: $(cat /tmp/why)"
    for reader in $clients; do
        does "$reader" "$3" "$name" "$4" && echo "PASS $writer.$1.$reader" ||
            echo "FAIL after $writer's $1 $2: $reader: not $3 $4: $(cat /tmp/why)"
    done
}

for writer in $clients; do
    name=by-$writer
    round write first is first
    round write other is other # the same length as before
    round append +more is other+more
    round truncate 5 is other
    round mode 640 has-mode 640
    round replace fresh is fresh
    round append -er is fresh-er
    round remove - gone -
done
name=log
sum=
for writer in $clients $clients; do
    sum=$sum$writer,
    round append "$writer," is "$sum"
done
umount $top && echo PASS umount
"#;

/// Executes the guest's request `CLIENT VERB NAME WORD` on a mount of the host; "ok", or the reason.
fn answer(request: &str, mounts: &[(&str, &Mount)], export: &Path) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    let [client, verb, name, word] = words.as_slice() else { return format!("{request}?") };
    let Some((_, mount)) = mounts.iter().find(|(mount, _)| mount == client) else {
        return format!("{client}?");
    };
    match change_or_check(verb, mount, export, name, word) {
        Ok(None) => "ok".to_owned(),
        Ok(Some(saw)) => format!("it is '{saw}'"),
        Err(error) => error.to_string(),
    }
}

/// Makes a change or checks a state; returns the state that was found if it isn't the expected one.
fn change_or_check(
    verb: &str,
    mount: &Mount,
    export: &Path,
    name: &str,
    word: &str,
) -> Result<Option<String>> {
    let path = mount.join(name);
    let number = |radix| u32::from_str_radix(word, radix).expect("a number");
    let other_than = |saw: String| (saw != word).then_some(saw);
    match verb {
        "tick" => {
            wait_for("the clock", || {
                let Ok(file) = fs::metadata(export.join(name)) else { return Some(()) };
                let changed = UNIX_EPOCH + Duration::new(file.ctime() as u64, file.ctime_nsec() as u32);
                (changed + TICK < SystemTime::now()).then_some(())
            });
        }
        "write" => fs::write(&path, word)?,
        "append" => fs::File::options().create(true).append(true).open(&path)?.write_all(word.as_bytes())?,
        "truncate" => fs::File::options().write(true).open(&path)?.set_len(number(10).into())?,
        "mode" => fs::set_permissions(&path, Permissions::from_mode(number(8)))?,
        "replace" => {
            let new = path.with_extension("new");
            fs::write(&new, word)?;
            fs::rename(&new, &path)?;
        }
        "remove" => fs::remove_file(&path)?,
        "is" => return Ok(other_than(fs::read_to_string(&path)?)),
        "has-mode" => {
            let mode = fs::File::open(&path)?.metadata()?.permissions().mode() & 0o7777;
            return Ok(other_than(format!("{mode:o}")));
        }
        "gone" => match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            there => return there.map(Some),
        },
        other => return Ok(Some(format!("{other}?"))),
    }
    Ok(None)
}

#[test]
fn changes_closed_by_one_client_are_seen_by_the_others_opens() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let mut clients: Vec<(DataPath, Server, Mount)> = Vec::new();
    for path in DataPath::all() {
        let server = path.serve(&export).start();
        if let Some(mount) = path.mount(&server, &export, "") {
            clients.push((path, server, mount));
        }
    }
    let mounts: Vec<_> = clients.iter().map(|(path, _, mount)| (path.name, mount)).collect();
    let names: Vec<_> = mounts.iter().map(|(name, _)| *name).chain(["kernel"]).collect();
    let plan = PLAN.replace("EXPORT", &export.display().to_string()).replace("CLIENTS", &names.join(" "));
    let port = clients[0].1.port();
    let job = Job { nfs_port: port, mount_port: port, anon_uid: 65534, plan: &plan };
    let report = qemu::boot(&job, None, GUEST_TIMEOUT, |request| answer(request, &mounts, &export));
    // Each client makes eight changes, and each makes two in turn with the others; all check each change.
    report.assert_passed(1 + names.len() * (8 + 2) * names.len() + 1);
    for (path, _, mount) in &clients {
        assert_eq!(mount.status().expect("a mount")["road"], path.status, "{}", path.name);
    }
}

/// A missing name may be cached for as long as its directory's attributes are valid, except with these
/// options.
#[test]
fn these_options_disable_the_cache_of_missing_names() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    for options in [
        "lane=off,lookupcache=pos",
        "lane=required,lookupcache=pos",
        "lane=off,noac",
        "lane=off,lookupcache=none",
    ] {
        let mount = Mount::new(&server, &export, options);
        for name in ["file", "directory"] {
            let path = mount.join(name);
            assert_eq!(
                fs::metadata(&path).map(drop).map_err(|e| e.kind()),
                Err(ErrorKind::NotFound),
                "{options}"
            );
            if name == "file" {
                fs::write(export.join(name), "there").expect("own directory");
                assert_eq!(fs::read_to_string(&path).expect("it is there now"), "there", "{options}");
                fs::remove_file(export.join(name)).expect("own file");
            } else {
                fs::create_dir(export.join(name)).expect("own directory");
                assert!(fs::read_dir(&path).expect("it is there now").next().is_none(), "{options}");
                fs::remove_dir(export.join(name)).expect("own directory");
            }
        }
    }
}
