#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All that `make install` brings was built with what makes a fault of ours harder to use; a file
# that was built without any one of these is found.
. "$(dirname "$0")/../lib.sh"

command -v readelf > /dev/null || skip 'readelf is missing: apt-get install binutils'
files=("$BIN"/tally "$BIN"/tally-scheduler "$BIN"/tally-server "$BIN"/tally-agent "$BIN"/charlm)
for lib in "$LIB"/*.so*; do [ -L "$lib" ] || files+=("$lib"); done
expect_status 0 python3 "$ROOT/tests/hardened.py" "${files[@]}"
say "${#files[@]} programs and libraries: hardened"

cat > "$TMP/a.c" <<'END'
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	char text[64], copy[64];

	snprintf(text, sizeof(text), "%d %s", argc, argv[0]);
	strcpy(copy, text);
	strcat(copy, argv[argc - 1]);
	return puts(copy) < 0;
}
END
all=(-O2 -fPIE -pie -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
	-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
case $(uname -m) in x86_64) all+=(-fcf-protection=full) ;; esac
CC=${CC:-cc}

# without WHAT FLAG...: a program that is built so, besides, lacks it.
without()
{
	$CC "${all[@]}" "${@:2}" -w -o "$TMP/a" "$TMP/a.c" 2> "$TMP/cc" || fail "$(cat "$TMP/cc")"
	expect_status 1 python3 "$ROOT/tests/hardened.py" "$TMP/a"
	expect_text "$TMP/out" "lacks $1"
}

$CC "${all[@]}" -w -o "$TMP/a" "$TMP/a.c" || fail 'cannot build'
expect_status 0 python3 "$ROOT/tests/hardened.py" "$TMP/a"
without RELRO -Wl,-z,norelro
without BIND_NOW -Wl,-z,lazy
without memory -Wl,-z,execstack
without 'no search path' -Wl,-rpath,/tmp -Wl,--enable-new-dtags
without canaries -fno-stack-protector
without 'checked functions' -U_FORTIFY_SOURCE
without PIE -no-pie -fno-pie
case $(uname -m) in x86_64) without CET -fcf-protection=none ;; esac
say 'a program without any one of them: found'
