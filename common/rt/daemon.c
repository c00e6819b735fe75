// SPDX-License-Identifier: Apache-2.0
#include "common/rt/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/utf8.h"
#include "common/rt/fdguard.h"
#include "common/rt/host.h"
#include "common/rt/log.h"
#include "common/rt/notify.h"
#include "common/rt/secret.h"
#include "common/shm/limit.h"

#define ENGINES_DEFAULT_MAX 4u
#define FILES_FEW	1024u

static int read_log_level(const char *program, const char *level, struct err *e)
{
	int l = log_level_from_name(level);

	if (l < 0)
		return err_set(e, TALLY_EINVAL,
			       "--log-level %s: must be error, warn, info or debug", level);
	log_init(program, (enum log_level)l);
	return 0;
}

static int take_name(const char *option, const char *typed, char name[NAME_LEN_MAX + 1],
		     struct err *e)
{
	if (!typed[0] || strlen(typed) > NAME_LEN_MAX || !utf8_is_text(typed))
		return err_set(e, TALLY_EINVAL, "%s '%.200s': 1 to %u bytes of UTF-8 without "
			       "control characters", option, typed, NAME_LEN_MAX);
	snprintf(name, NAME_LEN_MAX + 1, "%s", typed);
	return 0;
}

static int find_name(struct daemon *d, struct err *e)
{
	int rc = 0;

	if (d->opt->name)
		rc = take_name("--name", d->opt->name, d->name, e);
	else
		host_name(d->name, sizeof(d->name));
	if (!rc && d->opt->machine)
		rc = take_name("--machine-id", d->opt->machine, d->machine, e);
	else
		host_machine_id(d->machine);
	return rc;
}

/* Number of CPUs that this process may run on. */
static uint32_t count_cpus(void)
{
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set))
		return (uint32_t)CPU_COUNT(&set);
	return (uint32_t)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

uint32_t daemon_engines(const struct daemon *d, uint32_t least)
{
	uint32_t cpus = count_cpus();

	if (d->opt->engines)
		return (uint32_t)d->opt->engines;
	return MIN(MAX(cpus / 2, MIN(cpus, least)), ENGINES_DEFAULT_MAX);
}

static int set_up(struct daemon *d, struct err *e)
{
	int rc = read_log_level(d->program->name, d->opt->log_level, e);

	rc = rc ? rc : secret_read(d->opt->secret_file, d->secret, sizeof(d->secret), e);
	rc = rc ? rc : find_name(d, e);
	if (rc)
		return rc;
	d->nengines = daemon_engines(d, 1);
	return d->ops->set_up(d, e);
}

void daemon_cpus(const char *const *addr, uint32_t n, uint32_t engines, bool from_last,
		 struct near *m, int cpus[ENGINES_MAX])
{
	char text[RAILS_MAX][HOST_BUS_ID_LEN], where[ERR_TEXT_MAX];
	const char *bus_id[RAILS_MAX];

	n = MIN(n, RAILS_MAX);
	for (uint32_t i = 0; i < n; i++) {
		host_bus_id(addr[i], text[i]);
		bus_id[i] = text[i];
	}
	near_read(m, NULL, bus_id, n);
	near_pin(m, engines, from_last, cpus);
	if (cpus[0] < 0)
		return;
	near_text(m, addr, cpus, engines, where, sizeof(where));
	log_info("engines on cpus %s", where);
}

static int failed(const struct daemon *d, const struct err *e)
{
	fprintf(stderr, "%s: %s\n", d->program->name, e->text);
	return e->code == TALLY_EINVAL ? 2 : 1;
}

/* ---- the loop ---- */

static void on_bell(void *ctx)
{
	struct daemon *d = ctx;
	struct mail m;

	while (mailbox_take(d->mail, &m))
		d->ops->mail(d->owner, &m);
}

static void ring(void *ctx)
{
	const struct daemon *d = ctx;

	loop_bell_ring(d->bell);
}

static void on_signal(void *ctx, int signum)
{
	struct daemon *d = ctx;

	log_info("%s stops, signal %d", d->program->name, signum);
	notify("STOPPING=1");
	if (!d->leaving && d->ops->leave && d->ops->leave(d->owner))
		d->leaving = true;
	else
		loop_stop(d->loop);
}

static void on_watchdog(void *ctx)
{
	(void)ctx;
	notify("WATCHDOG=1");
}

void daemon_std_descriptors(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

/*
 * Whether standard output is a pipe that nobody reads any more, as behind `head`: no trouble of
 * ours.
 */
static bool is_broken_pipe(void)
{
	struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };

	return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

int daemon_printed(const char *program, int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	if (is_broken_pipe())
		return status;
	fprintf(stderr, "%s: cannot write the output: %s\n", program, strerror(errno));
	return status ? status : 1;
}

/* Each of them comes with an error of a call, which says the same. */
void daemon_ignore_signals(void)
{
	static const int limits[] = { SIGPIPE, SIGXFSZ, SIGXCPU };

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		signal(limits[i], SIG_IGN);
}

void daemon_say_limits(const char *program)
{
	static const struct {
		int what;
		const char *name, *means;
	} rows[] = {
		{ RLIMIT_FSIZE, "RLIMIT_FSIZE", "no file and no piece of shared memory is larger; "
		  "raise it by ulimit -f, or LimitFSIZE= of the unit" },
		{ RLIMIT_AS, "RLIMIT_AS", "so much address space for all jobs together; raise it "
		  "by ulimit -v, or LimitAS= of the unit" },
		{ RLIMIT_CPU, "RLIMIT_CPU", "the kernel kills it after so many s of CPU time; "
		  "raise it by ulimit -t, or LimitCPU= of the unit" },
	};
	struct rlimit l;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!getrlimit((__rlimit_resource_t)rows[i].what, &l) &&
		    l.rlim_cur != RLIM_INFINITY)
			log_warn("%s runs with %s %llu: %s", program, rows[i].name,
				 (unsigned long long)l.rlim_cur, rows[i].means);
	if (!getrlimit(RLIMIT_NOFILE, &l) && l.rlim_cur < FILES_FEW)
		log_warn("%s runs with RLIMIT_NOFILE %llu, which is few: each process and each "
			 "server takes some; raise it by ulimit -n, or LimitNOFILE= of the unit",
			 program, (unsigned long long)l.rlim_cur);
}

