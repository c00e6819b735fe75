#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that do not agree, ranks that do not come: who, where and what is said on
# every rank, within the deadline, and the cluster works on.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 1

# ---- ranks that disagree ----
start_rank dtype 0 2 a0 declare:grad:1000:float32
start_rank dtype 1 2 a1 declare:grad:1000:float16
for r in 0 1; do
	expect_error 40 dtype.$r \
		"EMISMATCH .*'grad'.*(float32.*float16|float16.*float32)"
	expect_text "$TMP/dtype.$r.log" 'rank 0.*rank 1|rank 1.*rank 0'
done
say 'another dtype: every rank hears tensor and both sides'

start_rank shape 0 2 a0 declare:grad:10x100
start_rank shape 1 2 a1 declare:grad:100x10
for r in 0 1; do
	expect_error 40 shape.$r "EMISMATCH .*'grad'.*(10,100.*100,10|100,10.*10,100)"
	expect_text "$TMP/shape.$r.log" 'a0.*a1|a1.*a0'
done
start_rank shape2 0 2 a0 declare:grad:1000
start_rank shape2 1 2 a0 declare:grad:1001
for r in 0 1; do
	expect_error 40 shape2.$r "EMISMATCH .*'grad'.*(1000.*1001|1001.*1000)"
done
say 'another shape, on one machine or two: every rank hears tensor and both sides'

start_rank world 0 2 a0
wait_until 60 'rank 0 waits for rank 1' job_says world 'rank 1'
start_rank world 1 3 a1
for r in 0 1; do
	expect_error 40 world.$r "EMISMATCH .*world size (2.*3|3.*2)"
	expect_text "$TMP/world.$r.log" 'rank 0 .*rank 1|rank 1 .*rank 0'
done
start_rank world 2 3 a0		# started with them, and slower
expect_error 20 world.2 'EMISMATCH .*world size (2.*3|3.*2)'
start_rank world2 0 2 a0
wait_until 60 'rank 0 waits for rank 1' job_says world2 'rank 1'
start_rank world2 1 3 a0
for r in 0 1; do expect_error 40 world2.$r "EMISMATCH .*world size (2.*3|3.*2)"; done
# Ranks 0 and 1 were enough for each other: the one that is left over hears of them.
for r in 0 1; do
	start_rank world3 $r 2 a$r declare:grad:1000 "until:$TMP/go0" submit:grad wait:20
done
for r in 0 1; do wait_line 60 world3.$r '^done declare'; done
start_rank world3 2 3 a0
expect_error 40 world3.2 'EMISMATCH .*rank 0 .*world size 2, rank 2 on machine .* says 3'
touch "$TMP/go0"
for r in 0 1; do expect_end 60 world3.$r 0; done
say 'another world size: every rank hears both sides'

# both SECONDS JOB RANKS ONE OTHER: every rank hears of 'grad', in its first round, and both.
both()
{
	local r

	for r in $3; do
		expect_error "$1" "$2.$r" "EMISMATCH .*'grad' round 1: ($4, $5|$5, $4)$"
	done
}

start_rank op 0 2 a0 declare:grad:1000 submit:grad:sum wait:20
start_rank op 1 2 a0 declare:grad:1000 submit:grad:mean wait:20
both 40 op '0 1' 'rank 0: sum' 'rank 1: mean'
start_rank op2 0 2 a0 declare:grad:1000 submit:grad:sum wait:20
start_rank op2 1 2 a1 declare:grad:1000 submit:grad:mean wait:20
both 40 op2 '0 1' 'rank 0 \(machine a0\): sum' 'rank 1 \(machine a1\): mean'
start_rank op3 0 3 a0 declare:grad:300000 submit:grad:mean wait:20
start_rank op3 1 3 a0 declare:grad:300000 submit:grad:mean wait:20
start_rank op3 2 3 a1 declare:grad:300000 broadcast:grad:1
both 40 op3 '0 1 2' 'ranks 0, 1 \(machine a0\): mean' \
	'rank 2 \(machine a1\): broadcast from rank 1'
say 'another operation, on one machine or two: every rank hears both sides'

