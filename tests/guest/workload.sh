#!/bin/sh
# The workload of the kernel's NFS client in one directory, as one user.
#
#   workload.sh MODE DIRECTORY
#
# MODE says which user the server sees: root (uid 0 stays 0), user (uid 1000 stays 1000), squashed (uid 0 becomes
# $ANON_UID), all (uid 1000 becomes $ANON_UID). Prints "PASS mode.test" or "FAIL mode.test: why" for each test.
# A line "HOST words" asks the host to change the served directory locally; the host replies with a line.
. /guest.env
mode=$1
top=$2
case $mode in
root) owner=0 ;;
user) owner=1000 ;;
squashed | all) owner=$ANON_UID ;;
esac

fail() {
    echo "$*"
    exit 1
}
same() { [ "$1" = "$2" ] || fail "$3: '$1' is not '$2'"; }
must_fail() { ! "$@" 2>/dev/null || fail "should have failed: $*"; }
field() { stat -c "%$1" "$2"; }
drop_caches() { [ "$(id -u)" -ne 0 ] || echo 3 >/proc/sys/vm/drop_caches; }
host() {
    echo "HOST $*" >/dev/console
    read -r answer </dev/console
    same "$answer" ok "the host's answer"
}

t_create() {
    echo hello >file
    same "$(cat file)" hello content
    same "$(field u file)" "$owner" owner
    same "$(field s file)" 6 size
    same "$(field F file)" "regular file" type
    : >file
    same "$(field s file)" 0 "size after truncating open"
    umask 027
    : >masked
    same "$(field a masked)" 640 mode
}

t_directories() {
    mkdir a a/b a/b/c
    same "$(field F a/b)" directory type
    same "$(field h a)" 3 "links of a directory with one child"
    must_fail mkdir a
    must_fail rmdir a
    rmdir a/b/c a/b a
    must_fail ls a
}

t_rename() {
    echo one >one
    echo two >two
    mkdir d e
    mv one three
    [ ! -e one ] || fail "the old name stayed"
    same "$(cat three)" one content
    mv three two
    same "$(cat two)" one "content after renaming over a file"
    mv two d/two
    same "$(cat d/two)" one "content after renaming to another directory"
    mv d e/d
    same "$(cat e/d/two)" one "content in a renamed directory"
    same "$(cd e/d && cd .. && ls)" d "parent of a renamed directory"
    must_fail mv nothing something
}

t_hard_links() {
    echo x >first
    ln first second
    same "$(field h first)" 2 links
    same "$(field i first)" "$(field i second)" "inode number"
    echo more >>second
    same "$(wc -l <first)" 2 "lines seen by the other name"
    rm first
    same "$(field h second)" 1 links
    mkdir d
    must_fail ln second second
    must_fail busybox ln d d2
}

t_symlinks() {
    echo x >target
    ln -s target link
    same "$(readlink link)" target target
    same "$(cat link)" x "content through the link"
    same "$(busybox stat -c %F link)" "symbolic link" type
    ln -s /nowhere/at/all dangling
    same "$(readlink dangling)" /nowhere/at/all target
    must_fail cat dangling
    long=$(printf '%01000d' 7)
    ln -s "$long" long
    same "$(readlink long)" "$long" "a target of 1000 bytes"
    must_fail ln -s other link
    rm link dangling long
    same "$(cat target)" x "content of the target after the link went"
}

t_mknod() {
    mknod pipe p
    same "$(field F pipe)" fifo type
    (echo through >pipe) &
    same "$(cat pipe)" through "what came through the FIFO"
    wait
    if [ "$mode" = root ]; then
        mknod char c 1 3
        same "$(field F char)" "character special file" type
        same "$(field t char).$(field T char)" 1.3 "device number"
        echo gone >char
        mknod block b 7 200
        same "$(field F block)" "block special file" type
        same "$(field t block).$(field T block)" 7.c8 "device number"
    else
        must_fail mknod char c 1 3
    fi
}

t_chmod() {
    : >file
    for bits in 600 644 755 4711 2750 1777 0; do
        chmod $bits file
        same "$(field a file)" $bits mode
    done
    mkdir d
    chmod 1770 d
    same "$(field a d)" 1770 "mode of a directory"
}

