# Makes the guest an NFS server: the kernel's, with rpcbind and Debian's nfs-kernel-server. It exports a
# directory and a regular file on its disk, and serves until the host replies with anything but "expire" and
# "run COMMAND". `rpc.nfsd 0` ends the server with all of its state; then `serve` starts it again. The disk also
# has the records of clients, so that the same holds for a power cut and another boot.
export PATH=/bin:/sbin:/usr/sbin
syslogd -l 4 -O /dev/console # errors of the daemons

# step NAME COMMAND
step() {
    name=$1
    shift
    "$@" && echo "PASS $name" || echo "FAIL $name"
}

mkdir -p /run/rpc_pipefs /srv /var/lib/nfs
ln -s /run /var/run # libtirpc looks for rpcbind's socket in the one, the kernel in the other
: >/var/lib/nfs/rmtab
echo "_rpc:x:106:65534::/run/rpcbind:/bin/false" >>/etc/passwd
# rpcbind listens on these transports, on the port of the service "portmapper".
echo "udp tpi_clts v inet udp - -
tcp tpi_cots_ord v inet tcp - -
local tpi_cots_ord - loopback - - -" >/etc/netconfig
echo "sunrpc 111/tcp portmapper
sunrpc 111/udp portmapper
nfs 2049/tcp" >/etc/services
echo "hosts: files
services: files" >/etc/nsswitch.conf
echo "127.0.0.1 localhost" >/etc/hosts

step filesystem mount -t ext4 /dev/vda /srv
mkdir -p /srv/directory /srv/clients
echo "of the file that is exported" >/srv/file
echo "/srv/directory *(rw,insecure,no_root_squash,no_subtree_check,fsid=1)" >/etc/exports

# The daemons listen when these commands return.
step nfsd mount -t nfsd nfsd /proc/fs/nfsd
# The shortest lease. The grace period ends when all clients have reclaimed. It may be longer than a lease, because QEMU's
# network connects a client some seconds after the server has started again.
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 60 >/proc/fs/nfsd/nfsv4gracetime
step rpcbind rpcbind
step exportfs exportfs -r
exportfs -o rw,insecure,no_root_squash,no_subtree_check,fsid=2 '*:/srv/file' # it warns that this is no directory, and exports it
# It remembers the clients that may reclaim after a restart, so that the grace period of NFSv4 ends with the last of them.
step rpc_pipefs mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
step nfsdcld nfsdcld --pipefsdir=/run/rpc_pipefs --storagedir=/srv/clients
# serve: starts the threads. The kernel looks for nfsdcld for a second only, and then serves without a memory of clients:
# then it is started again. The lock manager would refuse everybody's locks while NFSv3 clients may reclaim theirs; there
# are none.
cat >/bin/serve <<END
#!/bin/sh
while dmesg -c >/dev/null; rpc.nfsd --no-udp --nfs-version 3 --nfs-version 4 8; do
    if dmesg | grep -q "Using nfsdcld"; then
        echo Y >/proc/fs/lockd/nlm_end_grace
        exit
    fi
    rpc.nfsd 0
    sleep 1
done
exit 1
END
chmod 755 /bin/serve
step rpc.nfsd serve
step rpc.mountd rpc.mountd --no-udp --port 20048
echo "HOST serving" >/dev/console
while read -r answer </dev/console; do
    case $answer in
    expire)
        # Every NFSv4 client loses its session and its state, as after a lease without a request.
        for client in /proc/fs/nfsd/clients/*/ctl; do
            echo expire >"$client"
        done
        echo "HOST expired" >/dev/console
        ;;
    "run "*)
        sh -c "${answer#run }" && echo "HOST ran" >/dev/console || echo "HOST failed" >/dev/console
        ;;
    *) break ;;
    esac
done
step host [ "$answer" = ok ]
