/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - lines for people, on stderr.
 *
 * error: someone must act; warn: degraded, heals itself; info: life cycle;
 * debug: control messages.  Form: "<subject> <id> <what>, <name> <value>".
 * Under systemd (JOURNAL_STREAM) lines carry the <N> prefix, else time and level.
 * Never blocks: a full pipe drops lines and counts them.  Cores never log.
 *
 * Errors and warnings are bounded: each place in the code that says one says it LOG_BURST
 * times in LOG_WINDOW_S seconds; the last of them says so, and the first one after that how
 * many were left out.  So no stranger, and no storm, fills a disk.
 */
#ifndef TALLY_RT_LOG_H
#define TALLY_RT_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#define LOG_BURST	100u
#define LOG_WINDOW_S	10u

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_init(const char *program, enum log_level level);
int log_level_from_name(const char *name);	/* -1: no such level */
void log_line(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
uint64_t log_dropped(void);	/* lines that found no room; not those that were left out */

/* One place in the code that speaks, zeroed at first; any thread may. */
struct log_site {
	_Atomic uint64_t since;		/* the window's begin, in seconds of the monotonic clock */
	_Atomic uint32_t said, left_out;
};

/* As log_line(), within the bounds of its place; log_error() and log_warn() come here. */
void log_bounded(struct log_site *site, enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Where the level depends: bounded, whatever it is. */
#define log_here(level, ...) do {					\
	static struct log_site log_site_;				\
	log_bounded(&log_site_, level, __VA_ARGS__);			\
} while (0)
#define log_error(...) log_here(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_here(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
