#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Typing wrong things: every mistake has its exit status and words that help.
. "$(dirname "$0")/../lib.sh"

tally() { "$BIN/tally" "$@"; }
unset TALLY_SCHEDULER TALLY_SOCKET TALLY_RANK TALLY_WORLD_SIZE RANK WORLD_SIZE

# try CODE REGEX ARGUMENT...: the command's talk goes to stderr, nothing to stdout.
try()
{
	local code=$1 words=$2

	shift 2
	expect_status "$code" "$BIN/tally" "$@"
	expect_text "$TMP/err" "$words"
	[ -s "$TMP/out" ] && fail "'tally $*' fails, and writes to standard output"
	return 0
}

# ---- verbs ----
try 2 'usage: tally'
try 2 "no verb 'statsu'; did you mean 'status'" statsu
try 2 "no verb 'nod'" nod
try 2 "no verb 'frobnicate'" frobnicate
grep -q 'did you mean' "$TMP/err" && fail 'a guess at nonsense'
try 2 "no verb 'x'" help x

expect_status 0 tally --version
expect_text "$TMP/out" '^tally [0-9]+\.[0-9]+\.[0-9]+$'
expect_status 0 tally help
VERBS='status nodes jobs tensors drain forget plan local doctor bench'
for verb in $VERBS; do
	expect_text "$TMP/out" "^  $verb "
done
for verb in $VERBS; do
	expect_status 0 tally help $verb
	expect_text "$TMP/out" "^usage: tally $verb"
	[ -s "$TMP/err" ] && fail "tally help $verb writes to standard error"
	try 2 "unrecognized option '--bogus'" $verb --bogus
	expect_text "$TMP/err" "^Try: tally help $verb\$"
done
for verb in $VERBS; do
	for ask in -h --help; do
		expect_status 0 tally $verb $ask
		expect_text "$TMP/out" "^usage: tally $verb"
	done
done
expect_status 0 tally tensors --help
expect_text "$TMP/out" 'declare it \(WAITING-FOR\); with --stuck, whom rounds wait for'

# ---- a full disk is no success ----
tally help > /dev/full 2> "$TMP/err" && fail 'writing to a full disk succeeded'
expect_text "$TMP/err" 'cannot write the output'
"$BIN/tally" local -- "$BIN/charlm" --steps 1 --batch 1 --sample 0 > /dev/full 2> "$TMP/err" &&
	fail 'training with a full disk for its output succeeded'
expect_text "$TMP/err" '^charlm: cannot write the output: No space left'

for program in tally-scheduler tally-server tally-agent; do
	for ask in --help --version --show-config --check; do
		expect_status 1 eval '"$BIN/$program" $ask > /dev/full'
		expect_text "$TMP/err" "^$program: cannot write the output: No space left"
	done
done

# ---- questions to nobody ----
for verb in status nodes jobs tensors; do
	try 5 'no scheduler at 127.0.0.1:1: .*refused' $verb --scheduler 127.0.0.1:1
	expect_text "$TMP/err" '--scheduler'
	TALLY_SCHEDULER=127.0.0.1:1 try 5 'no scheduler at 127.0.0.1:1' $verb --json
	try 2 'no address' $verb --scheduler 127.0.0.1:port
	! grep -Eq 'gbit|alone' "$TMP/err" || fail 'what is no scheduler is recommended as one'
	try 2 'no bit rate belongs here' $verb --scheduler 127.0.0.1:7470@5gbit
	try 2 'scheduler :7470: it names no host' $verb --scheduler :7470
	try 2 '--timeout' $verb --timeout 0
	try 2 "unexpected argument 'all'" $verb all
done
if [ -e /proc/net/if_inet6 ]; then
	try 5 'no scheduler at \[::1\]:1: .*nobody listens there' status --scheduler '[::1]:1'
fi
# A name without an address: starting a scheduler there is no remedy.
try 5 'no scheduler at no-such-host.invalid: cannot find the address of no-such-host.invalid' \
	status --scheduler no-such-host.invalid
expect_text "$TMP/err" 'Else give --scheduler its address$'
grep -q 'tally-scheduler --listen' "$TMP/err" && fail 'a scheduler is to listen on no address'
try 2 'no option --job' nodes --job x
try 2 '--secret-file' nodes --secret-file /nonexistent
try 2 "secret file's name is empty" nodes --secret-file ''

