# SPDX-License-Identifier: Apache-2.0
# Helpers of what runs inside the virtual machine: source it first, after ../lib.sh.
#
# Soft RoCE of this kernel answers in the first network namespace only, so machines
# are not namespaces here but cards: machine i has the addresses 10.66.r.i and
# fd66:r::i on card r, a veth on a bridge with an rxe device of its own.  What goes from
# one machine's address to another's leaves by the one's card and comes in by the
# other's, although both are addresses of the same kernel (rules before the local table).
#
# Cards keep their link-local addresses: what the kernel's RDMA asks a neighbour for it
# asks from those, and without one it asks nobody.

[ -n "${IN_VM:-}" ] || skip 'runs inside tests/vm/vm.py only'
PATIENCE=${PATIENCE:-4}			# the machine is emulated, beside who knows what

quiet_sysctl() { sysctl -qw "$@" || fail "sysctl $*"; }

# The kernel as several machines; once.
machines_start()
{
	local scope

	[ -e /sys/class/net/sw0 ] && return
	for scope in all default; do
		quiet_sysctl net.ipv4.conf.$scope.{rp_filter=0,accept_local=1} \
			net.ipv4.conf.$scope.{arp_ignore=1,arp_announce=2} \
			net.ipv6.conf.$scope.accept_dad=0
	done
	for scope in -4 -6; do
		ip $scope rule add pref 100 lookup local && ip $scope rule del pref 0 ||
			fail 'rules'
	done
}

# address FAMILY DEVICE TABLE ADDRESS NET: what comes from it leaves by this card.
address()
{
	ip "$1" addr add "$4/${5#*/}" dev "$2" && ip "$1" route add "$5" dev "$2" table "$3" &&
		ip "$1" rule add pref 5 iif lo from "$4" to "$4" lookup local &&
		ip "$1" rule add pref 10 iif lo from "$4" to "$5" lookup "$3" ||
		fail "the address $4"
}

# card MACHINE RAIL: eth<rail>m<machine> with rxe<rail>m<machine>.
card()
{
	local name=m$1r$2 table=$(( 1000 + $2 * 100 + $1 ))

	machines_start
	if [ ! -e "/sys/class/net/sw$2" ]; then
		ip link add "sw$2" type bridge && ip link set "sw$2" mtu 9000 up || fail "bridge $2"
	fi
	ip link add "$name" mtu 9000 type veth peer name "p$name" mtu 9000 || fail "card $name"
	ip link set "p$name" master "sw$2" up
	ip link set "$name" up
	address -4 "$name" "$table" "10.66.$2.$1" "10.66.$2.0/24"
	address -6 "$name" "$table" "fd66:$2::$1" "fd66:$2::/64"
	roce "$1" "$2"
}

# roce MACHINE RAIL: a device on that card.
roce()
{
	rdma link add "rxem$1r$2" type rxe netdev "m$1r$2" || fail "no soft RoCE on m$1r$2"
	wait_until 10 "rxem$1r$2 has its addresses" has_gids "$1" "$2"
}

# machines N [RAILS]: N machines with so many cards each, unless they are there.
machines()
{
	local m r

	for (( m = 1; m <= $1; m++ )); do
		for (( r = 0; r < ${2:-1}; r++ )); do
			[ -e "/sys/class/net/m${m}r$r" ] || card "$m" "$r"
		done
	done
}

# gid_index MACHINE RAIL [-6]: of the IPv4 or IPv6 address in its device's table.
gid_index()
{
	local f gid table=/sys/class/infiniband/rxem$1r$2/ports/1/gids

	gid=$(printf '0000:0000:0000:0000:0000:ffff:0a42:%02x%02x' "$2" "$1")
	[ -z "${3:-}" ] || gid=$(printf 'fd66:%04x:0000:0000:0000:0000:0000:%04x' "$2" "$1")
	f=$(grep -lx "$gid" "$table"/* 2>/dev/null) || return 1
	echo "${f##*/}"
}

has_gids() { gid_index "$@" > /dev/null && gid_index "$@" -6 > /dev/null; }

# sent DEVICE: how many bytes it has, ever.
sent() { cat "/sys/class/net/$1/statistics/tx_bytes"; }

# listens PORT: somebody does, over TCP.
listens() { ss -Hltn "sport = :$1" | grep -q .; }

bw_listens_or_ended() { listens 18515 || ! is_running "$1"; }

# write_bw SIZE COUNT [-6]: MB/s (10^6) of ib_write_bw from machine 1 to machine 2, one queue
# pair.  They find each other over IPv4, in any case.
write_bw()
{
	local to from

	to=$(gid_index 2 0 ${3:-}) && from=$(gid_index 1 0 ${3:-}) ||
		fail 'no address to measure between'
	timeout 60 ib_write_bw -F -d rxem2r0 -x "$to" -s "$1" -n "$2" > "$TMP/bw-server" 2>&1 &
	wait_until 30 'ib_write_bw listens' bw_listens_or_ended $!
	listens 18515 || { cat "$TMP/bw-server" >&2; fail 'ib_write_bw does not listen'; }
	timeout 60 ib_write_bw -F -d rxem1r0 -x "$from" -s "$1" -n "$2" --source_ip 10.66.0.1 \
		10.66.0.2 > "$TMP/bw" 2>&1 || { cat "$TMP/bw" >&2; fail 'ib_write_bw failed'; }
	wait $! || { cat "$TMP/bw-server" >&2; fail 'ib_write_bw failed at the far end'; }
	awk -v s="$1" '$1 == s { printf "%.3f\n", $4 * 1.048576 }' "$TMP/bw"
}

# ---- daemons on the machines ----

CLUSTER=10.66.0.1:7470
GRACE=30		# of the scheduler for agents

