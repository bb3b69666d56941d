# What both guests of the test of NFSv4's state have: a process that holds a file, and signs between them through the host.

# hold FILE: holder has it open, from now on the one that is told.
hold() {
    rm -f /tmp/told /tmp/says
    mkfifo /tmp/told /tmp/says
    holder "$1" </tmp/told >/tmp/says &
    exec 5>/tmp/told 6</tmp/says
}

# tell COMMAND: without waiting for what it says.
tell() { echo "$*" >&5; }

# says NAME ANSWER
says() {
    read -r said <&6
    [ "$said" = "$2" ] && echo "PASS $1" || echo "FAIL $1: '$said' is not '$2'"
}

# must NAME ANSWER COMMAND
must() {
    name=$1 expected=$2
    shift 2
    tell "$*"
    says "$name" "$expected"
}

# host WORDS: the host does something, or waits for the other guest.
host() {
    echo "HOST $*" >/dev/console
    read -r answer </dev/console
    [ "$answer" = ok ] && echo "PASS $*" || echo "FAIL $*: $answer"
}
