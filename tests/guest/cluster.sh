# Linux as the client of a server of a cluster. That is killed, crashes with its host, and is drained to another
# server while the guest holds a lock. The host tries to get that lock from the other server.
route add default gw 10.0.2.2
mkdir -p /mnt/a
# Servers end and are started again when this machine stops for a while.
until mount -t nfs4 -o "addr=$ADDRESS,clientaddr=10.0.2.15,vers=4.2,proto=tcp,port=2049,timeo=600,retrans=2,hard" \
    "$ADDRESS:/srv" /mnt/a; do
    sleep 1
done
echo PASS mount
hold /mnt/a/linux
must locks ok lock w 0 10
must writes ok write 0 first
host denied
for event in kill crash drain; do
    host $event
    must "$event.writes_on" ok write 0 "$event"
    must "$event.locks_anew" ok lock w 100 10
    must "$event.unlocks" ok unlock 100 10
    host denied
done
must reads drain read 0 5
must releases ok unlock 0 10
host granted
