// SPDX-License-Identifier: Apache-2.0
/* A daemon as a node of the cluster: what agent and server tell the scheduler alike. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/bytes.h"
#include "common/base/parse.h"
#include "common/ctl/ctl.h"
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "common/rt/secret.h"

#define DOWN_LOG_MS	60000u

int ctl_daemon_start(struct daemon *d, struct ctl_node **n, struct msg_hello *hello,
		     const struct ctl_node_cb *cb, struct err *e)
{
	char host[ADDR_LEN_MAX + 1];
	uint16_t port;
	int rc = parse_peer(d->opt->scheduler, SCHEDULER_PORT, host, &port, e);

	if (rc)
		return err_wrap(e, "--scheduler %s", d->opt->scheduler);
	hello->version_min = hello->version_max = MSG_VERSION;
	hello->name = d->name;
	hello->machine = d->machine;
	hello->secret = d->secret;
	hello->engines = d->nengines;
	if (host_random(hello->instance, sizeof(hello->instance)))
		return err_set(e, TALLY_EIO, "no random numbers from the kernel");
	return ctl_node_start(d->loop, n, host, port, hello, cb, d, e);
}

void *ctl_daemon_owner(void *ctx)
{
	return ((struct daemon *)ctx)->owner;
}

/* Whether the path is a file that may change; a pipe, say, has been read once and for all. */
static bool can_change(const char *path)
{
	struct stat st;

	return path && (stat(path, &st) || S_ISREG(st.st_mode));
}

/* While it cannot be read the one before goes on: it may be about to be replaced. */
const char *ctl_daemon_secret(void *ctx)
{
	struct daemon *d = ctx;
	char now[sizeof(d->secret)];
	bool said = d->secret_lost;
	struct err e;

	if (!can_change(d->opt->secret_file))
		return d->secret;
	d->secret_lost = secret_read(d->opt->secret_file, now, sizeof(now), &e) != 0;
	if (d->secret_lost && !said)
		log_warn("the secret of before is used, reason %s", e.text);
	if (d->secret_lost || !strcmp(now, d->secret))
		return d->secret;
	memcpy(d->secret, now, sizeof(now));
	log_info("the secret in %s is another one now", d->opt->secret_file);
	return d->secret;
}

/* A connection that comes and goes is in the log once a minute, for each reason. */
void ctl_daemon_down(void *ctx, const struct err *why)
{
	uint32_t hash = crc32c(why->text, strlen(why->text));
	struct daemon *d = ctx;
	mono_t now = loop_now();

	if (d->down_told && d->down_hash == hash && now - d->down_told < mono_ms(DOWN_LOG_MS))
		return;
	d->down_told = now;
	d->down_hash = hash;
	log_warn("no connection to scheduler %s, reason %s; trying again", d->opt->scheduler,
		 why->text);
}

void ctl_daemon_refused(void *ctx, const struct err *why)
{
	struct daemon *d = ctx;

	log_error("scheduler %s refuses %s: %s", d->opt->scheduler, d->program->name, why->text);
	daemon_give_up(d);
}

void ctl_daemon_registered(void *ctx, const struct ctl_node *n, const struct msg_welcome *w)
{
	const struct daemon *d = ctx;
	char cluster[9];

	for (uint32_t i = 0; i < 4; i++)
		snprintf(cluster + 2 * i, 3, "%02x", w->cluster[i]);
	log_info("%s %s registered, node %u, epoch %llu, scheduler %s, cluster %s",
		 !strcmp(d->program->name, "tally-agent") ? "agent" : "server", d->name, w->node,
		 (unsigned long long)w->epoch, ctl_node_peer(n), cluster);
}

void ctl_stats_add(struct msg_heartbeat *hb, const struct ctl_stats *st)
{
	hb->bytes_sent += st->bytes_sent;
	hb->bytes_received += st->bytes_received;
	hb->bytes_summed += st->bytes_summed;
	hb->rounds += st->rounds;
	hb->drops += st->drops;
	hb->busy_us += st->busy_us;
	hb->frames += st->frames;
	hb->writes += st->writes;
	hb->links += st->links;
	hb->links_per_peer = MAX(hb->links_per_peer, st->links_per_peer);
}
