#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Servers that come and have no memory for a job that trains, or for their share of it: the
# scheduler says why, the job trains on without them, and they are asked again later.  And when
# a smaller world has left servers with more than is theirs, the others get that.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

lines_of() { grep -Ec -- "$2" "$TMP/$1.log"; }
has_lines() { (( $(lines_of "$1" "$2") >= $3 )); }
servers_are() { "$BIN/tally" jobs --json --job "$1" | grep -Eq "\"servers\": *$2(,|\$)"; }
# when NAME REGEX: the ms since midnight at which its log says so, each time.
when()
{
	grep -E -- "$2" "$TMP/$1.log" |
		sed -E 's/.*([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{3}).*/\1 \2 \3 \4/' |
		while read -r h m s ms; do
			echo $(( ((10#$h * 60 + 10#$m) * 60 + 10#$s) * 1000 + 10#$ms ))
		done
}

# ---- for a job that trains ----
start_cluster 3 1
for r in 0 1 2; do start_rank room $r 3 a$r declare:w:10000000 "train:w:$TMP/enough.room"; done
train_more room.0 5 20
start_server s1 --memory 40M
wait_until 60 's1 is registered' nodes_up 5
refused='server s1 does not take job room, reason server s1: a window for each machine needs 48 MiB'
wait_line 10 scheduler "$refused"
asked=$(when scheduler "$refused" | head -n 1)
train_more room.0 5
wait_until 20 'it is asked again' has_lines scheduler "$refused" 2
pause=$(( $(when scheduler "$refused" | sed -n 2p) - asked ))
(( pause < 0 )) && (( pause += 24 * 3600 * 1000 ))
(( pause >= 4900 )) || fail "it was asked again after $pause ms"
servers_are room 1 || fail 'a server that has refused is counted'
say "no memory for a job: refused, and asked again $pause ms later"

# ---- for its share, once it has joined ----
start_server s2 --memory 50M		# a window for each machine, and 2 MiB more
wait_until 60 's2 is registered' nodes_up 6
wait_line 10 scheduler \
	'job room goes on without server s2, reason its share needs [0-9.]+ MiB, free are 2 '
wait_until 10 'the job goes on without it' servers_are room 1
train_more room.0 5
has_line s2 'new shares' && fail 's2 was given a share'
start_server s3
wait_line 60 s3 'job [0-9]+ has new shares'
train_more room.0 5
touch "$TMP/enough.room"
for r in 0 1 2; do expect_end 30 room.$r 0; done
say 'no memory for its share: out again; one that has it: used'
kill_all s1 s2 s3

# ---- what a smaller world leaves: servers beside agents have more than is theirs ----
start_server s5
for i in 0 1; do start_server g$i --machine-id a$i; done
wait_until 60 'all nodes are registered' nodes_up 7
for r in 0 1 2; do start_shrink even $r 3 a$r 40 100 0.02; done
wait_until 30 'it trains' at_round even.0 10
wait_until 20 'all servers are used' servers_are even 4
kill_all even.2
wait_line 20 scheduler 'job even epoch [0-9]+, the world is smaller'
uneven='job even epoch [0-9]+, chunks move to the servers. new shares'
moves=$(lines_of scheduler "$uneven")
wait_until 20 'it is evened out' has_lines scheduler "$uneven" $(( moves + 1 ))
all_lost even
for r in 0 1; do expect_end 60 even.$r 0; done
works after a0 a1
for d in scheduler a0 a1 a2 s0 s5 g0 g1; do is_running "$(pid_of $d)" || fail "$d has ended"; done
