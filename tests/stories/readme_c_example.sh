#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The C example of README.md compiles against an installed copy, found by pkg-config
# alone, and gives the sum that README.md says; so does its Python example, from the
# tree.  A program linked statically needs no library of ours when it runs.

. "$(dirname "$0")/../lib.sh"

readme_example()
{
	awk -v mark="<!-- example: $1 -->" '
		$0 == mark { found = 1; next }
		found && /^```/ { if (inside) exit; inside = 1; next }
		inside { print }
	' "$ROOT/README.md" > "$TMP/$1"
	[ -s "$TMP/$1" ] || fail "README.md has no example '$1'"
}

# What was built is installed, not built again: other tests are running from it.
install_copy()
{
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$ROOT" -s -o build \
		BUILD="$(realpath "$BIN/..")" DESTDIR="$TMP/root" install \
		> "$TMP/install.log" 2>&1 || fail 'make install failed'
	PC_DIR=$(dirname "$(find "$TMP/root" -name libtally.pc)")
}

# Paths of an installation that lies under another root.
flags()
{
	PKG_CONFIG_PATH=$PC_DIR PKG_CONFIG_SYSROOT_DIR=$TMP/root \
		"${PKG_CONFIG:-pkg-config}" "$@" libtally
}

INSTALLED_LIB=
ranks()
{
	LD_LIBRARY_PATH=$INSTALLED_LIB "$BIN/tally" local --agents 2 --ranks 4 -- "$@"
}

readme_example sum.c
install_copy
INSTALLED_LIB=$(dirname "$PC_DIR")
say "installed, headers: $(flags --cflags)"

expect_status 0 ${CC:-cc} -Wall -Wextra -Werror "$TMP/sum.c" $(flags --cflags --libs) \
	-o "$TMP/sum"
expect_status 0 ranks "$TMP/sum"
expect_text "$TMP/out" '^rank 0 of 4: 6$'
for rank in 1 2 3; do
	expect_text "$TMP/err" "^\[rank $rank\] rank $rank of 4: 6\$"
done
say 'the C example: 0 + 1 + 2 + 3 is 6 on every rank'

rm "$INSTALLED_LIB"/libtally.so*
INSTALLED_LIB=
expect_status 0 ${CC:-cc} -Wall -Wextra -Werror "$TMP/sum.c" $(flags --cflags --libs --static) \
	-o "$TMP/sum-static"
expect_status 0 ranks "$TMP/sum-static"
expect_text "$TMP/out" '^rank 0 of 4: 6$'
say 'the same, linked statically'

"$PYTHON" -c 'import numpy' 2>/dev/null || {
	say 'no NumPy: the Python example is left out'
	exit 0
}
readme_example sum.py
expect_status 0 env PYTHONPATH="$ROOT/client/python" TALLY_LIBRARY="$LIB/libtally.so.0" \
	"$BIN/tally" local --agents 2 --ranks 4 -- "$PYTHON" "$TMP/sum.py"
expect_text "$TMP/out" '^rank 0 of 4: 1\.5$'
say 'the Python example: the mean is 1.5'
exit 0