# Somebody listens there, but does not speak: the time is up, not before, not never.
"$PYTHON" -c '
import socket, sys
s = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1], "w").write(str(s.getsockname()[1]) + "\n")
held = [s.accept() for _ in range(2)]
input()' "$TMP/mute" < <(sleep 60) > /dev/null 2>&1 &
adopt $!
wait_until 10 'the mute listener is up' has_port "$TMP/mute"
start=$(now_ms)
try 5 'takes connections and does not answer as the scheduler' nodes --timeout 1 \
	--scheduler "127.0.0.1:$(tr -d '\n' < "$TMP/mute")"
took=$(( $(now_ms) - start ))
(( took >= 900 && took < 20000 )) || fail "--timeout 1 took $took ms"

# ---- local ----
try 2 'what shall the ranks run' local
try 2 '--agents' local --agents 0 -- true
try 2 '--ranks' local --ranks many -- true
try 2 'nobody to sum' local --no-colocated -- true
try 127 "cannot run '/nonexistent/command'" local -- /nonexistent/command
mkdir "$TMP/full"
ln -s /dev/full "$TMP/full/agent-0.log"
try 1 'agent-0\.log: is the disk full' local --keep-logs "$TMP/full" --agent-arg --bogus -- true

# ---- bench ----
try 5 'does tally-agent run' bench
expect_text "$TMP/err" 'tally local --agents 2'
TALLY_SOCKET=/nonexistent try 5 '/nonexistent' bench
try 2 '--dtype: no such type; there are float32 .* bfloat16 .* int64$' bench --dtype FLOAT32
try 2 '--op' bench --op product
try 2 '-f' bench -f 1
try 2 '-f' bench -f 0x2
try 2 '-b and -e' bench -b 64M -e 4K
try 2 '-n' bench -n 0

# ---- daemons: --check says yes only to what would run ----
check()		# CODE REGEX PROGRAM ARGUMENT...
{
	local code=$1 words=$2 program=$3

	shift 3
	expect_status "$code" "$BIN/$program" --check "$@"
	if [ "$code" = 0 ]; then
		expect_text "$TMP/out" "$words"
	else
		expect_text "$TMP/err" "$words"
	fi
}
for daemon in tally-server tally-agent; do
	check 0 'are right' $daemon --scheduler '[::1]:7470' --name 'rack 1/ä'
	check 2 "--scheduler ''.*no address" $daemon --scheduler ''
	check 2 "--scheduler ':7470': it names no host" $daemon --scheduler :7470
	check 2 "--scheduler '127.0.0.1:0': its port" $daemon --scheduler 127.0.0.1:0
	check 2 '--scheduler.* no bit rate .* or host:7000$' $daemon --scheduler h:1@5gbit
	check 2 "--name ''.*1 to 255" $daemon --name ''
	check 2 '--name.*control' $daemon --name $'a\nb'
	check 2 '--name' $daemon --name "$(printf '%0300d' 1)"
	check 2 '--machine-id' $daemon --machine-id ''
	check 2 '--simd avx3' $daemon --simd avx3
	check 2 '--log-level' $daemon --log-level loud
	check 1 '/nonexistent' $daemon --secret-file /nonexistent
	check 2 "secret file's name is empty" $daemon --secret-file ''
done
# A secret that no message can carry, or of which only the part before a NUL would count.
for bytes in 'caf\351' 'a\tb' 'a\000bcdefgh'; do
	(umask 077; printf "$bytes\n" > "$TMP/secret")
	for program in tally-scheduler tally-server tally-agent; do
		check 2 "first line of $TMP/secret is no text" $program --secret-file "$TMP/secret"
	done
	try 2 "first line of $TMP/secret is no text" nodes --secret-file "$TMP/secret"
done
(umask 077; printf 'sésame et cetera\r\n' > "$TMP/secret")
check 0 'are right' tally-scheduler --secret-file "$TMP/secret"
check 0 'are right' tally-scheduler --listen ':7470'
check 2 '--listen' tally-scheduler --listen 127.0.0.1:99999
for program in tally-scheduler tally-server; do
	for number in 41001 0; do
		check 2 "\"$number\" is no address; say .* a port alone as :7000" \
			$program --listen $number
	done
