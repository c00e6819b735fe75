// SPDX-License-Identifier: Apache-2.0
/*
 * sched_key.c - what an agent's data links present to the servers.
 *
 * The key is a function of the cluster's secret seed, the agent's number, by which
 * servers know it, and the process's instance: a restarted scheduler hands out the same
 * one, and links that reconnect are let in.  Another process that has the number, be it
 * the agent started again or one in the place of a lost one, has another key: the process
 * before may live, and would fight it for the number.  The function is SipHash-2-4 with
 * 128 bits of output (Aumasson and Bernstein, 2012): a keyed pseudo-random function, which
 * is what is needed to keep one agent from computing another's key.
 *
 * Servers hear the keys of a job's agents with the job (JOB_UP), and of another process when
 * it registers (AGENT_KEYS).  One that was away then, or was told by a scheduler that has
 * died meanwhile, hears those of all its jobs when it is back, or when the scheduler has
 * recovered.  An agent that is gone, or not back yet, has no key that could be told: servers
 * keep what they know of it, for it may only have lost us.
 */
#include "scheduler/sched.h"

/* ---- the function ---- */

static uint64_t rotl(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

static void rounds(uint64_t v[4], int n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] = rotl(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[2] = rotl(v[2], 32);
	}
}

static void absorb(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

void key_derive(const uint8_t seed[KEY_BYTES], uint32_t number, const uint8_t instance[ID_BYTES],
		uint8_t key[KEY_BYTES])
{
	uint64_t k0 = get_le64(seed), k1 = get_le64(seed + 8);
	uint64_t v[4] = {
		k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
		k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573),
	};

	absorb(v, number);
	absorb(v, get_le64(instance));
	absorb(v, get_le64(instance + 8));
	absorb(v, (uint64_t)(sizeof(uint64_t) + ID_BYTES) << 56);
	v[2] ^= 0xee;
	rounds(v, 4);
	put_le64(key, v[0] ^ v[1] ^ v[2] ^ v[3]);
	v[1] ^= 0xdd;
	rounds(v, 4);
	put_le64(key + 8, v[0] ^ v[1] ^ v[2] ^ v[3]);
}

/* ---- telling servers ---- */

static bool is_known(const struct sched_node *n)
{
	return n->kind == NODE_AGENT && n->state != SN_DEAD && n->machine[0];
}

/* Whose number the machine's is now, also where the job goes on without it; or NULL. */
static const struct sched_node *agent_of(const struct sched *s, const struct sched_part *p)
{
	for (uint32_t i = 0; !p->node && p->number && i < s->nnodes; i++)
		if (s->nodes[i]->number == p->number)
			return s->nodes[i];
	return p->node;
}

bool key_of(const struct sched *s, const struct sched_part *p, uint8_t key[KEY_BYTES])
{
	const struct sched_node *n = agent_of(s, p);

	if (!n || !is_known(n))
		return false;
	key_derive(s->config.key_seed, n->number, n->instance, key);
	return true;
}

static struct msg *keys_msg(struct sched *s, uint32_t room, struct msg_agent_key **keys)
{
	struct msg *m = out_msg(s, MSG_AGENT_KEYS);

	*keys = out_scratch(s, room * sizeof(**keys));
	if (!m || !*keys)
		return NULL;
	m->agent_keys.keys = *keys;
	return m;
}

static bool has_machine(const struct sched_job *j, const struct sched_node *n)
{
	for (uint32_t i = 0; i < j->nmachines; i++) {
		const struct sched_part *p = &j->machines[i];

		if (p->node ? p->node == n : p->number == n->number)
			return true;
	}
	return false;
}

void key_tell(struct sched *s, const struct sched_node *n)
{
	struct msg_agent_key *key;
	struct msg *m = keys_msg(s, 1, &key);

	if (m) {
		m->agent_keys.nkeys = 1;
		key->node = n->number;
		key_derive(s->config.key_seed, n->number, n->instance, key->link_key);
	}
	for (uint32_t i = 0; i < s->nnodes; i++)
		s->nodes[i]->mark = 0;
	for (uint32_t i = 0; i < s->njobs; i++) {
		const struct sched_job *j = s->jobs[i];

		if (MUTATE(41) || !has_machine(j, n))
			continue;
		for (uint32_t k = 0; k < j->nservers; k++)
			if (j->servers[k].node && !j->servers[k].node->mark++)
				out_send(s, j->servers[k].node, m);
	}
}

/* Of all the job's agents.  False: of none. */
static bool job_keys(struct sched *s, const struct sched_job *j, struct msg **out)
{
	struct msg_agent_key *keys;
	struct msg *m = keys_msg(s, MAX(j->nmachines, 1), &keys);
	uint32_t n = 0;

	*out = m;
	for (uint32_t i = 0; m && i < j->nmachines; i++) {
		const struct sched_part *p = &j->machines[i];

		if (!key_of(s, p, keys[n].link_key))
			continue;
		keys[n++].node = p->node ? p->node->number : p->number;
	}
	if (m)
		m->agent_keys.nkeys = n;
	return !m || n;
}

void key_tell_job(struct sched *s, const struct sched_job *j)
{
	struct msg *m;

	if (!j->nservers || !job_keys(s, j, &m))
		return;
	for (uint32_t i = 0; i < j->nservers; i++)
		if (j->servers[i].node)
			out_send(s, j->servers[i].node, m);
}

void key_tell_server(struct sched *s, struct sched_node *n)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct msg *m;

		if (job_server_part(s->jobs[i], n) && job_keys(s, s->jobs[i], &m))
			out_send(s, n, m);
	}
}
