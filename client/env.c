// SPDX-License-Identifier: Apache-2.0
/*
 * env.c - options, then the launcher's variables, then defaults.
 *
 * Open MPI stands before Slurm: mpirun inside a batch job inherits the batch
 * step's SLURM_PROCID (0 for everybody), while srun sets no OMPI_COMM_WORLD_*.
 */
#include "client/env.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/base/utf8.h"

/* launcher, rank, world size, local rank, job id, more of the job id */
#define ENV_TABLE(X) \
	X("Tally",	"TALLY_RANK",	"TALLY_WORLD_SIZE", "TALLY_LOCAL_RANK", NULL, NULL) \
	X("torchrun",	"RANK",		"WORLD_SIZE",	"LOCAL_RANK", "TORCHELASTIC_RUN_ID", NULL) \
	X("openmpi",	"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", \
	  "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_MCA_ess_base_jobid|PMIX_NAMESPACE", NULL) \
	X("slurm",	"SLURM_PROCID",	"SLURM_NTASKS",	"SLURM_LOCALID", "SLURM_JOB_ID", \
	  "SLURM_STEP_ID|SLURM_STEPID") \
	X("slurm",	"SLURM_PROCID",	"SLURM_STEP_NUM_TASKS",	"SLURM_LOCALID", "SLURM_JOB_ID", \
	  "SLURM_STEP_ID|SLURM_STEPID") \
	X("slurm",	"SLURM_PROCID",	"SLURM_NPROCS",	"SLURM_LOCALID", "SLURM_JOB_ID", \
	  "SLURM_STEP_ID|SLURM_STEPID")

/* torchrun's id where nobody gave it --rdzv-id: the same for all of its jobs. */
#define NO_RUN_ID "none"

struct env_family {
	const char *launcher, *rank, *world, *local_rank;
	const char *job, *step;		/* "A|B": A, or else B; NULL: none */
};

static const struct env_family families[] = {
#define X(launcher, rank, world, local, job, step) { launcher, rank, world, local, job, step },
	ENV_TABLE(X)
#undef X
};

/* An empty variable is one that is not set: that is how shells pass nothing on. */
static const char *env_get(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static const char *env_get_either(const char *names)
{
	const char *bar, *v;
	char first[64];

	if (!names)
		return NULL;
	bar = strchr(names, '|');
	if (!bar)
		return env_get(names);
	snprintf(first, sizeof(first), "%.*s", (int)(bar - names), names);
	v = env_get(first);
	return v ? v : env_get(bar + 1);
}

static int env_number(const char *name, uint64_t min, uint64_t max, uint64_t *v, struct err *e)
{
	const char *s = env_get(name);

	if (!s)
		return err_set(e, TALLY_EINVAL, "environment: %s is not set", name);
	if (parse_u64(s, min, max, v, e))
		return err_wrap(e, "environment: %s", name);
	return 0;
}

/* The first launcher that has said anything, by the names of its with which it has said both. */
static const struct env_family *env_family(void)
{
	const struct env_family *first = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		const struct env_family *f = &families[i];
		bool rank = env_get(f->rank), world = env_get(f->world);

		if ((rank || world) && !first)
			first = f;
		if (rank && world && !strcmp(f->launcher, first->launcher))
			return f;
	}
	return first;
}

/* A shell of sbatch or salloc has Slurm's variables, too, without being a task. */
static int half_a_family(const struct env_family *f, struct err *e)
{
	const char *there = env_get(f->rank) ? f->rank : f->world;
	const char *start = !strcmp(f->launcher, "slurm") ? "start it with srun" : "set both";

	return err_set(e, TALLY_EINVAL, "environment: %s is set but %s is not; %s, or set "
		       "TALLY_RANK and TALLY_WORLD_SIZE", there,
		       there == f->rank ? f->world : f->rank, start);
}

