# SPDX-License-Identifier: Apache-2.0
# Helpers of what runs inside the virtual machine: source it first, after ../lib.sh.
#
# Soft RoCE of this kernel answers in the first network namespace only, so machines
# are not namespaces here but cards: machine i has the address 10.66.r.i on card r,
# a veth on a bridge with an rxe device of its own.  What goes from one machine's
# address to another's leaves by the one's card and comes in by the other's, although
# both are addresses of the same kernel (rules before the local table).

[ -n "${IN_VM:-}" ] || skip 'runs inside tests/vm/vm.py only'

quiet_sysctl() { sysctl -qw "$@" || fail "sysctl $*"; }

# The kernel as several machines; once.
machines_start()
{
	local scope

	[ -e /sys/class/net/sw0 ] && return
	for scope in all default; do
		quiet_sysctl net.ipv4.conf.$scope.{rp_filter=0,accept_local=1} \
			net.ipv4.conf.$scope.{arp_ignore=1,arp_announce=2} \
			net.ipv6.conf.$scope.{accept_dad=0,addr_gen_mode=1}
	done
	ip rule add pref 100 lookup local && ip rule del pref 0 || fail 'rules'
}

# card MACHINE RAIL: eth<rail>m<machine> with rxe<rail>m<machine>.
card()
{
	local name=m$1r$2 net=10.66.$2 table=$(( 1000 + $2 * 100 + $1 ))

	machines_start
	if [ ! -e "/sys/class/net/sw$2" ]; then
		ip link add "sw$2" type bridge && ip link set "sw$2" mtu 9000 up || fail "bridge $2"
	fi
	ip link add "$name" mtu 9000 type veth peer name "p$name" mtu 9000 || fail "card $name"
	ip link set "p$name" master "sw$2" up
	ip addr add "$net.$1/24" dev "$name"
	ip link set "$name" up
	ip route add "$net.0/24" dev "$name" table "$table"
	ip rule add pref 5 iif lo from "$net.$1" to "$net.$1" lookup local
	ip rule add pref 10 iif lo from "$net.$1" to "$net.0/24" lookup "$table"
	rdma link add "rxe$name" type rxe netdev "$name" || fail "no soft RoCE on $name"
	wait_until 10 "rxe$name has its address" has_gid "$1" "$2"
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

# gid_index MACHINE RAIL: of the IPv4 address in its device's table.
gid_index()
{
	local f gid

	gid=$(printf '0000:0000:0000:0000:0000:ffff:0a42:%02x%02x' "$2" "$1")
	f=$(grep -lx "$gid" "/sys/class/infiniband/rxem$1r$2"/ports/1/gids/* 2>/dev/null) ||
		return 1
	echo "${f##*/}"
}

has_gid() { gid_index "$@" > /dev/null; }

# listens PORT: somebody does, over TCP.
listens() { ss -Hltn "sport = :$1" | grep -q .; }

# write_bw SIZE COUNT: MB/s (10^6) of ib_write_bw from machine 1 to machine 2, one queue pair.
write_bw()
{
	local to from

	to=$(gid_index 2 0) && from=$(gid_index 1 0) || fail 'no address to measure between'
	timeout 60 ib_write_bw -F -d rxem2r0 -x "$to" -s "$1" -n "$2" > "$TMP/bw-server" 2>&1 &
	wait_until 10 'ib_write_bw listens' listens 18515
	timeout 60 ib_write_bw -F -d rxem1r0 -x "$from" -s "$1" -n "$2" --source_ip 10.66.0.1 \
		10.66.0.2 > "$TMP/bw" 2>&1 || { cat "$TMP/bw" >&2; fail 'ib_write_bw failed'; }
	wait $! || { cat "$TMP/bw-server" >&2; fail 'ib_write_bw failed at the far end'; }
	awk -v s="$1" '$1 == s { printf "%.3f\n", $4 * 1.048576 }' "$TMP/bw"
}
