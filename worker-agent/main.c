// SPDX-License-Identifier: Apache-2.0
/*
 * tally-agent: the machine's exchange. Training processes attach to its Unix
 * socket; it sums what they give, sends it to the servers, shows the results.
 *
 * Starts in this order: options, engines, socket, scheduler; ends in the reverse.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/kern/kern.h"
#include "common/rt/daemon.h"
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "common/rt/notify.h"
#include "common/rt/secret.h"
#include "worker-agent/agent.h"

#define OPT(field) offsetof(struct ad_options, field)

static const struct opt options[] = {
	{ "scheduler", OPT_STR, OPT(scheduler), "127.0.0.1:7470", 0, 0, "HOST:PORT",
	  "where the scheduler listens" },
	{ "socket", OPT_STR, OPT(socket), "/run/tally/agent.sock", 0, 0, "PATH",
	  "Unix socket where training processes attach" },
	{ "name", OPT_STR, OPT(name), NULL, 0, 0, "NAME",
	  "unique among agents (default: the host's name)" },
	{ "machine-id", OPT_STR, OPT(machine), NULL, 0, 0, "ID",
	  "same string, same machine (default: boot and network namespace)" },
	{ "rail", OPT_LIST, OPT(rails), NULL, 0, 0, "ADDR[@BITRATE]",
	  "address of a card to use, once per card (default: the one that leads to the "
	  "scheduler)" },
	{ "links", OPT_U64, OPT(links), "2", 1, LINKS_PER_RAIL_MAX, "N",
	  "TCP connections to each server engine per card" },
	{ "engines", OPT_U64, OPT(engines), "0", 0, ENGINES_MAX, "N",
	  "data threads; 0: by the number of CPUs" },
	{ "no-shm", OPT_FLAG, OPT(no_shm), NULL, 0, 0, NULL,
	  "do not use shared memory to a server on this machine" },
	{ "simd", OPT_STR, OPT(simd), "avx512", 0, 0, "LEVEL",
	  "highest level of the sums: c, avx2, avx512 (the bits are the same)" },
	{ "secret-file", OPT_STR, OPT(secret_file), NULL, 0, 0, "PATH",
	  "join secret of the cluster: the file's first line, mode 600" },
	{ "log-level", OPT_STR, OPT(log_level), "info", 0, 0, "LEVEL", "error, warn, info, debug" },
};

static const struct opt_program program = {
	.name = "tally-agent",
	.summary = "Worker agent: exchanges the gradients of this machine's training processes.",
	.details = "One per machine that trains.  Processes find it by TALLY_SOCKET; who may\n"
		   "open the socket (mode 660) may train.  A scheduler that is not there is\n"
		   "tried again; one that refuses (wrong secret, name taken) ends the agent.\n"
		   "SIGTERM and SIGINT end it, and with it the jobs of its processes.  The log\n"
		   "goes to standard error.\n"
		   "Exit status: 0 ended by a signal, 1 cannot run, 2 wrong options.\n"
		   "\n"
		   "Example:\n"
		   "  tally-agent --scheduler 10.0.0.1:7470 --socket /run/tally/agent.sock\n",
	.table = options,
	.count = ARRAY_SIZE(options),
};

static void on_mail(void *ctx, const struct mail *m)
{
	ad_on_mail(ctx, m);
}

static int set_up(struct agent *a, struct err *e)
{
	int rc = daemon_log_init(program.name, a->opt.log_level, e);

	rc = rc ? rc : secret_read(a->opt.secret_file, a->secret, sizeof(a->secret), e);
	if (rc)
		return rc;
	if (!kern_init_upto(a->opt.simd))
		return err_set(e, TALLY_EINVAL, "--simd %s: must be c, avx2 or avx512",
			       a->opt.simd);
	if (strlen(a->opt.socket) > ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "--socket: the path is longer than %u",
			       ADDR_LEN_MAX);
	daemon_name(a->opt.name, a->name);
	daemon_machine(a->opt.machine, a->machine);
	a->nengines = daemon_engines(a->opt.engines);
	a->memory_bytes = host_memory_bytes();
	list_init(&a->jobs);
	list_init(&a->sessions);
	return 0;
}

static int start(struct agent *a, struct err *e)
{
	int cpus[ENGINES_MAX], rc = 0;
	uint32_t ncpus = a->nengines > 1 ? host_cpus_near(NULL, cpus, ENGINES_MAX) : 0;

	for (uint32_t i = 0; !rc && i < a->nengines; i++)
		rc = ad_engine_start(a, i, i < ncpus ? cpus[i] : -1, e);
	rc = rc ? rc : ad_sessions_start(a, e);
	rc = rc ? rc : ad_io_start(a, e);
	if (rc)
		return rc;
	log_info("agent %s listens on %s, rail %s, engines %u, sums %s", a->name, a->opt.socket,
		 a->rail_text[0], a->nengines, kern_level_name(kern_level()));
	notify("READY=1\nSTATUS=looking for the scheduler");
	return 0;
}

static void stop(struct agent *a)
{
	ad_sessions_stop(a);
	ad_io_stop(a);
	for (uint32_t i = 0; i < a->nengines; i++)
		if (a->engine[i])
			ad_engine_quiet(a->engine[i]);
	for (uint32_t i = 0; i < a->nengines; i++)
		if (a->engine[i])
			ad_engine_stop(a->engine[i]);
}

/* The loop is gone, and with it the last word of every socket. */
static void clear(struct agent *a)
{
	ad_sessions_free(a);
	while (!list_empty(&a->jobs))
		ad_job_free(list_first(&a->jobs, struct ad_job, link));
}

int main(int argc, char **argv)
{
	static struct agent a;
	struct daemon d;
	struct err e;

	switch (opt_parse(&program, argc, argv, &a.opt, stdout, stderr)) {
	case OPT_EXIT_OK:
		return 0;
	case OPT_EXIT_USAGE:
		return 2;
	case OPT_RUN:
		break;
	}
	if (set_up(&a, &e) || daemon_init(&d, program.name, on_mail, &a, &e))
		return daemon_failed(program.name, &e);
	a.loop = d.loop;
	a.mail = d.mail;
	if (start(&a, &e))
		a.exit_code = daemon_failed(program.name, &e);
	else
		daemon_run(&d);
	stop(&a);
	daemon_fini(&d);
	a.loop = NULL;
	clear(&a);
	return a.exit_code;
}