static int env_read_ranks(const struct env_family *f, struct lt_ident *id, struct err *e)
{
	uint64_t world, rank, local;

	if (!env_get(f->rank) || !env_get(f->world))
		return half_a_family(f, e);
	if (env_number(f->world, 1, WORLD_SIZE_MAX, &world, e) ||
	    env_number(f->rank, 0, UINT32_MAX, &rank, e))
		return TALLY_EINVAL;
	if (rank >= world)
		return err_set(e, TALLY_EINVAL, "environment: %s %llu is not below %s %llu",
			       f->rank, (unsigned long long)rank, f->world,
			       (unsigned long long)world);
	id->world = (uint32_t)world;
	id->rank = (uint32_t)rank;
	if (!env_get(f->local_rank))
		return 0;
	if (env_number(f->local_rank, 0, world - 1, &local, e))
		return TALLY_EINVAL;
	id->local_rank = (int)local;
	return 0;
}

/* Copies a text that must fit; what names it in the error. */
static int put_text(char *to, size_t size, const char *from, const char *what, struct err *e)
{
	if (strlen(from) >= size)
		return err_set(e, TALLY_EINVAL, "%s is longer than %zu bytes", what, size - 1);
	memcpy(to, from, strlen(from) + 1);
	return 0;
}

static int fill_job(const struct env_family *f, struct lt_ident *id, const char *wish,
		    struct err *e)
{
	const char *job, *step, *dot = ".";
	int n;

	if (!wish || !*wish)
		wish = env_get("TALLY_JOB");
	if (wish && !utf8_is_text(wish))
		return err_set(e, TALLY_EINVAL, "the job's name is no printable UTF-8");
	if (wish)
		return put_text(id->job, sizeof(id->job), wish, "the job's name", e);
	job = f ? env_get_either(f->job) : NULL;
	step = f ? env_get_either(f->step) : NULL;
	if (job && !strcmp(job, NO_RUN_ID)) {
		job = env_get("MASTER_ADDR");
		step = env_get("MASTER_PORT");
		dot = ":";
	}
	if (!job)
		return put_text(id->job, sizeof(id->job), LT_JOB_DEFAULT, "the job's name", e);
	n = snprintf(id->job, sizeof(id->job), "%s-%s%s%s", f->launcher, job, step ? dot : "",
		     step ? step : "");
	if (n < 0 || (size_t)n >= sizeof(id->job))
		return err_set(e, TALLY_EINVAL, "the launcher's job id is too long for a name");
	return 0;
}

static int fill_ranks(const struct env_family *f, struct lt_ident *id, const tally_options *opt,
		      struct err *e)
{
	id->world = 1;
	id->rank = 0;
	id->local_rank = -1;
	if (opt->world < 0 || opt->world > (int)WORLD_SIZE_MAX)
		return err_set(e, TALLY_EINVAL, "world size %d; 1 to %u are possible", opt->world,
			       WORLD_SIZE_MAX);
	if (opt->world > 0) {
		if (opt->rank < 0 || opt->rank >= opt->world)
			return err_set(e, TALLY_EINVAL, "rank %d is not in a world of %d",
				       opt->rank, opt->world);
		id->world = (uint32_t)opt->world;
		id->rank = (uint32_t)opt->rank;
	} else if (f && env_read_ranks(f, id, e)) {
		return TALLY_EINVAL;
	}
	if (opt->local_rank < -1 || opt->local_rank >= (int)id->world)
		return err_set(e, TALLY_EINVAL, "local rank %d is not in a world of %u",
			       opt->local_rank, id->world);
	if (opt->local_rank > 0)
		id->local_rank = opt->local_rank;
	return 0;
}

/* ms: its default before, what was wished for after. */
static int fill_time(const char *option, int wish, const char *name, uint32_t *ms, struct err *e)
{
	uint64_t v = *ms;

	if (wish < 0)
		return err_set(e, TALLY_EINVAL, "%s %d is negative", option, wish);
	if (wish > 0)
		v = (uint64_t)wish;
	else if (env_get(name) && env_number(name, 1, INT_MAX, &v, e))
		return TALLY_EINVAL;
	*ms = (uint32_t)v;
	return 0;
}

