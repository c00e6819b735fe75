// SPDX-License-Identifier: Apache-2.0
/* Machines from hwloc's XML, from files of lines, from this machine; NVLinks by NVML. */
#include <unistd.h>

#include "common/rt/topo_probe.h"
#include "common/rt/topo_read.h"
#include "common/topo/local.h"
#include "tests/unit/topo_make.h"

static struct topo t;
static struct local_plan p;
static enum topo_source source;

static void read_xml(const char *name)
{
	struct err e;
	char path[128];

	snprintf(path, sizeof(path), "tests/data/topo/%s.xml", name);
	ck_assert_msg(topo_read(path, &t, &source, &e) == 0, "%s", e.text);
	topo_drop_slow_cards(&t);
	topo_guess(&t);
	ck_assert_msg(local_plan_make(&t, false, &p, &e) == 0, "%s: %s", name, e.text);
}

START_TEST(every_machine_is_read_and_planned)
{
	static const struct {
		const char *name;
		uint32_t nodes, switches, gpus, cards, groups;
		enum local_strategy strategy;
	} machines[] = {
		{ "pcie-2x4-card-apart", 2, 2, 8, 1, 2, LOCAL_CPU_ASSISTED },
		{ "pcie-4x2", 2, 4, 8, 1, 4, LOCAL_CPU_ASSISTED },
		{ "dgx1-one-card", 2, 4, 8, 1, 1, LOCAL_ROOTS },
		{ "a100-card-per-switch", 2, 4, 8, 8, 1, LOCAL_SCATTER },
		{ "single-switch", 1, 1, 4, 1, 1, LOCAL_SCATTER },
		{ "one-gpu", 1, 0, 1, 1, 1, LOCAL_COPY },
		{ "one-of-two-sockets", 2, 1, 4, 1, 1, LOCAL_SCATTER },
		{ "two-cards-one-switch", 2, 4, 8, 2, 1, LOCAL_ROOTS },
		{ "consumer-board", 1, 0, 2, 1, 2, LOCAL_CPU_ASSISTED },
		{ "no-gpu", 2, 0, 0, 1, 0, LOCAL_NO_GPU },
	};

	for (size_t i = 0; i < ARRAY_SIZE(machines); i++) {
		read_xml(machines[i].name);
		ck_assert_msg(t.nodes == machines[i].nodes && t.switches == machines[i].switches &&
			      t.gpus == machines[i].gpus && t.cards == machines[i].cards &&
			      p.groups == machines[i].groups &&
			      p.strategy == machines[i].strategy,
			      "%s: %u nodes, %u switches, %u GPUs, %u cards, %u groups, %s",
			      machines[i].name, t.nodes, t.switches, t.gpus, t.cards, p.groups,
			      local_strategy_text(p.strategy));
	}
}
END_TEST

START_TEST(places_names_and_rates_are_the_machines)
{
	read_xml("dgx1-one-card");
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(t.gpu[i].at.sw, i / 2);
		ck_assert_uint_eq(t.gpu[i].at.node, i / 4);
		ck_assert_uint_eq(t.node[t.gpu[i].at.node].socket, i / 4);
		ck_assert_uint_eq(t.gpu[i].pcie.bits_per_s / 1000000, 126030);
		ck_assert(!t.gpu[i].pcie.guessed);
	}
	ck_assert_str_eq(t.gpu[0].name, "0000:03:00.0");
	ck_assert_str_eq(t.card[0].name, "mlx5_0");
	ck_assert_uint_eq(t.card[0].at.sw, 0);
	ck_assert(t.card[0].net.guessed);
	ck_assert_uint_eq(t.nvlink[0][3], 400000000000);
	ck_assert_uint_eq(t.nvlink[0][5], 0);
	ck_assert_uint_eq(t.nvlink[0][0], 0);
}
END_TEST

/* On which hwloc 2.8 crashes. */
#define NO_COMPLETE_CPUSET \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" \
	"<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n" \
	"<object type=\"Machine\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" " \
	"allowed_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" " \
	"allowed_nodeset=\"0x1\" gp_index=\"1\">\n" \
	"<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" " \
	"nodeset=\"0x1\" gp_index=\"3\" local_memory=\"1024\"/>\n" \
	"<object type=\"Core\" os_index=\"0\" cpuset=\"0x1\" nodeset=\"0x1\" " \
	"gp_index=\"4\">\n<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" " \
	"nodeset=\"0x1\" gp_index=\"5\"/>\n</object>\n</object>\n</topology>\n"

