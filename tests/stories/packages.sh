#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `make quickstart` and `make check` say where packages are missing and cannot be installed.
. "$(dirname "$0")/../lib.sh"

mkdir "$TMP/bin"
for tool in sh id grep; do ln -s "$(command -v $tool)" "$TMP/bin/$tool"; done
without() { env -i PATH="$TMP/bin" sh "$ROOT/deploy/install-packages.sh" "$@"; }

expect_status 1 without
expect_text "$TMP/err" 'no apt-get here'
expect_text "$TMP/err" "make build.* examples/quickstart.sh"
expect_text "$TMP/err" ': gcc .* libuv1-dev '
[ -s "$TMP/out" ] && fail "it says that it installs: $(cat "$TMP/out")"
say 'no apt-get: what is missing, and how to go on by hand'

ln -s /bin/false "$TMP/bin/apt-get"
if [ "$(id -u)" = 0 ]; then
	chmod 755 "$TMP" "$TMP/bin"
	cp "$ROOT/deploy/install-packages.sh" "$TMP"
	expect_status 1 setpriv --reuid 65534 --regid 65534 --clear-groups \
		env -i PATH="$TMP/bin" sh "$TMP/install-packages.sh"
	expect_text "$TMP/err" 'not root and no sudo; as root run: apt-get install gcc '
	say 'neither root nor sudo: what root is to run'
fi

# sudo drops what is exported, and a question that apt-get asks then has nobody to answer it.
ln -s /usr/bin/env "$TMP/bin/env"
printf '#!/bin/sh\necho 1000\n' > "$TMP/bin/none"
printf '#!/bin/sh\nexec env -i PATH="$PATH" "$@"\n' > "$TMP/bin/sudo"
printf '#!/bin/sh\n[ "$DEBIAN_FRONTEND" = noninteractive ]\n' > "$TMP/bin/quiet"
chmod 755 "$TMP"/bin/none "$TMP/bin/sudo" "$TMP/bin/quiet"
ln -sf none "$TMP/bin/id"
ln -sf quiet "$TMP/bin/apt-get"
expect_status 0 without
ln -sf "$(command -v id)" "$TMP/bin/id"
say 'by sudo apt-get asks nothing, either'

expect_status 2 without unheard-of
expect_text "$TMP/err" "no packages for 'unheard-of'"
