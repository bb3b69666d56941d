# The guest's part of the test of delegations and of processes that open the files on the server's host through mounts of Samehost, for
# each minor version of NFSv4. 4.0 needs a callback port, which is set first.
echo "$CALLBACK_PORT" >/sys/module/nfs/parameters/callback_tcpport && CALLBACK=127.0.0.1

# host WORDS: asks the host to act on the served files through a mount; its reply is in $answer.
host() {
    echo "HOST $*" >/dev/console
    read -r answer </dev/console
}
# same FOUND EXPECTED NAME
same() { [ "$1" = "$2" ] && echo "PASS $3" || echo "FAIL $3: $1"; }

# 4.0 comes last: its clients don't say when they have reclaimed everything.
for minor in 1 2 0; do
    mount_v4 four "$EXPORT" $minor rw && echo PASS mount.4.$minor
    cd /mnt/four

    # The server may not have verified the callback path yet. Then it grants no delegation, and another file is tried.
    tries=0
    answer=not-delegated
    while [ "$answer" = not-delegated ] && [ $tries -lt 60 ]; do
        echo first >first.$minor.$tries
        exec 3<>first.$minor.$tries
        host append plain first.$minor.$tries
        exec 3<&-
        [ "$answer" = ok ] || sleep 1
        tries=$((tries + 1))
    done
    same "$answer" ok first.$minor

    for mount in $MOUNTS; do
        # A write delegation: the client hasn't sent its data when the process opens the file.
        file=written.$mount.$minor
        exec 3<>$file
        echo kept >&3
        host expect $mount $file
        same "$answer" ok $file
        exec 3<&-

        exec 3<>appended.$mount.$minor
        echo kept >&3
        host append $mount appended.$mount.$minor
        same "$answer" ok appended.$mount.$minor
        exec 3<&-
        same "$(cat appended.$mount.$minor | tr '\n' ' ')" "kept new " appended.after.$mount.$minor

        # A read delegation: the client would answer from its cache.
        exec 3<read.$mount.$minor
        same "$(cat read.$mount.$minor)" old read.$mount.$minor
        host append $mount read.$mount.$minor
        same "$answer" ok read.append.$mount.$minor
        same "$(tail -n 1 read.$mount.$minor)" new read.after.$mount.$minor
        exec 3<&-
    done
    cd / && umount /mnt/four && echo PASS umount.4.$minor
done