START_TEST(files_that_cannot_be_used_say_why)
{
	static const struct { const char *text, *says; } wrong[] = {
		{ "", "no NUMA node" },
		{ "<topology>", "hwloc" },
		{ NO_COMPLETE_CPUSET, "hwloc" },
		{ "node = n\ngpu = g under=m\n", ":2: g: under=m" },
		{ "node\n", ":1: 'node' is not of the form" },
	};
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char path[] = "/tmp/test_topo.XXXXXX";
		int fd = mkstemp(path);
		size_t len = strlen(wrong[i].text);

		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(write(fd, wrong[i].text, len), len);
		close(fd);
		ck_assert_int_lt(topo_read(path, &t, &source, &e), 0);
		ck_assert_msg(strstr(e.text, wrong[i].says) && strstr(e.text, path), "%s", e.text);
		unlink(path);
	}
	ck_assert_int_eq(topo_read("/nonexistent/x", &t, &source, &e), TALLY_ENOENT);
	ck_assert_ptr_nonnull(strstr(e.text, "/nonexistent/x"));
}
END_TEST

START_TEST(this_machine_can_be_read)
{
	struct err e;

	ck_assert_msg(topo_read(NULL, &t, &source, &e) == 0, "%s", e.text);
	ck_assert_int_eq(source, TOPO_LIVE);
	ck_assert_uint_gt(t.nodes, 0);
	topo_drop_slow_cards(&t);
	topo_guess(&t);
	ck_assert_msg(local_plan_make(&t, false, &p, &e) == 0, "%s", e.text);
}
END_TEST

/* Two switches with a card each; a rail on one of them moves the roots to the other. */
START_TEST(cards_that_no_rail_names_do_not_count)
{
	static const char *const here[] = { "127.0.0.1" }, *const elsewhere[] = { "192.0.2.77" };
	static const char machine[] =
		"node = n;switch = s0 under=n;switch = s1 under=n;"
		"gpu = g0 under=s0 nvswitch=2400gbit;gpu = g1 under=s1 nvswitch=2400gbit;"
		"nic = lo under=s0 net=100gbit;nic = far under=s1 net=100gbit";
	struct topo *made = topo_make(machine);
	struct err e;

	t = *made;
	topo_keep_rails(&t, elsewhere, 1);
	ck_assert_uint_eq(t.cards, 2);
	ck_assert_msg(local_plan_make(&t, false, &p, &e) == 0, "%s", e.text);
	ck_assert_int_eq(p.strategy, LOCAL_SCATTER);
	topo_keep_rails(&t, here, 1);
	ck_assert_uint_eq(t.cards, 1);
	ck_assert_str_eq(t.card[0].name, "lo");
	ck_assert_msg(local_plan_make(&t, false, &p, &e) == 0, "%s", e.text);
	ck_assert_int_eq(p.strategy, LOCAL_ROOTS);
	free(made);
}
END_TEST

START_TEST(a_file_of_lines_means_all_its_cards)
{
	static const char *const rail[] = { "127.0.0.1" };
	static const char lines[] = "node = n\ncard = lo under=n net=100gbit\n"
				    "nic = slow under=n net=1gbit\n";
	char path[] = "/tmp/test_topo.XXXXXX";
	int fd = mkstemp(path);
	uint32_t left_out = 7;
	struct err e;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, lines, strlen(lines)), strlen(lines));
	close(fd);
	ck_assert_msg(topo_read_used(path, rail, 1, &t, &left_out, &e) == 0, "%s", e.text);
	unlink(path);
	ck_assert_uint_eq(t.cards, 2);
	ck_assert_uint_eq(left_out, 0);
}
END_TEST

START_TEST(memory_is_measured_node_by_node)
{
	struct err e;

	ck_assert_msg(topo_read(NULL, &t, &source, &e) == 0, "%s", e.text);
	ck_assert_uint_eq(topo_probe_memory(&t), t.nodes);
	topo_guess(&t);
	for (uint32_t i = 0; i < t.nodes; i++) {
		ck_assert(!t.node[i].memory.guessed);
		/* no machine copies 100 TB/s */
		ck_assert_uint_gt(t.node[i].memory.bits_per_s, 0);
		ck_assert_uint_lt(t.node[i].memory.bits_per_s, UINT64_C(800000000000000));
	}
}
END_TEST

