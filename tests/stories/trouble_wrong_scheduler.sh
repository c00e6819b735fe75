#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A scheduler that is not there, is something else, or refuses: commands, daemons and ranks say
# which of these it is, with its address and what to set.  And two schedulers with half of the
# nodes each.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# says WHERE REGEX: the command and an agent that are given that scheduler.
says()
{
	expect_status 5 "$BIN/tally" status --timeout 1 --scheduler "$1"
	expect_text "$TMP/err" "$2"
	start_daemon lost "$BIN/tally-agent" --scheduler "$1" --name lost --engines 1 \
		--rail "$LOOPBACK" --socket "$TMP/lost.sock"
	wait_line 20 lost "no connection to scheduler $1, reason .*$2.*; trying again"
	TROUBLE_TIMEOUT=3 start_rank lost 0 1 lost
	expect_error 30 lost.0 "ESCHED agent lost: no connection to scheduler $1: .*$2"
	kill_now lost KILL
	wait_until 10 'the agent is gone' ended lost
	: > "$TMP/lost.log"
}

# ---- nobody, another program, one that says nothing ----
says "$LOOPBACK:1" 'nobody listens there.*[(]Connection refused[)]'
"$PYTHON" - "$TMP" > /dev/null 2>&1 <<- 'END' &
	import socket, sys, threading

	def serve(name, answer):
	    s = socket.create_server(("127.0.0.1", 0))
	    open(f"{sys.argv[1]}/{name}", "w").write(f"{s.getsockname()[1]}\n")
	    def run():
	        while True:
	            c, _ = s.accept()
	            held.append(c)
	            answer(c)
	    threading.Thread(target=run).start()

	held = []
	serve("http", lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\n"))
	serve("mute", lambda c: None)
	serve("shut", lambda c: c.close())
END
adopt $!
for p in http mute shut; do wait_until 10 "$p listens" has_port "$TMP/$p"; done
port_of() { tr -d '\n' < "$TMP/$1"; }
says "127.0.0.1:$(port_of http)" 'web server .HTTP. is at the other end.*give --scheduler'
says "127.0.0.1:$(port_of mute)" 'takes connections and does not answer as .*give --sch'
says "127.0.0.1:$(port_of shut)" 'another program has that port: give --scheduler'

# ---- a name without an address ----
expect_status 1 "$BIN/tally-agent" --scheduler no-such-host.invalid --socket "$TMP/x.sock"
expect_text "$TMP/err" \
	'--scheduler no-such-host.invalid: cannot find the address of .*its address$'

# ---- it refuses: a rank that waits hears so, not that nobody is there ----
secret() { (umask 077; echo "$2" > "$TMP/$1.secret"); }
secret right sesame
secret wrong mellon
start_scheduler
FIRST=$SCHEDULER
start_agent a0
start_agent a1
start_server s0
wait_until 20 'all are registered' nodes_up 3
has_line a0 "registered, node .*, scheduler $SCHEDULER, cluster [0-9a-f]{8}$" ||
	fail 'an agent does not say with which scheduler it has registered'
start_rank train 0 2 a0 declare:w:1000 "train:w:$TMP/enough"
start_rank train 1 2 a1 declare:w:1000 "train:w:$TMP/enough"
train_more train.0 5
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state" \
	--secret-file "$TMP/right.secret"
wait_line 20 a0 'no connection to scheduler .*refuses this node: wrong join secret'
TROUBLE_TIMEOUT=3 start_rank refused 0 1 a0
expect_error 30 refused.0 \
	"ESCHED agent a0: no connection to scheduler $SCHEDULER: it refuses this node: wrong join s"
expect_status 6 env TALLY_SECRET_FILE="$TMP/wrong.secret" "$BIN/tally" status
expect_text "$TMP/err" 'wrong join secret'
touch "$TMP/enough"
for r in 0 1; do expect_end 30 train.$r 0; done
for d in a0 a1 s0; do		# nothing trains there any more
	expect_end 30 $d 1
	has_line $d "scheduler $SCHEDULER refuses tally-.*: wrong join secret" || fail "$d: why?"
done

# ---- its agent is refused while it waits, and ends ----
kill_now scheduler STOP
start_agent b0
TROUBLE_TIMEOUT=60 start_rank waits 0 1 b0
attaches() { (( $(grep -c "$TMP/b0.sock" /proc/net/unix) >= 2 )); }	# beside the listener
wait_until 20 'the rank is with its agent' attaches
kill_now scheduler CONT
expect_error 30 waits.0 \
	"ESCHED scheduler $SCHEDULER refuses agent b0: wrong join secret"
expect_end 30 b0 1

# ---- two schedulers ----
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
start_daemon scheduler "$BIN/tally-scheduler" --listen "$FIRST" --state-dir "$TMP/state"
start_daemon second "$BIN/tally-scheduler" --listen "$LOOPBACK:0" --state-dir "$TMP/second" \
	--port-file "$TMP/second.port"
wait_until 10 'the second one listens' has_port "$TMP/second.port"
SECOND=$LOOPBACK:$(port_of second.port)
start_agent c0
SCHEDULER=$SECOND start_agent c1
for a in c0 c1; do wait_line 30 $a 'registered, node'; done
for r in 0 1; do TROUBLE_TIMEOUT=3 start_rank half $r 2 c$r; done
HINT='do all machines have the same --scheduler\?'
expect_error 30 half.0 "ETIMEDOUT rank 1 of job 'half' has not attached; 1 agent is registered \
with this scheduler, c0, and has ranks of it: $HINT [(]scheduler $FIRST[)]"
expect_error 30 half.1 "ETIMEDOUT rank 0 of job 'half' .*, c1, .*$HINT [(]scheduler $SECOND[)]"
say 'which of these it is, where, and what to set'
