#!/bin/sh
# pynfs's helper on the server's host: --serverhelper=tests/pynfs/helper.sh --serverhelperarg=DIRECTORY.
#
# DIRECTORY/start is a script that executes the server (`exec samehost serve ...`), DIRECTORY/pid has its process id:
#
#   helper.sh DIRECTORY start          before the first test
#   helper.sh DIRECTORY reboot         kill -9, and a start
#   helper.sh DIRECTORY stop
#
# The other commands act on the exported files as a local process, by the same paths as clients. The server is notified of them
# afterwards, and pynfs checks at once for a callback: so they end with a short sleep.
set -eu

directory=$1
command=$2
shift 2

start() {
    : >"$directory/log"
    setsid sh "$directory/start" >"$directory/log" 2>&1 </dev/null &
    echo $! >"$directory/pid"
    # pynfs's client of 4.1 fails if no server listens.
    until grep -q ^ready: "$directory/log"; do
        kill -0 $!
        sleep 0.1
    done
}

end() {
    pid=$(cat "$directory/pid")
    kill "-$1" "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}

case $command in
start) start ;;
stop) end TERM ;;
reboot)
    end KILL
    start
    ;;
unlink) rm "$1" && sleep 1 ;;
rename) mv "$1" "$2" && sleep 1 ;;
link) ln "$1" "$2" && sleep 1 ;;
chmod) chmod "$1" "$2" && sleep 1 ;;
*)
    echo "helper.sh: $command?" >&2
    exit 2
    ;;
esac
