#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The first script of README.md, as it stands there: it has at most 25 lines, runs by README's own
# command line, and by torchrun and mpirun on two machines (network namespaces) with an agent each.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

BIN=$(realpath "$BIN") LIB=$(realpath "$LIB")
export BIN TALLY_LIBRARY=$LIB/libtally.so.0
cd "$TMP" || exit 1
doc_block 'example: train.py' train.py
[ "$(wc -l < train.py)" -le 25 ] || fail "train.py has $(wc -l < train.py) lines"

expect_learned()	# LOG: rank 0's loss fell, and was printed by rank 0 alone
{
	awk '/^step [0-9]+ loss [0-9.]+$/ { n++; if (!$2) first = $4; if ($2 == 99) last = $4 }
	     END { exit !(n == 4 && first > 1 && last < first / 1000) }' "$1" ||
		{ cat "$1" >&2; fail "$1: the loss did not fall from above 1 to a thousandth"; }
}

# README's paths are of the tree and of Debian's Python, the test's may be others.
doc_block 'example: run train.py' run.sh
sed -i "s|\$PWD/build/bin|$BIN|; s|\$PWD/client|$ROOT/client|; s|/usr/bin/python3|$PYTHON|" run.sh
expect_status 0 bash run.sh
expect_learned "$TMP/out"
say 'README: the script, under tally local'

# What torch.distributed asks of the environment is there for every rank of tally local.
expect_status 0 "$BIN/tally" local --agents 2 --ranks 3 -- sh -c '
	echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:?}" >&2'
for place in 0/3\ 0/2 1/3\ 1/2 2/3\ 0/1; do
	expect_text "$TMP/err" "^(\[rank [12]\] )?$place 127.0.0.1 "
done
# A port that the kernel gives to a connection meanwhile would be in use when torch listens there.
read -r first _ < /proc/sys/net/ipv4/ip_local_port_range
port=$(awk '/127\.0\.0\.1/ { print $NF; exit }' "$TMP/err")
[ "$port" -lt "$first" ] || [ "$first" -le 10000 ] ||
	fail "MASTER_PORT is $port, which the kernel gives to connections, from $first on"
say 'tally local sets the variables of torchrun'

can_make_namespaces || { say 'no namespaces without root: launchers are left out'; exit 0; }
export PYTHONPATH=$ROOT/client/python
ns_cluster 2 0
start_daemon scheduler ip netns exec "$RUN-sw" "$BIN/tally-scheduler" --listen 10.77.0.1:7470 \
	--state-dir "$TMP/state"
for i in 0 1; do
	start_daemon "server$i" ip netns exec "$RUN-gpu$i" "$BIN/tally-server" --name "m$i" \
		--scheduler 10.77.0.1:7470 --listen "10.77.0.1$i:7471" --shm-socket "$TMP/s$i.sock"
	start_daemon "agent$i" ip netns exec "$RUN-gpu$i" "$BIN/tally-agent" --name "m$i" \
		--scheduler 10.77.0.1:7470 --rail "10.77.0.1$i" --socket "$TMP/a$i.sock"
done
all_up() { in_ns sw "$BIN/tally" nodes --json --scheduler 10.77.0.1:7470 2> /dev/null |
	grep -c '"state": *"up"' | grep -qx 4; }
wait_until 60 'agents and servers are up' all_up

# launcher_line NAME: README's line for it, with two ranks a machine and the addresses of this test.
doc_block 'example: launchers' launchers.sh
launcher_line()
{
	sed -e ':a; /\\$/ { N; s/\\\n[[:space:]]*//; ba }' launchers.sh | grep -E "(^|[ =0-9])$1 " |
		sed "s/\(per.node\) 4/\1 2/; s/:4/:2/g; s/10\.0\.0\.1/10.77.0.10/g;
			s/10\.0\.0\.2/10.77.0.11/g; s|python3|$PYTHON|;
			s|^torchrun|$PYTHON -m torch.distributed.run|" > "$1.sh"
	[ -s "$1.sh" ] || fail "README.md has no line for $1"
}

on_machine()	# I COMMAND...
{
	local i=$1

	shift
	ip netns exec "$RUN-gpu$i" env TALLY_SOCKET="$TMP/a$i.sock" GLOO_SOCKET_IFNAME=eth0 "$@"
}

ranks_ended() { local p; for p in "${RANKS[@]}"; do is_running "$p" && return 1; done; return 0; }
expect_ranks_well()	# NAME
{
	local p

	wait_until 180 "ranks by $1 have ended" ranks_ended
	for p in "${RANKS[@]}"; do
		wait "$p" || fail "a rank by $1 ended with $?"
	done
	cat "$1"-*.log > "$1"
	expect_learned "$1"
	say "README: the script by $1 on two machines"
}

launcher_line torchrun
RANKS=()
# torch 1.13's own torchrun fails with Python 3.11, whatever it starts.
torchrun_works() { "$PYTHON" -m torch.distributed.run --nproc_per_node 1 --no_python true; }
MACHINES='0 1'
torchrun_works > works.log 2>&1 || {
	MACHINES=
	say "the torchrun of $PYTHON starts nothing: left out"
}
for i in $MACHINES; do
	sed "s/node_rank 0/node_rank $i/" torchrun.sh > torchrun$i.sh
	start_daemon "torchrun-$i" on_machine $i bash torchrun$i.sh
	RANKS+=("$PID")
done
[ -z "$MACHINES" ] || expect_ranks_well torchrun

# The other two are played: what they set for their ranks, and what README's line adds to it.
export TMP RUN
cat > launcher <<'END'
#!/bin/bash
# launcher NAME [OPTION]... COMMAND...: prints COMMAND and the variables that -x asks for.
shift
while [ "${1#-}" != "$1" ]; do
	[ "$1" = -x ] && [[ $2 == *=* ]] && echo "export $2"
	shift 2
done
[ -z "${MASTER_ADDR:-}" ] || echo "export MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT"
printf '%q ' exec "$@"
END
chmod 755 launcher
for name in srun mpirun; do
	launcher_line $name
	sed "s|$name |./launcher $name |" $name.sh > played.sh
	bash played.sh > "$name-rank.sh" || fail "README's line for $name"
	expect_text "$name-rank.sh" "^exec $PYTHON train.py"
	RANKS=()
	for r in 0 1 2 3; do
		case $name in
		srun) place="SLURM_PROCID=$r SLURM_NTASKS=4 SLURM_JOB_ID=7"
		      place="$place SLURM_LOCALID=$(( r % 2 ))" ;;
		*) place="OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=job7"
		   place="$place OMPI_COMM_WORLD_LOCAL_RANK=$(( r % 2 ))" ;;
		esac
		start_daemon "$name-$r" on_machine $(( r / 2 )) \
			env $place bash "$name-rank.sh"
		RANKS+=("$PID")
	done
	expect_ranks_well $name
done
exit 0
