// SPDX-License-Identifier: Apache-2.0
/*
 * Log lines that never hold anybody up.
 *
 * A line is made on the stack and handed over in one call that does not block: a
 * pipe or terminal is reopened, so that O_NONBLOCK is ours alone and not also
 * that of whoever shares our stderr, or looked at before each line where it is
 * another user's; a socket (the journal) is sent to with MSG_DONTWAIT; a file does
 * not block.  A line that finds no room is counted, and the next one that gets
 * through is preceded by how many were lost.
 *
 * Text from peers may be in a line: control characters become '?'.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/base.h"
#include "common/rt/log.h"

#define LINE_BYTES	1024u	/* below PIPE_BUF: a line is written whole or not at all */

static const struct {
	const char *name;
	int priority;		/* of syslog(3) */
} levels[] = {
	[LOG_ERROR] = { "error", 3 },
	[LOG_WARN] = { "warn", 4 },
	[LOG_INFO] = { "info", 6 },
	[LOG_DEBUG] = { "debug", 7 },
};

static struct {
	char program[32];
	enum log_level level;
	int fd;
	bool is_socket, journal;
	bool may_block;			/* it could not be reopened: looked at before each line */
} cfg = { .program = "tally", .level = LOG_INFO, .fd = STDERR_FILENO };

static _Atomic uint64_t dropped, dropped_told;

/* JOURNAL_STREAM names the device and inode that stderr was when we were started. */
static bool is_journal(const struct stat *st)
{
	const char *v = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;

	return v && sscanf(v, "%llu:%llu", &dev, &ino) == 2 && dev == st->st_dev &&
	       ino == st->st_ino;
}

static int reopen_stderr(void)
{
	int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

	cfg.may_block = fd < 0;		/* another user's */
	return fd < 0 ? STDERR_FILENO : fd;
}

void log_init(const char *program, enum log_level level)
{
	struct stat st;

	snprintf(cfg.program, sizeof(cfg.program), "%s", program);
	cfg.level = level;
	if (cfg.fd != STDERR_FILENO)
		close(cfg.fd);
	cfg.fd = STDERR_FILENO;
	cfg.is_socket = cfg.journal = cfg.may_block = false;
	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	cfg.is_socket = S_ISSOCK(st.st_mode);
	cfg.journal = is_journal(&st);
	if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
		cfg.fd = reopen_stderr();
}

int log_level_from_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (strcmp(levels[i].name, name) == 0)
			return (int)i;
	return -1;
}

static size_t put_head(char *line, enum log_level level)
{
	struct timespec ts;
	struct tm tm;
	char when[32];

	if (cfg.journal)
		return (size_t)snprintf(line, LINE_BYTES, "<%d>", levels[level].priority);
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	return (size_t)snprintf(line, LINE_BYTES, "%s.%03ldZ %-5s %s: ", when,
				ts.tv_nsec / 1000000, levels[level].name, cfg.program);
}

/* Closes the line: bounded, one line, nothing a terminal would act on. */
static size_t put_tail(char *line, size_t head, int text)
{
	size_t len = head + (text > 0 ? (size_t)text : 0);

	len = MIN(len, LINE_BYTES - 1);
	for (size_t i = head; i < len; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[len++] = '\n';
	return len;
}

/* A pipe that is writable takes PIPE_BUF bytes: more than a line has. */
static bool emit(const char *line, size_t len)
{
	struct pollfd p = { .fd = cfg.fd, .events = POLLOUT };
	ssize_t n;

	if (cfg.may_block && poll(&p, 1, 0) != 1)
		return false;
	do {
		n = cfg.is_socket ? send(cfg.fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL)
				  : write(cfg.fd, line, len);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)len;
}

/* False while the notice itself finds no room. */
static bool tell_dropped(void)
{
	uint64_t lost = atomic_load(&dropped), told = atomic_load(&dropped_told);
	char line[LINE_BYTES];
	size_t head;
	int n;

	if (lost <= told || !atomic_compare_exchange_strong(&dropped_told, &told, lost))
		return true;
	head = put_head(line, LOG_WARN);
	n = snprintf(line + head, LINE_BYTES - head, "log lines dropped, count %llu",
		     (unsigned long long)(lost - told));
	if (emit(line, put_tail(line, head, n)))
		return true;
	atomic_store(&dropped_told, told);
	return false;
}

/* note: what follows the text, if anything does. */
__attribute__((format(printf, 2, 0)))
static void say(enum log_level level, const char *fmt, va_list ap, const char *note)
{
	int errnum = errno;		/* %m means the caller's */
	char line[LINE_BYTES];
	size_t head;
	int n;

	head = put_head(line, level);
	errno = errnum;
	n = vsnprintf(line + head, LINE_BYTES - head, fmt, ap);
	if (note[0] && n >= 0 && head + (size_t)n < LINE_BYTES)
		n += snprintf(line + head + n, LINE_BYTES - head - (size_t)n, "%s", note);
	if (!tell_dropped() || !emit(line, put_tail(line, head, n)))
		atomic_fetch_add(&dropped, 1);
	errno = errnum;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (level > cfg.level)
		return;
	va_start(ap, fmt);
	say(level, fmt, ap, "");
	va_end(ap);
}

/* True if the line is to be said, with its note; else it is counted. */
static bool within_bounds(struct log_site *site, char *note, size_t size)
{
	uint64_t since = atomic_load(&site->since), now;
	struct timespec ts;
	uint32_t n;

	note[0] = '\0';
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (uint64_t)ts.tv_sec + LOG_WINDOW_S;	/* 0 is long ago, however new the machine */
	if (now - since >= LOG_WINDOW_S &&
	    atomic_compare_exchange_strong(&site->since, &since, now)) {
		atomic_store(&site->said, 0);
		n = atomic_exchange(&site->left_out, 0);
		if (n)
			snprintf(note, size, " (%u more like this were left out)", n);
	}
	n = atomic_fetch_add(&site->said, 1) + 1;
	if (n == LOG_BURST)
		snprintf(note, size, " (more like this are left out for %u s)", LOG_WINDOW_S);
	if (n > LOG_BURST)
		atomic_fetch_add(&site->left_out, 1);
	return n <= LOG_BURST;
}

void log_bounded(struct log_site *site, enum log_level level, const char *fmt, ...)
{
	char note[64];
	va_list ap;

	if (level > cfg.level || !within_bounds(site, note, sizeof(note)))
		return;
	va_start(ap, fmt);
	say(level, fmt, ap, note);
	va_end(ap);
}

uint64_t log_dropped(void)
{
	return atomic_load(&dropped);
}
