#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A cluster to measure on: network namespaces with shaped cards and Tally's daemons.
#
#	bench/cluster.sh MACHINE[:RATE]...	MACHINE: gpu or cpu; RATE: tc's words, 500mbit
#
# A gpu machine has an agent and a server, a cpu machine a server.  A card without RATE is not
# shaped, and daemons are told of none: they find it.  Prints "run NAME" (the namespaces are
# NAME-gpu0.., NAME-cpu0.., NAME-sw), "tmp DIRECTORY" (the agents' sockets are
# DIRECTORY/agent-gpu0.sock..), "pid NAME PID" of each daemon, and "up" when all of them are.  A
# line of its input is the name of a machine whose server has ended: it starts another one, says its
# "pid", and "up".  Takes it all down at the end of its input.
# Needs root.  A script that sources it has cluster_up and cluster_down instead.

. "$(dirname "${BASH_SOURCE[0]}")/../tests/lib.sh"

declare -A SERVER	# by machine, what its server is started with

daemon()	# name, namespace, command...
{
	local name=$1 ns=$2

	shift 2
	start_daemon "$name" ip netns exec "$RUN-$ns" "$@"
	echo "pid $name $PID"
}

server()	# machine, address
{
	SERVER[$1]="$*"
	daemon "server-$1" "$1" "$BIN/tally-server" --scheduler 10.77.0.1:7470 \
		--listen "$2:7471" --name "$1" --shm-socket "$TMP/$1.sock"
}

agent()		# machine, address
{
	daemon "agent-$1" "$1" "$BIN/tally-agent" --scheduler 10.77.0.1:7470 \
		--rail "$2" --name "$1" --socket "$TMP/agent-$1.sock"
}

all_up()
{
	[ "$(in_ns sw "$BIN/tally" nodes --json --scheduler 10.77.0.1:7470 2>/dev/null |
		grep -c '"state": *"up"')" = "$1" ]
}

cluster_up()	# machine[:rate]...
{
	local machine name address rate tool gpus=0 cpus=0

	for tool in ip tc; do
		command -v "$tool" > /dev/null || skip "$tool is missing: apt-get install iproute2"
	done
	can_make_namespaces || skip 'making network namespaces needs root'
	ns_switch
	daemon scheduler sw "$BIN/tally-scheduler" --listen 10.77.0.1:7470 --state-dir ''
	for machine; do
		rate=${machine#*:}
		[ "$rate" != "$machine" ] || rate=
		case $machine in
		gpu*)	name=gpu$gpus address=10.77.0.$(( 10 + gpus++ )) ;;
		cpu*)	name=cpu$cpus address=10.77.0.$(( 110 + cpus++ )) ;;
		*)	fail "what machine is $machine?" ;;
		esac
		ns_machine "$name" "$address" "$rate"
		server "$name" "$address"
		case $machine in gpu*) agent "$name" "$address" ;; esac
	done
	NODES=$(( 2 * gpus + cpus ))
	wait_until 30 'all nodes are up' all_up $NODES
}

cluster_down()
{
	signal_all TERM
	wait_for 10 none_running || fail 'a daemon does not end'
	wait
	PIDS=()
	ns_down
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
echo "run $RUN"
echo "tmp $TMP"
cluster_up "$@"
echo up
while read -r machine; do
	v=PID_server_$machine
	wait "${!v}" 2> /dev/null	# bash does not tell of it, then
	server ${SERVER[$machine]}
	wait_until 30 'all nodes are up again' all_up $NODES
	echo up
done
exit 0
