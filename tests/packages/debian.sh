#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages of `make deb`: lintian has nothing to say, and what they hold can be
# installed, used, upgraded, removed and purged, in a root file system that is this machine's with
# a layer of its own over it.
. "$(dirname "$0")/../lib.sh"

DEBS=$(realpath "${BUILD:-$ROOT/build}/deb")
packages='tally tally-common tally-scheduler tally-server tally-agent libtally0 libtally-dev
	python3-tally'
[ ! -e "$LIB/libtally-cuda.so.0" ] || packages+=' libtally-cuda'
for name in $packages; do
	[ "$(ls "$DEBS/${name}_"*.deb | wc -l)" = 1 ] || fail "there is not one package $name"
done

lintian --allow-root --fail-on error,warning "$DEBS"/*.changes > "$TMP/lintian" 2>&1 ||
	{ cat "$TMP/lintian"; fail 'lintian'; }
! grep -E '^[EW]:' "$TMP/lintian" || fail 'lintian'
say "lintian: $(echo $packages | wc -w) packages without errors and warnings"

# field NAME FIELD
field() { dpkg-deb -f "$DEBS/$1"_*.deb "$2"; }
for daemon in scheduler server agent; do
	dpkg-deb --info "$DEBS/tally-${daemon}"_*.deb conffiles > "$TMP/conffiles"
	[ "$(< "$TMP/conffiles")" = "/etc/default/tally-$daemon" ] ||
		fail "tally-$daemon: conffiles are $(< "$TMP/conffiles")"
done
field libtally0 Depends | grep -q libprotobuf-c1 || fail 'libtally0 does not depend on protobuf-c'
! field libtally0 Depends | grep -Eq 'libuv|ibverbs' || fail 'libtally0 depends on a daemon'"'"'s'
field python3-tally Depends | grep -q 'libtally0.*python3-numpy' || fail 'python3-tally depends'
for symbol in $(grep -o '\<tally_[a-z_]*' "$ROOT/client/libtally.map"); do
	dpkg-deb --info "$DEBS"/libtally0_*.deb symbols | grep -q "^ $symbol@" ||
		fail "libtally0's symbols lack $symbol"
done
say 'configuration, dependencies, symbols'

[ "$(id -u)" = 0 ] || skip 'installing needs root'
"$ROOT/tests/packages/next.sh" "$DEBS" "$TMP/next" "$(field tally Version)+1" ||
	fail 'no later version'
mkdir "$TMP/layer" "$TMP/out.d"
in_layer()
{
	mount -t tmpfs layer "$TMP/layer" && mkdir "$TMP/layer/"{over,work,root} &&
		mount -t overlay root -o \
		"lowerdir=/,upperdir=$TMP/layer/over,workdir=$TMP/layer/work" "$TMP/layer/root" ||
		exit 77
	for d in proc dev sys "$ROOT" "$DEBS" "$TMP/next" "$TMP/out.d"; do
		mkdir -p "$TMP/layer/root/$d" && mount --rbind "/$d" "$TMP/layer/root/$d" || exit 1
	done
	mount -t tmpfs run "$TMP/layer/root/run" || exit 1
	env -i /usr/sbin/chroot "$TMP/layer/root" /bin/bash "$ROOT/tests/packages/root.sh" "$DEBS" \
		"$TMP/next" "$TMP/out.d"
}
export -f in_layer
export TMP DEBS ROOT
unshare --mount --propagation private bash -c in_layer
status=$?
[ $status != 77 ] || skip 'this kernel has no overlay file system'
[ $status = 0 ] || fail "installing ended with $status"
