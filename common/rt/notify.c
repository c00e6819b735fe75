// SPDX-License-Identifier: Apache-2.0
/*
 * The notify protocol of systemd: one datagram per state to the Unix socket that
 * NOTIFY_SOCKET names ('@' stands for the abstract name space).  A failure is not
 * told: there is nobody to tell, and the daemon's work does not depend on it.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/parse.h"
#include "common/rt/loop.h"
#include "common/rt/notify.h"
#include "common/shm/slab.h"

#define FIRST_KEPT_FD	3		/* sd_listen_fds(3) */

static uint64_t env_u64(const char *name)
{
	const char *s = getenv(name);
	uint64_t v;

	return s && parse_u64(s, 0, UINT64_MAX, &v, NULL) == 0 ? v : 0;
}

/*
 * wait_ms: for room in the manager's queue; 0: there is some, or nothing is said.  False: nothing
 * was.
 */
static bool say(const char *state, const int *fd, uint32_t wait_ms)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const struct timeval wait = { wait_ms / 1000, wait_ms % 1000 * 1000 };
	size_t len = path ? strlen(path) : 0;
	bool said = false;
	int to;

	if (len < 2 || len >= sizeof(a.sun_path) || (path[0] != '/' && path[0] != '@'))
		return false;
	memcpy(a.sun_path, path, len);
	if (path[0] == '@')
		a.sun_path[0] = '\0';
	to = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | (wait_ms ? 0 : SOCK_NONBLOCK), 0);
	if (to < 0)
		return false;
	if (wait_ms)
		(void)setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (!connect(to, (struct sockaddr *)&a,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)))
		said = fdmsg_send(to, state, strlen(state), fd, fd != NULL) > 0;
	close(to);
	return said;
}

bool notify_is_wanted(void)
{
	return getenv("NOTIFY_SOCKET") != NULL;
}

void notify(const char *state)
{
	(void)say(state, NULL, 0);
}

/* ---- the descriptor store ---- */

void notify_keep(int fd, const char *name)
{
	char state[320];

	snprintf(state, sizeof(state), "FDSTORE=1\nFDNAME=%s", name);
	(void)say(state, &fd, 0);
}

bool notify_forget(const char *name, uint32_t wait_ms)
{
	char state[320];

	snprintf(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return say(state, NULL, wait_ms);
}

/* The manager closes what comes with BARRIER in its turn. */
bool notify_barrier(uint32_t wait_ms)
{
	struct pollfd end;
	bool done;
	int p[2];

	if (pipe2(p, O_CLOEXEC))
		return false;
	done = say("BARRIER=1", &p[1], wait_ms);
	close(p[1]);
	end = (struct pollfd){ .fd = p[0] };
	done = done && poll(&end, 1, (int)wait_ms) > 0;
	close(p[0]);
	return done;
}

void notify_kept(void (*take)(void *ctx, const char *name, int fd), void *ctx)
{
	uint64_t n = env_u64("LISTEN_PID") == (uint64_t)getpid() ? env_u64("LISTEN_FDS") : 0;
	const char *names = getenv("LISTEN_FDNAMES");

	for (int fd = FIRST_KEPT_FD; n && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0; fd++, n--) {
		size_t len = names ? strcspn(names, ":") : 0;
		char name[256];

		snprintf(name, sizeof(name), "%.*s", (int)len, names ? names : "");
		names = names && names[len] ? names + len + 1 : NULL;
		take(ctx, name, fd);
	}
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
