# One node of the measurement: ptp4l and chronyd, neither able to set the clock, for LENGTH seconds.
# Ours puts `NAME='value'` lines before this text: ROLE (master or slave), MASTER (address or host name), IFACE
# (empty: the one that leads to PEER), PEER, LENGTH, PYTHON, RECEIVER. A tar of what was found goes to stdout.
# The end of stdin, a signal or the end of LENGTH stops all of it, and nothing stays.
set -eu
umask 077
[ "$(id -u)" = 0 ] || { echo "needs root" >&2; exit 3; }
for tool in ip setpriv ptp4l chronyd timeout tar; do
    command -v "$tool" >/dev/null || { echo "missing: $tool" >&2; exit 3; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/tempotrace-node.XXXXXX")
pids=
finish() {
    trap '' INT TERM HUP
    [ -z "$pids" ] || kill $pids 2>/dev/null || :
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
exec 3<&0 </dev/null
{ cat <&3 >/dev/null; kill -TERM $$; } 2>/dev/null &
watcher=$!
pids=$watcher

address() { getent ahostsv4 "$1" | { read -r found rest; echo "$found"; }; }
[ -n "$IFACE" ] || IFACE=$(ip -o route get "$(address "$PEER")" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
[ -n "$IFACE" ] || { echo "no interface leads to $PEER" >&2; exit 3; }
held="setpriv --bounding-set=-sys_time --inh-caps=-sys_time"
rights=$($held sed -n 's/^CapEff:[^0-9a-f]*//p' /proc/self/status)
[ $((0x$rights >> 25 & 1)) = 0 ] || { echo "the right to set the clock could not be taken away" >&2; exit 3; }

slave=1 master=0 priority=128
[ "$ROLE" = slave ] || { slave=0 master=1 priority=64; }
cat >"$work/ptp4l.conf" <<PTP
[global]
domainNumber 77
slaveOnly $slave
masterOnly $master
priority1 $priority
time_stamping software
network_transport UDPv4
delay_mechanism E2E
free_running 1
freq_est_interval 0
summary_interval -3
logSyncInterval -3
logMinDelayReqInterval -3
logAnnounceInterval 0
announceReceiptTimeout 3
uds_address $work/ptp4l.uds
PTP
mkdir "$work/log"
{
    echo "pidfile $work/chronyd.pid"
    echo "port 11123"
    echo "cmdport 0"
    echo "bindcmdaddress /"
    echo "logdir $work/log"
    echo "log rawmeasurements"
    if [ "$ROLE" = master ]; then
        echo "local stratum 1"
        echo "allow all"
    else
        echo "server $MASTER port 11123 minpoll -3 maxpoll -3 noselect"
    fi
} >"$work/chrony.conf"
chronyd=$(command -v chronyd)
# A profile of AppArmor goes by the program's path and would keep it from the folder made here.
if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null || :)" = Y ]; then
    cp "$chronyd" "$work/chronyd"
    chronyd=$work/chronyd
fi
if [ "$ROLE" = slave ] && command -v "$PYTHON" >/dev/null; then
    echo "slave_event_monitor $work/events" >>"$work/ptp4l.conf"
    "$PYTHON" -c "$RECEIVER" "$work/events" >"$work/exchanges.hex" 2>"$work/receiver.err" &
    pids="$pids $!"
    while [ ! -S "$work/events" ] && kill -0 $! 2>/dev/null; do sleep 0.05; done
fi
$held timeout "$LENGTH" ptp4l -f "$work/ptp4l.conf" -i "$IFACE" -m -q >"$work/ptp4l.log" 2>&1 &
ptp=$!
$held timeout "$LENGTH" "$chronyd" -x -d -u root -f "$work/chrony.conf" >"$work/chronyd.log" 2>&1 &
ntp=$!
pids="$pids $ptp $ntp"
code=0
wait $ptp || code=$?
[ $code = 124 ] || { echo "ptp4l ended early ($code): $(tail -n 1 "$work/ptp4l.log")" >&2; exit 4; }
code=0
wait $ntp || code=$?
[ $code = 124 ] || { echo "chronyd ended early ($code): $(tail -n 1 "$work/chronyd.log")" >&2; exit 4; }
{ ptp4l -v || :; "$chronyd" -v || :; echo "interface $IFACE, effective rights $rights"; } >"$work/about" 2>&1
mv "$work"/log/* "$work" 2>/dev/null || :
cd "$work"
tar -cf - $(ls | grep -E '^(about|ptp4l\.log|chronyd\.log|measurements\.log|exchanges\.hex|receiver\.err)$')
