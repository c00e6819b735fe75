// SPDX-License-Identifier: Apache-2.0
/* The NCCL of the tests: see double.h. */
#include <nccl.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/kern/kern.h"
#include "tests/gpu/double.h"

#define API		__attribute__((visibility("default")))
#define MEMBERS_MAX	16
#define SLOT_BYTES	(256u << 10)
#define GPU_TEXT	96

enum kind { REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER, KINDS };

struct call {
	struct double_comm *comm;
	enum kind kind;
	const uint8_t *in;
	uint8_t *out;
	size_t count;
	ncclDataType_t type;
	int root;
};

/* What the members share. */
struct meeting {
	_Atomic uint32_t joined, arrived, turn, left;
	_Atomic bool broken;		/* a member went without a word */
	char gpu[MEMBERS_MAX][GPU_TEXT];	/* which member has which, on which host */
	struct {
		uint64_t kind, count, type, root;
	} said[MEMBERS_MAX];
	_Alignas(64) uint8_t slot[MEMBERS_MAX][SLOT_BYTES];
};

struct double_comm {
	struct meeting *m;
	int n, me;
	char name[128];
	_Atomic bool aborted, leaves;
	_Atomic ncclResult_t state;
	_Atomic uint32_t calls;		/* on streams */
	_Atomic(cudaStream_t) launches;	/* on that stream, for the first time */
};

static _Atomic bool fails;
static struct double_comm *mine[2];	/* this process's, in the order of their making */

static uint8_t dtype_of(ncclDataType_t type)
{
	static const uint8_t dtype[] = {
		[ncclInt8] = DTYPE_I8, [ncclUint8] = DTYPE_U8, [ncclInt32] = DTYPE_I32,
		[ncclInt64] = DTYPE_I64, [ncclFloat16] = DTYPE_F16, [ncclFloat32] = DTYPE_F32,
		[ncclFloat64] = DTYPE_F64, [ncclBfloat16] = DTYPE_BF16,
	};

	return dtype[type];
}

API const char *ncclGetErrorString(ncclResult_t rc)
{
	static const char *const text[] = { "no error", "internal error", "invalid usage",
					    "remote error", "in progress" };

	return text[rc];
}

API const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return "the double says so";
}

/* ---- meeting ---- */

static void set_up(void)
{
	kern_init(~0u);
}

void double_nccl_fails(void)
{
	fails = true;
}

void double_nccl_dies(void)
{
	for (int i = 0; i < 2; i++)
		if (mine[i])
			mine[i]->m->broken = true;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	static _Atomic unsigned count;

	memset(id, 0, sizeof(*id));
	snprintf(id->internal, sizeof(id->internal), "/tally-double-%d-%u", (int)getpid(), ++count);
	return ncclSuccess;
}

static struct meeting *meet(const char *name)
{
	int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
	void *p = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, sizeof(struct meeting)))
		p = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return p == MAP_FAILED ? NULL : p;
}

/* Before it has joined.  NCCL_HOSTID is what makes one host seem to be several. */
static void name_gpu(struct double_comm *c)
{
	const char *host = getenv("NCCL_HOSTID");
	char id[64] = "";
	int device = 0;

	(void)cudaGetDevice(&device);
	(void)cudaDeviceGetPCIBusId(id, sizeof(id), device);
	snprintf(c->m->gpu[c->me], GPU_TEXT, "%.20s %.60s", host ? host : "", id);
}

/* Two members on one GPU would wait for each other for ever. */
static bool shared(const struct double_comm *c)
{
	for (int i = 0; i < c->n; i++)
		for (int k = 0; k < i; k++)
			if (!strcmp(c->m->gpu[i], c->m->gpu[k]))
				return true;
	return false;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int me,
					ncclConfig_t *config)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct double_comm *c = calloc(1, sizeof(*c));

	pthread_once(&once, set_up);
	if (!c || config->blocking || n > MEMBERS_MAX)
		return ncclInternalError;
	snprintf(c->name, sizeof(c->name), "%s", id.internal);
	c->n = n;
	c->me = me;
	c->m = meet(c->name);
	if (!c->m)
		return ncclInternalError;
	mine[mine[0] != NULL] = c;
	if (me == 1 && getenv("DOUBLE_DIES")) {
		double_nccl_dies();
		_exit(0);
	}
	name_gpu(c);
	c->m->joined++;
	*out = c;
	return ncclInProgress;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
	*state = c->state;
	if (*state == ncclSuccess && (c->m->joined < (uint32_t)c->n || getenv("DOUBLE_STALLS")))
		*state = ncclInProgress;
	else if (c->me == 0)
		(void)shm_unlink(c->name);
	if (*state == ncclSuccess && shared(c))
		*state = ncclInvalidUsage;
	if (*state == ncclSuccess && c->leaves && c->m->left < (uint32_t)c->n)
		*state = ncclInProgress;
	if (*state == ncclSuccess && c->m->broken)
		*state = ncclRemoteError;
	if (*state == ncclSuccess && c->launches && !double_idle(c->launches))
		*state = ncclInProgress;
	else
		c->launches = NULL;
	return ncclSuccess;
}

API ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	c->leaves = true;
	c->m->left++;
	return ncclInProgress;
}

API ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	return ncclCommAbort(c);
}

