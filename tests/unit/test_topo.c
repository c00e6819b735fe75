// SPDX-License-Identifier: Apache-2.0
/* Descriptions of machines: lines as people write them, checks, guesses, cards left out. */
#include "tests/unit/topo_make.h"

START_TEST(a_line_makes_a_device)
{
	struct topo *t = topo_make("node = n0 socket=1 memory=800gbit\n"
				   "switch = s0 under=n0 rate=126gbit\n"
				   "switch = s1\tunder=s0\n"
				   "gpu = g0 under=s1 rate=63gbit nvswitch=2.4Tbit\n"
				   "gpu = g1 under=n0\n"
				   "nic = c0 under=s0 net=100gbit rate=126gbit\n"
				   "nvlink = g0 g1 400gbit\n"
				   "sockets = 166gbit\n");

	ck_assert_uint_eq(t->node[0].socket, 1);
	ck_assert_uint_eq(t->node[0].memory.bits_per_s, 800000000000);
	ck_assert_uint_eq(t->sw[1].at.sw, 0);
	ck_assert_uint_eq(topo_top(t, &t->gpu[0].at), 0);
	ck_assert_uint_eq(topo_top(t, &t->gpu[1].at), TOPO_NONE);
	ck_assert_uint_eq(t->gpu[0].nvswitch.bits_per_s, 2400000000000);
	ck_assert_uint_eq(topo_nvlink_rate(t, 1, 0), 400000000000);
	ck_assert_uint_eq(t->card[0].net.bits_per_s, 100000000000);
	ck_assert_uint_eq(t->sockets.bits_per_s, 166000000000);
	ck_assert(!t->sw[0].up.guessed && t->sw[1].up.guessed && t->gpu[1].pcie.guessed);
	free(t);
}
END_TEST

START_TEST(a_wrong_line_says_why_and_changes_nothing)
{
	static const struct {
		const char *line;
		int code;
		const char *says;
	} wrong[] = {
		{ "gpu = ", TALLY_EINVAL, "name is missing" },
		{ "gpu = g9", TALLY_EINVAL, "under=" },
		{ "gpu = g9 under=nowhere", TALLY_ENOENT, "nowhere" },
		{ "gpu = g9 under=g0", TALLY_ENOENT, "g0" },
		{ "gpu = g0 under=n0", TALLY_EEXIST, "g0" },
		{ "gpu = n0 under=n0", TALLY_EEXIST, "n0" },
		{ "gpu = g9 under=n0 rate=fast", TALLY_EINVAL, "fast" },
		{ "gpu = g9 under=n0 rate=0", TALLY_EINVAL, "0" },
		{ "gpu = g9 under=n0 net=1gbit", TALLY_EINVAL, "net" },
		{ "gpu = g9 under=n0 rate", TALLY_EINVAL, "key=value" },
		{ "gpu = under=n0", TALLY_EINVAL, "name" },
		{ "node = n1 socket=many", TALLY_EINVAL, "many" },
		{ "node = n1 under=n0", TALLY_EINVAL, "under" },
		{ "nvlink = g0 g0 1gbit", TALLY_EINVAL, "itself" },
		{ "nvlink = g0 g9 1gbit", TALLY_ENOENT, "g9" },
		{ "nvlink = g0 g1", TALLY_EINVAL, "two GPUs" },
		{ "nvlink = g1 g0 5gbit", TALLY_EEXIST, "above" },
		{ "sockets = ", TALLY_EINVAL, "rate" },
		{ "fan = f0", TALLY_EINVAL, "fan" },
		{ "gpu = a b c d e f g h i", TALLY_EINVAL, "words" },
	};
	struct topo *t = topo_make("node = n0; gpu = g0 under=n0; gpu = g1 under=n0;"
				   "nvlink = g0 g1 5gbit");
	struct topo *was = malloc(sizeof(*was));
	struct err e;

	memcpy(was, t, sizeof(*t));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		ck_assert_msg(topo_add(t, &e, wrong[i].line) == wrong[i].code, "%s: %s",
			      wrong[i].line, e.text);
		ck_assert_msg(strstr(e.text, wrong[i].says), "%s: %s", wrong[i].line, e.text);
		ck_assert_mem_eq(t, was, sizeof(*t));
	}
	free(was);
	free(t);
}
END_TEST

