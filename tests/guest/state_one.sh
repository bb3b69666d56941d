# The server distinguishes clients by their names.
hostname one
mount_v4 shared "$SHARED" 1 rw && echo PASS mount
hold /mnt/shared/file
must one.locks ok lock w 0 10
must one.writes ok write 0 first
host sign one-locked
host await two-tried

# The server is killed while it has opens and locks, and started again.
host restart
must one.writes_on ok write 0 again
host sign one-back
host await two-back
must one.locks_anew ok lock w 60 10
host refused 0 20
host await two-new-lock

# Wait for a lock that the other client holds.
tell lockw w 10 10
host sign one-waits
says one.got_it ok
must one.sees_what_two_wrote two read 10 3
# And for one that a local process holds.
host locks 50 5
tell lockw w 50 5
host unlocks 50 5
says one.after_the_local_process ok
must one.unlocks ok unlock 0 100
host granted 0 10
host sign one-done

# 4.0, which has no RECLAIM_COMPLETE.
NFS_PORT=$SECOND_PORT
mount_v4 old "$OLD" 0 rw && echo PASS mount.0
hold /mnt/old/file
must zero.locks ok lock w 0 10
host sign zero-locked
host await zero-two-locked
host restart-old
host sign zero-back
must zero.writes_on ok write 0 again
must zero.locks_anew ok lock w 20 10
host refused-old 0 10
must zero.still_denied no lock w 10 1
host sign zero-locked-anew
host await zero-two-unlocked
must zero.sees_what_two_wrote two read 10 3
must zero.locks_what_two_had ok lock w 10 10
host sign zero-done