API ncclResult_t ncclCommAbort(ncclComm_t c)
{
	c->aborted = true;
	if (!c->leaves)
		c->m->broken = true;
	while (c->calls)
		double_nap();
	if (c->me == 0)
		(void)shm_unlink(c->name);
	munmap(c->m, sizeof(*c->m));
	free(c);
	return ncclSuccess;
}

/* All members are here; false: aborted. */
static bool meet_all(struct double_comm *c)
{
	uint32_t turn = c->m->turn;

	if (++c->m->arrived == (uint32_t)c->n) {
		c->m->arrived = 0;
		c->m->turn++;
		return !c->aborted;
	}
	while (c->m->turn == turn && !c->aborted)
		double_nap();
	return !c->aborted;
}

/* ---- collectives ---- */

/* Do all call the same? A real group hangs or mixes the data up. */
static bool agree(const struct call *k)
{
	struct double_comm *c = k->comm;

	c->m->said[c->me].kind = k->kind;
	c->m->said[c->me].count = k->count;
	c->m->said[c->me].type = k->type;
	c->m->said[c->me].root = (uint64_t)k->root;
	if (!meet_all(c))
		return false;
	for (int i = 0; i < c->n; i++)
		if (memcmp(&c->m->said[i], &c->m->said[c->me], sizeof(c->m->said[i])))
			c->state = ncclInvalidUsage;
	return meet_all(c) && c->state == ncclSuccess;
}

static bool reduce_to(struct double_comm *c, const uint8_t *in, uint8_t *out, size_t bytes,
		      uint8_t dtype, int root)
{
	const void *all[MEMBERS_MAX];
	size_t len;

	for (size_t at = 0; at < bytes; at += len) {
		len = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
		memcpy(c->m->slot[c->me], in + at, len);
		if (!meet_all(c))
			return false;
		for (int i = 0; i < c->n; i++)
			all[i] = c->m->slot[i];
		if (c->me == root)
			kern_sum(dtype, out + at, all, (uint32_t)c->n, len / dtype_bytes(dtype), 1);
		if (!meet_all(c))
			return false;
	}
	return true;
}

static bool broadcast_from(struct double_comm *c, const uint8_t *in, uint8_t *out,
			   size_t bytes, int root)
{
	size_t len;

	for (size_t at = 0; at < bytes; at += len) {
		len = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
		if (c->me == root)
			memcpy(c->m->slot[root], in + at, len);
		if (!meet_all(c))
			return false;
		memcpy(out + at, c->m->slot[root], len);
		if (!meet_all(c))
			return false;
	}
	return true;
}

static bool perform(const struct call *k)
{
	struct double_comm *c = k->comm;
	uint8_t dtype = dtype_of(k->type);
	size_t bytes = k->count * dtype_bytes(dtype);
	bool ok = agree(k);

	if (k->kind == REDUCE)
		return ok && reduce_to(c, k->in, k->out, bytes, dtype, k->root);
	if (k->kind == BROADCAST)
		return ok && broadcast_from(c, k->in, k->out, bytes, k->root);
	for (int i = 0; i < c->n && ok; i++)
		ok = k->kind == REDUCE_SCATTER ?
		     reduce_to(c, k->in + (size_t)i * bytes, k->out, bytes, dtype, i) :
		     broadcast_from(c, k->in, k->out + (size_t)i * bytes, bytes, i);
	return ok;
}

static void do_call(void *arg)
{
	const struct call *k = arg;
	struct double_comm *c = k->comm;

	if (fails)
		c->state = ncclRemoteError;
	if (!perform(k) || c->state != ncclSuccess)
		while (!c->aborted)
			double_nap();
	c->calls--;
}

static ncclResult_t put(cudaStream_t s, const struct call *k)
{
	static _Atomic bool was[KINDS][ncclBfloat16 + 1];
	bool moves = k->kind == BROADCAST || k->kind == ALL_GATHER;	/* the same for all types */
	struct call *copy;

	if (k->comm->aborted || k->comm->m->joined < (uint32_t)k->comm->n)
		return ncclInvalidUsage;
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return ncclInternalError;
	*copy = *k;
	k->comm->calls++;
	if (!atomic_exchange(&was[k->kind][moves ? 0 : k->type], true))
		k->comm->launches = s;
	return double_put(s, do_call, copy) == cudaSuccess ? ncclSuccess : ncclInternalError;
}

API ncclResult_t ncclGroupStart(void)
{
	return ncclSuccess;
}

API ncclResult_t ncclGroupEnd(void)
{
	return ncclInProgress;		/* as it is for a communicator that does not block */
}

API ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
			    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t s)
{
	(void)op;
	return put(s, &(struct call){ comm, REDUCE, in, out, count, type, root });
}

API ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type,
			       int root, ncclComm_t comm, cudaStream_t s)
{
	return put(s, &(struct call){ comm, BROADCAST, in, out, count, type, root });
}

API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
				   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
				   cudaStream_t s)
{
	(void)op;
	return put(s, &(struct call){ comm, REDUCE_SCATTER, in, out, count, type, -1 });
}

API ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
			       ncclComm_t comm, cudaStream_t s)
{
	return put(s, &(struct call){ comm, ALL_GATHER, in, out, count, type, -1 });
}
