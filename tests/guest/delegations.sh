# What the guest of the test of delegations does with each minor version of NFSv4, 4.0's callback port first.
echo "$CALLBACK_PORT" >/sys/module/nfs/parameters/callback_tcpport && CALLBACK=127.0.0.1

# host WORDS: the host does something to the served files; what it says is in $answer.
host() {
    echo "HOST $*" >/dev/console
    read -r answer </dev/console
}
# same FOUND EXPECTED NAME
same() { [ "$1" = "$2" ] && echo "PASS $3" || echo "FAIL $3: $1"; }

mount_export three "$EXPORT" rw && echo PASS mount.three
# 4.0 last: nobody of it says that he has reclaimed everything, and the next ones would wait for that.
for minor in 1 2 0; do
    mount_v4 four "$EXPORT" $minor rw && echo PASS mount.4.$minor
    cd /mnt/four

    # The server may not know yet that it can call: then it lends nothing, and the file is opened anew.
    tries=0
    while exec 3<read.$minor && same "$(head -n 1 read.$minor)" old read.$minor && host append read.$minor; do
        [ "$answer" = unlent ] && [ $tries -lt 60 ] || break
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

    # The server is killed while the file is lent; who wants something new reclaims it first.
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
