// SPDX-License-Identifier: Apache-2.0
/*
 * sched_report.c - the answer to QUERY: tables for people and scripts.
 *
 * Rows stop before the message would outgrow what a control message may be: tensors, of which
 * a job may have more.  Its row says how many, so who asks can tell that some were left out.
 */
#include "common/base/parse.h"
#include "scheduler/sched_blame.h"

#include <stdio.h>

#define ROW_BYTES	256u		/* of an encoded row, texts aside */
#define REPORT_BYTES	(CTL_MSG_BYTES_MAX / 2)

/* What may still be written; a row that does not fit ends its table. */
struct room {
	size_t left;
};

static bool fits(struct room *r, size_t texts)
{
	size_t need = ROW_BYTES + texts;

	if (need > r->left)
		return false;
	r->left -= need;
	return true;
}

static const char *job_waiting(struct sched *s, const struct sched_job *j)
{
	char buf[300];
	struct text t;

	text_init(&t, buf, sizeof(buf));
	if (j->state == SJ_GATHERING && j->nin < j->world)
		text_not_joined(&t, j);
	else if (j->state == SJ_GATHERING)
		text_add(&t, "%s", s->recover_until ? "recovery" : "a server");
	else if (j->state == SJ_UP)
		return_text(s, j, &t);
	if (t.used)
		return out_string(s, buf);
	if (j->state == SJ_UP && j->no_server)
		text_add(&t, "%s", epoch_waiting(j));
	else if (j->state == SJ_RESERVING || (j->state == SJ_UP && !list_empty(&j->log)))
		text_not_ready(&t, j);
	else if (j->state == SJ_UP && j->nbarrier && j->nbarrier < grow_awaited(j)) {
		if (!text_blame(&t, "", blame_of(s, j)))
			text_missing(&t, j, j->barrier);
		text_add(&t, " at a barrier");
	} else if (j->state == SJ_UP && epoch_waiting(j)[0]) {
		text_add(&t, "%s", epoch_waiting(j));
	} else if (j->state == SJ_UP) {
		stuck_text(s, &t, j);
	} else if (j->state == SJ_HELD) {
		for (uint32_t i = 0; i < j->nmachines; i++) {
			if (!j->machines[i].held)
				text_add(&t, "%smachine %s", t.used ? ", " : "",
					 j->machines[i].name);
		}
	}
	if (j->state == SJ_UP)
		grow_text(&t, j);
	return out_string(s, buf);
}

static uint32_t jobs_of(const struct sched *s, const struct sched_node *n)
{
	uint32_t jobs = 0;

	for (uint32_t i = 0; i < s->njobs; i++) {
		const struct sched_job *j = s->jobs[i];
		bool in = false;

		for (uint32_t k = 0; k < j->nmachines && !in; k++)
			in = j->machines[k].node == n;
		for (uint32_t k = 0; k < j->nservers && !in; k++)
			in = j->servers[k].node == n;
		jobs += in;
	}
	return jobs;
}

static const char *node_addr(struct sched *s, const struct sched_node *n)
{
	char buf[ENDPOINT_TEXT] = "";

	if (n->naddrs && n->addrs[0].port)
		fmt_endpoint(buf, sizeof(buf), n->addrs[0].host, n->addrs[0].port);
	else if (n->naddrs)
		snprintf(buf, sizeof(buf), "%s", n->addrs[0].host);
	return out_string(s, buf);
}

static const char *node_state(const struct sched *s, const struct sched_node *n)
{
	if (n->left)
		return "left";
	if (n->state != SN_UP || !n->draining || MUTATE(34))
		return node_state_name(n->state);
	return epoch_idle(s, n) ? "drained" : "draining";
}

/* Rows of servers that are gone stay for others to take; they do not count. */
static uint32_t count_servers(const struct sched_job *j)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < j->nservers; i++)
		n += j->servers[i].node != NULL || MUTATE(31);
	return n;
}

/* A node's note: what the scheduler found it to be, then its own words. */
static const char *node_note(struct sched *s, const struct sched_node *n)
{
	char buf[ERR_TEXT_MAX + 1];
	struct text t;

	text_init(&t, buf, sizeof(buf));
	slow_text(s, n, &t);
	text_add(&t, "%s%s", t.used && n->note[0] ? "; " : "", n->note);
	return out_string(s, buf);
}

/* "" the job uses it. */
static void bypass_of(struct sched *s, struct sched_job *j, const struct sched_node *n,
		      struct text *t)
{
	const struct sched_part *p = job_server_part(j, n);
	const struct sched_part *cut = cut_row(j, n->name);
	const char *no_link = p ? stuck_no_link(j, p->number) : NULL;

