// SPDX-License-Identifier: Apache-2.0
/*
 * tally doctor: is this machine fit to be a node, and what can it do with a peer?
 *
 * Every check is a row: what was looked at, ok, note or bad, what was found and what to
 * change.  Notes are about speed; something bad keeps a daemon from working as it could.
 * Then what hwloc sees of the machine's inside, and the local plan that follows from it.
 * --peer measures the link to a machine on which `tally doctor --listen` runs.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/cmd.h"
#include "cli/gpu_probe.h"
#include "cli/machine.h"
#include "cli/probe.h"
#include "cli/screen.h"
#include "common/base/parse.h"
#include "common/rt/host.h"
#include "common/rt/route.h"
#include "common/rt/topo_probe.h"
#include "common/rt/topo_read.h"

#define SIZE_DEFAULT	(512u << 10)
#define BYTES_DEFAULT	(256u << 20)
#define MEMLOCK_WANTED	(1ull << 30)
#define FILES_WANTED	4096u

static const char usage[] =
"Usage: tally doctor [--rail ADDR[@BITRATE]]... [--probe]\n"
"       tally doctor --topology FILE\n"
"       tally doctor --listen ADDR[:PORT]\n"
"       tally doctor --peer ADDR[:PORT] [--rail ADDR] [--size BYTES] [--bytes BYTES]\n"
"Looks at what a node needs of this machine, shows its GPUs, switches and cards and how\n"
"its GPUs would add up gradients; or measures the link to another machine.\n"
"\n"
"  --rail ADDR       an address of a card that shall be used; repeat it for several, as\n"
"                    the agent's: without, it takes the card that leads to the\n"
"                    scheduler, and doctor all that are fast.\n"
"                    With --peer: the card to go out by\n"
"  --probe           measure host memory and, by libtally-cuda, the links of GPUs for\n"
"                    the plan; takes all CPUs for 0.2 s for each NUMA node, and each\n"
"                    link for as long\n"
"  --topology FILE   not of this machine, but of the one in FILE: hwloc's XML (lstopo\n"
"                    FILE.xml), or lines as the picture of a machine has them\n"
"  --listen ADDR     be the other end for --peer, until interrupted (port 7479; with\n"
"                    port 0 any); says where it listens\n"
"  --once            with --listen: for one peer only\n"
"  --peer ADDR       latency and bandwidth to a machine that listens: by RDMA where\n"
"                    both have a card for it, else by TCP, as agents and servers do\n"
"  --size BYTES      of one payload (512K; at most 4M)\n"
"  --bytes BYTES     to move each way (256M)\n"
"  --wide            the table of links in full, wider than the terminal, too\n"
"  --help            this text\n"
"\n"
"Exit status: 0 nothing is bad, 1 something is, or the peer cannot be measured.\n"
"\n"
"Example:\n"
"  tally doctor --rail 10.0.0.1 --rail 10.1.0.1\n"
"  lstopo node7.xml; tally doctor --topology node7.xml\n";

struct doctor_opts {
	const char *rail[RAILS_MAX], *listen, *peer, *topology;
	uint32_t nrails;
	uint64_t size, bytes;
	bool once, probe, wide, sized;	/* sized: by --size or --bytes */
};

/* ---- checks ---- */

enum verdict { OK, NOTE, BAD };

