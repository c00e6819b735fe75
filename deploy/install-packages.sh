#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that Tally is built and tested with, those that
# are missing; says nothing when all are there.  "vm": also those of tests/vm, "torch",
# "venv": of the PyTorch tests, "packages": of make deb, make wheel and their test.
set -eu

packages="gcc make pkg-config libc6-dev binutils protobuf-c-compiler protobuf-compiler
libprotobuf-c-dev libuv1-dev libhwloc-dev libmnl-dev check libglpk-dev
rdma-core libibverbs-dev clang libclang-rt-dev iproute2 python3 python3-numpy systemd procps
mandoc man-db zsh"
for more in "$@"; do
	case $more in
	vm) packages="$packages qemu-system-x86 busybox-static perftest rdmacm-utils
		ibverbs-providers" ;;
	torch) packages="$packages python3-torch python3-sklearn" ;;
	venv) packages="$packages python3-venv" ;;
	packages) packages="$packages debhelper dh-python lintian python3-setuptools python3-wheel
		python3-venv" ;;
	*) echo "error: no packages for '$more'" >&2; exit 2 ;;
	esac
done

missing=
for p in $packages; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' ||
		missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "error: no apt-get here, and Tally's packages are named as Debian 12 has them." >&2
	echo "Install what these are here; then 'make build', and examples/quickstart.sh or" >&2
	echo "tests/check.sh, need nothing of this script:$missing" >&2
	exit 1
fi
echo "installing:$missing"
if [ "$(id -u)" -eq 0 ]; then
	sudo=
elif command -v sudo >/dev/null; then
	sudo='sudo env DEBIAN_FRONTEND=noninteractive'	# which drops what is exported
else
	echo "error: not root and no sudo; as root run: apt-get install$missing" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
if ! $sudo apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1; then
	$sudo apt-get update -q
	$sudo apt-get install -y -q --no-install-recommends $missing
fi
