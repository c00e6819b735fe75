/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.h - what server and agent do the same way, from options to exit status.
 *
 * daemon_main() reads the options, finds out who the daemon is, makes loop and
 * mailbox, and calls what the program adds: set_up, start, then mail as it comes,
 * leave, stop, clear.  SIGTERM and SIGINT stop the loop, the first of them when leave
 * says so; systemd's watchdog is fed from it.  All on the main thread.
 * common/ctl/ctl.h has its way to the scheduler.
 */
#ifndef TALLY_RT_DAEMON_H
#define TALLY_RT_DAEMON_H

#include "common/base/err.h"
#include "common/rt/engine.h"
#include "common/rt/loop.h"
#include "common/rt/near.h"
#include "common/rt/opt.h"

/* A program's options begin with these, and its table with DAEMON_OPTIONS. */
struct daemon_options {
	const char *scheduler, *name, *machine, *secret_file, *log_level, *simd;
	uint64_t engines, frames_per_write;
};

#define DAEMON_OPTION(f) offsetof(struct daemon_options, f)
#define DAEMON_OPTIONS \
	{ "scheduler", OPT_PEER, DAEMON_OPTION(scheduler), "127.0.0.1:7470", 0, 0, \
	  "HOST:PORT", \
	  "where the scheduler listens" }, \
	{ "name", OPT_STR, DAEMON_OPTION(name), NULL, 0, 0, "NAME", \
	  "unique among nodes of its kind (default: the host's name)" }, \
	{ "machine-id", OPT_STR, DAEMON_OPTION(machine), NULL, 0, 0, "ID", \
	  "same string, same machine (default: boot and network namespace)" }, \
	{ "engines", OPT_U64, DAEMON_OPTION(engines), "0", 0, ENGINES_MAX, "N", \
	  "data threads; 0: by the number of CPUs" }, \
	{ "frames-per-write", OPT_U64, DAEMON_OPTION(frames_per_write), "64", 1, \
	  FRAMES_PER_WRITE_MAX, "N", \
	  "most frames that go to a socket with one call, where so many wait" }, \
	{ "simd", OPT_STR, DAEMON_OPTION(simd), "avx512", 0, 0, "LEVEL", \
	  "highest level of the sums: c, avx2, avx512 (the bits are the same)" }, \
	{ "secret-file", OPT_STR, DAEMON_OPTION(secret_file), NULL, 0, 0, "PATH", \
	  "join secret of the cluster: the file's first line, mode 600" }, \
	{ "log-level", OPT_STR, DAEMON_OPTION(log_level), "info", 0, 0, "LEVEL", \
	  "error, warn, info, debug" }

struct daemon;

struct daemon_ops {
	bool strangers;			/* other users' processes connect: fdguard.h */
	bool (*take_devices)(const void *owner);	/* their dma-bufs; NULL: none */
	/* Looks at the options; there is no loop yet. */
	int (*set_up)(struct daemon *d, struct err *e);
	/* From here on stop() is called, also after an error. */
	int (*start)(struct daemon *d, struct err *e);
	void (*mail)(void *owner, const struct mail *m);	/* from engines */
	/* A signal to end: true: not yet, daemon_end() follows.  May be NULL. */
	bool (*leave)(void *owner);
	void (*stop)(void *owner);
	void (*clear)(void *owner);	/* loop and mailbox are gone; may be NULL */
};

struct daemon {
	const struct opt_program *program;
	const struct daemon_ops *ops;
	const struct daemon_options *opt;
	void *owner;			/* the program's struct */
	char name[NAME_LEN_MAX + 1], machine[NAME_LEN_MAX + 1], secret[NAME_LEN_MAX + 1];
	uint32_t nengines;		/* as the scheduler is told */
	struct loop *loop;
	struct fdguard *fdguard;	/* NULL: none */
	struct loop_watch *fdguard_watch;
	struct mailbox *mail;
	struct loop_bell *bell;
	struct loop_timer *watchdog;
	bool leaving;
	mono_t down_told;		/* that its scheduler is lost was logged then; 0: never */
	uint32_t down_hash;		/* and this was the reason's */
	bool secret_lost;		/* its file could not be read when it was last */
	int exit_code;
};

/*
 * Runs a daemon; returns the exit status of main(): 0 ended by a signal, 1 cannot run or
 * refused, 2 wrong options.
 */
int daemon_main(struct daemon *d, const struct opt_program *program, const struct daemon_ops *ops,
		void *owner, struct daemon_options *opt, int argc, char **argv);

/*
 * Number of engines: as --engines says, or half of the CPUs that this process may run on, but
 * `least` where there are so many, and at most four.
 */
uint32_t daemon_engines(const struct daemon *d, uint32_t least);
/* Which CPU each engine is pinned to, by near_pin(), and says so; fills m for the daemon's
 * n cards, which own these numeric addresses. */
void daemon_cpus(const char *const *addr, uint32_t n, uint32_t engines, bool from_last,
		 struct near *m, int cpus[ENGINES_MAX]);

/* From the loop: the daemon has left, and ends. */
void daemon_end(struct daemon *d);

/* From the loop: the daemon cannot go on, and ends with status 1. */
void daemon_give_up(struct daemon *d);

/* --port-file PATH, for scripts; NULL or "": none. */
int daemon_write_port(const char *path, uint16_t port, struct err *e);

/*
 * Before anything else: descriptors 0, 1 and 2 exist, so that no other file is taken for them,
 * which would get the log and which libuv refuses to close.  Using one that was closed stays
 * an error.
 */
void daemon_std_descriptors(void);

/*
 * Before anything is written: what the process's limits (the size of a file, CPU time) and closed
 * pipes raise does not end it; the call that meets the limit fails.
 */
void daemon_ignore_signals(void);

/* Warns of limits below which a daemon may refuse what it is asked for. */
void daemon_say_limits(const char *program);

/*
 * Last of all: whether what was printed is written.  Returns status; where it is 0 and was not
 * written 1, and says why on stderr.  A pipe that nobody reads any more is not worth a word.
 */
int daemon_printed(const char *program, int status);

/* As many descriptors as the system allows, LOOP_FDS at most: connections, processes' memory. */
void daemon_raise_descriptors(void);

#endif