static int fill_limits(struct lt_ident *id, const tally_options *opt, struct err *e)
{
	id->timeout_ms = ATTACH_TIMEOUT_MS;
	id->round_timeout_ms = WAIT_TIMEOUT_MS;
	if (fill_time("timeout_ms", opt->timeout_ms, "TALLY_TIMEOUT_MS", &id->timeout_ms, e) ||
	    fill_time("round_timeout_ms", opt->round_timeout_ms, "TALLY_ROUND_TIMEOUT_MS",
		      &id->round_timeout_ms, e))
		return TALLY_EINVAL;
	if (opt->chunk_bytes && (opt->chunk_bytes < CHUNK_BYTES_MIN ||
				 opt->chunk_bytes > CHUNK_BYTES_MAX ||
				 opt->chunk_bytes % CHUNK_BYTES_MIN))
		return err_set(e, TALLY_EINVAL, "chunk_bytes %zu; multiples of %u up to %u are "
			       "possible", opt->chunk_bytes, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
	if (opt->on_loss != TALLY_ON_LOSS_ERROR && opt->on_loss != TALLY_ON_LOSS_SHRINK)
		return err_set(e, TALLY_EINVAL, "no on_loss %d", (int)opt->on_loss);
	id->on_loss = (uint32_t)opt->on_loss;
	id->chunk_bytes = (uint32_t)opt->chunk_bytes;
	return 0;
}

/* TALLY_TIMELINE with %r replaced; without it, ranks get names of their own by a suffix. */
static int fill_timeline(struct lt_ident *id, struct err *e)
{
	const char *from = env_get("TALLY_TIMELINE");
	bool told = id->world == 1;
	char rank[16];
	size_t at = 0;

	if (!from)
		return 0;
	snprintf(rank, sizeof(rank), "%u", id->rank);
	for (; *from && at < LT_PATH_MAX; from++) {
		if (*from != '%') {
			id->timeline[at++] = *from;
			continue;
		}
		from++;
		if (*from != 'r' && *from != '%')
			return err_set(e, TALLY_EINVAL, "environment: TALLY_TIMELINE: %%r is the "
				       "rank, %%%% a %%; nothing else stands behind a %%");
		told |= *from == 'r';
		at += (size_t)snprintf(id->timeline + at, LT_PATH_MAX + 1 - at, "%s",
				       *from == 'r' ? rank : "%");
	}
	if (!told && at <= LT_PATH_MAX)
		at += (size_t)snprintf(id->timeline + at, LT_PATH_MAX + 1 - at, ".%s", rank);
	if (*from || at > LT_PATH_MAX)
		return err_set(e, TALLY_EINVAL, "environment: TALLY_TIMELINE is longer than %u "
			       "bytes", LT_PATH_MAX);
	return 0;
}

static int fill_log(struct lt_ident *id, struct err *e)
{
	const char *level = env_get("TALLY_LOG");

	if (!level || !strcmp(level, "none"))
		return 0;
	id->log = !strcmp(level, "debug") ? LT_LOG_DEBUG : LT_LOG_INFO;
	if (id->log == LT_LOG_INFO && strcmp(level, "info"))
		return err_set(e, TALLY_EINVAL, "environment: TALLY_LOG is '%.64s'; info, debug, "
			       "and none are possible", level);
	return 0;
}

int lt_ident_fill(struct lt_ident *id, const tally_options *opt, struct err *e)
{
	static const tally_options none = { 0 };
	const struct env_family *f = env_family();
	const char *socket;

	opt = opt ? opt : &none;
	*id = (struct lt_ident){ 0 };
	socket = opt->socket && *opt->socket ? opt->socket : env_get("TALLY_SOCKET");
	if (put_text(id->socket, sizeof(id->socket), socket ? socket : LT_SOCKET_DEFAULT,
		     "the agent's socket path", e) ||
	    fill_ranks(f, id, opt, e) || fill_limits(id, opt, e) || fill_timeline(id, e) ||
	    fill_log(id, e))
		return TALLY_EINVAL;
	return fill_job(f, id, opt->job, e);
}