	if (p && p->let_go_by)
		text_add(t, "%s", p->cut_why);
	else if (no_link)
		text_add(t, "machine %.64s has no link to it", no_link);
	else if (!p && cut && s->now < cut->cut_until)
		text_add(t, "%s; it is asked again in %llu s", cut->cut_why, (unsigned long long)
			 div_round_up((uint64_t)(cut->cut_until - s->now), NS_PER_SEC));
	else if (p && !p->weight && !p->joining && !p->fresh)
		text_add(t, "the plan gives it no share: the others are done sooner alone");
}

/* Of a server that is up: jobs that train without it, or that it holds up, and why. */
static void bypass_text(struct sched *s, const struct sched_node *n, struct text *t)
{
	if (n->kind != NODE_SERVER || n->state != SN_UP || n->draining)
		return;
	for (uint32_t i = 0; i < s->njobs; i++) {
		struct sched_job *j = s->jobs[i];
		char buf[ERR_TEXT_MAX + 1];
		struct text why;

		if (j->state != SJ_UP || job_one_machine(j))
			continue;
		text_init(&why, buf, sizeof(buf));
		bypass_of(s, j, n, &why);
		if (why.used)
			text_add(t, "%sjob %.64s: %s", t->used ? "; " : "", j->name, buf);
	}
}

static void fill_node(struct sched *s, const struct sched_node *n, struct msg_node_row *row)
{
	char buf[ERR_TEXT_MAX + 1];
	struct text t;

	text_init(&t, buf, sizeof(buf));
	bypass_text(s, n, &t);
	*row = (struct msg_node_row){
		.node = n->number, .kind = n->kind, .name = out_string(s, n->name),
		.machine = out_string(s, n->machine), .addr = node_addr(s, n),
		.state = node_state(s, n), .note = node_note(s, n),
		.adder_bytes_per_s = n->adder_bytes_per_s, .memory_bytes = n->memory_bytes,
		.rails = n->naddrs, .jobs = jobs_of(s, n),
		.heartbeat_age_ms = (uint64_t)((s->now - n->heard) / NS_PER_MS), .last = n->last,
	};
	row->last.note = row->note;
	row->last.cause = "";
	row->pace = slow_percent(s, n);
	row->state_ms = (uint64_t)((s->now - n->since) / NS_PER_MS);
	row->why = out_string(s, n->why);
	row->bypassed = out_string(s, buf);
	for (uint32_t i = 0; i < n->naddrs; i++)
		row->bits_per_s += n->addrs[i].bits_per_s;
}

static void fill_job(struct sched *s, const struct sched_job *j, struct msg_job_row *row)
{
	*row = (struct msg_job_row){
		.job = j->number, .name = out_string(s, j->name),
		.state = job_state_name(j->state), .waiting_for = job_waiting(s, j),
		.world = j->world, .attached = j->nin + (MUTATE(33) ? j->nlost : 0),
		.machines = j->nmachines, .servers = count_servers(j),
		.tensors = j->ntensors, .bytes = j->bytes, .epoch = j->epoch,
		.age_ms = (uint64_t)((s->now - j->since) / NS_PER_MS),
		.round_time_s = j->seconds_per_byte * (double)j->bytes,
		.chunk_bytes = j->chunk_bytes, .seg_bytes = j->seg_bytes,
		.window_bytes = j->window_bytes, .measured_time_s = meter_round(j),
	};
}

static const char *tensor_state(const struct sched_tensor *t)
{
	switch (t->state) {
	case ST_WANTED:
		return "declaring";
	case ST_LOGGED:
		return "reserving";
	case ST_UP:
		return t->nset ? "undeclaring" : "up";
	case ST_DROPPED:
		return "undeclaring";
	case ST_FAILED:
		return "mismatch";
	}
	return "?";
}

static void fill_tensor(struct sched *s, const struct sched_job *j, const struct sched_tensor *t,
			struct msg_tensor_row *row)
{
	char buf[128];
	struct text x;

	text_init(&x, buf, sizeof(buf));
	if (t->set && t->nset)
		text_missing(&x, j, t->set);
	*row = (struct msg_tensor_row){
		.job = j->number, .id = t->id, .name = out_string(s, t->name),
		.state = tensor_state(t), .waiting_for = out_string(s, buf), .dtype = t->dtype,
		.count = t->count, .priority = t->priority,
		.chunks = (uint32_t)div_round_up(tensor_bytes(t), j->chunk_bytes),
	};
}

static bool asked(const struct msg_query *q, const struct sched_job *j)
{
	return !q->job[0] || !strcmp(q->job, j->name);
}

