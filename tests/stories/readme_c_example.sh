#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The C example of README.md compiles against an installed copy, found by pkg-config
# alone, and gives the sum that README.md says; so does its Python example, with the copy of
# the package that was installed.  A program linked statically needs no library of ours when
# it runs.  Both libraries have the names of tally.h, and no others.  What is installed is for all
# to read, and takes nothing from those who have the copy before.

. "$(dirname "$0")/../lib.sh"

readme_example() { doc_block "example: $1" "$TMP/$1"; }

# What was built is installed, not built again: other tests are running from it.
install_copy()	# DESTDIR [VARIABLE=VALUE]...
{
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$ROOT" -s -o build \
		BUILD="$(realpath "$BIN/..")" PYTHON="$PYTHON" DESTDIR="$@" install \
		> "$TMP/install.log" 2>&1 || fail 'make install failed'
}

# The directory of $PYTHON's own below PREFIX, by its own word; none: it is of another prefix.
python_dir()
{
	"$PYTHON" -c 'import site, sys
print(*[d for d in site.getsitepackages() if d.startswith(sys.argv[1])][:1])' "$1/lib/"
}

# The package lies where python looks for it, and nowhere else.
expect_package()	# DESTDIR PREFIX
{
	local dir got

	dir=$(python_dir "$2")
	got=$(find "$1" -path '*/tally/_ffi.py')
	[ "$got" = "$1${dir:-$2/lib/python3/dist-packages}/tally/_ffi.py" ] ||
		fail "PREFIX=$2: the Python package is $got, and python looks in $dir"
}

# The functions that tally.h declares, each in a line of its own.
names_of_header()
{
	sed -n 's/^TALLY_API .*\b\(tally_[a-z_]*\)(.*/\1/p' "$ROOT/client/tally.h" | LC_ALL=C sort
}

expect_names()	# WHAT: those in $TMP/names
{
	LC_ALL=C sort -o "$TMP/names" "$TMP/names"
	diff "$TMP/declared" "$TMP/names" >&2 || fail "$1 has other names than tally.h"
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
install_copy "$TMP/usr" PREFIX=/usr
expect_package "$TMP/usr" /usr
before=$(stat -L -c %i "$TMP/usr/usr/lib/libtally.so.0")
exec {HELD}< "$TMP/usr/usr/lib/libtally.so.0"	# its number is nobody else's meanwhile
(umask 077; install_copy "$TMP/usr" PREFIX=/usr) || exit 1
exec {HELD}<&-
[ "$(stat -L -c %i "$TMP/usr/usr/lib/libtally.so.0")" != "$before" ] ||
	fail 'the library was written over while processes may have it'
closed=$(find -L "$TMP/usr/usr" ! -perm -004)
[ -z "$closed" ] || fail "with umask 077 nobody else can read $closed"
install_copy "$TMP/root" PREFIX=/usr/local
expect_package "$TMP/root" /usr/local
(install_copy "$TMP/none" PREFIX='~/tally') 2> /dev/null &&
	fail 'units and libtally.pc would name ~'
expect_text "$TMP/install.log" 'PREFIX=~/tally: not an absolute path'
(install_copy "$TMP/none" PREFIX='/opt/a b') 2> /dev/null && fail 'units would name /opt/a and b'
expect_text "$TMP/install.log" 'PREFIX=/opt/a b: a blank'
[ ! -e "$TMP/none" ] || fail 'it is refused, and something is installed'
install_copy "$TMP/a root" PREFIX=/usr PYTHON_DIR='/usr/a python'
[ ! -e "$TMP/a" ] || fail 'a blank in DESTDIR ends the path'
(cd "$TMP/usr" && find . -type f ! -name '*.py') | sort > "$TMP/whole"
(cd "$TMP/a root" && find . -type f ! -name '*.py') | sort | diff "$TMP/whole" - >&2 ||
	fail 'with a blank in DESTDIR other files are installed'
[ -f "$TMP/a root/usr/a python/tally/torch/__init__.py" ] || fail 'PYTHON_DIR with a blank'
# What it refers to lies beside it.
doc=$TMP/root/usr/local/share/doc/tally
for file in $(sed -n 's/^/ /; s/.*\](\([^)#:]*\)[)#].*/\1/p' "$doc"/*.md); do
	[ -f "$doc/$file" ] || fail "the installed README refers to $file, which is not installed"
done
PC_DIR=$(dirname "$(find "$TMP/root" -name libtally.pc)")
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

names_of_header > "$TMP/declared"
[ -s "$TMP/declared" ] || fail 'tally.h declares nothing'
nm -D --defined-only "$INSTALLED_LIB/libtally.so.0" |
	awk '$2 != "A" { print $3 }' |
	sed 's/@@TALLY_[0-9.]*$//; t; s/$/ has no version/' > "$TMP/names"
expect_names libtally.so
nm -g --defined-only "$INSTALLED_LIB/libtally.a" | awk 'NF == 3 { print $3 }' > "$TMP/names"
expect_names libtally.a
say "both libraries have the $(wc -l < "$TMP/declared") names of tally.h, and no others"

if "$PYTHON" -c 'import numpy' 2>/dev/null; then
	readme_example sum.py
	package=$(dirname "$(find "$TMP/root" -path '*/tally/_ffi.py')")
	echo 'print("from", tally.__file__)' >> "$TMP/sum.py"
	PYTHONPATH=$(dirname "$package") expect_status 0 ranks "$PYTHON" "$TMP/sum.py"
	expect_text "$TMP/out" '^rank 0 of 4: 1\.5$'
	expect_text "$TMP/out" "^from $package/__init__.py\$"
	say "the Python example, installed in ${package#"$TMP/root"}: the mean is 1.5"
else
	say 'no NumPy: the Python example is left out'
fi

rm "$INSTALLED_LIB"/libtally.so*
INSTALLED_LIB=
expect_status 0 ${CC:-cc} -Wall -Wextra -Werror "$TMP/sum.c" $(flags --cflags --libs --static) \
	-o "$TMP/sum-static"
expect_status 0 ranks "$TMP/sum-static"
expect_text "$TMP/out" '^rank 0 of 4: 6$'
say 'the same, linked statically'
