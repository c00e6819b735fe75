#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Frames are lost, doubled, held back behind others, and forged, on every link of two agents to two
# servers, both ways: all bits are those of quiet links, no link ends for it, and nobody is given
# up; also when a server dies in the middle.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 2 2
SEED=${SEED:-$(( $(now_ms) % 32768 ))}
say "note: seed $SEED"

# On an agent's machine the server's address is the proxy's, which comes to it by the switch.
for i in 0 1; do
	for a in 0 1; do
		address=10.77.0.$(( 110 + i ))
		port=$(sed -n "s/.* listens on $address:\([0-9]*\),.*/\1/p" "$TMP/s$i.log")
		in_ns gpu$a ip address add "$address/32" dev lo
		start_in gpu$a proxy$a$i "$PYTHON" "$ROOT/tests/trouble_proxy.py" \
			"/run/netns/$RUN-sw" "$address" "$port" $(( SEED + 2 * i + a )) "$TMP/bad"
		wait_line 10 proxy$a$i '^between'
	done
done

for r in 0 1; do start_trainer calm $r 2 a$r; done
stop_training calm
for r in 0 1; do expect_end 60 calm.$r 0; done

closed() { cat "$TMP"/s?.log | grep -cE 'link from agent .* closed'; }
before=$(closed)
touch "$TMP/bad"
for r in 0 1; do start_trainer bad $r 2 a$r; done
train_more bad.0 30 120
[ "$(closed)" = "$before" ] && ! grep -E 'link.* to server .* lost' "$TMP"/a?.log ||
	fail "a link has ended: seed $SEED"
kill_all s1
train_more bad.0 10 120
rm "$TMP/bad"
stop_training bad
for r in 0 1; do expect_end 120 bad.$r 0; done
for x in calm.1 bad.0 bad.1; do
	[ "$(hash_of $x)" = "$(hash_of calm.0)" ] || fail "$x has other bits: seed $SEED"
done
[ "$(grep -Ec 'up -> (away|dead)' "$TMP/scheduler.log")" = 1 ] ||
	fail "somebody was given up who was there: seed $SEED"

# ---- small frames alone ----
for r in 0 1; do start_trainer hole $r 2 a$r; done
train_more hole.0 5 20
began=$(now_ms)
touch "$TMP/bad.hole"
named() { tally tensors --stuck 2>/dev/null | grep -q 'server s0'; }
wait_until 20 'the server is named' named
say "note: named $(( $(now_ms) - began )) ms after the last payload"
rm "$TMP/bad.hole"
stop_training hole
for r in 0 1; do
	expect_end 60 hole.$r 0
	[ "$(hash_of hole.$r)" = "$(hash_of calm.0)" ] || fail "hole.$r has other bits"
done

for p in 00 01 10 11; do
	kill_now proxy$p TERM
	expect_end 10 proxy$p 0
done
grep -h '^lost' "$TMP"/proxy??.log | awk '{ for (i = 2; i <= NF; i += 2) n[i] += $i }
	END { for (i = 2; i < 10; i += 2) if (!n[i]) exit 1
	      print "lost", n[2], "doubled", n[4], "late", n[6], "forged", n[8], "of", n[10] }' \
	> "$TMP/did" || fail "not all was done: $(grep -h '^lost' "$TMP"/proxy??.log)"
say "note: $(cat "$TMP/did")"
say "note: $(sed -n 's/^hash.* longest/the longest round took/p' "$TMP/bad.0.log")"