start_rank root 0 2 a0 declare:grad:1000 broadcast:grad:0
start_rank root 1 2 a0 declare:grad:1000 broadcast:grad:1
both 40 root '0 1' 'rank 0: broadcast from rank 0' 'rank 1: broadcast from rank 1'
# Two machines with data, none with data, and one: rank 2 takes another for the root.
for roots in '0 0 2' '2 2 0' '0 0 1'; do
	job=root${roots// /}
	r=0
	for root in $roots; do
		start_rank $job $r 3 a$(( r / 2 )) declare:grad:1000 broadcast:grad:$root
		(( ++r ))
	done
	both 40 $job '0 1 2' "ranks 0, 1 \(machine a0\): broadcast from rank ${roots::1}" \
		"rank 2 \(machine a1\): broadcast from rank ${roots: -1}"
done
say 'another root of a broadcast, on one machine or two: every rank hears both sides'

# ---- ranks that do not come ----
TROUBLE_TIMEOUT=1 start_rank absent 0 2 a0
expect_error 40 absent.0 "ETIMEDOUT .*rank 1 of job 'absent' has not attached"

start_rank undecl 1 2 a1 "until:$TMP/go"
wait_until 60 'rank 1 waits for rank 0' job_says undecl 'rank 0'
TROUBLE_TIMEOUT=5 start_rank undecl 0 2 a0 declare:grad:100
expect_error 40 undecl.0 "ETIMEDOUT .*'grad'.*rank 1"
expect_text "$TMP/undecl.0.log" 'a1'
touch "$TMP/go"

start_rank barrier 0 2 a0 barrier:1
start_rank barrier 1 2 a1 "until:$TMP/go2"
expect_error 40 barrier.0 "ETIMEDOUT .*rank 1"
expect_text "$TMP/barrier.0.log" 'a1'
touch "$TMP/go2"

# On the same machine, and on another one; and two rounds, which wait for two ranks: who waits for
# the second hears of both.
start_rank late 0 3 a0 declare:grad:100000 submit:grad wait:10
start_rank late 1 3 a0 declare:grad:100000 "until:$TMP/go3"
start_rank late 2 3 a1 declare:grad:100000 submit:grad wait:60
start_rank far 0 2 a0 declare:grad:100000 submit:grad wait:10
start_rank far 1 2 a1 declare:grad:100000 "until:$TMP/go3"
start_rank both 0 3 a0 declare:a:1000 declare:b:1000 submit:a submit:b wait:10:b
start_rank both 1 3 a0 declare:a:1000 declare:b:1000 submit:b "until:$TMP/go3"
start_rank both 2 3 a1 declare:a:1000 declare:b:1000 submit:a "until:$TMP/go3"
expect_error 40 late.0 "ETIMEDOUT .*'grad' round 1 waits for rank 1 \(machine a0\)"
expect_error 40 far.0 \
	"ETIMEDOUT .*not done after 10 s; tensor 'grad' round 1 waits for rank 1 \(machine a1\)"
expect_error 40 both.0 'ETIMEDOUT round 1 of tensor b: not done after 10 s; '
expect_text "$TMP/both.0.log" "tensor 'a' round 1 waits for rank 1 \(machine a0\) since"
expect_text "$TMP/both.0.log" "tensor 'b' round 1 waits for rank 2 \(machine a1\) since"
touch "$TMP/go3"
say 'missing ranks: attach, declare, barrier and wait name rank and machine'

# ---- a rank that leaves while others count on it ----
start_rank left 0 2 a0 declare:grad:1000 submit:grad wait:30
start_rank left 1 2 a1 declare:grad:1000
expect_end 60 left.1 0
expect_error 40 left.0 "ESHUTDOWN rank 1 of job 'left' has detached, tensor 'grad' round 1"
say 'a rank that has left: named, as left'

# ---- a rank that submits what it has in flight ----
start_rank twice 0 2 a0 declare:grad:1000 submit:grad again:grad wait:60 rounds:grad:2
start_rank twice 1 2 a1 declare:grad:1000 "until:$TMP/refused" rounds:grad:3
wait_line 60 twice.0 '^AGAIN EEXIST .*round 1 of tensor grad is in flight'
touch "$TMP/refused"
for r in 0 1; do expect_end 40 twice.$r 0; done
say 'a tensor that is in flight: EEXIST for that call, and all goes on'

# ---- a rank that wants more than there is ----
mib=$(sed -n 's/^MemTotal:[[:space:]]*\([0-9]*\) kB/\1/p' /proc/meminfo)
mib=$(( mib / 1024 + 1 ))
start_rank arena 0 1 a0 alloc:64 alloc:$mib
expect_error 40 arena.0 "EQUOTA .*user id [0-9]* has .* that one user may have .*--user-memory"
has_line arena.0 '^done alloc:64' || fail 'what there is was refused, too'
say 'an arena larger than what a user may have: EQUOTA, and nobody else notices'

# ---- two jobs with the same tensor names share nothing ----
start_rank one 0 2 a0 declare:w:5000 rounds:w:20
start_rank one 1 2 a1 declare:w:5000 rounds:w:20
start_rank two 0 3 a0 declare:w:9000:int32 rounds:w:20
start_rank two 1 3 a1 declare:w:9000:int32 rounds:w:20
start_rank two 2 3 a1 declare:w:9000:int32 rounds:w:20
for x in one.0 one.1 two.0 two.1 two.2; do expect_end 60 $x 0; done
say 'two jobs with the same names: each its own sums'

works after a0 a1
for d in scheduler a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say 'the cluster works on'