/* ---- NVML, played: two GPUs with two links to each other, two into a switch ---- */

static int nvml_open;

static int play_init(void)
{
	nvml_open++;
	return 0;
}

static int play_shutdown(void)
{
	nvml_open--;
	return 0;
}

static int play_device(const char *bus_id, void **device)
{
	for (uint32_t i = 0; i < 2; i++)
		if (!strcmp(bus_id, t.gpu[i].name)) {
			*device = &t.gpu[i];
			return 0;
		}
	return 6;			/* no such device */
}

static int play_state(void *device, unsigned link, unsigned *active)
{
	(void)device;
	*active = link < 4;
	return link < 6 ? 0 : 2;
}

static int play_version(void *device, unsigned link, unsigned *version)
{
	(void)device;
	(void)link;
	*version = 2;
	return 0;
}

static int play_type(void *device, unsigned link, unsigned *type)
{
	(void)device;
	*type = link < 2 ? 0 : 2;
	return 0;
}

static int play_pci(void *device, unsigned link, void *pci)
{
	(void)link;
	memset(pci, 0, 68);
	strcpy((char *)pci + 36, device == &t.gpu[0] ? "00000000:0B:00.0" :
	       "00000000:0A:00.0");
	return 0;
}

START_TEST(nvml_tells_of_links_once)
{
	const struct nvml n = { play_init, play_shutdown, play_device, play_state, play_version,
				play_type, play_pci };
	struct err e;

	memset(&t, 0, sizeof(t));
	topo_add(&t, &e, "node = n");
	topo_add(&t, &e, "gpu = 0000:0a:00.0 under=n");
	topo_add(&t, &e, "gpu = 0000:0b:00.0 under=n");
	topo_add(&t, &e, "gpu = 0000:0c:00.0 under=n");
	ck_assert_uint_eq(topo_read_nvml(&t, &n), 2);
	ck_assert_uint_eq(t.nvlink[0][1], 2 * UINT64_C(200000000000));
	ck_assert_uint_eq(t.nvlink[1][0], t.nvlink[0][1]);
	ck_assert_uint_eq(t.gpu[0].nvswitch.bits_per_s, 2 * UINT64_C(200000000000));
	ck_assert_uint_eq(t.gpu[2].nvswitch.bits_per_s, 0);
	ck_assert_int_eq(topo_check(&t, &e), 0);
	ck_assert_int_eq(nvml_open, 0);
}
END_TEST

static int refuse_init(void)
{
	return 4;			/* no permission */
}

/* As in a sandbox without the GPUs' devices: the plan is another one, and nobody would know. */
START_TEST(nvml_that_does_not_begin_is_told_of)
{
	const struct nvml n = { refuse_init, play_shutdown, play_device, play_state, play_version,
				play_type, play_pci };
	int old = dup(STDERR_FILENO), ends[2];
	char said[512] = "";
	struct err e;

	memset(&t, 0, sizeof(t));
	topo_add(&t, &e, "node = n");
	topo_add(&t, &e, "gpu = 0000:0a:00.0 under=n");
	ck_assert_int_eq(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	ck_assert_uint_eq(topo_read_nvml(&t, &n), 0);
	dup2(old, STDERR_FILENO);
	ck_assert_int_gt(read(ends[0], said, sizeof(said) - 1), 0);
	ck_assert_ptr_nonnull(strstr(said, "nvmlInit_v2() says 4"));
	ck_assert_int_eq(nvml_open, 0);
	close(old);
	close(ends[0]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("topo_read");
	TCase *tc = tcase_create("sources");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 240);	/* hwloc opens plugins */
	tcase_add_test(tc, every_machine_is_read_and_planned);
	tcase_add_test(tc, places_names_and_rates_are_the_machines);
	tcase_add_test(tc, files_that_cannot_be_used_say_why);
	tcase_add_test(tc, this_machine_can_be_read);
	tcase_add_test(tc, cards_that_no_rail_names_do_not_count);
	tcase_add_test(tc, a_file_of_lines_means_all_its_cards);
	tcase_add_test(tc, memory_is_measured_node_by_node);
	tcase_add_test(tc, nvml_tells_of_links_once);
	tcase_add_test(tc, nvml_that_does_not_begin_is_told_of);
	suite_add_tcase(s, tc);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