START_TEST(there_is_an_end_to_every_list)
{
	static const struct { const char *what, *rest; uint32_t max; } lists[] = {
		{ "node", "", TOPO_NODES_MAX - 1 }, { "switch", " under=n", TOPO_SWITCHES_MAX },
		{ "gpu", " under=n", TOPO_GPUS_MAX }, { "card", " under=n", TOPO_CARDS_MAX },
	};
	struct topo *t = topo_make("node = n");
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (uint32_t n = 0; n <= lists[i].max; n++) {
			char line[64];

			snprintf(line, sizeof(line), "%s = %s%u%s", lists[i].what, lists[i].what,
				 n, lists[i].rest);
			ck_assert_int_eq(topo_add(t, &e, line),
					 n < lists[i].max ? 0 : TALLY_EQUOTA);
		}
	free(t);
}
END_TEST

START_TEST(what_does_not_hold_is_found)
{
	struct topo *t = topo_make("node = n; switch = a under=n; switch = b under=a;"
				   "gpu = g under=b; gpu = h under=a");
	struct topo *bad = malloc(sizeof(*bad));
	struct err e;

#define WRONG(change) do { \
		memcpy(bad, t, sizeof(*t)); \
		change; \
		ck_assert_int_eq(topo_check(bad, &e), TALLY_EINVAL); \
	} while (0)
	WRONG(bad->nodes = 0);
	WRONG(bad->nodes = TOPO_NODES_MAX + 1);
	WRONG(bad->gpus = TOPO_GPUS_MAX + 1);
	WRONG(bad->sw[0].at.sw = 1);		/* a loop */
	WRONG(bad->sw[1].at.sw = 1);
	WRONG(bad->gpu[0].at.sw = 2);
	WRONG(bad->gpu[0].at.node = 1);
	WRONG(bad->nvlink[0][1] = 5);		/* one way */
	WRONG(bad->nvlink[1][1] = 5);
#undef WRONG
	ck_assert_int_eq(topo_check(t, &e), 0);
	free(bad);
	free(t);
}
END_TEST

START_TEST(slow_cards_are_left_out)
{
	struct topo *t = calloc(1, sizeof(*t));
	struct err e;

	ck_assert_int_eq(topo_add(t, &e, "node = n"), 0);
	ck_assert_uint_eq(topo_drop_slow_cards(t), 0);
	/* nothing but slots is known: the wide ones */
	topo_add(t, &e, "nic = a under=n rate=126gbit");
	topo_add(t, &e, "nic = b under=n rate=32gbit");
	topo_add(t, &e, "nic = c under=n rate=63gbit");
	ck_assert_uint_eq(topo_drop_slow_cards(t), 1);
	ck_assert_str_eq(t->card[1].name, "c");
	/* one wire is known: slots say nothing about the others any more */
	topo_add(t, &e, "nic = d under=n rate=63gbit net=50gbit");
	topo_add(t, &e, "nic = e under=n rate=63gbit net=25gbit");
	ck_assert_uint_eq(topo_drop_slow_cards(t), 2);
	ck_assert_uint_eq(t->cards, 2);
	ck_assert_str_eq(t->card[0].name, "d");
	ck_assert_str_eq(t->card[1].name, "e");
	free(t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("topo");
	TCase *tc = tcase_create("descriptions");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(tc, a_line_makes_a_device);
	tcase_add_test(tc, a_wrong_line_says_why_and_changes_nothing);
	tcase_add_test(tc, there_is_an_end_to_every_list);
	tcase_add_test(tc, what_does_not_hold_is_found);
	tcase_add_test(tc, slow_cards_are_left_out);
	suite_add_tcase(s, tc);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
