#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `make quickstart TEXT=path` runs when all is built: a real model learns a text that
# it was given, on four ranks, which stay the same, and says so.  What is no text to train on is
# refused.
. "$(dirname "$0")/../lib.sh"

BUILD=$(realpath "$BIN/..")

quickstart() { BUILD=$BUILD TEXT=$1 "$ROOT/examples/quickstart.sh"; }

cat /usr/share/common-licenses/{GPL-2,LGPL-2.1} > "$TMP/text" || fail 'no text to train on'
expect_status 0 quickstart "$TMP/text"
awk '/ parameters, 4 ranks on 2 machines, / { ok = $1 >= 1000000 } END { exit !ok }' \
	"$TMP/out" || fail "fewer than a million parameters: $(grep parameters "$TMP/out")"
expect_text "$TMP/out" " $(stat -c %s "$TMP/text") bytes of $TMP/text\$"
expect_text "$TMP/out" \
	'^step ([0-9]+)/\1  loss [0-9.]+  [0-9]+ samples/s  [0-9]+ MB/s through Tally$'
expect_text "$TMP/out" '^parameters identical on 4 ranks$'
awk '/^loss before/ { gsub(",", ""); ok = $5 <= 0.45 * $3 } END { exit !ok }' "$TMP/out" ||
	fail "the loss did not fall enough: $(grep '^loss before' "$TMP/out")"
# The sample stands between its head and an empty line; in brackets what was read.
sed -n '/^sample of generated text:$/,/^trained in/p' "$TMP/out" | tr -d '\n' > "$TMP/sample"
grep -Eq '\[.+\].*[a-z]{2}' "$TMP/sample" || fail "no sample: $(cat "$TMP/sample")"
expect_text "$TMP/out" '^trained in [0-9]+\.[0-9] s$'
say "note: $(grep '^trained in' "$TMP/out"), $(grep '^loss before' "$TMP/out")"

printf 'too short\n' > "$TMP/short"
expect_status 1 quickstart "$TMP/short"
expect_text "$TMP/err" 'short|4096'
# A name that looks like an option, as seen from where the script is.
mkdir "$TMP/examples"
cp "$ROOT/examples/quickstart.sh" "$TMP/examples"
cp "$TMP/short" "$TMP/-short"
expect_status 1 env BUILD="$BUILD" TEXT=-short "$TMP/examples/quickstart.sh"
expect_text "$TMP/err" 'charlm: -short: 10 bytes; a text has 4096'
missing="$TMP/a \$x \"missing\" \`text'"
expect_status 2 env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL \
	make -C "$ROOT" -o deps quickstart BUILD="$BUILD" TEXT="$missing"
expect_text "$TMP/err" 'cannot read .*/a \$x "missing" `text.; give another text by TEXT=path'
expect_status 1 "$BIN/tally" local --ranks 1 -- "$BIN/charlm" "$TMP/missing"
expect_text "$TMP/err" 'missing'
# By whatever name make is told the build, it knows what a header is for.
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$ROOT" -n -o deps -W proto/msg.h build \
	BUILD="$(realpath "$BUILD")" > "$TMP/commands" || fail 'make -n failed'
grep -q 'proto/msg\.c' "$TMP/commands" || fail 'a header that changes compiles nothing'
say 'a text that is too short, or not there, is refused'
