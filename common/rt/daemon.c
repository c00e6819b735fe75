// SPDX-License-Identifier: Apache-2.0
#include "common/rt/daemon.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/rt/host.h"
#include "common/rt/log.h"
#include "common/rt/notify.h"

int daemon_log_init(const char *program, const char *level, struct err *e)
{
	int l = log_level_from_name(level);

	if (l < 0)
		return err_set(e, TALLY_EINVAL,
			       "--log-level %s: must be error, warn, info or debug", level);
	log_init(program, (enum log_level)l);
	return 0;
}

void daemon_name(const char *option, char name[NAME_LEN_MAX + 1])
{
	if (option)
		snprintf(name, NAME_LEN_MAX + 1, "%s", option);
	else
		host_name(name, NAME_LEN_MAX + 1);
}

void daemon_machine(const char *option, char machine[NAME_LEN_MAX + 1])
{
	if (option)
		snprintf(machine, NAME_LEN_MAX + 1, "%s", option);
	else
		host_machine_id(machine);
}

uint32_t daemon_engines(uint64_t asked)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (asked)
		return (uint32_t)asked;
	return cpus < 4 ? 1 : (uint32_t)MIN(cpus / 2, 4);
}

int daemon_failed(const char *program, const struct err *e)
{
	fprintf(stderr, "%s: %s\n", program, e->text);
	return e->code == TALLY_EINVAL ? 2 : 1;
}

static void on_bell(void *ctx)
{
	daemon_drain(ctx);
}

static void ring(void *ctx)
{
	const struct daemon *d = ctx;

	loop_bell_ring(d->bell);
}

static void on_signal(void *ctx, int signum)
{
	struct daemon *d = ctx;

	log_info("%s stops, signal %d", d->program, signum);
	notify("STOPPING=1");
	loop_stop(d->loop);
}

static void on_watchdog(void *ctx)
{
	(void)ctx;
	notify("WATCHDOG=1");
}

/* As many descriptors as the system allows: connections, and memory of processes. */
static void raise_descriptors(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = l.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

int daemon_init(struct daemon *d, const char *program,
		void (*on_mail)(void *ctx, const struct mail *m), void *ctx, struct err *e)
{
	int rc;

	raise_descriptors();
	*d = (struct daemon){ .program = program, .on_mail = on_mail, .ctx = ctx };
	rc = loop_new(&d->loop, e);
	if (rc)
		return rc;
	rc = loop_bell_start(d->loop, &d->bell, on_bell, d);
	rc = rc ? rc : loop_on_signals(d->loop, on_signal, d);
	if (!rc && notify_watchdog_ms())
		rc = loop_timer_start(d->loop, &d->watchdog, 0, notify_watchdog_ms() / 2,
				      on_watchdog, d);
	if (rc)
		return err_set(e, rc, "out of memory");
	return mailbox_new(&d->mail, ring, d, e);
}

void daemon_run(struct daemon *d)
{
	loop_run(d->loop);
}

void daemon_drain(struct daemon *d)
{
	struct mail m;

	while (mailbox_take(d->mail, &m))
		d->on_mail(d->ctx, &m);
}

void daemon_fini(struct daemon *d)
{
	if (d->mail)
		mailbox_free(d->mail);
	loop_timer_stop(d->watchdog);
	if (d->bell)
		loop_bell_stop(d->bell);
	if (d->loop)
		loop_free(d->loop);
}
