# The guest's part of the delegations test, for each minor version of NFSv4. 4.0 needs a callback port, which is set first.
echo "$CALLBACK_PORT" >/sys/module/nfs/parameters/callback_tcpport && CALLBACK=127.0.0.1

# host WORDS: asks the host to act on the served files; its reply is in $answer.
host() {
    echo "HOST $*" >/dev/console
    read -r answer </dev/console
}
# same FOUND EXPECTED NAME
same() { [ "$1" = "$2" ] && echo "PASS $3" || echo "FAIL $3: $1"; }

mount_export three "$EXPORT" rw && echo PASS mount.three
# 4.0 comes last: it has no RECLAIM_COMPLETE, so that later clients would have to wait for the end of the grace period.
for minor in 1 2 0; do
    mount_v4 four "$EXPORT" $minor rw && echo PASS mount.4.$minor
    cd /mnt/four

    # The server may not have verified the callback path yet. Then it grants no delegation, and the file is opened again.
    tries=0
    while exec 3<read.$minor && same "$(head -n 1 read.$minor)" old read.$minor && host append read.$minor; do
        [ "$answer" = not-delegated ] && [ $tries -lt 60 ] || break
        tries=$((tries + 1))
    done
    same "$answer" ok append.$minor
    same "$(tail -n 1 read.$minor)" new read.after.$minor
    exec 3<&-

    echo kept >written.$minor
    host expect written.$minor
    same "$answer" ok written.$minor
    same "$(cat written.$minor)" kept written.after.$minor

    exec 3<third.$minor
    same "$(cat third.$minor)" old third.$minor
    echo by-three >>/mnt/three/third.$minor && sync
    exec 3<&-
    same "$(tail -n 1 third.$minor)" by-three third.after.$minor

    host returned
    same "$answer" ok returned.$minor

    # The server is killed while the file is delegated. The client reclaims the delegation before it opens anything new.
    exec 3<held.$minor
    same "$(cat held.$minor)" old held.$minor
    host restart
    same "$answer" ok restart.$minor
    echo new >new.$minor && echo PASS new.$minor
    host append held.$minor
    same "$answer" ok append.held.$minor
    same "$(tail -n 1 held.$minor)" new held.after.$minor
    exec 3<&-
    cd / && umount /mnt/four && echo PASS umount.4.$minor
done
umount /mnt/three && echo PASS umount.three
