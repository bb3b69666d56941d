//! One export, three kinds of clients: a mount by wire, a mount by the lane, and the Linux kernel's own
//! client. What one of them has written and closed, named, or removed, the others find when they open it
//! next, whatever they remembered.
//!
//! The guest leads: it has each of the three make every change, and has all of them look after each.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use samehost_tests::qemu::{self, Job};
use samehost_tests::{Mount, Scratch, Serve, need_root, wait_for};

/// Under emulation a guest boots in some seconds, and does this in less than a minute.
const BOUND: Duration = Duration::from_secs(300);

/// Later than this two changes can't have the same time, by which NFSv3's clients know them.
const TICK: Duration = Duration::from_millis(20);

/// What the guest does; `EXPORT` is its path.
const PLAN: &str = r#"
mount_export shared EXPORT rw && echo PASS mounted
top=/mnt/shared
everybody="wire lane kernel"

# WHO VERB NAME WORD; what it says is why it can't be.
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

# After WRITER's VERB WORD everybody must find what CHECK EXPECTED says.
round() {
    does wire tick "$name" -
    does "$writer" "$1" "$name" "$2" || echo "FAIL $writer.$1: $(cat /tmp/why)"
    for reader in $everybody; do
        does "$reader" "$3" "$name" "$4" && echo "PASS $writer.$1.$reader" ||
            echo "FAIL after $writer's $1 $2: $reader: not $3 $4: $(cat /tmp/why)"
    done
}

for writer in $everybody; do
    name=by-$writer
    round write first is first
    round write other is other # as long as before
    round append +more is other+more
    round truncate 5 is other
    round mode 640 has-mode 640
    round replace fresh is fresh
    round append -er is fresh-er
    round remove - gone -
done
name=log
sum=
for writer in wire kernel lane kernel wire lane wire; do
    sum=$sum$writer,
    round append "$writer," is "$sum"
done
umount $top && echo PASS umount
"#;

/// What the guest asks of a mount on the host, `WHO VERB NAME WORD`; "ok", or why not.
fn answer(request: &str, mounts: &[(&str, &Mount)], export: &Path) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    let [who, verb, name, word] = words.as_slice() else { return format!("{request}?") };
    let Some((_, mount)) = mounts.iter().find(|(mount, _)| mount == who) else { return format!("{who}?") };
    match change_or_look(verb, mount, export, name, word) {
        Ok(None) => "ok".to_owned(),
        Ok(Some(saw)) => format!("it is '{saw}'"),
        Err(error) => error.to_string(),
    }
}

/// Does it; of what should have been seen what was seen instead.
fn change_or_look(
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
fn what_one_client_has_closed_the_others_open() {
    need_root();
    let scratch = Scratch::in_memory();
    let export = scratch.mkdir("export");
    let server = Serve::openly(&export).start();
    let wire = Mount::new(&server, &export, "lane=off");
    let lane = Mount::new(&server, &export, "lane=required");
    let plan = PLAN.replace("EXPORT", &export.display().to_string());
    let job = Job { nfs_port: server.port(), mount_port: server.port(), anon_uid: 65534, plan: &plan };
    let mounts = [("wire", &wire), ("lane", &lane)];
    let report = qemu::boot(&job, None, BOUND, |request| answer(request, &mounts, &export));
    // Three writers with eight changes, and seven together; three look after each.
    report.assert_passed(1 + (3 * 8 + 7) * 3 + 1);
    assert_eq!(lane.status().expect("a mount")["road"], "lane, passed through");
}

/// A name that was missing may be believed to be missing as long as its directory's attributes are; not with
/// these options.
#[test]
fn a_name_that_was_missing_is_asked_for_again_where_the_options_say_so() {
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
