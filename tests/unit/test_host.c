// SPDX-License-Identifier: Apache-2.0
/* Facts of the host, as far as they hold on every machine; and sd_notify. */
#include <check.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/rt/host.h"
#include "common/rt/shaper.h"
#include "common/rt/notify.h"
#include "tests/unit/notify_ear.h"

START_TEST(machine_id_is_32_hex_digits_and_stays)
{
	char a[33], b[33];

	host_machine_id(a);
	host_machine_id(b);
	ck_assert_str_eq(a, b);
	ck_assert_uint_eq(strlen(a), 32);
	ck_assert_uint_eq(strspn(a, "0123456789abcdef"), 32);
	ck_assert_str_ne(a, "00000000000000000000000000000000");
}
END_TEST

START_TEST(another_network_namespace_is_another_machine)
{
	char here[33], there[33];

	host_machine_id(here);
	if (unshare(CLONE_NEWNET) < 0)
		return;			/* needs privileges that not everybody has */
	host_machine_id(there);
	ck_assert_str_ne(here, there);
}
END_TEST

START_TEST(name_is_short_and_bounded)
{
	char name[256], small[4] = "zzz";

	host_name(name, sizeof(name));
	ck_assert_uint_gt(strlen(name), 0);
	ck_assert_ptr_null(strchr(name, '.'));
	host_name(small, sizeof(small));
	ck_assert_uint_lt(strlen(small), sizeof(small));
}
END_TEST

START_TEST(random_differs)
{
	uint8_t a[16] = { 0 }, b[16] = { 0 };

	ck_assert_int_eq(host_random(a, sizeof(a)), 0);
	ck_assert_int_eq(host_random(b, sizeof(b)), 0);
	ck_assert(memcmp(a, b, sizeof(a)) != 0);
}
END_TEST

START_TEST(loopback_is_ours_and_has_no_speed)
{
	char bus[HOST_BUS_ID_LEN];

	ck_assert(host_has_address("127.0.0.1"));
	ck_assert(host_has_address("127.0.0.2"));
	ck_assert(!host_has_address("192.0.2.1"));
	ck_assert(!host_has_address("not an address"));
	ck_assert_uint_eq(host_card_bits_per_s("127.0.0.1"), 0);
	ck_assert_uint_eq(host_card_bits_per_s("192.0.2.1"), 0);
	ck_assert_uint_eq(shaper_bits_per_s(0), 0);
	ck_assert_uint_eq(shaper_bits_per_s(INT32_MAX), 0);
	host_bus_id("127.0.0.1", bus);
	ck_assert_str_eq(bus, "");
}
END_TEST

START_TEST(memory_is_at_most_what_the_machine_has)
{
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	ck_assert_uint_gt(host_memory_bytes(), 1 << 20);
	ck_assert_uint_le(host_memory_bytes(), all);
	ck_assert_uint_gt(host_memory_left_bytes(), 0);
}
END_TEST

START_TEST(notify_sends_one_datagram_per_state)
{
	int fd = notify_ear_open();

	notify("READY=1");
	unsetenv("NOTIFY_SOCKET");
	notify("STOPPING=1");		/* goes nowhere */
	ck_assert(notify_ear_took(fd, "READY=1"));
	ck_assert_int_lt(recv(fd, &(char){ 0 }, 1, MSG_DONTWAIT), 0);
	notify_ear_close(fd);
}
END_TEST

START_TEST(watchdog_is_read_once)
{
	setenv("WATCHDOG_USEC", "3000000", 1);
	ck_assert_uint_eq(notify_watchdog_ms(), 3000);
	setenv("WATCHDOG_USEC", "1000000", 1);
	ck_assert_uint_eq(notify_watchdog_ms(), 3000);
	unsetenv("WATCHDOG_USEC");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("host");
	TCase *c = tcase_create("host");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, machine_id_is_32_hex_digits_and_stays);
	tcase_add_test(c, name_is_short_and_bounded);
	tcase_add_test(c, random_differs);
	tcase_add_test(c, loopback_is_ours_and_has_no_speed);
	tcase_add_test(c, memory_is_at_most_what_the_machine_has);
	tcase_add_test(c, notify_sends_one_datagram_per_state);
	tcase_add_test(c, watchdog_is_read_once);
	tcase_add_test(c, another_network_namespace_is_another_machine);	/* the last */
	suite_add_tcase(s, c);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
