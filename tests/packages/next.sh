#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# next.sh FROM TO VERSION: the Debian packages in FROM as those of a later VERSION, in TO: the same
# files, so that only what an upgrade does is new.
set -eu
mkdir -p "$2"
for deb in "$1"/*.deb; do
	case $deb in *-dbgsym_*) continue ;; esac
	where=$(mktemp -d)
	dpkg-deb -R "$deb" "$where"
	old=$(sed -n 's/^Version: //p' "$where/DEBIAN/control")
	sed -i "/^\(Version\|Pre-Depends\|Depends\|Recommends\):/s/${old//./\\.}/$3/g" \
		"$where/DEBIAN/control"
	name=${deb##*/}
	dpkg-deb --root-owner-group -Zgzip -z1 -b "$where" "$2/${name/_$old/_$3}" > /dev/null
	rm -rf "$where"
done