static bool row(enum verdict v, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Prints it; true when it is bad. */
static bool row(enum verdict v, const char *what, const char *fmt, ...)
{
	static const char *const words[] = { "ok", "note", "BAD" };
	va_list ap;

	printf("%-5s %-14s ", words[v], what);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	return v == BAD;
}

static bool check_devices(void)
{
	uint32_t n = xport_rdma_devices();

	if (n)
		return row(OK, "rdma", "%u device%s", n, n == 1 ? "" : "s");
	return row(NOTE, "rdma", "no device that can be opened: everything goes over TCP");
}

/* ADDR[@BITRATE], as the agent's; *bits_per_s is 0 where none is said. */
static int rail_address(const char *spec, char addr[ADDR_LEN_MAX + 1], uint64_t *bits_per_s,
			struct err *e)
{
	char host[ADDR_LEN_MAX + 1];
	int rc = parse_rail(spec, host, bits_per_s, e);

	return rc ? rc : route_numeric(host, addr, e);
}

static bool check_rail(const char *spec)
{
	char addr[ADDR_LEN_MAX + 1], text[ERR_TEXT_MAX], rate[32] = "unknown";
	uint64_t bits;
	struct err e;

	if (rail_address(spec, addr, &bits, &e))
		return row(BAD, "rail", "%s", e.text);
	if (!host_has_address(addr))
		return row(BAD, "rail", "%s is not an address of this machine", addr);
	bits = bits ? bits : host_card_bits_per_s(addr);
	if (bits)
		snprintf(rate, sizeof(rate), "%.1f Gbit/s", (double)bits / 1e9);
	row(bits ? OK : NOTE, "rail", "%s, card's speed %s%s", addr, rate,
	    bits ? "" : ": name it with --rail ADDR@RATE");
	if (!xport_rdma_devices())
		return false;
	xport_rdma_say(addr, text, sizeof(text));
	return row(xport_rdma_serves(addr, text, sizeof(text)) ? OK : NOTE, "rail rdma", "%s: %s",
		   addr, text);
}

static bool check_limits(void)
{
	struct rlimit lock = { 0, 0 }, files = { 0, 0 };
	bool bad = false;

	getrlimit(RLIMIT_MEMLOCK, &lock);
	getrlimit(RLIMIT_NOFILE, &files);
	if (lock.rlim_cur == RLIM_INFINITY)
		row(OK, "memlock", "unlimited");
	else
		bad |= row(xport_rdma_devices() && lock.rlim_cur < MEMLOCK_WANTED ? BAD : NOTE,
			   "memlock", "%" PRIu64 " MiB may be locked here: RDMA locks arenas, "
			   "results and windows; LimitMEMLOCK=infinity, ulimit -l unlimited",
			   (uint64_t)lock.rlim_cur >> 20);
	/* daemons raise the soft limit by themselves */
	bad |= row(files.rlim_max < FILES_WANTED ? NOTE : OK, "open files", "%" PRIu64 "%s",
		   (uint64_t)files.rlim_max, files.rlim_max < FILES_WANTED ?
		   ": a large job needs more; LimitNOFILE=65536, ulimit -Hn 65536" : "");
	return bad;
}

/* The first number of a file; 0: none. */
static uint64_t number_in(const char *path)
{
	FILE *f = fopen(path, "r");
	uint64_t v = 0;

	if (f && fscanf(f, "%" SCNu64, &v) != 1)
		v = 0;
	if (f)
		fclose(f);
	return v;
}

static bool word_in(const char *path, const char *word)
{
	FILE *f = fopen(path, "r");
	char line[4096] = "";
	bool found = f && fgets(line, sizeof(line), f) && strstr(line, word);

	if (f)
		fclose(f);
	return found;
}

static bool check_memory(void)
{
	uint64_t huge = number_in("/proc/sys/vm/nr_hugepages");
	char total[32];

	row(OK, "memory", "%s", fmt_bytes(total, sizeof(total), host_memory_bytes()));
	return row(huge ? OK : NOTE, "huge pages", "%" PRIu64 "%s", huge, huge ? "" :
		   ": arenas take them where there are some (vm.nr_hugepages)");
}

static bool check_iommu(void)
{
	bool on = word_in("/proc/cmdline", "iommu=on") || word_in("/proc/cmdline", "iommu=force");

	if (!xport_rdma_devices())
		return false;
	return row(on && !word_in("/proc/cmdline", "iommu=pt") ? NOTE : OK, "iommu", "%s",
		   !on ? "not asked for on the kernel's command line" :
		   "translates for the cards, which costs speed: iommu=pt");
}

/* ---- the machine's inside ---- */

/* The machine as an agent with these rails takes it. */
static int read_inside(const struct doctor_opts *o, struct topo *t, uint32_t *left_out,
		       struct err *e)
{
	char addr[RAILS_MAX][ADDR_LEN_MAX + 1];
	const char *rail[RAILS_MAX];
	uint32_t n = 0;
	uint64_t bits;
	struct err none;

	for (uint32_t i = 0; i < o->nrails; i++)
		if (!rail_address(o->rail[i], addr[n], &bits, &none)) {
			rail[n] = addr[n];
			n++;
		}
	return topo_read_used(o->topology, rail, n, t, left_out, e);
}

static void probe_memory(struct topo *t)
{
	(void)topo_probe_memory(t);
	for (uint32_t i = 0; i < t->nodes; i++)
		if (t->node[i].memory.bits_per_s)
			printf("# measured: memory of %s %.3f GB/s, read and written together\n",
			       t->node[i].name, (double)t->node[i].memory.bits_per_s / 8e9);
		else
			printf("# not measured: memory of %s\n", t->node[i].name);
}

static int show_plan(const struct doctor_opts *o, struct topo *t, struct local_plan *p)
{
	uint32_t left_out;
	struct err e;

	if (read_inside(o, t, &left_out, &e)) {
		fprintf(stderr, "tally doctor: %s\n", e.text);
		return CMD_FAILED;
	}
	if (o->probe) {
		probe_memory(t);
		gpu_probe(t, stdout);
	}
	topo_guess(t);
	if (local_plan_make(t, false, p, &e)) {
		fprintf(stderr, "tally doctor: %s\n", e.text);
		return CMD_FAILED;
	}
	machine_print(t, stdout);
	if (left_out)
		printf("# %u network card%s left out: no rail, or below half of the fastest\n",
		       left_out, left_out == 1 ? "" : "s");
	putchar('\n');
	return machine_print_plan(t, p, stdout, screen_columns(o->wide)) ? CMD_OK : CMD_FAILED;
}

static int check_inside(const struct doctor_opts *o)
{
	struct topo *t = malloc(sizeof(*t));
	struct local_plan *p = malloc(sizeof(*p));
	int rc = CMD_FAILED;

	if (t && p)
		rc = show_plan(o, t, p);
	else
		fputs("tally doctor: out of memory\n", stderr);
	free(p);
	free(t);
	return rc;
}

static int check_machine(const struct doctor_opts *o)
{
	bool bad = check_devices();

	for (uint32_t i = 0; i < o->nrails; i++)
		bad |= check_rail(o->rail[i]);
	bad |= check_limits();
	bad |= check_memory();
	bad |= check_iommu();
	putchar('\n');
	bad |= check_inside(o) != CMD_OK;
	return bad ? CMD_FAILED : CMD_OK;
}

/* ---- peers ---- */

static int measure(const struct doctor_opts *o)
{
	struct xport_addr to = { .kind = xport_rdma_devices() ? XPORT_RDMA : XPORT_TCP };
	struct probe_result r = { .detours = 0 };
	uint64_t none;
	struct err e;
	char host[ADDR_LEN_MAX + 1];
	int rc = parse_peer(o->peer, PROBE_PORT, host, &to.port, &e);

	if (rc)
		return cmd_usage_error("doctor", "--peer: %s", e.text);
	rc = route_numeric(host, to.remote, &e);
	if (!rc && o->nrails)
		rc = rail_address(o->rail[0], to.local, &none, &e);
	if (!rc && o->nrails && !host_has_address(to.local))
		rc = err_set(&e, TALLY_EINVAL, "--rail %s is not an address of this machine",
			     to.local);
	rc = rc ? rc : probe_run(&to, (uint32_t)o->size, o->bytes, &r, &e);
	if (rc) {
		fprintf(stderr, "tally doctor: %s: %s\n", o->peer, e.text);
		if (rc != TALLY_EINVAL && !r.kind[0])
			fprintf(stderr, "Run 'tally doctor --listen %s' there, and see that "
				"nothing on the way keeps it off.\n", o->peer);
		return CMD_FAILED;
	}
	printf("link       %s%s%s\n", r.kind, r.path[0] ? ", " : "", r.path);
	printf("latency    %.1f us one way, a frame of %u bytes, median of %u\n", r.latency_us,
	       FRAME_BYTES, PROBE_PINGS);
	printf("there      %.3f MB/s, payloads of %" PRIu64 " bytes\n", r.out / 1e6, o->size);
	printf("back       %.3f MB/s\n", r.in / 1e6);
	printf("both       %.3f MB/s each way at once\n", r.both_out / 1e6);
	if (!strcmp(r.kind, "rdma"))
		printf("detours    %" PRIu64 " payloads did not go by the card\n", r.detours);
	return CMD_OK;
}

static int serve(const struct doctor_opts *o)
{
	char host[ADDR_LEN_MAX + 1];
	uint16_t port;
	struct err e;

	if (parse_listen(o->listen, PROBE_PORT, host, &port, &e))
		return cmd_usage_error("doctor", "--listen: %s", e.text);
	if (probe_serve(host, port, o->once, &e)) {
		fprintf(stderr, "tally doctor: %s\n", e.text);
		return CMD_FAILED;
	}
	return CMD_OK;
}

/* ---- the command line ---- */

static const struct option long_options[] = {
	{ "rail", required_argument, NULL, 'r' },
	{ "topology", required_argument, NULL, 't' },
	{ "probe", no_argument, NULL, 'P' },
	{ "listen", required_argument, NULL, 'l' },
	{ "once", no_argument, NULL, 'o' },
	{ "peer", required_argument, NULL, 'p' },
	{ "size", required_argument, NULL, 's' },
	{ "bytes", required_argument, NULL, 'b' },
	{ "wide", no_argument, NULL, 'w' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static int take_bytes(const char *name, const char *text, uint64_t max, uint64_t *out)
{
	struct err e;

	return parse_bytes(text, 1, max, out, &e)
		? cmd_usage_error("doctor", "--%s: %s", name, e.text) : 0;
}

static int take_option(struct doctor_opts *o, int c)
{
	switch (c) {
	case 'r':
		if (o->nrails == RAILS_MAX)
			return cmd_usage_error("doctor", "more than %u --rail", RAILS_MAX);
		o->rail[o->nrails++] = optarg;
		return 0;
	case 'P':
		o->probe = true;
		return 0;
	case 'w':
		o->wide = true;
		return 0;
	case 't':
		o->topology = optarg;
		return 0;
	case 'l':
		o->listen = optarg;
		return 0;
	case 'o':
		o->once = true;
		return 0;
	case 'p':
		o->peer = optarg;
		return 0;
	case 's':
		o->sized = true;
		return take_bytes("size", optarg, SEG_BYTES_MAX, &o->size);
	case 'b':
		o->sized = true;
		return take_bytes("bytes", optarg, UINT64_C(1) << 50, &o->bytes);
	default:
		fputs("Try: tally help doctor\n", stderr);
		return CMD_USAGE;
	}
}

/*
 * Refuses options of which one would be ignored beside another; CMD_USAGE, with the reason told.
 */
static int check_together(const struct doctor_opts *o)
{
	if (o->listen && o->peer)
		return cmd_usage_error("doctor", "--listen and --peer are two machines'");
	if (o->topology && (o->listen || o->peer || o->nrails || o->probe))
		return cmd_usage_error("doctor", "--topology goes alone: it is not of this "
				       "machine, and names its own cards");
	if (o->sized && !o->peer)
		return cmd_usage_error("doctor", "--size and --bytes are of what goes to a peer: "
				       "say --peer ADDR, too");
	if (o->once && !o->listen)
		return cmd_usage_error("doctor", "--once is for one that listens: say --listen "
				       "ADDR, too");
	if (o->probe && (o->listen || o->peer))
		return cmd_usage_error("doctor", "--probe measures this machine: leave out %s",
				       o->listen ? "--listen" : "--peer");
	if (o->nrails && o->listen)
		return cmd_usage_error("doctor", "--listen says by its address which card to use: "
				       "leave out --rail");
	if (o->nrails > 1 && o->peer)
		return cmd_usage_error("doctor", "--peer goes out by one card: say one --rail");
	if (o->bytes / o->size > UINT32_MAX)
		return cmd_usage_error("doctor", "--bytes are more than 2^32 - 1 payloads of "
				       "--size: say fewer or larger ones");
	return 0;
}

int cmd_doctor(int argc, char **argv)
{
	struct doctor_opts o = { .size = SIZE_DEFAULT, .bytes = BYTES_DEFAULT };
	int c, rc = 0;

	optind = 0;
	while (!rc && (c = getopt_long(argc, argv, "h", long_options, NULL)) >= 0) {
		if (c == 'h') {
			fputs(usage, stdout);
			return CMD_OK;
		}
		rc = take_option(&o, c);
	}
	if (rc)
		return rc;
	if (optind < argc)
		return cmd_usage_error("doctor", "unexpected '%s'", argv[optind]);
	if (check_together(&o))
		return CMD_USAGE;
	if (o.listen)
		return serve(&o);
	if (o.topology)
		return check_inside(&o);
	return o.peer ? measure(&o) : check_machine(&o);
}