# of_each RAILS OPTION MACHINE [PORT]: OPTION and the address of each card, its PORT, and what
# RAIL_RATE says of that rail.
RAIL_RATE=()		# @BITRATE
FAMILY=			# -6: cards by their IPv6 addresses
of_each()
{
	local r at

	for (( r = 0; r < $1; r++ )); do
		[ -z "$FAMILY" ] && at=10.66.$r.$3 || at=[fd66:$r::$3]
		[ -z "$4" ] || at+=:$(( $4 + r ))
		printf '%s\n' "$2" "$at${RAIL_RATE[r]:-}"
	done
}

# rdma_agent MACHINE RAILS [OPTION...]: a<machine - 1>, its socket $TMP/a<machine - 1>.sock.
rdma_agent()
{
	local name=a$(( $1 - 1 )) cards

	mapfile -t cards < <(of_each "$2" --rail "$1" '')
	start_daemon "$name" "$BIN/tally-agent" --scheduler "$CLUSTER" --name "$name" \
		--machine-id "m$1" --socket "$TMP/$name.sock" "${cards[@]}" "${@:3}"
}

# rdma_server MACHINE RAILS [OPTION...]: s<machine>.
rdma_server()
{
	local cards

	mapfile -t cards < <(of_each "$2" --listen "$1" 7500)
	start_daemon "s$1" "$BIN/tally-server" --scheduler "$CLUSTER" --name "s$1" \
		--machine-id "m$1" --shm-socket "$TMP/s$1.shm" --memory 256M "${cards[@]}" "${@:3}"
}

# rdma_cluster AGENTS SERVERS RAILS [OPTION...]: on that many machines, agents' first.
rdma_cluster()
{
	local m

	machines $(( $1 + $2 )) "$3"
	start_daemon scheduler "$BIN/tally-scheduler" --listen "$CLUSTER" --state-dir '' \
		--agent-grace "$GRACE"
	for (( m = 1; m <= $1; m++ )); do rdma_agent "$m" "$3" "${@:4}"; done
	for (( ; m <= $1 + $2; m++ )); do rdma_server "$m" "$3" "${@:4}"; done
	wait_until 30 'all nodes are registered' nodes_are $(( $1 + $2 )) "$CLUSTER"
}

# cluster_stop: ends them all, in order.
cluster_stop()
{
	local p

	signal_all TERM
	for p in "${PIDS[@]}"; do wait_until 20 "process $p ends" not_running "$p"; done
	PIDS=()
}
not_running() { ! is_running "$1"; }

# job COMMAND...: as rank 0 and 1 of a job of its own, on a0 and a1; rank 0's words are in
# $TMP/rank0.log.  start_job and end_job are its two halves.
JOBS=0 RANK=()
start_job()
{
	local r

	JOBS=$(( JOBS + 1 ))
	for r in 0 1; do
		env TALLY_JOB="j$JOBS" TALLY_RANK=$r TALLY_WORLD_SIZE=2 \
			TALLY_SOCKET="$TMP/a$r.sock" \
			timeout $(( 150 * PATIENCE )) "$@" > "$TMP/rank$r.log" 2>&1 &
		RANK[r]=$!
		adopt $!
	done
}
end_job()
{
	local r

	for r in 0 1; do wait "${RANK[r]}" || fail "rank $r ended with $?"; done
}
job() { start_job "$@"; end_job; }

# start_rounds COUNT STEP...: a job whose ranks have a tensor w of COUNT float32 and do those
# steps of trouble_rank.py, sums checked; until FILE and train:w:FILE keep it as long as somebody
# looks, on fast machines too.  start_training COUNT and end_training: train, and no longer.
start_rounds()
{
	start_job env PYTHONPATH="$ROOT/client/python" TALLY_LIBRARY="$LIB/libtally.so.0" \
		PYTHONDONTWRITEBYTECODE=1 TROUBLE_PACE=0.02 \
		"$PYTHON" "$ROOT/tests/trouble_rank.py" \
		"declare:w:$1" "${@:2}"
}
start_training() { start_rounds "$1" "train:w:$TMP/enough.$(( JOBS + 1 ))"; }
end_training() { touch "$TMP/enough.$JOBS"; end_job; }

# notes: what the agents say of themselves in `tally nodes`.
notes()
{
	"$BIN/tally" nodes --json --scheduler "$CLUSTER" |
		grep -o 'rdma on [0-9]* of [0-9]* links, [0-9]* payloads over tcp'
}
# detours AGENT: how many payloads it has sent by TCP since it was started; nothing while it has
# no links.
detours()
{
	"$BIN/tally" status --scheduler "$CLUSTER" |
		sed -n "s/^note *$1: rdma on .* links, \([0-9]*\) payloads over tcp.*/\1/p"
}
# all_links_by_rdma [DETOURS]: every link of the agents; and that many payloads not.
all_links_by_rdma()
{
	local note n=0

	while read -r note; do
		n=$(( n + 1 ))
		[[ $note =~ ^rdma\ on\ ([0-9]+)\ of\ ([0-9]+)\ links,\ ([0-9]+)\  ]] &&
			(( BASH_REMATCH[1] == BASH_REMATCH[2] )) &&
			(( BASH_REMATCH[3] == ${1:-BASH_REMATCH[3]} )) || return 1
	done < <(notes)
	(( n > 0 ))
}
all_by_rdma() { all_links_by_rdma 0; }

# nodes_up_are N: so many are up; the dead are shown for a while.
nodes_up_are()
{
	(( $("$BIN/tally" nodes --json --timeout 2 --scheduler "$CLUSTER" 2>/dev/null |
		grep -c '"state": *"up"') == $1 ))
}
