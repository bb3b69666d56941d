# Shared by both guests of the test of NFSv4 state: a process that holds a file open, and signals between the guests through the host.

# hold FILE: starts a holder of the file, which `tell` addresses from now on.
hold() {
    rm -f /tmp/told /tmp/says
    mkfifo /tmp/told /tmp/says
    holder "$1" </tmp/told >/tmp/says &
    exec 5>/tmp/told 6</tmp/says
}

# tell COMMAND: sends a command to the holder without waiting for its reply.
tell() { echo "$*" >&5; }

# says NAME ANSWER: reads the holder's reply and compares it.
says() {
    read -r said <&6
    [ "$said" = "$2" ] && echo "PASS $1" || echo "FAIL $1: '$said' is not '$2'"
}

# must NAME ANSWER COMMAND: sends a command and compares the reply.
must() {
    name=$1 expected=$2
    shift 2
    tell "$*"
    says "$name" "$expected"
}

# host WORDS: asks the host to act or to wait for the other guest.
host() {
    echo "HOST $*" >/dev/console
    read -r answer </dev/console
    [ "$answer" = ok ] && echo "PASS $*" || echo "FAIL $*: $answer"
}
