#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# A server's memory at (n, k) = (8, 1) with models of 64 and 256 MiB: its share of that, a window
# per agent, and a fixed rest, as it says when the job starts; also at the busiest moment of rounds.
# One beside an agent has what it reads and writes of the agent's memory in its peak, too: with
# the large model that may be a second window.
. "$(dirname "$0")/../lib.sh"

export MIB TMP BIN

# Rank 0 looks at the servers, which are alive until it ends, after the last round.  What they
# had before the rounds is forgotten: to measure their adder at start takes more.
cat > "$TMP/rank" <<'END'
#!/bin/bash
servers=
[ "$TALLY_RANK" != 0 ] || servers=$(pgrep -P "$PPID" -x tally-server)
for pid in $servers; do
	echo 5 > "/proc/$pid/clear_refs" || exit 1
done
"$BIN/tally" bench -b "${MIB}M" -e "${MIB}M" -n 4 -w 1 || exit 1
[ "$TALLY_RANK" = 0 ] || exit 0
for pid in $servers; do
	echo "$(tr '\0' ' ' < "/proc/$pid/cmdline" | sed 's/.*--name \([^ ]*\).*/\1/')" \
		"$(awk '/^VmHWM:/ { print $2 * 1024 }' "/proc/$pid/status")"
done > "$TMP/peaks"
END
chmod +x "$TMP/rank"

measure()	# the model is $MIB
{
	# Again where a server got no CPU for the length of a lease.
	for (( n = 1; ; n++ )); do
		rm -rf "$TMP/logs"
		"$BIN/tally" local --agents 8 --servers 1 --ranks 8 --keep-logs "$TMP/logs" -- \
			"$TMP/rank" || fail 'the rounds did not run'
		grep -qE 'server [^ ]+ .*-> dead' "$TMP"/logs/*.log || break
		(( n < 3 )) || fail 'a server was lost each time'
	done

	"$PYTHON" - "$TMP/peaks" "$TMP/logs" "$MIB" <<'END' || fail 'a server takes too much'
import glob, re, sys

UNIT = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LINE = re.compile(r"job \d+ (?:up, machines (\d+),|has new shares,).* memory at most "
                  r"([\d.]+) (.iB) and ([\d.]+) % of the tensors")
peaks = dict(line.split() for line in open(sys.argv[1]))
assert len(peaks) == 9, peaks
budgets, shares, model = {}, 0, int(sys.argv[3]) << 20
for path in glob.glob(sys.argv[2] + "/*.log"):
    text = open(path).read()
    name = re.search(r"tally-server: server (\S+) listens", text)
    if not name:
        continue
    name = name[1]
    said = LINE.findall(text)	# again with other shares, where one was slow for some rounds
    machines, share = int(said[0][0]), max(float(line[3]) for line in said)
    fixed = float(said[0][1]) * UNIT[said[0][2]]
    assert fixed <= machines * (16 << 20) + (64 << 20), text
    budgets[name] = fixed + share / 100 * model
    if name.startswith("server-") and model > 64 << 20:	# an agent is beside it
        budgets[name] += machines * (16 << 20)
    shares += float(said[0][3])
assert abs(shares - 100) < 0.1, shares
for name, peak in sorted(peaks.items()):
    print(f"{name}: {int(peak) >> 20} MiB of {int(budgets[name]) >> 20}")
    assert int(peak) <= budgets[name], name
END
}

MIB=64
measure
if (( $(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) > 12 << 20 )); then
	MIB=256
	measure
fi
