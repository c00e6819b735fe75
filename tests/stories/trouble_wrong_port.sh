#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Addresses that are not what they are taken for: another program's port, or another daemon's, an
# address that leads each machine to itself, one of another family.  Each is said in one sentence,
# with the option that is to be given, by whoever was told it, and to the ranks that wait.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 1 1
port=$(sed -n 's/.*server s0 listens on [0-9.]*:\([0-9]*\),.*/\1/p' "$TMP/s0.log")
S0=10.77.0.110:$port

# agent_at NAME SCHEDULER [OPTION...]: on gpu0, as another machine.
agent_at()
{
	start_in gpu0 "$1" "$BIN/tally-agent" --scheduler "$2" --name "$1" --machine-id "$1" \
		--engines 1 --socket "$TMP/$1.sock" "${@:3}"
}
lines() { grep -c "$2" "$TMP/$1.log"; }
# once NAME REGEX: says so, goes on, and does not say it again as it tries once more and more.
once()
{
	wait_line 15 "$1" "$2"
	pause_ms 3000
	is_running "$(pid_of "$1")" || fail "$1 has ended"
	[ "$(lines "$1" 'warn .*scheduler')" -le 2 ] || fail "$1 says it again and again"
	say "$(grep -Eo 'reason .*' "$TMP/$1.log" | head -n 1)"
	kill_all "$1"
}

# ---- the scheduler's address is another port ----
agent_at data "$S0"
once data "this is the data port of server s0, not the scheduler's; give --scheduler"
[ "$(lines s0 'link refused, reason not a hello: a Tally control connection')" = 1 ] ||
	fail 'the server does not say who came, or says it each time'
start_in sw web "$PYTHON" -m http.server --bind 10.77.0.1 7480
start_in sw ssh "$PYTHON" -c '
import socket
s = socket.create_server(("10.77.0.1", 7481))
while True:
    c = s.accept()[0]
    try:
        c.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        c.recv(100)
    except OSError:     # who only looks whether it is there
        pass
'
# listens PORT: of the scheduler's machine.
listens() { in_ns sw bash -c "exec 3<> /dev/tcp/10.77.0.1/$1" 2> /dev/null; }
for p in 7480 7481; do wait_until 20 "port $p is taken" listens $p; done
agent_at ssh-agent 10.77.0.1:7481
once ssh-agent 'an SSH server or client is at the other end.*give --scheduler'
agent_at web-agent 10.77.0.1:7480
once web-agent '7480 takes connections and does not answer as the scheduler|a web server'
agent_at self 127.0.1.1:7470
once self '127\.0\.1\.1:7470 is this machine itself, and nobody listens there.*--scheduler'
agent_at lone 10.77.0.1:7482
TROUBLE_TIMEOUT=4 start_rank lone 0 1 lone
expect_error 30 lone.0 'ESCHED .*10\.77\.0\.1:7482 refuses connections .*--listen'
say "$(sed -n 's/^ERROR //p' "$TMP/lone.0.log")"
kill_all lone

# ---- who says HTTP to Tally's ports ----
for where in $S0 $SCHEDULER; do
	in_ns gpu0 bash -c "printf 'GET / HTTP/1.1\r\nHost: tally.example\r\nAccept: */*\r\nX: $(
		printf %80s)\r\n\r\n' > /dev/tcp/${where/://}" 2> /dev/null
done
wait_line 10 s0 'link refused, reason not a hello: a web client \(HTTP\)'
wait_line 10 scheduler 'a web client \(HTTP\) is at the other end'

# ---- addresses that lead each machine to itself ----
refused()
{
	start_in "$@"
	expect_end 10 "$2" 2
	has_line "$2" 'leads each machine to itself, and the scheduler .* is on another one; .*' ||
		fail "$2 does not say why"
	say "$(grep -Eo '127[.0-9]* leads.*' "$TMP/$2.log")"
}
refused cpu0 s1 "$BIN/tally-server" --scheduler $SCHEDULER --listen 127.0.1.1:7471 --name s1 \
	--engines 1 --memory 256M --shm-socket none
refused gpu0 a1 "$BIN/tally-agent" --scheduler $SCHEDULER --name a1 --rail 127.0.0.1 --engines 1 \
	--socket "$TMP/a1.sock"

# ---- of another family ----
in_ns cpu0 ip addr add fd77::110/64 dev eth0 nodad
kill_all s0
start_in cpu0 s6 "$BIN/tally-server" --scheduler $SCHEDULER --listen '[fd77::110]:0' --name s6 \
	--machine-id cpu0 --engines 1 --memory 256M --shm-socket none
agent_at b0 $SCHEDULER
has_up() { tally nodes --json | tr -d '\n' | grep -Eq "\"name\": *\"$1\"[^}]*\"state\": *\"up\""; }
for n in s6 b0; do wait_until 20 "$n is up" has_up $n; done
for r in 0 1; do
	start_rank six $r 2 $( (( r )) && echo b0 || echo a0 ) declare:w:100000 submit:w wait:5
done
family='server s6 is at fd77::110 and this side at 10\.77\.0\.10: IPv4 and IPv6 do not reach'
for r in 0 1; do expect_error 30 six.$r "ETIMEDOUT .*$family"; done
for a in a0 b0; do wait_line 10 $a "link to server s6 lost, reason $family.*--rail.*--listen"; done
say "$(sed -n 's/^ERROR //p' "$TMP/six.0.log")"
