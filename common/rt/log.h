/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - lines for people, on stderr.
 *
 * error: someone must act; warn: degraded, heals itself; info: life cycle;
 * debug: control messages.  Form: "<subject> <id> <what>, <name> <value>".
 * Under systemd (JOURNAL_STREAM) lines carry the <N> prefix, else time and level.
 * Never blocks: a full pipe drops lines and counts them.  Cores never log.
 */
#ifndef TALLY_RT_LOG_H
#define TALLY_RT_LOG_H

#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_init(const char *program, enum log_level level);
int log_level_from_name(const char *name);	/* -1: no such level */
void log_line(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
uint64_t log_dropped(void);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
