# Servers and mounts for each data path of tests/data-paths.txt, or of the plain directory (`raw`). Sourced by the scripts of foreign test
# suites, which set $binary, the `samehost` command.

# read_data_path NAME: sets $lane, $export_option and $mount_options. Fails, with the list of names, if there is no such path.
read_data_path() {
    # shellcheck disable=SC2034 # $tree and $status are the last columns.
    while read -r name lane export_option mount_options tree status; do
        [ "$name" != "$1" ] || return 0
    done <"$here/tests/data-paths.txt"
    [ "$1" != raw ] || return 0
    echo "data paths: raw $(sed -n 's/^\([a-z0-9_]*\) .*/\1/p' "$here/tests/data-paths.txt" | tr '\n' ' ')" >&2
    return 1
}

# serve_data_path DIRECTORY: starts a server of DIRECTORY/export, with its files in DIRECTORY, and sets $server, its process, and $source, its URL.
serve_data_path() {
    mkdir -p "$1/run" "$1/state"
    export SAMEHOST_RUN_DIR="$1/run"
    "$binary" serve --listen 127.0.0.1:0 --no-rpcbind --run-dir "$1/run" --state-dir "$1/state" --lane "$lane" \
        --export "$1/export *(rw,insecure,no_root_squash,$export_option)" >"$1/log" 2>&1 &
    server=$!
    until grep -q '^ready: ' "$1/log"; do
        kill -0 "$server"
        sleep 0.1
    done
    source="nfs://127.0.0.1:$(sed -n 's/^ready: .* on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$1/log")$1/export"
}

# with_uring COMMAND...: runs a command that mounts while the kernel's switch of FUSE over io_uring is on. It is one for the whole machine;
# the tests of the mount take the same lock (tests/harness/uring.rs).
with_uring() {
    # shellcheck disable=SC2016 # The inner shell expands them.
    flock --close /sys/module/fuse/parameters/enable_uring sh -c '
        before=$(cat "$0")
        trap "echo $before >$0" EXIT
        echo Y >"$0"
        "$@"' /sys/module/fuse/parameters/enable_uring "$@"
}

# mount_data_path MOUNTPOINT [OPTIONS]: mounts $source.
mount_data_path() {
    case $mount_options in
    *uring=required*) with_uring "$binary" mount "$source" "$1" -o "$mount_options${2:+,$2}" ;;
    *) "$binary" mount "$source" "$1" -o "$mount_options${2:+,$2}" ;;
    esac
}
