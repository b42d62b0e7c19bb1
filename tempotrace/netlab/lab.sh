# Network namespaces joined by a bridge, and the node script run in each of them.
# It runs as the first process of its own PID, mount and network namespaces: when it ends, for whatever reason, the
# kernel ends all that it started and takes the namespaces, links and mounts away. Nothing is made outside of them.
# Ours puts before this text: NODES, LOADS (idle, congested), PYTHON, FLOOD, HERE (folder with one script a node,
# and for the results). The end of stdin stops it.
set -eu
mount -t tmpfs tmpfs /run # the names of namespaces live there, seen by nobody else
mkdir -p /run/netns
export TMPDIR=/run # the nodes' folders go away with it
trap 'exit 130' INT TERM HUP
exec 3<&0 </dev/null
{ cat <&3 >/dev/null; kill -TERM 1; } &
ip link set lo up
ip link add hub type bridge
ip link set hub up
node=0
while [ $node -lt "$NODES" ]; do
    ip netns add n$node
    ip link add p$node type veth peer name eth0 netns n$node
    ip link set p$node master hub up
    ip -n n$node link set lo up
    ip -n n$node address add 10.77.0.$((node + 1))/24 dev eth0
    ip -n n$node link set eth0 up
    ip -n n$node route add 224.0.0.0/4 dev eth0
    node=$((node + 1))
done
for load in $LOADS; do
    flood=
    if [ "$load" = congested ]; then
        # Odd nodes: a narrow way in, and bursts through it. The way out stays free, so the queue is on one side.
        targets=
        node=1
        while [ $node -lt "$NODES" ]; do
            tc qdisc add dev p$node root tbf rate 20mbit burst 4kb limit 48kb
            targets="$targets 10.77.0.$((node + 1))"
            node=$((node + 2))
        done
        ip netns exec n0 "$PYTHON" -c "$FLOOD" $targets &
        flood=$!
    fi
    echo "load $load" >&2
    runs=
    node=0
    while [ $node -lt "$NODES" ]; do
        # A pipe that nobody writes to, held open by this script: the node would stop at its end.
        ip netns exec n$node sh "$HERE/n$node.sh" <&3 >"$HERE/$load-n$node.tar" 2>"$HERE/$load-n$node.err" &
        runs="$runs $!"
        node=$((node + 1))
    done
    for run in $runs; do wait "$run" || :; done
    [ -z "$flood" ] || kill "$flood"
done