void daemon_raise_descriptors(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = MAX(l.rlim_cur, MIN(l.rlim_max, LOOP_FDS));
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

/* Only who may end this daemon can have ended it. */
static void on_fdguard_end(void *ctx, int events)
{
	struct daemon *d = ctx;

	(void)events;
	log_error("the process that guards descriptors has ended, and so does %s",
		  d->program->name);
	loop_watch_stop(d->fdguard_watch);
	d->fdguard_watch = NULL;
	daemon_give_up(d);
}

static int open_loop(struct daemon *d, struct err *e)
{
	int rc = loop_new(&d->loop, e);

	if (rc)
		return rc;
	rc = loop_reserve(d->loop, true);
	if (rc == TALLY_EAGAIN)
		return limit_err(e, EAGAIN, "%s cannot start threads", d->program->name);
	rc = rc ? rc : loop_bell_start(d->loop, &d->bell, on_bell, d);
	rc = rc ? rc : loop_on_signals(d->loop, on_signal, d);
	if (!rc && notify_watchdog_ms())
		rc = loop_timer_start(d->loop, &d->watchdog, 0, notify_watchdog_ms() / 2,
				      on_watchdog, d);
	if (rc)
		return err_set(e, rc, "out of memory");
	if (d->fdguard) {
		loop_set_fdguard(d->loop, d->fdguard);
		rc = loop_watch_start(d->loop, &d->fdguard_watch, fdguard_fd(d->fdguard),
				      LOOP_READ, on_fdguard_end, d);
		if (rc)
			return err_set(e, rc, "out of memory");
	}
	return mailbox_new(&d->mail, ring, d, e);
}

/* ---- life ---- */

int daemon_main(struct daemon *d, const struct opt_program *program, const struct daemon_ops *ops,
		void *owner, struct daemon_options *opt, int argc, char **argv)
{
	enum opt_outcome todo;
	struct err e;

	*d = (struct daemon){ .program = program, .ops = ops, .owner = owner, .opt = opt };
	daemon_std_descriptors();
	daemon_ignore_signals();
	todo = opt_parse(program, argc, argv, opt, stdout, stderr);
	if (todo == OPT_EXIT_OK)
		return daemon_printed(program->name, 0);
	if (todo == OPT_EXIT_USAGE)
		return 2;
	daemon_raise_descriptors();
	if (set_up(d, &e))
		return failed(d, &e);
	if (todo == OPT_CHECK) {
		printf("%s: the options are right\n", program->name);
		return daemon_printed(program->name, 0);
	}
	if (ops->strangers && fdguard_start(&d->fdguard, ops->take_devices &&
					    ops->take_devices(owner), &e))
		return failed(d, &e);
	daemon_say_limits(program->name);
	if (open_loop(d, &e))
		return failed(d, &e);
	if (ops->start(d, &e)) {
		d->exit_code = failed(d, &e);
	} else {
		/* Whoever waits for this one's start shall not wait for the scheduler's, too. */
		notify("READY=1\nSTATUS=looking for the scheduler");
		loop_run(d->loop);
	}
	ops->stop(owner);
	mailbox_free(d->mail);
	loop_timer_stop(d->watchdog);
	loop_bell_stop(d->bell);
	loop_watch_stop(d->fdguard_watch);
	loop_free(d->loop);
	fdguard_stop(d->fdguard);
	if (ops->clear)
		ops->clear(owner);
	return d->exit_code;
}

/* Aside and renamed: whoever sees the file sees all of it.  A device would be gone by that. */
int daemon_write_port(const char *path, uint16_t port, struct err *e)
{
	char tmp[4096];
	struct stat st;
	FILE *f;
	bool ok;

	if (!path || !path[0])
		return 0;
	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= sizeof(tmp))
		return err_set(e, TALLY_EINVAL, "the path of --port-file is too long");
	if (!stat(path, &st) && !S_ISREG(st.st_mode))
		return err_set(e, TALLY_EINVAL, "--port-file %s: not a regular file", path);
	f = fopen(tmp, "we");
	ok = f && fprintf(f, "%u\n", port) > 0;
	if (f)
		ok = !fclose(f) && ok;
	if (!ok || rename(tmp, path))
		return err_set(e, err_from_errno(errno), "cannot write %s: %s", path,
			       strerror(errno));
	return 0;
}

void daemon_end(struct daemon *d)
{
	loop_stop(d->loop);
}

void daemon_give_up(struct daemon *d)
{
	d->exit_code = 1;
	loop_stop(d->loop);
}
