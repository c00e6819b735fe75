// SPDX-License-Identifier: Apache-2.0
/*
 * main.c - tally-scheduler: options, state, loop; SIGTERM ends it with 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/rt/daemon.h"
#include "common/rt/log.h"
#include "common/rt/notify.h"
#include "common/rt/secret.h"
#include "scheduler/sched_io.h"

#define DEFAULT_PORT	7470u

struct options {
	const char *listen, *state_dir, *secret_file, *port_file, *log_level;
	uint64_t heartbeat_ms, agent_grace_s, window_bytes;
};

#define FIELD(f) offsetof(struct options, f)

static const struct opt table[] = {
	{ "listen", OPT_LISTEN, FIELD(listen), "0.0.0.0:7470", 0, 0, "HOST:PORT",
	  "where nodes and the CLI connect; port 0: any" },
	{ "state-dir", OPT_STR, FIELD(state_dir), "/var/lib/tally", 0, 0, "DIR",
	  "keeps cluster id and epochs over restarts; made if it is not there; '' keeps them in "
	  "memory only" },
	{ "secret-file", OPT_STR, FIELD(secret_file), NULL, 0, 0, "PATH",
	  "join secret of the cluster: the file's first line, mode 600" },
	{ "port-file", OPT_STR, FIELD(port_file), NULL, 0, 0, "PATH",
	  "write the listening port here, for scripts" },
	{ "heartbeat-ms", OPT_U64, FIELD(heartbeat_ms), "1000", 100, LEASE_MS / 3, "MS",
	  "how often nodes report" },
	{ "agent-grace", OPT_U64, FIELD(agent_grace_s), "30", 0, 3600, "S",
	  "how long a job waits for an agent that is gone, or is started again" },
	{ "window", OPT_BYTES, FIELD(window_bytes), NULL, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX,
	  "SIZE", "credit of an agent at each server (default: by the servers' cards); less where "
	  "a server has little memory" },
	{ "log-level", OPT_STR, FIELD(log_level), "info", 0, 0, "LEVEL",
	  "error, warn, info, debug" },
};

static const struct opt_program program = {
	.name = "tally-scheduler",
	.summary = "Scheduler: knows the cluster and decides which server sums what.",
	.details = "One per cluster.  Gradients do not pass through it; without it jobs train\n"
		   "on, but none can start, declare tensors or meet at a barrier.  SIGTERM and\n"
		   "SIGINT end it; jobs survive its restart.  The log goes to standard error.\n"
		   "Exit status: 0 ended by a signal, 1 cannot run, 2 wrong options.\n"
		   "\n"
		   "Example:\n"
		   "  tally-scheduler --listen 10.0.0.1:7470 --state-dir /var/lib/tally\n",
	.table = table,
	.count = ARRAY_SIZE(table),
};

static void on_signal(void *ctx, int signum)
{
	log_info("scheduler stops, signal %d", signum);
	notify("STOPPING=1");
	sched_io_stop(ctx);
}

static void on_watchdog(void *ctx)
{
	(void)ctx;
	notify("WATCHDOG=1");
}

static int announce(struct sched_io *io, const struct options *o, const char *host, struct err *e)
{
	int err = daemon_write_port(o->port_file, sched_io_port(io), e);
	char where[ENDPOINT_TEXT];

	if (err)
		return err;
	log_info("scheduler listens on %s, state in %s",
		 fmt_endpoint(where, sizeof(where), host, sched_io_port(io)),
		 o->state_dir[0] ? o->state_dir : "memory only");
	notify("READY=1");
	return 0;
}

static int serve(struct loop *l, struct state *st, const struct options *o, struct err *e)
{
	struct loop_timer *watchdog = NULL;
	char host[ADDR_LEN_MAX + 1], secret[NAME_LEN_MAX + 1];
	struct sched_io_config config = {
		.host = host, .secret = secret, .heartbeat_ms = (uint32_t)o->heartbeat_ms,
		.agent_grace_ms = (uint32_t)o->agent_grace_s * 1000,
		.window_bytes = (uint32_t)o->window_bytes,
	};
	uint64_t watchdog_ms = notify_watchdog_ms();
	struct sched_io *io;
	int err;

	err = parse_listen(o->listen, DEFAULT_PORT, host, &config.port, e);
	if (err)
		return err_wrap(e, "--listen");
	err = secret_read(o->secret_file, secret, sizeof(secret), e);
	if (err)
		return err_wrap(e, "--secret-file");
	err = sched_io_start(&io, l, st, &config, e);
	if (err)
		return err_wrap(e, "--listen %s", o->listen);
	if (watchdog_ms)
		loop_timer_start(l, &watchdog, watchdog_ms / 2, watchdog_ms / 2, on_watchdog, NULL);
	err = loop_on_signals(l, on_signal, io);
	if (err)
		err_set(e, err, "signals cannot be watched");
	else
		err = announce(io, o, host, e);
	if (err)
		sched_io_stop(io);
	loop_run(l);
	loop_timer_stop(watchdog);
	sched_io_free(io);
	return err;
}

/* Checks what the table of options cannot express. */
static int check(const struct options *o)
{
	char secret[NAME_LEN_MAX + 1];
	struct err e;
	int err = secret_read(o->secret_file, secret, sizeof(secret), &e);

	if (!err) {
		puts("tally-scheduler: the options are right");
		return daemon_printed(program.name, 0);
	}
	fprintf(stderr, "tally-scheduler: --secret-file: %s\n", e.text);
	return err == TALLY_EINVAL ? 2 : 1;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	struct state *st = NULL;
	struct loop *l = NULL;
	struct err e = { 0 };
	enum opt_outcome todo;
	int err;

	daemon_std_descriptors();
	daemon_ignore_signals();
	todo = opt_parse(&program, argc, argv, &o, stdout, stderr);
	if (todo == OPT_EXIT_OK)
		return daemon_printed(program.name, 0);
	if (todo == OPT_EXIT_USAGE)
		return 2;
	daemon_raise_descriptors();
	err = log_level_from_name(o.log_level);
	if (err < 0) {
		fprintf(stderr, "tally-scheduler: --log-level %s: error, warn, info or debug\n",
			o.log_level);
		return 2;
	}
	log_init("tally-scheduler", (enum log_level)err);
	if (todo == OPT_CHECK)
		return check(&o);
	daemon_say_limits("tally-scheduler");
	err = state_open(&st, o.state_dir, &e);
	if (err)
		err_wrap(&e, "--state-dir");
	if (!err)
		err = loop_new(&l, &e);
	if (!err && loop_reserve(l, false))
		err = err_set(&e, TALLY_ENOMEM, "out of memory");
	if (!err)
		err = serve(l, st, &o, &e);
	if (err)
		log_error("scheduler cannot run, reason %s", e.text);
	if (l)
		loop_free(l);
	state_close(st);
	return err ? err == TALLY_EINVAL ? 2 : 1 : 0;
}