t_chown() {
    : >file
    chmod 6755 file
    if [ "$mode" = root ]; then
        chown 1000:1000 file
        same "$(field u file):$(field g file)" 1000:1000 owner
        chown 0:77 file
        same "$(field u file):$(field g file)" 0:77 owner
    else
        must_fail chown 4242 file
        same "$(field u file)" "$owner" owner
    fi
}

t_permissions() {
    # The host made these files: owned by root, the first readable by root alone.
    if [ "$mode" = root ]; then
        same "$(cat "$top/private")" secret content
        echo more >>"$top/private"
        echo secret >"$top/private"
    else
        must_fail cat "$top/private"
        # Kernels from 6.10 on open with O_CREAT by an UNCHECKED create, which checks no permission on an existing file;
        # what matters is that the write fails.
        must_fail dd if=/dev/zero of="$top/public" bs=1 count=1 conv=notrunc,fsync
        must_fail sh -c "echo x >$top/locked/new"
        must_fail rm -f "$top/locked/file"
        must_fail ls "$top/locked/closed"
    fi
    same "$(cat "$top/public")" everybody content
    if [ "$(id -u)" != 0 ]; then
        # The owner of a file without the write bit may not open it for writing.
        echo x >mine
        chmod 400 mine
        must_fail sh -c 'echo y >mine'
        same "$(cat mine)" x content
    fi
}

t_utimes() {
    : >file
    touch -d @1000000000 file
    same "$(field Y file)" 1000000000 mtime
    same "$(field X file)" 1000000000 atime
    touch -d @4102444800 file # 2100
    same "$(field Y file)" 4102444800 mtime
    before=$(date +%s)
    touch file
    [ "$(field Y file)" -ge $((before - 5)) ] || fail "touch went back in time"
    c=$(field Z file)
    [ "$c" -ge $((before - 5)) ] || fail "ctime is not now: $c"
}

t_truncate() {
    echo 0123456789 >file
    truncate -s 4 file
    same "$(cat file)" 0123 "content after shrinking"
    truncate -s 8 file
    same "$(hexdump -v -e '1/1 "%02x"' file)" 3031323300000000 "content after growing"
    truncate -s 5000000000 sparse
    same "$(field s sparse)" 5000000000 "size beyond 4 GiB"
    [ "$(field b sparse)" -lt 100 ] || fail "a hole takes $(field b sparse) blocks"
    printf end | dd of=sparse bs=1 seek=4999999997 conv=notrunc 2>/dev/null
    same "$(tail -c 3 sparse)" end "tail of a large file"
    same "$(field s sparse)" 5000000000 "size after writing at the end"
}

t_append() {
    for i in $(seq 200); do echo "line $i" >>log; done
    same "$(wc -l <log)" 200 lines
    same "$(tail -n 1 log)" "line 200" "last line"
}

t_exclusive() {
    set -C
    echo first >lock
    must_fail sh -C -c 'echo second >lock'
    set +C
    same "$(cat lock)" first content
    same "$(field u lock)" "$owner" owner
    # The verifier that the EXCLUSIVE create stored in the time stamps must not stay visible.
    now=$(date +%s)
    age=$((now - $(field Y lock)))
    [ $age -ge -600 ] && [ $age -le 600 ] || fail "mtime of an exclusively created file is $age s off"
}

t_names() {
    long=$(printf '%0255d' 1)
    echo x >"$long"
    same "$(cat "$long")" x "a name of 255 bytes"
    must_fail sh -c ": >${long}1"
    raw=$(printf 'bad\377utf8 \\ "quoted" \303\244')
    echo y >"$raw"
    same "$(ls | grep -c utf8)" 1 "entries with a name of any bytes"
    same "$(cat "$raw")" y content
    echo z >'-rf *'
    same "$(cat './-rf *')" z content
    echo w >"with
newline"
    rm -- "$long" "$raw" './-rf *' "with
newline"
    same "$(ls | wc -l)" 0 "entries left"
}

t_checksums() {
    dd if=/dev/urandom of=/tmp/data.$mode bs=64k count=128 2>/dev/null
    want=$(md5sum </tmp/data.$mode)
    dd if=/tmp/data.$mode of=big bs=100001 conv=fsync 2>/dev/null
    drop_caches
    same "$(md5sum <big)" "$want" "checksum of 8 MiB"
    # Overwrite a part in the middle, not aligned to anything, on both sides.
    dd if=/dev/zero of=/tmp/data.$mode bs=777 seek=3001 count=99 conv=notrunc 2>/dev/null
    dd if=/dev/zero of=big bs=777 seek=3001 count=99 conv=notrunc,fsync 2>/dev/null
    drop_caches
    same "$(md5sum <big)" "$(md5sum </tmp/data.$mode)" "checksum after overwriting"
    cp big copy
    sync
    drop_caches
    cmp big copy
    host checksum "$(pwd)/copy" "$(md5sum </tmp/data.$mode | cut -d' ' -f1)"
    rm /tmp/data.$mode
}

