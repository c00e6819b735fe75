#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# venv.sh VERSION | venv.sh current: a virtual environment with that torch from the package
# index, or the newest, made once below $BUILD; prints its interpreter.
set -eu
BUILD=${BUILD:-build}
what=torch numpy=numpy
case ${1:-} in
current) ;;
1.* | 2.[012] | 2.[012].*) what=torch==$1 numpy='numpy<2' ;;
[2-9].*) what=torch==$1 ;;
*) echo "error: '${1:-}' is no version of torch; say current, or one such as 2.4.1" >&2; exit 2 ;;
esac
mkdir -p "$BUILD"
where=$(realpath "$BUILD")/torch-$1

if [ ! -e "$where/complete" ]; then
	echo "making $where: $what, some GB from the package index, once" >&2
	rm -rf "$where"
	trap 'rm -rf "$where"' EXIT
	/usr/bin/python3 -m venv "$where"
	PIP_DISABLE_PIP_VERSION_CHECK=1 "$where/bin/pip" install -q "$what" "$numpy" \
		scikit-learn >&2 || {
		echo "error: no $what from the package index; PYTHON=/path/to/python runs" \
			"the tests with a torch that is there" >&2
		exit 1
	}
	touch "$where/complete"
	trap - EXIT
fi
echo "$where/bin/python"
