# The guest's part of the test of locks and recalls. It acts as two clients of the server: a mount by 4.1 and one by 4.2.
mount_v4 one "$EXPORT" 1 rw && echo PASS mount.1
mount_v4 two "$EXPORT" 2 rw && echo PASS mount.2

# delegated FILE: holder has a new file open and locked through the first mount under a delegation, so that the server doesn't know the lock.
delegated() {
    echo new >"/mnt/one/$1" && sync
    hold "/mnt/one/$1"
    must "$1.writes" ok write 0 first
    must "$1.locks" ok lock w 0 10
    since=$(cut -d . -f 1 /proc/uptime)
}

# in_time NAME: the steps since `since` took no longer than the client itself needs, so that no wait for a timer was among them.
in_time() {
    took=$(($(cut -d . -f 1 /proc/uptime) - since))
    [ $took -lt 20 ] && echo "PASS $1 took $took s" || echo "FAIL $1 took: $took s"
}

# A local process opens the file and asks for the lock. The server may not have verified the callback path yet. Then it grants no
# delegation, and another file is tried.
tries=0
while delegated local.$tries; do
    echo "HOST competes local.$tries 0 10" >/dev/console
    read -r answer </dev/console
    [ "$answer" = not-delegated ] && [ $tries -lt 60 ] || break
    sleep 1
    tries=$((tries + 1))
done
held=local.$tries
[ "$answer" = ok ] && echo "PASS competes" || echo "FAIL competes: $answer"
in_time local.competes
must local.writes_on ok write 0 again
must local.locks_more ok lock w 20 5
host refused $held 20 5
must local.unlocks ok unlock 0 30
host granted $held 0 10

# The client renames its file.
delegated renamed
mv /mnt/one/renamed /mnt/one/moved && echo PASS renamed.moves
must renamed.writes_on ok write 0 again
host refused moved 0 10
must renamed.unlocks ok unlock 0 10
in_time renamed.unlocks
host granted moved 0 10

# Another client opens it.
delegated shared
exec 7>&5 8<&6
hold /mnt/two/shared
in_time shared.other_opens
must shared.other_reads first read 0 5
must shared.other_is_refused no lock w 5 1
must shared.other_locks_beside ok lock w 10 10
host refused shared 0 10
# The other client's holder keeps running.
exec 9>&5 5>&7 6<&8
must shared.writes_on ok write 0 again
must shared.is_refused no lock w 10 1
must shared.unlocks ok unlock 0 10

# Two clients lock a counter in turn. The first has opened it under its delegation, which the other's open has recalled. It gets no
# notification when the lock is free, and polls a second later. The other client need not wait for that.
echo 00000000 >/mnt/one/counted && sync
hold /mnt/one/counted
exec 7>&5 8<&6
hold /mnt/two/counted
since=$(cut -d . -f 1 /proc/uptime)
echo "count 40" >&7
must counted.other ok count 40
exec 5>&7 6<&8
says counted ok
in_time counted
[ "$(cat /mnt/two/counted)" = 00000080 ] && echo PASS counted.all || echo "FAIL counted.all: $(cat /mnt/two/counted)"
