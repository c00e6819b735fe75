// SPDX-License-Identifier: Apache-2.0
/*
 * tally-server: receives chunks, sums them, sends the sums back.
 *
 * Starts in this order: options, listeners, adder measured, engines, scheduler;
 * ends in the reverse.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/kern/kern.h"
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "server/server.h"

#define OPT(field) offsetof(struct sv_options, field)

static const struct opt options[] = {
	DAEMON_OPTIONS,
	{ "listen", OPT_ENDPOINTS, OPT(listen), "0.0.0.0:7471", 0, 0, "HOST:PORT[@BITRATE]",
	  "where agents connect; once per card; port 0: any" },
	{ "shm-socket", OPT_STR, OPT(shm_socket), "auto", 0, 0, "PATH",
	  "Unix socket for this machine's agent, or none; auto: in $RUNTIME_DIRECTORY, /run/tally "
	  "(which root makes), or tally in $XDG_RUNTIME_DIR" },
	{ "memory", OPT_BYTES, OPT(memory_bytes), "0", 0, SERVER_MEMORY_MAX,
	  "BYTES", "limit for result slots and windows, at least 32M; 0: half of the machine's" },
	{ "no-rdma", OPT_FLAG, OPT(no_rdma), NULL, 0, 0, NULL,
	  "do not use RDMA, although a card here and one there can" },
	{ "port-file", OPT_STR, OPT(port_file), NULL, 0, 0, "PATH",
	  "write the first listening port here, for scripts" },
};

static const struct opt_program program = {
	.name = "tally-server",
	.summary = "Summation server: adds up the gradients of a cluster's training jobs.",
	.details = "Runs on CPU machines, and beside the agent on machines that train.  A\n"
		   "scheduler that is not there is tried again; one that refuses (wrong\n"
		   "secret, name taken) ends the server.  SIGTERM and SIGINT end it when it has\n"
		   "given its jobs to other servers, after 10 s at most; a second one at once.\n"
		   "The log goes to standard error.\n"
		   "Exit status: 0 ended by a signal, 1 cannot run, 2 wrong options.\n"
		   "\n"
		   "Example:\n"
		   "  tally-server --scheduler 10.0.0.1:7470 --listen 10.0.0.5:7471@25gbit\n",
	.table = options,
	.count = ARRAY_SIZE(options),
};

static int set_up(struct daemon *d, struct err *e)
{
	struct server *s = d->owner;
	char given[32], least[32];

	if (s->opt.no_rdma)
		xport_rdma_off();
	if (!kern_init_upto(d->opt->simd))
		return err_set(e, TALLY_EINVAL, "--simd %s: must be c, avx2 or avx512",
			       d->opt->simd);
	if (strlen(s->opt.shm_socket) > ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "--shm-socket: the path is longer than %u",
			       ADDR_LEN_MAX);
	if (s->opt.memory_bytes && s->opt.memory_bytes < SERVER_MEMORY_MIN)
		return err_set(e, TALLY_EINVAL, "--memory: %s is less than a job of two machines "
			       "needs; from %s, or 0 for half of the machine's",
			       fmt_bytes(given, sizeof(given), s->opt.memory_bytes),
			       fmt_bytes(least, sizeof(least), SERVER_MEMORY_MIN));
	s->name = d->name;
	s->nengines = d->nengines;
	s->memory_bytes = s->opt.memory_bytes ? s->opt.memory_bytes : host_memory_bytes() / 2;
	list_init(&s->jobs);
	list_init(&s->greetings);
	list_init(&s->agents);
	return 0;
}

/* An agent on this machine begins with the first CPUs. */
static void choose_cpus(const struct server *s, int cpus[ENGINES_MAX])
{
	const char *addr[SV_LISTEN_MAX];
	struct near m;

	for (uint32_t i = 0; i < s->naddrs; i++)
		addr[i] = s->addr[i].host;
	daemon_cpus(addr, s->naddrs, s->nengines, true, &m, cpus);
}

static int start(struct daemon *d, struct err *e)
{
	struct server *s = d->owner;
	int cpus[ENGINES_MAX], rc;
	char adder[32], memory[32], text[ERR_TEXT_MAX];

	s->loop = d->loop;
	s->mail = d->mail;
	rc = sv_listen_start(s, e);
	if (rc)
		return rc;
	choose_cpus(s, cpus);
	rc = sv_adder_measure(s->nengines, cpus, loop_now, &s->adder_bytes_per_s, e);
	for (uint32_t i = 0; !rc && i < s->nengines; i++)
		rc = sv_engine_start(s, i, cpus[i], e);
	if (rc)
		return rc;
	for (uint32_t i = 0; xport_rdma_devices() && i < s->naddrs; i++) {
		xport_rdma_say(s->addr[i].host, text, sizeof(text));
		log_info("address %s: %s", s->addr[i].host, text);
	}
	fmt_endpoint(text, sizeof(text), s->addr[0].host, s->addr[0].port);
	log_info("server %s listens on %s, engines %u, sums %s, adder %s/s, memory %s", s->name,
		 text, s->nengines, kern_level_name(kern_level()),
		 fmt_bytes(adder, sizeof(adder), s->adder_bytes_per_s),
		 fmt_bytes(memory, sizeof(memory), s->memory_bytes));
	sv_adder_warn(s);
	return sv_io_start(s, e);
}

static void stop(void *owner)
{
	struct server *s = owner;

	sv_io_stop(s);
	sv_listen_stop(s);
	for (uint32_t i = 0; i < s->nengines; i++)
		if (s->engine[i])
			sv_engine_stop(s->engine[i]);
	while (!list_empty(&s->jobs))
		sv_job_free(s, list_first(&s->jobs, struct sv_job, link));
}

static const struct daemon_ops ops = {
	.set_up = set_up,
	.start = start,
	.mail = sv_on_mail,
	.leave = sv_leave,
	.stop = stop,
};

int main(int argc, char **argv)
{
	static struct server s;

	return daemon_main(&s.daemon, &program, &ops, &s, &s.opt.daemon, argc, argv);
}
