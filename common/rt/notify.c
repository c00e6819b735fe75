// SPDX-License-Identifier: Apache-2.0
/*
 * The notify protocol of systemd: one datagram per state to the Unix socket that
 * NOTIFY_SOCKET names ('@' stands for the abstract name space).  A failure is not
 * reported: there is nobody to report it to, and the daemon's work does not depend on it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/parse.h"
#include "common/rt/loop.h"
#include "common/rt/notify.h"

static uint64_t env_u64(const char *name)
{
	const char *s = getenv(name);
	uint64_t v;

	return s && parse_u64(s, 0, UINT64_MAX, &v, NULL) == 0 ? v : 0;
}

void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int to;

	if (len < 2 || len >= sizeof(a.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(a.sun_path, path, len);
	if (path[0] == '@')
		a.sun_path[0] = '\0';
	to = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (to < 0)
		return;
	(void)sendto(to, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&a,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(to);
}

/* ---- the watchdog ---- */

/* WATCHDOG_PID says whom it is for: a child of the service must not answer. */
uint64_t notify_watchdog_ms(void)
{
	static uint64_t ms;
	static bool known;

	if (!known) {
		uint64_t pid = env_u64("WATCHDOG_PID");

		ms = pid == 0 || pid == (uint64_t)getpid() ? env_u64("WATCHDOG_USEC") / 1000 : 0;
		known = true;
	}
	return ms;
}

void notify_alive(void)
{
	static mono_t said;
	mono_t now = loop_now();

	if (!notify_watchdog_ms() || now - said < mono_ms(notify_watchdog_ms() / 2))
		return;
	said = now;
	notify("WATCHDOG=1");
}
