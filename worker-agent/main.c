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
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "worker-agent/agent.h"
#include "worker-agent/agent_net.h"

#define ALONE_ENGINES	2u	/* at least: for jobs of one machine, whose ranks leave CPUs free */

#define OPT(field) offsetof(struct ad_options, field)

static const struct opt options[] = {
	DAEMON_OPTIONS,
	{ "socket", OPT_STR, OPT(socket), RUNTIME_DIR "/agent.sock", 0, 0, "PATH",
	  "Unix socket where training processes attach" },
	{ "rail", OPT_RAILS, OPT(rails), NULL, 0, 0, "ADDR[@BITRATE]",
	  "address of a card to use, once per card (default: the one that leads to the "
	  "scheduler)" },
	{ "links", OPT_U64, OPT(links), NULL, 1, LINKS_PER_RAIL_MAX, "N",
	  "TCP connections of an engine to a server's engine per card (default: 1, on a fast "
	  "card as many as fill it)" },
	{ "no-shm", OPT_FLAG, OPT(no_shm), NULL, 0, 0, NULL,
	  "do not use shared memory to a server on this machine" },
	{ "no-rdma", OPT_FLAG, OPT(no_rdma), NULL, 0, 0, NULL,
	  "do not use RDMA, although a card here and one there can" },
	{ "dma-buf", OPT_FLAG, OPT(dma_buf), NULL, 0, 0, NULL,
	  "take memory of devices that processes hand over, for cards to read it (GPUDirect)" },
	{ "topology", OPT_STR, OPT(topology), "", 0, 0, "FILE",
	  "where GPUs and cards sit, instead of what the machine says: see tally doctor" },
};

static const struct opt_program program = {
	.name = "tally-agent",
	.summary = "Worker agent: exchanges the gradients of this machine's training processes.",
	.details = "One per machine that trains.  Processes find it by TALLY_SOCKET; who may\n"
		   "open the socket (mode 660) may train.  A scheduler that is not there is\n"
		   "tried again; one that refuses (wrong secret, name taken) ends the agent.\n"
		   "SIGTERM and SIGINT end it.  Jobs of its processes wait and go on when it is\n"
		   "started again with the same name, within the scheduler's --agent-grace; else\n"
		   "they end.  The log goes to standard error.\n"
		   "Exit status: 0 ended by a signal, 1 cannot run, 2 wrong options.\n"
		   "\n"
		   "Example:\n"
		   "  tally-agent --scheduler 10.0.0.1:7470 --socket /run/tally/agent.sock\n",
	.table = options,
	.count = ARRAY_SIZE(options),
};

static int set_up(struct daemon *d, struct err *e)
{
	struct agent *a = d->owner;

	if (!kern_init_upto(d->opt->simd))
		return err_set(e, TALLY_EINVAL, "--simd %s: must be c, avx2 or avx512",
			       d->opt->simd);
	if (!a->opt.socket[0] || strlen(a->opt.socket) > ADDR_LEN_MAX)
		return err_set(e, TALLY_EINVAL, "--socket: a path has 1 to %u bytes", ADDR_LEN_MAX);
	if (a->opt.no_rdma)
		xport_rdma_off();
	a->name = d->name;
	a->machine = d->machine;
	a->nlinked = d->nengines;
	a->nengines = daemon_engines(d, ALONE_ENGINES);
	a->memory_bytes = host_memory_bytes();
	list_init(&a->jobs);
	list_init(&a->sessions);
	list_init(&a->returning);
	if (ad_gpu_read(a, e))
		return e->code;
	if (host_random(&a->start, sizeof(a->start)))
		return err_set(e, TALLY_EIO, "no random numbers from the kernel");
	a->start = MAX(a->start, 1);
	return 0;
}

/* And which rail each engine takes first. */
static void choose_cpus(struct agent *a, int cpus[ENGINES_MAX])
{
	const char *addr[RAILS_MAX];
	struct near m;

	for (uint32_t i = 0; i < a->nrails; i++)
		addr[i] = a->rail_text[i];
	daemon_cpus(addr, a->nrails, a->nengines, false, &m, cpus);
	for (uint32_t i = 0; i < a->nengines; i++)
		near_order(&m, cpus[i], a->rail_order[i]);
}

static int start(struct daemon *d, struct err *e)
{
	struct agent *a = d->owner;
	int cpus[ENGINES_MAX], rc;
	char text[ERR_TEXT_MAX];

	a->loop = d->loop;
	a->mail = d->mail;
	rc = ad_net_start(a, e);
	rc = rc ? rc : ad_rails_start(a, e);
	if (rc)
		return rc;
	choose_cpus(a, cpus);
	for (uint32_t i = 0; !rc && i < a->nengines; i++)
		rc = ad_engine_start(a, i, cpus[i], e);
	if (!rc && !strncmp(a->opt.socket, RUNTIME_DIR "/", strlen(RUNTIME_DIR "/")))
		(void)opt_runtime_make();
	rc = rc ? rc : ad_sessions_start(a, e);
	rc = rc ? rc : ad_io_start(a, e);
	if (rc)
		return rc;
	for (uint32_t i = 0; xport_rdma_devices() && i < a->nrails; i++) {
		a->rail_rdma[i] = xport_rdma_serves(a->rail_text[i], text, sizeof(text));
		xport_rdma_say(a->rail_text[i], text, sizeof(text));
		log_info("rail %s: %s", a->rail_text[i], text);
	}
	log_info("agent %s listens on %s, rail %s, engines %u, with servers %u, sums %s", a->name,
		 a->opt.socket, a->rail_text[0], a->nengines, a->nlinked,
		 kern_level_name(kern_level()));
	return 0;
}

/*
 * Stops the agent: first everything that writes results, since a process that hears that we go
 * may find another agent next.
 */
static void stop(void *owner)
{
	struct agent *a = owner;

	for (uint32_t i = 0; i < a->nengines; i++)
		if (a->engine[i])
			ad_engine_quiet(a->engine[i]);
	ad_sessions_stop(a);
	ad_alive_end(a);
	ad_io_stop(a);
	for (uint32_t i = 0; i < a->nengines; i++)
		if (a->engine[i])
			ad_engine_stop(a->engine[i]);
}

/* With the loop the last word of every socket is gone. */
static void clear(void *owner)
{
	struct agent *a = owner;

	a->loop = NULL;
	free(a->topology);
	ad_net_free(a);
	ad_sessions_free(a);
	ad_back_forget(a);
	while (!list_empty(&a->jobs))
		ad_job_free(list_first(&a->jobs, struct ad_job, link));
}

static bool take_devices(const void *owner)
{
	return ((const struct agent *)owner)->opt.dma_buf;
}

static const struct daemon_ops ops = {
	.strangers = true,
	.take_devices = take_devices,
	.set_up = set_up,
	.start = start,
	.mail = ad_on_mail,
	.stop = stop,
	.clear = clear,
};

int main(int argc, char **argv)
{
	static struct agent a;

	return daemon_main(&a.daemon, &program, &ops, &a, &a.opt.daemon, argc, argv);
}
