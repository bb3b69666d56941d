# Makes the guest the server: the kernel's NFS server and Debian's nfs-kernel-server, serving a directory in memory.
#
# knfsd PATH OPTIONS: exports PATH (made here) with these options, and waits until NFS and MOUNT are registered.
knfsd() {
    export PATH=/bin:/usr/sbin:/sbin
    mkdir -p "$1" /run /run/rpcbind /var/lib/nfs /proc/fs/nfsd
    mount -t tmpfs -o mode=755 export "$1"
    mount -t nfsd nfsd /proc/fs/nfsd
    echo "_rpc:x:106:106::/run/rpcbind:/bin/false" >>/etc/passwd
    # libtirpc asks which transports there are.
    printf 'udp tpi_clts v inet udp - -\ntcp tpi_cots_ord v inet tcp - -\nlocal tpi_cots_ord - loopback - - -\n' >/etc/netconfig
    echo "$1 *($2)" >/etc/exports
    : >/var/lib/nfs/etab
    : >/var/lib/nfs/rmtab
    rpcbind -w || echo "FAIL knfsd: rpcbind"
    exportfs -r || echo "FAIL knfsd: exportfs"
    rpc.nfsd --no-udp --nfs-version 3 4 || echo "FAIL knfsd: rpc.nfsd"
    rpc.mountd --port 20048 || echo "FAIL knfsd: rpc.mountd"
    echo "knfsd: $(cat /proc/fs/nfsd/threads) threads, $(cat /proc/fs/nfsd/portlist | tr '\n' ' ')"
}
