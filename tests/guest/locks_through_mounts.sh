# The guest's part of the test of locks that a process on the server's host takes through the export's own mount, for each minor version.
for minor in 1 2 0; do
    mount_v4 four "$EXPORT" $minor rw && echo PASS mount.4.$minor
    file=locked.$minor
    hold "/mnt/four/$file"
    must "$minor.locks" ok lock w 0 10
    host refused $file 0 10
    host refused $file 9 5
    host granted $file 10 10
    must "$minor.unlocks" ok unlock 0 10
    host granted $file 0 10
    must "$minor.shares" ok lock r 0 10
    host refused $file 0 10
    must "$minor.unlocks_again" ok unlock 0 10

    host holds $file 0 10
    must "$minor.is_refused" no lock w 5 10
    must "$minor.is_refused_reading" no lock r 0 1
    must "$minor.locks_beside" ok lock w 10 10
    host releases $file 0 10
    must "$minor.locks_after" ok lock w 0 10
    host refused $file 0 1
    exec 5>&- 6<&-
    wait
    # The end of the holder has unlocked the file.
    host granted $file 0 20
    umount /mnt/four && echo PASS umount.4.$minor
done
