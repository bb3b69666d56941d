# The server distinguishes clients by their names.
hostname two
mount_v4 shared "$SHARED" 2 rw && echo PASS mount
host await one-locked
hold /mnt/shared/file
must two.denied no lock w 5 1
must two.denied_to_read no lock r 0 1
must two.locks_beside ok lock w 10 10
must two.reads first read 0 5
host refused 0 10
host refused 15 1
host locks 40 5
must two.denied_by_a_local_process no lock w 42 1
must two.beside_the_local_process ok lock w 45 1
host unlocks 40 5
must two.after_the_local_process ok lock w 42 1
host sign two-tried
host await one-back
must two.writes_on ok write 10 two
host sign two-back
# The grace period is over as both clients have sent RECLAIM_COMPLETE, although it is configured to an hour.
must two.locks_anew ok lock w 80 10
must two.still_denied no lock w 0 1
host sign two-new-lock
host await one-waits
must two.unlocks ok unlock 10 10
host await one-done
must two.locks_the_rest ok lock w 0 10

# The same in 4.0.
NFS_PORT=$SECOND_PORT
mount_v4 old "$OLD" 0 rw && echo PASS mount.0
host await zero-locked
hold /mnt/old/file
must two.zero.denied no lock w 5 1
must two.zero.locks_beside ok lock w 10 10
host refused-old 10 10
host sign zero-two-locked
host await zero-back
must two.zero.writes_on ok write 10 two
host await zero-locked-anew
must two.zero.still_denied no lock w 0 1
must two.zero.unlocks ok unlock 10 10
host sign zero-two-unlocked
host await zero-done