t_many_entries() {
    count=300
    [ "$mode" != root ] || count=10000
    mkdir many
    cd many
    i=0
    while [ $i -lt $count ]; do
        : >"entry-number-$i"
        i=$((i + 1))
    done
    drop_caches
    same "$(ls | grep -c entry)" $count "entries listed"
    same "$(find . -type f -name 'entry-number-*' | sort -u | wc -l)" $count "entries found"
    same "$(find . -name 'entry-number-*7' | wc -l)" $((count / 10)) "entries ending in 7"
    cd ..
    rm -r many
    must_fail ls many
}

t_tree() {
    for a in 1 2 3 4 5; do
        mkdir -p tree/$a
        for b in 1 2 3 4 5; do
            mkdir -p tree/$a/$b
            echo $a$b >tree/$a/$b/leaf
        done
    done
    same "$(find tree -name leaf | wc -l)" 25 leaves
    cp -r tree copy
    same "$(cat copy/*/*/leaf | sort | md5sum)" "$(cat tree/*/*/leaf | sort | md5sum)" "the copied tree"
    rm -r tree copy
    same "$(ls | wc -l)" 0 "entries left"
}

t_open_and_removed() {
    exec 7<>file
    echo still here >&7
    rm file
    [ ! -e file ] || fail "the name stayed"
    exec 8<"/proc/self/fd/7"
    same "$(cat <&8)" "still here" "what an open file whose name is gone holds"
    exec 7>&- 8<&-
    sync
    same "$(ls -A | wc -l)" 0 "entries left after the last close"
}

t_removed_behind() {
    echo x >victim
    echo y >bystander
    sync
    exec 7<victim
    host remove "$(pwd)/victim"
    drop_caches
    # ENOENT by name or ESTALE by handle: an error, and no hang.
    if (cat <&7 >/tmp/stale.$mode) 2>/dev/null && [ "$(cat /tmp/stale.$mode)" != x ]; then
        fail "read something else: $(cat /tmp/stale.$mode)"
    fi
    exec 7<&-
    host create "$(pwd)/newcomer"
    # Attributes of the directory may be cached for up to a minute; opening it revalidates them.
    same "$(ls | sort | tr '\n' ' ')" "bystander newcomer " "entries after the host's changes"
    must_fail cat victim
    same "$(cat bystander)" y content
    same "$(cat newcomer)" "from the host" content
    host append "$(pwd)/bystander"
    exec 7<bystander # close-to-open: an open sees what was written elsewhere before it
    same "$(cat <&7 | wc -l)" 2 "lines after the host appended one"
}

t_stat_filesystem() {
    line=$(df -P -k . | tail -n 1)
    set -- $line
    [ "$2" -gt 0 ] || fail "size: $line"
    [ "$4" -gt 0 ] || fail "available: $line"
    [ "$2" -ge "$4" ] || fail "more free than there is: $line"
}

tests="create directories rename hard_links symlinks mknod chmod chown permissions utimes truncate append exclusive
names checksums many_entries tree open_and_removed removed_behind stat_filesystem"

cd "$top/work" || {
    echo "FAIL $mode.start: no $top/work"
    exit
}
mkdir "$mode"
for name in $tests; do
    mkdir "$top/work/$mode/$name"
    # Not in a condition: that would disable -e in the subshell.
    (
        set -e
        cd "$top/work/$mode/$name"
        t_$name
    ) </dev/null >/tmp/out.$mode 2>&1
    code=$?
    if [ $code -eq 0 ]; then
        rm -rf "$top/work/$mode/$name" 2>/tmp/out.$mode && code=0 || code=cleaning
    fi
    if [ $code = 0 ]; then
        echo "PASS $mode.$name"
    else
        echo "FAIL $mode.$name: $code $(tr '\n' ';' </tmp/out.$mode | cut -c 1-300)"
    fi
done
rmdir "$top/work/$mode" 2>/dev/null
