#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How jobs share NICs: two training machines with a server each and one CPU machine as network
# namespaces, shaped in both directions; jobs of several users, each with a rank on both machines.
#
#	bench/shares.sh [-r MBIT] [-s SMALL] [-l LARGE] [-e ENDING] [-t SECONDS] [WHAT]...
#
# Prints (sizes in MiB), all of it or WHAT is asked for:
#   - beside: the share of a NIC that a small job has beside a large one, of another user and of
#     the same one, and its p99 beside that which it has alone on NICs of half the rate.  Share:
#     how long a round takes alone on these NICs, over how long it takes beside the large job;
#   - many: what the one job of a user has beside ten of another, of what all of them have;
#   - ending: the longest round of a small job while ten large ones end at once, and whether a
#     daemon lost the scheduler meanwhile.
# Needs root.  Each figure stands beside what is promised; a missed one is no failure: read it.

. "$(dirname "$0")/cluster.sh"

rate=500 small=1 large=64 ending=32 seconds=12
while getopts r:s:l:e:t: option; do
	case $option in
	r) rate=$OPTARG ;;
	s) small=$OPTARG ;;
	l) large=$OPTARG ;;
	e) ending=$OPTARG ;;
	t) seconds=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
WHAT=" ${*:-beside many ending} "
HERE=$(cd "$(dirname "$0")" && pwd)
ONE=20001 OTHER=20002			# user ids, of nobody here
declare -A RANKS			# by job, its ranks' pids

cluster()	# mbit
{
	cluster_up "gpu:${1}mbit" "gpu:${1}mbit" "cpu:${1}mbit" > /dev/null
	chmod 755 "$TMP"
	chmod 666 "$TMP"/agent-gpu?.sock
	mkdir -p -m 1777 "$TMP/out"
	RANKS=()
}

job()		# name, uid, MiB
{
	local r

	RANKS[$1]=
	for r in 0 1; do
		start_daemon "$1-$r" ip netns exec "$RUN-gpu$r" \
			setpriv --reuid="$2" --regid="$2" --clear-groups \
			env TALLY_JOB="$1" TALLY_RANK=$r TALLY_WORLD_SIZE=2 \
			TALLY_SOCKET="$TMP/agent-gpu$r.sock" PYTHONPATH="$ROOT/client/python" \
			TALLY_LIBRARY="$LIB/libtally.so.0" HOME=/ OMP_NUM_THREADS=1 \
			"$PYTHON" -B "$HERE/shares.py" $(( $3 << 20 )) "$TMP/out/$1.$r" \
			"$TMP/out/stop-$1"
		RANKS[$1]+=" $PID"
	done
}

has_rounds()	# job, how many more than now
{
	[ "$(wc -l 2>/dev/null < "$TMP/out/$1.0" || echo 0)" -ge "$2" ]
}

ended() { local pid; for pid in ${RANKS[$1]}; do is_running "$pid" && return 1; done; return 0; }

runs()		# job
{
	wait_until 120 "job $1 has rounds" has_rounds "$1" 3
}

tell()		# job...: to stop
{
	local j

	for j; do : > "$TMP/out/stop-$j"; done
}

end()		# job...
{
	local j

	tell "$@"
	for j; do
		wait_until 120 "job $j ends" ended "$j"
		rm -f "$TMP/out/stop-$j" "$TMP/out/$j".?
	done
}

seconds_now() { "$PYTHON" -c 'import time; print(time.monotonic())'; }

# figures NAME SINCE UNTIL JOB...: NAME_p50, NAME_p99, NAME_max in ms, NAME_mb in MiB/s, of the
# jobs' rounds that ended meanwhile.
figures()
{
	local name=$1 line

	line=$("$PYTHON" - "$TMP/out" "$2" "$3" "${@:4}" <<-'END'
	import sys
	out, since, until = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
	took = []
	for job in sys.argv[4:]:
	    with open(f"{out}/{job}.0", encoding="ascii") as f:
	        rows = [tuple(map(float, line.split())) for line in f if line.endswith("\n")]
	    took += [b for a, b in rows if since <= a <= until]
	took.sort()
	if not took:
	    sys.exit("no round ended")
	at = lambda q: 1000 * took[min(len(took) - 1, int(q * len(took)))]
	print(f"{at(.5):.1f} {at(.99):.1f} {1000 * took[-1]:.1f} {len(took) / (until - since):.3f}")
	END
	) || fail "job $4: no figures"
	read -r "${name}_p50" "${name}_p99" "${name}_max" "${name}_per_s" <<< "$line"
}

measure()	# name, job...
{
	local since

	since=$(seconds_now)
	pause_ms $(( seconds * 1000 ))
	figures "$1" "$since" "$(seconds_now)" "${@:2}"
}

sum() { "$PYTHON" -c "print(f'{$1:.2f}')"; }
met() { "$PYTHON" -c "print('met' if $1 else 'MISSED')"; }

beside()	# words, of the large job's user
{
	job large "$2" "$large"
	runs large
	job small $OTHER "$small"
	runs small
	measure with small
	share=$(sum "$whole_p50 / $with_p50") ratio=$(sum "$with_p99 / $half_p99")
	echo "$small MiB beside $large MiB of $1: share $share of a NIC (promised 0.50:" \
		"$(met "$share >= 0.5")), p50 $with_p50 ms, p99 $with_p99 ms, alone on half a" \
		"NIC $half_p99 ms: $ratio times (promised 3: $(met "$ratio <= 3"))"
	end small large
}

many()		# ten jobs of one user, one of another
{
	local names=() i

	for i in 0 1 2 3 4 5 6 7 8 9; do
		names+=("m$i")
		job "m$i" $ONE 8
	done
	for i in "${names[@]}"; do runs "$i"; done
	job one $OTHER 8
	runs one
	measure all one "${names[@]}"
	measure mine one
	share=$(sum "$mine_per_s / $all_per_s")
	echo "8 MiB of one user beside ten times 8 MiB of another: share $share of what all have" \
		"(promised 0.5 less what it cannot use alone, $(sum "$alone_per_s") rounds/s;" \
		"it has $(sum "$mine_per_s"), by jobs it would be $(sum "1 / 11"))"
	end one "${names[@]}"
}

at_end()	# ten large jobs end at once
{
	local names=() i since

	job small $OTHER "$small"
	for i in 0 1 2 3 4 5 6 7 8 9; do
		names+=("e$i")
		job "e$i" $ONE "$ending"
	done
	for i in "${names[@]}"; do runs "$i"; done
	runs small
	measure before small
	since=$(seconds_now)
	end "${names[@]}"
	pause_ms 3000		# their memory is given back
	figures after "$since" "$(seconds_now)" small
	echo "ten jobs of $ending MiB end: rounds of $small MiB took at most $after_max ms," \
		"before $before_max ms (promised 100 ms more:" \
		"$(met "$after_max <= $before_max + 100"))," \
		"daemons that lost the scheduler: $(cat "$TMP"/agent*.log "$TMP"/server*.log |
			grep -c 'scheduler.*\(lost\|reach\)')"
	end small
}

asked() { [[ $WHAT == *" $1 "* ]]; }

alone()		# name, MiB: the figures of a job without others
{
	job alone $OTHER "$2"
	runs alone
	measure "$1" alone
	end alone
}

if asked beside; then
	cluster $(( rate / 2 ))
	alone half "$small"
	cluster_down
fi
cluster "$rate"
if asked beside; then
	alone whole "$small"
	beside 'another user' $ONE
	beside 'the same user' $OTHER
fi
if asked many; then
	alone alone 8
	many
fi
! asked ending || at_end
cluster_down
