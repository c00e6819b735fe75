// SPDX-License-Identifier: Apache-2.0
/*
 * One poll over a signalfd and the pipes of the ranks.  SIGCHLD comes through
 * the signalfd like the others, so that there is no handler and no race between
 * "look" and "sleep".  A child's pipe is emptied before its end is told; it may
 * stay open in a grandchild, which nobody waits for.
 */
#include "cli/sup.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/broom.h"
#include "common/rt/loop.h"

int sup_init(struct sup *s, uint32_t max, struct err *e)
{
	sigset_t set;

	ASSERT(max <= SUP_CHILDREN_MAX);
	*s = (struct sup){ .max = max };
	broom_hold_signals(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signal_fd < 0)
		return err_set(e, err_from_errno(errno), "signalfd: %s", strerror(errno));
	s->children = calloc(max, sizeof(*s->children));
	if (!s->children) {
		close(s->signal_fd);
		return err_set(e, TALLY_ENOMEM, "no memory for %u children", max);
	}
	return 0;
}

struct child *sup_add(struct sup *s, enum child_kind kind, const char *label, pid_t pid,
		      int out_fd, struct err *e)
{
	struct child *c = &s->children[s->count];

	ASSERT(s->count < s->max);
	*c = (struct child){ .kind = kind, .pid = pid, .running = true, .out_fd = out_fd };
	snprintf(c->label, sizeof(c->label), "%s", label);
	if (out_fd >= 0) {
		c->line = malloc(SUP_LINE_MAX);
		if (!c->line) {
			err_set(e, TALLY_ENOMEM, "no memory for the output of %s", label);
			return NULL;
		}
	}
	s->count++;
	return c;
}

static void print_line(struct child *c, const char *end)
{
	fprintf(stderr, "[%s] %.*s%s", c->label, (int)c->line_len, c->line, end);
	c->line_len = 0;
}

static void pass_on(struct child *c, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (data[i] == '\n') {
			print_line(c, "\n");
			continue;
		}
		c->line[c->line_len++] = data[i];
		if (c->line_len == SUP_LINE_MAX)
			print_line(c, "\n");
	}
}

static void close_output(struct child *c)
{
	if (c->line_len)
		print_line(c, "\n");
	close(c->out_fd);
	c->out_fd = -1;
}

/* Reads what is there; at most a few buffers, so that one rank cannot hog us. */
static void read_output(struct child *c)
{
	char buf[16384];

	for (int i = 0; c->out_fd >= 0 && i < 16; i++) {
		ssize_t n = read(c->out_fd, buf, sizeof(buf));

		if (n > 0)
			pass_on(c, buf, (size_t)n);
		else if (n == 0)
			close_output(c);
		else if (errno != EINTR)
			return;
	}
}

static void child_ended(struct sup *s, pid_t pid, int wait_status)
{
	for (uint32_t i = 0; i < s->count; i++) {
		struct child *c = &s->children[i];

		if (c->pid != pid || !c->running)
			continue;
		read_output(c);
		c->running = false;
		c->wait_status = wait_status;
		c->ended = ++s->ends;
		return;
	}
}

static void reap(struct sup *s)
{
	int wait_status;
	pid_t pid;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0)
		child_ended(s, pid, wait_status);
}

static void read_signals(struct sup *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			continue;
		s->signum = (int)info.ssi_signo;
		s->signals++;
	}
	reap(s);
}

void sup_turn(struct sup *s, int timeout_ms)
{
	struct pollfd fds[1 + SUP_CHILDREN_MAX];
	struct child *of[1 + SUP_CHILDREN_MAX];
	nfds_t n = 1;

	fds[0] = (struct pollfd){ .fd = s->signal_fd, .events = POLLIN };
	for (uint32_t i = 0; i < s->count; i++) {
		struct child *c = &s->children[i];

		if (c->out_fd < 0)
			continue;
		of[n] = c;
		fds[n++] = (struct pollfd){ .fd = c->out_fd, .events = POLLIN };
	}
	if (poll(fds, n, timeout_ms) <= 0)
		return;
	for (nfds_t i = 1; i < n; i++)
		if (fds[i].revents)
			read_output(of[i]);
	if (fds[0].revents)
		read_signals(s);
}

uint32_t sup_running(const struct sup *s, enum child_kind kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->count; i++)
		n += s->children[i].kind == kind && s->children[i].running;
	return n;
}

const struct child *sup_first_ended(const struct sup *s, enum child_kind kind, bool badly,
				    uint64_t after)
{
	const struct child *first = NULL;

	for (uint32_t i = 0; i < s->count; i++) {
		const struct child *c = &s->children[i];

		if (c->kind != kind || c->running || c->ended <= after ||
		    (badly && c->wait_status == 0))
			continue;
		if (!first || c->ended < first->ended)
			first = c;
	}
	return first;
}

void sup_signal(struct sup *s, enum child_kind kind, int signum)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (s->children[i].kind == kind && s->children[i].running)
			kill(s->children[i].pid, signum);
}

bool sup_wait(struct sup *s, enum child_kind kind, uint32_t timeout_ms)
{
	mono_t end = loop_now() + mono_ms(timeout_ms), now;

	while (sup_running(s, kind)) {
		now = loop_now();
		if (now >= end)
			return false;
		sup_turn(s, (int)((end - now) / NS_PER_MS) + 1);
	}
	return true;
}

void sup_fini(struct sup *s)
{
	for (uint32_t i = 0; i < s->count; i++) {
		if (s->children[i].out_fd >= 0) {
			read_output(&s->children[i]);
			if (s->children[i].out_fd >= 0)
				close_output(&s->children[i]);
		}
		free(s->children[i].line);
	}
	free(s->children);
	close(s->signal_fd);
	*s = (struct sup){ .signal_fd = -1 };
}
