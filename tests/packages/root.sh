#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# root.sh DEBS NEXT OUT: behind debian.sh, in a root file system that may be spoilt: installs the
# packages in DEBS, uses them, upgrades them to those in NEXT, removes and purges them.
set -eu -o pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
debs=() next=()
for deb in "$1"/*.deb; do [[ $deb = *-dbgsym_* ]] || debs+=("$deb"); done
for deb in "$2"/*.deb; do next+=("$deb"); done
cd "$3"

fail() { echo "FAILED: $*" >&2; exit 1; }
# Everything that begins with tally, where packages may put it.
traces()
{
	find /etc /usr /var/lib \( -path '/usr/local' -o -path /var/lib/dpkg \) -prune -o \
		\( -name '*tally*' -o -path '*/tally/*' \) -print | sort
}
traces > before

dpkg -i "${debs[@]}" > dpkg.log 2>&1 || { cat dpkg.log; fail 'not installed'; }
apt-get check > apt.log 2>&1 || { cat apt.log; fail 'a dependency is missing'; }
dpkg -V $(dpkg-query -W -f '${Package} ' '*tally*') || fail 'files are not as packed'
getent passwd tally | grep -q ':/usr/sbin/nologin$' || fail 'no user tally'
[ "$(stat -c '%U:%G %a' /run/tally)" = 'tally:tally 750' ] || fail 'no /run/tally'
version=$(tally --version)
for program in tally-scheduler tally-server tally-agent; do
	$program --check > /dev/null || fail "$program does not start"
	[ "$($program --version)" = "$program ${version#* }" ] ||
		fail "$program is of another version"
	man -w 8 $program > /dev/null || fail "man does not find $program"
	systemctl --root=/ is-enabled -q $program || fail "$program is not enabled"
done
man -w 3 tally_attach > /dev/null && man -w 1 tally-drain > /dev/null || fail 'pages are missing'
bash -c '. /usr/share/bash-completion/completions/tally-agent; complete -p tally tally-agent' \
	> /dev/null || fail 'bash does not complete'
echo '  installed: user, directory, programs, units, manual pages, completion'

# As a user of the packages, with nothing of a build.
cat > sum.c <<'END'
#include <stdio.h>
#include <tally.h>

int main(void)
{
	tally_session *s = NULL;
	tally_tensor *t;
	tally_ticket k;
	float v[3] = { 1, 2, 3 };
	tally_tensor_desc d = { .name = "v", .dtype = TALLY_FLOAT32, .count = 3 };

	if (tally_attach(NULL, &s) || tally_declare(s, &d, 1, &t) ||
	    tally_push_pull(s, t, v, v, NULL, &k) || tally_wait(s, k, -1)) {
		fprintf(stderr, "%s\n", tally_error_text(s));
		return 1;
	}
	printf("%g %g %g\n", v[0], v[1], v[2]);
	return tally_detach(s) ? 1 : 0;
}
END
cat > sum.py <<'END'
import numpy as np
import tally
with tally.Session() as s:
    t = s.declare("v", (3,), "float32")
    print(*t.push_pull(np.array([1, 2, 3], np.float32)).wait())
END
gcc -Wall -Werror -o sum sum.c $(pkg-config --cflags --libs libtally) || fail 'libtally-dev'
gcc -Wall -Werror -static-libgcc -o sum-static sum.c -l:libtally.a -lprotobuf-c -lm ||
	fail 'libtally.a'
sums() { tally local --agents 1 --ranks 2 -- "$@" 2> sums.log || { cat sums.log; fail "$*"; }; }
[ "$(sums ./sum)" = '2 4 6' ] || fail 'a C program has another sum'
[ "$(sums ./sum-static)" = '2 4 6' ] || fail 'a static C program has another sum'
[ "$(sums /usr/bin/python3 sum.py)" = '2.0 4.0 6.0' ] || fail 'Python has another sum'
echo '  two ranks of a cluster: C, static C, Python'

# What was configured stays, through an upgrade and a removal; purged, nothing does.
echo 'TALLY_OPTIONS=--links 2' >> /etc/default/tally-agent
mkdir -p /var/lib/tally-scheduler && touch /var/lib/tally-scheduler/state
dpkg -i "${next[@]}" < /dev/null > dpkg.log 2>&1 || { cat dpkg.log; fail 'not upgraded'; }
grep -qx 'TALLY_OPTIONS=--links 2' /etc/default/tally-agent || fail 'configuration was lost'
[ "$(sums ./sum)" = '2 4 6' ] || fail 'no sum after the upgrade'
names=$(dpkg-query -W -f '${Package} ' '*tally*')
dpkg -r $names > dpkg.log 2>&1 || { cat dpkg.log; fail 'not removed'; }
[ ! -e /usr/bin/tally ] || fail 'a program is left'
[ -e /etc/default/tally-agent ] && [ -e /var/lib/tally-scheduler/state ] ||
	fail 'removing took configuration or state'
dpkg -P $names > dpkg.log 2>&1 || { cat dpkg.log; fail 'not purged'; }
traces > after
diff before after || fail 'purging left something (>)'
[ ! -e /run/tally ] || fail 'purging left /run/tally'
echo '  upgraded, removed, purged: configuration stays until then, nothing after'
