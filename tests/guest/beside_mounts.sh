# The guest's part of the test of the kernel's client beside two mounts of Samehost and processes on the server's host. Follows
# locks_recalled.sh, whose mounts it uses.

# One mount has the lock. This client asks for it, then the other mount, the first again, and last a process.
host holds
hold /mnt/two/queued
tell lockw w 0 0
host queues
says queued.gets_it ok
host waits
must queued.reads mount read 0 5
must queued.writes ok write 0 guest
must queued.unlocks ok unlock 0 0
host takes_turns
must queued.locks_again ok lock w 0 0
must queued.sees_the_last_write local read 0 5

# A mount reads a file under a delegation, which this client recalls.
host delegated
printf by-guest >/mnt/two/by-guest && echo PASS delegated.written
host returned

# A mount has a write delegation, under which it has written and locked the file. This client's open recalls it.
host writes
hold /mnt/two/of-mount
must of_mount.reads by-mount read 0 8
must of_mount.is_locked no lock w 0 0
host has_returned
must of_mount.locks ok lock w 0 0

# And a mount's open recalls one of this client, which hasn't sent its data.
exec 3<>/mnt/two/of-guest
echo kept >&3 && echo PASS of_guest.written
host reads_of_guest
exec 3<&-
