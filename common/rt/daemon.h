/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.h - what every daemon's main() does the same way.
 *
 * Names from options or the machine, log level, the highest level of sums, the
 * loop's signals, watchdog and mailbox.  All on the main thread.
 */
#ifndef TALLY_RT_DAEMON_H
#define TALLY_RT_DAEMON_H

#include "common/base/err.h"
#include "common/rt/engine.h"
#include "common/rt/loop.h"

/* TALLY_EINVAL names the levels there are. */
int daemon_log_init(const char *program, const char *level, struct err *e);

/* NULL: the host's name; its machine id (host_machine_id). */
void daemon_name(const char *option, char name[NAME_LEN_MAX + 1]);
void daemon_machine(const char *option, char machine[NAME_LEN_MAX + 1]);

/* 0 asked for: one for less than four CPUs, else half of them, at most four. */
uint32_t daemon_engines(uint64_t asked);

/* Ends a program that could not start: prints why, returns the exit status (2 for
 * TALLY_EINVAL, else 1). */
int daemon_failed(const char *program, const struct err *e);

/* The loop's part: SIGTERM and SIGINT stop it, the watchdog is fed from it, mail from
 * engines is handed to on_mail. */
struct daemon {
	const char *program;
	struct loop *loop;
	struct mailbox *mail;
	struct loop_bell *bell;
	struct loop_timer *watchdog;
	void (*on_mail)(void *ctx, const struct mail *m);
	void *ctx;
};

int daemon_init(struct daemon *d, const char *program,
		void (*on_mail)(void *ctx, const struct mail *m), void *ctx, struct err *e);
void daemon_run(struct daemon *d);
void daemon_drain(struct daemon *d);	/* engines are stopped: their last mail */
void daemon_fini(struct daemon *d);

#endif
