#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tally status and tally nodes say which nodes are there, which are not, since when and why: a
# server that is killed, one that is drained, one that was stopped then, nodes that are refused,
# a server that a job bypasses; and tally forget.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

tally() { "$BIN/tally" "$@"; }
says() { tally status > "$TMP/status" 2>&1 && grep -Eq -- "$1" "$TMP/status"; }
wait_status() { wait_until 20 "tally status says: $1" says "$1"; }

# field EXPRESSION: of tally status --json, as d.
field()
{
	tally status --json |
		"$PYTHON" -c "import json, sys; d = json.load(sys.stdin); print(($1))"
}
is() { [ "$(field "$1")" = "$2" ] || fail "$1 is $(field "$1"), not $2"; }

secret() { (umask 077; echo "$2" > "$TMP/$1.secret"); }
secret right sesame
secret wrong mellon
export TALLY_SECRET_FILE=$TMP/right.secret
RIGHT="--secret-file $TMP/right.secret"

# shellcheck disable=SC2086
start_scheduler $RIGHT
for a in a0 a1; do
	# shellcheck disable=SC2086
	start_agent $a $RIGHT
done
for s in sa sb; do
	# shellcheck disable=SC2086
	start_server $s $RIGHT
done
wait_status '^nodes +2 agents up, 2 servers up$'
is 'd["agents"], d["servers"], d["servers_by_state"]["up"]' '(2, 2, 2)'

# ---- a server is killed, another one is drained, and stopped ----
kill_now sa KILL
wait_status '^nodes +2 agents up, 1 of 2 servers up, sa dead [0-9]+ s$'
expect_text "$TMP/status" \
	"^not up +server sa of machine .* is dead since .* s: connection closed; .*tally forget sa"
is 'd["servers"], d["servers_by_state"]["dead"]' '(1, 1)'
is '[(n["state"], n["why"]) for n in d["nodes"] if n["name"] == "sa"]' \
	"[('dead', 'connection closed')]"
expect_status 0 tally drain sb
# In the order in which they registered.
wait_status '^nodes +2 agents up, 0 of 2 servers up(, (sa dead|sb drained) [0-9]+ s){2}$'
is 'd["servers"], d["servers_by_state"]["drained"]' '(0, 1)'
expect_status 1 tally forget sb
expect_text "$TMP/err" "server 'sb' is up; drain it .*stop tally-server on machine .*, then forget"
expect_status 1 tally forget a0
expect_text "$TMP/err" "agent 'a0' is up; stop tally-agent"
kill_now sb TERM
wait_status 'sb left [0-9]+ s(,|$)'
tally nodes > "$TMP/nodes"
expect_text "$TMP/nodes" '^sa +server +dead +[0-9]+ s .* connection closed$'

# ---- forgotten ----
expect_status 4 tally forget sz
expect_text "$TMP/err" "there is no node 'sz'; .*"
expect_text "$TMP/err" "did you mean 's[ab]'"
for s in sa sb; do expect_status 0 tally forget $s; done
wait_status '^nodes +2 agents up, 0 servers up$'
expect_status 4 tally forget sa

# ---- refused: another secret, none, a name that is taken, something else than Tally ----
for r in r0 r1; do
	start_server $r --secret-file "$TMP/wrong.secret"
	expect_end 20 $r 1
done
# shellcheck disable=SC2086
start_daemon a0b "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a0 --machine-id other \
	--engines 1 --socket "$TMP/a0b.sock" $RIGHT
expect_end 20 a0b 1
"$PYTHON" - "$OWN_LOOPBACK" "${SCHEDULER##*:}" <<- 'END'
	import socket, sys
	s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
	s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	s.settimeout(10)
	while s.recv(4096):
	    pass
END
wait_status '^refused +a connection from [0-9.]+, 1 time, last .* ago: '
HTTP=$(sed -n 's/^refused  *a connection from \([0-9.]*\),.*/\1/p' "$TMP/status")
expect_text "$TMP/status" '^nodes +2 agents up, 0 servers up, [45] refused$'
for r in r0 r1; do
	expect_text "$TMP/status" \
		"^refused +server $r from [0-9.]+, 1 time, last [0-9]+ s ago: wrong join secret"
done
expect_text "$TMP/status" "^refused +agent a0 from .*registered already, from machine .*--name"
tally nodes > "$TMP/nodes"
expect_text "$TMP/nodes" '^REFUSED +KIND +ADDRESS +TIMES +LAST +REASON'
expect_text "$TMP/nodes" '^r0 +server +127.0.0.1 +1 .*wrong join secret'
is '[f["code"] for f in d["refused"] if f["name"] == "r0"]' "['EAUTH']"
expect_status 0 tally forget r0
tally nodes > "$TMP/nodes"
grep -q '^r0' "$TMP/nodes" && fail 'r0 is shown after it was forgotten'
expect_status 0 tally forget "$HTTP"
# shellcheck disable=SC2086
start_server r1 $RIGHT
wait_status '^nodes +2 agents up, 1 server up, [12] refused$'
tally nodes > "$TMP/nodes"
expect_text "$TMP/nodes" '^r1 +server +up'
grep -q '^r1 .*wrong' "$TMP/nodes" && fail 'r1 is shown as refused while it is up'
expect_status 0 tally forget a0
wait_status '^nodes +2 agents up, 1 server up$'

say 'who is there, who is not, since when and why; and it can be forgotten'
