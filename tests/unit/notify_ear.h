/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify_ear.h - who hears what notify() says, in place of systemd: sets NOTIFY_SOCKET.
 */
#ifndef TALLY_TESTS_UNIT_NOTIFY_EAR_H
#define TALLY_TESTS_UNIT_NOTIFY_EAR_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static inline int notify_ear_open(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(sa_family_t);
	char env[sizeof(at.sun_path) + 2];
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, len), 0);	/* the kernel names it */
	len = sizeof(at);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	memcpy(env, at.sun_path, sizeof(at.sun_path));
	env[len - sizeof(sa_family_t)] = '\0';
	env[0] = '@';
	setenv("NOTIFY_SOCKET", env, 1);
	return fd;
}

/* Takes one state that was said, if it is this one. */
static inline bool notify_ear_took(int fd, const char *state)
{
	char got[64];
	ssize_t n = recv(fd, got, sizeof(got), MSG_DONTWAIT);

	return n == (ssize_t)strlen(state) && !memcmp(got, state, (size_t)n);
}

static inline void notify_ear_close(int fd)
{
	unsetenv("NOTIFY_SOCKET");
	close(fd);
}

#endif