done
check 1 '/nonexistent' tally-scheduler --secret-file /nonexistent
check 2 "secret file's name is empty" tally-scheduler --secret-file ''
check 2 '--listen.*no address' tally-server --listen 10.0.0.1:x
check 2 '--window.* out of range; from 4 MiB to 16 MiB' tally-scheduler --window 3M
check 2 '--memory.* from 0 B to 1 PiB' tally-server --memory 16EiB
check 2 '--memory: 1 B is less .* from 32 MiB, or 0 ' tally-server --memory 1
check 0 'are right' tally-server --memory 32M
check 0 'are right' tally-server --memory 1PiB
printf '# empty\n' > "$TMP/conf"
check 2 '--config is given twice' tally-scheduler --config "$TMP/conf" --config "$TMP/conf"
check 0 'are right' tally-scheduler --config "$TMP/conf" --window 8M --window 4M
check 2 '--listen.* no bit rate .* as :7000$' tally-scheduler --listen 127.0.0.1:7470@5gbit
check 2 '--rail.*@x' tally-agent --rail 10.0.0.1@x
check 2 '--rail.* no port .* or host@25gbit$' tally-agent --rail 127.0.0.1:99
for every in 0.0.0.0 '[::]@1gbit'; do
	check 2 "--rail.*no card's address; say 10\\.0\\.0\\.1, " tally-agent --rail "$every"
done
check 2 '--rail.*from 1 Mbit/s' tally-agent --rail 10.0.0.1@0bit
check 1 '--topology.*cannot read /nonexistent' tally-agent --topology /nonexistent
for twice in '--rail 127.0.0.1 --rail localhost' '--scheduler 127.0.0.1:0'; do
	# shellcheck disable=SC2086
	expect_status 2 "$BIN/tally-agent" --socket "$TMP/x.sock" $twice
	expect_text "$TMP/err" 'second one with address 127.0.0.1|port cannot be 0'
done
check 2 '--socket' tally-agent --socket ''
check 2 '--socket' tally-agent --socket "/$(printf '%0120d' 1)"

# ---- /dev/stdout is no place for a file: it is not replaced by one ----
mkfifo "$TMP/fifo"
no_file()	# PROGRAM ARGUMENT...
{
	expect_status 2 timeout 20 "$BIN/$1" "${@:2}" --listen 127.0.0.1:0 --port-file "$TMP/fifo"
	expect_text "$TMP/err" '--port-file .*/fifo: not a regular file'
	[ -p "$TMP/fifo" ] || fail "$1 has replaced what is no file"
}
no_file tally-scheduler --state-dir ''
no_file tally-server --scheduler 127.0.0.1:1 --shm-socket none

# ---- a real scheduler, and what it does not have ----
start_scheduler
expect_status 0 tally status
expect_text "$TMP/out" '^nodes +0 agents up, 0 servers up$'
expect_status 0 tally nodes --json
"$PYTHON" -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == 1 and d["nodes"] == [] and len(d["cluster"]) == 32, d
' "$TMP/out" || fail 'nodes --json'
try 4 "no job 'none'" jobs --job none
try 4 "no job 'none'" tensors --job none
for verb in drain forget; do
	try 4 "there is no (server|node) 'none'; tally nodes lists them" $verb none
	try 2 'it needs the name of one' $verb
	try 2 'a name has 1 to 255 characters' $verb ''
	try 5 'no scheduler at 127.0.0.1:1: ' $verb none --scheduler 127.0.0.1:1
done

# ---- names: a slash, and a character where the name is cut for the socket's ----
mkdir -m 700 "$TMP/run"
start_daemon oddly env RUNTIME_DIRECTORY="$TMP/run" "$BIN/tally-server" --scheduler "$SCHEDULER" \
	--listen 127.0.0.1:0 --name "rack/7-$(printf 'ä%.0s' {1..60})"
wait_until 60 'a server with an odd name is registered' nodes_are 1
[ -S "$TMP/run/server-rack-7-$(printf 'ä%.0s' {1..11}).sock" ] || fail "$(ls "$TMP/run")"

# ---- what each server sums in a second was measured; 0 would be no limit to the planner ----
start_daemon two "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 127.0.0.1:0 --name two \
	--engines 2 --shm-socket none
wait_until 60 'another server is registered' nodes_are 2
expect_status 0 tally nodes --json
"$PYTHON" -c '
import json, sys
rates = [n["adder_bytes_per_s"] for n in json.load(open(sys.argv[1]))["nodes"]]
assert len(rates) == 2 and all(10**6 < r < 10**14 for r in rates), rates
' "$TMP/out" || fail 'a server does not say what it sums'
