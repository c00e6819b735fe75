#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tally doctor: what it finds wrong with a machine, the local plan of this and of other
# machines, and a link measured with a peer.
. "$(dirname "$0")/../lib.sh"

expect_status 0 "$BIN/tally" doctor --rail 127.0.0.1
expect_text "$TMP/out" '^(ok|note) +rail +127\.0\.0\.1'
expect_text "$TMP/out" '^(ok|note) +memlock'
# What daemons raise by themselves nobody has to change.
expect_status 0 bash -c 'ulimit -Sn 1024; ulimit -Hn 4096; exec "$1" doctor' - "$BIN/tally"
expect_text "$TMP/out" '^ok +open files +4096$'
expect_status 0 bash -c 'ulimit -n 1024; exec "$1" doctor' - "$BIN/tally"
expect_text "$TMP/out" '^note +open files +1024: .* LimitNOFILE='
expect_status 1 "$BIN/tally" doctor --rail 192.0.2.77
expect_text "$TMP/out" '^BAD +rail +192\.0\.2\.77 is not an address'
say 'a rail that is not here is bad'
expect_status 0 "$BIN/tally" doctor --rail 127.0.0.1@25gbit --rail '[::1]'
expect_text "$TMP/out" "^ok +rail +127\\.0\\.0\\.1, NIC's speed 25\\.0 Gbit/s$"
expect_text "$TMP/out" '^(ok|note) +rail +::1, '
say 'a rail is written as for the agent'

# Every machine: by hwloc's own parser of XML and by libxml (where that is installed) the
# same; and the picture, taken as a topology file, has the same plan.
plan_of()
{
	expect_status 0 "$BIN/tally" doctor --topology "$1"
	sed -n '/^plan/,$p' "$TMP/out"
}
for xml in tests/data/topo/*.xml; do
	HWLOC_LIBXML=0 plan_of "$xml" > "$TMP/plan"
	sed '/^$/,$d' "$TMP/out" > "$TMP/lines"
	plan_of "$xml" | diff -u "$TMP/plan" - || fail "$xml: XML is XML"
	plan_of "$TMP/lines" | diff -u "$TMP/plan" - || fail "$xml: the picture is not the machine"
	grep -q '100 %' "$TMP/plan" || fail "$xml: no link is the busiest"
done
say 'every machine has a plan, and its picture the same one'

plan_of tests/data/topo/dgx1-one-card.xml > "$TMP/out.dgx"
expect_text "$TMP/out.dgx" '^plan +reduce and broadcast'
expect_text "$TMP/out.dgx" '^ +why +NVLink joins them across 4 switches, 1 of them with a NIC'
expect_text "$TMP/out.dgx" '^switch 0000:01:00.0 +126 +1.000 +1.000 .* network 1/1$'
plan_of tests/data/topo/pcie-2x4-card-apart.xml > "$TMP/out.pcie"
expect_text "$TMP/out.pcie" '^plan +CPU-assisted aggregation'
expect_text "$TMP/out.pcie" '^gpu 0000:84:00.0 +126 +1.750 +1.750 .* reduce 0.75/0.75, copy'
expect_status 0 "$BIN/tally" doctor --rail 127.0.0.1 --probe
expect_text "$TMP/out" '^node = .* memory=[0-9.]+gbit$'
expect_text "$TMP/out" '^memory node'
say 'the plan says what each link carries, and why'

printf 'node = n\n# none\ngpu = g under=nothing\n' > "$TMP/wrong"
expect_status 1 "$BIN/tally" doctor --topology "$TMP/wrong"
expect_text "$TMP/err" 'wrong:3: g: under=nothing: no node or switch'
echo '<no hwloc>' > "$TMP/wrong"
expect_status 1 "$BIN/tally" doctor --topology "$TMP/wrong"
expect_text "$TMP/err" 'wrong is not XML that this hwloc'
expect_status 1 "$BIN/tally" doctor --topology "$TMP/nowhere"
expect_text "$TMP/err" 'nowhere: No such file'

for wrong in '--topology x --rail 1' '--peer 1 --listen 2' '--size 0' '--size 5M' \
	'--bytes nothing' '--peer 1 --size 1 --bytes 4G' 'word'; do
	# shellcheck disable=SC2086 # options are words
	expect_status 2 "$BIN/tally" doctor $wrong
done
# ignored MISSING ARGUMENT...: what would change nothing is refused.
ignored()
{
	expect_status 2 "$BIN/tally" doctor "${@:2}"
	expect_text "$TMP/err" "$1"
}
ignored 'say --peer ADDR' --size 4K
ignored 'say --peer ADDR' --bytes 4K --listen 127.0.0.1
ignored 'say --listen ADDR' --once
ignored 'say --listen ADDR' --once --peer 127.0.0.1
ignored 'leave out --peer' --probe --peer 127.0.0.1
ignored 'leave out --rail' --rail 127.0.0.1 --listen 127.0.0.1
ignored 'say one --rail' --rail 127.0.0.1 --rail 127.0.0.2 --peer 127.0.0.1
expect_status 1 "$BIN/tally" doctor --peer 127.0.0.1 --rail 192.0.2.77
expect_text "$TMP/err" '--rail 192\.0\.2\.77 is not an address of this machine'
expect_status 1 "$BIN/tally" doctor --rail 0.0.0.0
expect_text "$TMP/out" 'rail +"0\.0\.0\.0" is no NIC'
expect_status 2 "$BIN/tally" doctor --peer 127.0.0.1@1gbit
expect_text "$TMP/err" '--peer: .*no bit rate belongs here'

# With port 0 it says which one it is.
start_daemon any "$BIN/tally" doctor --listen 127.0.0.1:0 --once
wait_until 10 'it says where it listens' grep -q '^listens on 127\.0\.0\.1:[1-9]' "$TMP/any.log"
expect_status 0 "$BIN/tally" doctor --peer "$(sed -n 's/^listens on //p' "$TMP/any.log")" \
	--bytes 1M
wait "$PID" || fail 'one on any port ended badly'

addr=$OWN_LOOPBACK
listens() { ss -Hltn "src $addr:7479" | grep -q .; }

expect_status 1 "$BIN/tally" doctor --peer "$addr"
expect_text "$TMP/err" 'refused'
expect_text "$TMP/err" "^Run 'tally doctor --listen $addr' there"
start_daemon peer "$BIN/tally" doctor --listen "$addr" --once
wait_until 10 'the peer listens' listens
expect_status 0 "$BIN/tally" doctor --peer "$addr" --size 64K --bytes 16M
for line in link latency there back both; do expect_text "$TMP/out" "^$line "; done
wait "$PID" || fail 'the peer ended badly'
say "$(grep '^link' "$TMP/out"), $(grep '^there' "$TMP/out")"

# Whoever comes to the port and is no doctor is turned away, and it says why.
start_daemon stranger "$BIN/tally" doctor --listen "$addr" --once
wait_until 10 'the peer listens again' listens
printf '%0100d' 1 > "/dev/tcp/$addr/7479"
wait "$PID"
[ $? = 1 ] || fail 'a stranger in place of the one peer is a success'
expect_text "$TMP/stranger.log" '^tally doctor: it did not say hello .* \(EPROTO\)$'
with_few='for fd in {3..9}; do eval "exec $fd>&-"; done; ulimit -n 4; exec "$@"'
expect_status 1 timeout 30 bash -c "$with_few" - "$BIN/tally" doctor --listen "$addr"
expect_text "$TMP/err" '^tally doctor: cannot take a peer: Too many open files$'
say 'strangers are turned away, with the reason'
