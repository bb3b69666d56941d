# A node of a cluster that serves CephFS mounted by the kernel's Ceph client; the client is our mount beside it. The host tries to
# get the lock that the mount holds from another node, which serves a ceph-fuse mount.
route add default gw 10.0.2.2
mount -t ceph -o "name=admin,secret=$SECRET,ms_mode=prefer-crc" "$MONITOR:/" /srv && echo PASS mount_of_ceph ||
    { echo "FAIL mount_of_ceph"; dmesg | tail -20; }
export SAMEHOST_RUN_DIR=/tmp/run
CLUSTER="--cluster $CLUSTER --ceph-conf /tmp/ceph.conf"
# The configuration's other paths are the host's.
grep -E '^\[global|^fsid|^mon_host|^auth_' /etc/ceph/ceph.conf >/tmp/ceph.conf
echo "keyring = /etc/ceph/keyring" >>/tmp/ceph.conf
manager /tmp/notify /tmp/pid samehost serve --export "/srv *(rw,insecure,no_root_squash)" --no-rpcbind \
    --listen 127.0.0.1:2049 --lease 60 --state-dir /tmp/state $CLUSTER --node kernel >/tmp/log 2>&1 &
tries=0
until samehost mount nfs://127.0.0.1/srv /mnt -o vers=4.2 2>/tmp/why; do
    tries=$((tries + 1))
    [ $tries -lt 20 ] || break
    sleep 3
done
cat /tmp/log /tmp/why
samehost status --json | grep -q '"road": *"lane' && echo PASS lane || { echo FAIL lane; samehost status; }
hold /mnt/kernel
must locks ok lock w 0 10
must writes ok write 0 first
host denied
kill -9 "$(cat /tmp/pid)"
must writes_on ok write 0 again
must locks_anew ok lock w 100 10
must unlocks ok unlock 100 10
host denied
must reads again read 0 5
must releases ok unlock 0 10
host granted
exec 5>&- 6<&-
cat /tmp/log
until samehost umount /mnt; do sleep 1; done