static void report_nodes(struct sched *s, struct msg_report *r, struct room *room)
{
	struct msg_node_row *rows = out_scratch(s, s->nnodes * sizeof(*rows) + 1);

	for (uint32_t i = 0; rows && i < s->nnodes; i++) {
		struct msg_node_row *row = &rows[r->nnodes];

		fill_node(s, s->nodes[i], row);
		if (!fits(room, strlen(row->name) + strlen(row->machine) + 2 * strlen(row->note) +
				ERR_TEXT_MAX))
			break;
		r->nnodes++;
	}
	r->nodes = rows;
}

static void report_refused(struct sched *s, struct msg_report *r, struct room *room)
{
	struct msg_refused_row *rows = out_scratch(s, s->refused.n * sizeof(*rows) + 1);

	for (uint32_t i = 0; rows && i < s->refused.n; i++) {
		const struct refusal *f = &s->refused.row[i];

		if (!fits(room, strlen(f->name) + strlen(f->addr) + strlen(f->why)))
			break;
		rows[r->nrefused++] = (struct msg_refused_row){
			.kind = f->kind, .name = f->name, .addr = f->addr, .code = f->code,
			.why = f->why, .count = f->count,
			.age_ms = (uint64_t)((s->now - f->last) / NS_PER_MS),
		};
	}
	r->refused = rows;
}

static void report_jobs(struct sched *s, const struct msg_query *q, struct msg_report *r,
			struct room *room)
{
	struct msg_job_row *rows = out_scratch(s, s->njobs * sizeof(*rows) + 1);

	for (uint32_t i = 0; rows && i < s->njobs; i++) {
		if (!asked(q, s->jobs[i]) || !fits(room, 2 * NAME_LEN_MAX))
			continue;
		fill_job(s, s->jobs[i], &rows[r->njobs++]);
	}
	r->jobs = rows;
}

static void report_tensors(struct sched *s, const struct msg_query *q, struct msg_report *r,
			   struct room *room)
{
	struct msg_tensor_row *rows;
	uint32_t max = 0;

	for (uint32_t i = 0; i < s->njobs; i++)
		max += asked(q, s->jobs[i]) ? s->jobs[i]->ntensors : 0;
	max = MIN(max, REPORT_BYTES / ROW_BYTES);
	rows = out_scratch(s, max * sizeof(*rows) + 1);
	r->tensors = rows;
	for (uint32_t i = 0; rows && i < s->njobs; i++) {
		if (!asked(q, s->jobs[i]))
			continue;
		list_for_each(&s->jobs[i]->tensors, p) {
			const struct sched_tensor *t = list_entry(p, struct sched_tensor, link);

			if (r->ntensors == max || !fits(room, strlen(t->name)))
				return;
			fill_tensor(s, s->jobs[i], t, &rows[r->ntensors++]);
		}
	}
}

static void report_stuck(struct sched *s, const struct msg_query *q, struct msg_report *r)
{
	for (uint32_t i = 0; i < s->njobs; i++) {
		if (asked(q, s->jobs[i]) && s->jobs[i]->state == SJ_UP)
			stuck_report(s, s->jobs[i], r);
	}
}

static const char *state_word(const struct sched *s)
{
	if (s->save_failed)
		return "cannot save";
	return s->recover_until ? "recovering" : "active";
}

void report_query(struct sched *s, uint32_t conn, const struct msg_query *q)
{
	struct msg *m = out_msg(s, MSG_REPORT);
	struct room room = { .left = REPORT_BYTES };
	uint64_t nomem = s->counters.nomem;

	if (!m) {
		out_send_conn(s, conn, NULL);
		return;
	}
	m->report = (struct msg_report){
		.req = q->req, .epoch = s->last.epoch,
		.uptime_ms = (uint64_t)((s->now - s->started) / NS_PER_MS),
		.state = state_word(s), .version = s->config.version,
	};
	memcpy(m->report.cluster, s->config.cluster, ID_BYTES);
	if (q->what & QUERY_NODES)
		report_nodes(s, &m->report, &room);
	if (q->what & QUERY_NODES)
		report_refused(s, &m->report, &room);
	if (q->what & QUERY_JOBS)
		report_jobs(s, q, &m->report, &room);
	if (q->what & QUERY_TENSORS)
		report_tensors(s, q, &m->report, &room);
	if (q->what & QUERY_STUCK)
		report_stuck(s, q, &m->report);
	/* A row less, or a name, would be wrong: none of it is said. */
	out_send_conn(s, conn, s->counters.nomem == nomem ? m : NULL);
}
