// SPDX-License-Identifier: Apache-2.0
/* parse.c: what people type is read exactly or refused, and what is shown reads back. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/parse.h"

struct number {
	const char *text;
	uint64_t value;
};

static const struct number good_bytes[] = {
	{ "0", 0 }, { "1000", 1000 }, { "17 B", 17 }, { "64K", 65536 }, { "64k", 65536 },
	{ "512KiB", 524288 }, { "512KB", 524288 }, { "4M", 4 << 20 }, { "4Mi", 4 << 20 },
	{ "1.5GiB", 3ull << 29 }, { "1.3G", 1395864371 }, { "2T", 2ull << 40 },
	{ "0.5K", 512 }, { "64 MiB", 64 << 20 }, { "1.0000000009K", 1024 },
	{ "18446744073709551615", UINT64_MAX }, { "16777215.999999T", 18446744073708452104ull },
	{ "1PiB", 1ull << 50 }, { "15.5e", 31ull << 59 },
};

static const char *const bad_bytes[] = {
	"", " ", "K", "-1", "+1", " 1", "1 ", "1  K", "1.K", ".5K", "1.5", "1.5B", "1i", "1iB",
	"1KK", "1Kib/s", "0x10", "1e3", "1Z", "12,5K", "nan",
};

START_TEST(bytes_are_powers_of_1024)
{
	const struct number *n = &good_bytes[_i];
	uint64_t v = 1234567;

	ck_assert_int_eq(parse_bytes(n->text, 0, UINT64_MAX, &v, NULL), 0);
	ck_assert_uint_eq(v, n->value);
}
END_TEST

START_TEST(bytes_refuse_the_whole_string_and_write_nothing)
{
	struct err e = { 0 };
	uint64_t v = 1234567;

	ck_assert_int_eq(parse_bytes(bad_bytes[_i], 0, UINT64_MAX, &v, &e), TALLY_EINVAL);
	ck_assert_uint_eq(v, 1234567);
	ck_assert_int_eq(e.code, TALLY_EINVAL);
	ck_assert_ptr_nonnull(strstr(e.text, "512K"));
}
END_TEST

static const struct number good_rates[] = {
	{ "0", 0 }, { "25g", 25000000000 }, { "25gbit", 25000000000 }, { "100mbit", 100000000 },
	{ "2.5Gbit/s", 2500000000 }, { "2.5 Gbit/s", 2500000000 }, { "400Gbps", 400000000000 },
	{ "1t", 1000000000000 }, { "25", 25000000000 }, { "2.5", 2500000000 },
	{ "9600bit/s", 9600 }, { "1kbit", 1000 },
};

static const char *const bad_rates[] = {
	"", "fast", "25gb", "25GiB", "25g/s", "25 g bit", "-1g", "1.5bit", "g",
};

START_TEST(bit_rates_are_powers_of_1000)
{
	uint64_t v = 1;

	ck_assert_int_eq(parse_bitrate(good_rates[_i].text, 0, UINT64_MAX, &v, NULL), 0);
	ck_assert_uint_eq(v, good_rates[_i].value);
}
END_TEST

START_TEST(bit_rates_refuse_the_whole_string_and_write_nothing)
{
	struct err e = { 0 };
	uint64_t v = 1234567;

	ck_assert_int_eq(parse_bitrate(bad_rates[_i], 0, UINT64_MAX, &v, &e), TALLY_EINVAL);
	ck_assert_uint_eq(v, 1234567);
	ck_assert_ptr_nonnull(strstr(e.text, "25gbit"));
}
END_TEST

START_TEST(number_out_of_range_is_refused_with_the_range_in_its_units)
{
	static const char *const bytes[] = {
		"3M", "17M", "18446744073709551616", "16E", "99999999E",
		"999999999999999999999999999999999999999999999",
	};
	static const char *const rates[] = {
		"999", "0", "2g", "20000000t", "999999999999999999999999999999999999999999999",
	};
	struct err e;
	uint64_t v = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bytes); i++) {
		ck_assert_int_eq(parse_bytes(bytes[i], 4 << 20, 16 << 20, &v, &e), TALLY_EINVAL);
		ck_assert_ptr_nonnull(strstr(e.text, " out of range; from 4 MiB to 16 MiB"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		ck_assert_int_eq(parse_bitrate(rates[i], 1000, 1000000000, &v, &e), TALLY_EINVAL);
		ck_assert_ptr_nonnull(strstr(e.text, " of range; from 1 kbit/s to 1 Gbit/s"));
	}
	ck_assert_int_eq(parse_bytes("16E", 0, UINT64_MAX, &v, NULL), TALLY_EINVAL);
	ck_assert_int_eq(parse_bitrate("19E", 0, UINT64_MAX, &v, NULL), TALLY_EINVAL);
	ck_assert_uint_eq(v, 7);
	ck_assert_int_eq(parse_u64("99999999999999999999", 1, 3, &v, &e), TALLY_EINVAL);
	ck_assert_str_eq(e.text, "99999999999999999999 is out of range; from 1 to 3");
	ck_assert_int_eq(parse_bytes("4M", 4 << 20, 16 << 20, &v, NULL), 0);
	ck_assert_int_eq(parse_bytes("16M", 4 << 20, 16 << 20, &v, NULL), 0);
}
END_TEST

START_TEST(whole_numbers_keep_their_range)
{
	struct err e = { 0 };
	uint64_t v = 7;

	ck_assert_int_eq(parse_u64("1", 1, 3, &v, &e), 0);
	ck_assert_uint_eq(v, 1);
	ck_assert_int_eq(parse_u64("3", 1, 3, &v, &e), 0);
	ck_assert_uint_eq(v, 3);
	ck_assert_int_eq(parse_u64("18446744073709551615", 0, UINT64_MAX, &v, &e), 0);
	ck_assert_uint_eq(v, UINT64_MAX);
	ck_assert_int_eq(parse_u64("0", 1, 3, &v, &e), TALLY_EINVAL);
	ck_assert_str_eq(e.text, "0 is out of range; from 1 to 3");
	ck_assert_int_eq(parse_u64("4", 1, 3, &v, &e), TALLY_EINVAL);
	ck_assert_int_eq(parse_u64("2.0", 1, 3, &v, &e), TALLY_EINVAL);
	ck_assert_int_eq(parse_u64("2x", 1, 3, &v, &e), TALLY_EINVAL);
	ck_assert_int_eq(parse_u64("", 0, 3, &v, &e), TALLY_EINVAL);
	ck_assert_int_eq(parse_u64("-2", 0, 3, &v, &e), TALLY_EINVAL);
	ck_assert_int_eq(parse_u64("18446744073709551616", 0, UINT64_MAX, &v, &e), TALLY_EINVAL);
	ck_assert_uint_eq(v, UINT64_MAX);
}
END_TEST

START_TEST(decimals_are_decimal_and_keep_their_range)
{
	static const char *const bad[] = { "", " 2", "2 ", "-2", "+2", ".5", "2.", "0x2", "2e0",
					   "nan", "inf", "2,5", "0.99", "3.1" };
	struct err e = { 0 };
	double v = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(parse_decimal(bad[i], 1, 3, &v, &e), TALLY_EINVAL);
	ck_assert_str_eq(e.text, "3.1 is out of range; from 1 to 3");
	ck_assert_double_eq(v, 7);
	ck_assert_int_eq(parse_decimal("1", 1, 3, &v, &e), 0);
	ck_assert_double_eq(v, 1);
	ck_assert_int_eq(parse_decimal("02.250000000999", 1, 3, &v, &e), 0);
	ck_assert_double_eq(v, 2.25);
	ck_assert_int_eq(parse_decimal("3.0", 1, 3, &v, NULL), 0);
	ck_assert_double_eq(v, 3);
}
END_TEST

static const struct {
	const char *text, *host;
	uint16_t port;
	uint64_t rate;
} good_endpoints[] = {
	{ "10.0.0.1:7000", "10.0.0.1", 7000, 0 },
	{ "10.0.0.1", "10.0.0.1", 4242, 0 },
	{ "10.0.0.1:0", "10.0.0.1", 0, 0 },
	{ ":7000", "", 7000, 0 },
	{ "[::1]:65535", "::1", 65535, 0 },
	{ "[fe80::1%eth0]", "fe80::1%eth0", 4242, 0 },
	{ "node-7.rack_1:1@25g", "node-7.rack_1", 1, 25000000000 },
	{ "10.0.0.1@100mbit", "10.0.0.1", 4242, 100000000 },
	{ "10.0.0.1@25", "10.0.0.1", 4242, 25000000000 },
	{ "[::]:9@2.5Gbit/s", "::", 9, 2500000000 },
	{ "0.0.0.0:1", "0.0.0.0", 1, 0 },
	{ "7.rack:1", "7.rack", 1, 0 },
	{ "0xg", "0xg", 4242, 0 },
};

static const char *const bad_endpoints[] = {
	"", ":", "@25g", "host:", "host:65536", "host:-1", "host:1x", "host:000000001", "::1",
	"::1:7000", "[::1", "[]:1", "[::1]7000", "[::1]:", "ho st:1", "host:1@", "host:1@fast",
	"host:1@25g@25g", "a/b:1", "host:1.5", "[::1]x:1", "41001", "0", "0:7470", "0x7f000001",
	"1.2", "127.1:1", "10.0.1@25g", "010.0.0.1", "1.2.3.0x4", "[41001]:1",
};

START_TEST(endpoints_have_host_port_and_rate)
{
	char host[ADDR_LEN_MAX + 1], again[ADDR_LEN_MAX + 1], text[ENDPOINT_TEXT];
	uint64_t rate = 1;
	uint16_t port = 1, same;

	ck_assert_int_eq(parse_endpoint(good_endpoints[_i].text, 4242, host, &port, &rate, NULL),
			 0);
	ck_assert_str_eq(host, good_endpoints[_i].host);
	ck_assert_uint_eq(port, good_endpoints[_i].port);
	ck_assert_uint_eq(rate, good_endpoints[_i].rate);
	fmt_endpoint(text, sizeof(text), host, port);	/* what people read they can type */
	ck_assert_int_eq(parse_endpoint(text, 0, again, &same, &rate, NULL), 0);
	ck_assert_str_eq(host, again);
	ck_assert_uint_eq(port, same);
}
END_TEST

START_TEST(endpoints_refuse_the_whole_string_and_write_nothing)
{
	char host[ADDR_LEN_MAX + 1] = "untouched";
	struct err e = { 0 };
	uint64_t rate = 5;
	uint16_t port = 6;

	ck_assert_int_eq(parse_endpoint(bad_endpoints[_i], 4242, host, &port, &rate, &e),
			 TALLY_EINVAL);
	ck_assert_str_eq(host, "untouched");
	ck_assert_uint_eq(port, 6);
	ck_assert_uint_eq(rate, 5);
	ck_assert_ptr_nonnull(strstr(e.text, "; say "));
}
END_TEST

START_TEST(addresses_to_listen_at_have_no_rate)
{
	char host[ADDR_LEN_MAX + 1] = "untouched";
	struct err e = { 0 };
	uint16_t port = 6;

	ck_assert_int_eq(parse_listen("10.0.0.1:1@5gbit", 1, host, &port, &e), TALLY_EINVAL);
	ck_assert_str_eq(e.text, "\"10.0.0.1:1@5gbit\": no bit rate belongs here; say "
			 "10.0.0.1:7000, [fe80::1]:7000, or a port alone as :7000");
	ck_assert_int_eq(parse_listen("7000", 1, host, &port, &e), TALLY_EINVAL);
	ck_assert_ptr_nonnull(strstr(e.text, "a port alone as :7000"));
	ck_assert_str_eq(host, "untouched");
	ck_assert_uint_eq(port, 6);
	ck_assert_int_eq(parse_listen(":7000", 1, host, &port, NULL), 0);
	ck_assert_str_eq(host, "");
	ck_assert_uint_eq(port, 7000);
	ck_assert_int_eq(parse_listen("[::1]", 7470, host, &port, NULL), 0);
	ck_assert_str_eq(host, "::1");
	ck_assert_uint_eq(port, 7470);
}
END_TEST

START_TEST(rate_of_a_nic_has_a_floor_and_a_ceiling_that_catch_another_unit)
{
	static const char *const wrong[] = { "10.0.0.1@25bit", "10.0.0.1@25000", "10.0.0.1@0" };
	char host[ADDR_LEN_MAX + 1];
	uint64_t rate;
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		ck_assert_int_eq(parse_rail(wrong[i], host, &rate, &e), TALLY_EINVAL);
		ck_assert_ptr_nonnull(strstr(e.text, "from 1 Mbit/s to 10 Tbit/s"));
	}
}
END_TEST

START_TEST(rails_are_addresses_of_cards)
{
	static const char *const none[] = {
		"10.0.0.1:99", "10.0.0.1:0", ":99", "@25gbit", "[::1]:99@1g", "0.0.0.0", "[::]",
		"0.0.0.0@25gbit", "[0::0]", "10.0.0.1@0bit", "10.0.0.1@x", "::1", "",
	};
	char host[ADDR_LEN_MAX + 1] = "untouched";
	struct err e = { 0 };
	uint64_t rate = 5;

	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		ck_assert_int_eq(parse_rail(none[i], host, &rate, &e), TALLY_EINVAL);
	ck_assert_int_eq(parse_rail("10.0.0.1:99", host, &rate, &e), TALLY_EINVAL);
	ck_assert_str_eq(e.text, "\"10.0.0.1:99\": no port belongs here; say 10.0.0.1, "
			 "[fe80::1] or host@25gbit");
	ck_assert_str_eq(host, "untouched");
	ck_assert_uint_eq(rate, 5);
	ck_assert_int_eq(parse_rail("[fe80::1%eth0]@25g", host, &rate, NULL), 0);
	ck_assert_str_eq(host, "fe80::1%eth0");
	ck_assert_uint_eq(rate, 25000000000);
	ck_assert_int_eq(parse_rail("localhost", host, &rate, NULL), 0);
	ck_assert_uint_eq(rate, 0);
}
END_TEST

START_TEST(peers_have_a_host_and_a_port)
{
	static const char *const nobody[] = {
		":7470", "@25gbit", "10.0.0.1:0", "[::1]:0", "", "10.0.0.1:7470@25gbit",
	};
	char host[ADDR_LEN_MAX + 1] = "untouched";
	uint16_t port = 6;

	for (size_t i = 0; i < ARRAY_SIZE(nobody); i++)
		ck_assert_int_eq(parse_peer(nobody[i], 1, host, &port, NULL), TALLY_EINVAL);
	ck_assert_str_eq(host, "untouched");
	ck_assert_uint_eq(port, 6);
	ck_assert_int_eq(parse_peer("[::1]", 7470, host, &port, NULL), 0);
	ck_assert_str_eq(host, "::1");
	ck_assert_uint_eq(port, 7470);
}
END_TEST

START_TEST(endpoint_hosts_end_at_their_limit)
{
	char text[ADDR_LEN_MAX + 8], host[ADDR_LEN_MAX + 1];
	uint64_t rate;
	uint16_t port;

	memset(text, 'h', sizeof(text));
	strcpy(text + ADDR_LEN_MAX, ":12");
	ck_assert_int_eq(parse_endpoint(text, 1, host, &port, &rate, NULL), 0);
	ck_assert_uint_eq(strlen(host), ADDR_LEN_MAX);
	ck_assert_uint_eq(port, 12);
	strcpy(text + ADDR_LEN_MAX, "h:12");
	ck_assert_int_eq(parse_endpoint(text, 1, host, &port, &rate, NULL), TALLY_EINVAL);
}
END_TEST

static const struct number shown_bytes[] = {
	{ "0 B", 0 }, { "17 B", 17 }, { "1023 B", 1023 }, { "1 KiB", 1024 },
	{ "1.5 KiB", 1536 }, { "64 MiB", 64 << 20 }, { "1 MiB", (1 << 20) - 1 },
	{ "1.5 GiB", 3ull << 29 }, { "16 EiB", UINT64_MAX }, { "1023.9 KiB", 1048474 },
};

START_TEST(bytes_are_shown_in_the_unit_that_fits)
{
	char buf[32];

	ck_assert_str_eq(fmt_bytes(buf, sizeof(buf), shown_bytes[_i].value),
			 shown_bytes[_i].text);
}
END_TEST

static const struct number shown_rates[] = {
	{ "0 bit/s", 0 }, { "999 bit/s", 999 }, { "1 kbit/s", 1000 }, { "25 Gbit/s", 25000000000 },
	{ "2.5 Gbit/s", 2500000000 }, { "100 Mbit/s", 100000000 }, { "1 Gbit/s", 999999999 },
	{ "1.6 Tbit/s", 1600000000000 }, { "18446744.1 Tbit/s", UINT64_MAX },
};

START_TEST(bit_rates_are_shown_in_the_unit_that_fits)
{
	char buf[32];

	ck_assert_str_eq(fmt_bitrate(buf, sizeof(buf), shown_rates[_i].value),
			 shown_rates[_i].text);
}
END_TEST

START_TEST(seconds_are_shown_in_the_unit_that_fits)
{
	static const struct {
		const char *text;
		double value;
	} shown[] = {
		{ "0 s", 0 }, { "1 ns", 1.2e-9 }, { "0.11 ns", 1.12e-10 },
		{ "1.2 ms", 0.0012 }, { "350 us", 350e-6 },
		{ "1 s", 0.99999 }, { "17.3 s", 17.3 }, { "90 s", 90 }, { "-2 s", -2 },
		{ "inf s", 1 / 0.0 }, { "100000000000 s", 1e11 },
	};
	char buf[64];

	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		ck_assert_str_eq(fmt_seconds(buf, sizeof(buf), shown[i].value), shown[i].text);
}
END_TEST

START_TEST(short_buffers_are_never_overrun)
{
	char buf[8] = "......#";

	fmt_bytes(buf, 4, 1023 << 10);
	ck_assert_str_eq(buf, "102");
	ck_assert_int_eq(buf[6], '#');
}
END_TEST

START_TEST(what_is_shown_reads_back_within_its_last_digit)
{
	struct rng rng = { 20 };
	char buf[32];

	for (int i = 0; i < 20000; i++) {
		uint64_t v = rng_u64(&rng) >> (1 + rng_below(&rng, 63)), back = 0;

		fmt_bytes(buf, sizeof(buf), v);
		ck_assert_int_eq(parse_bytes(buf, 0, UINT64_MAX, &back, NULL), 0);
		ck_assert_msg((back > v ? back - v : v - back) <= v / 20, "%s", buf);
	}
}
END_TEST

START_TEST(random_text_never_crashes_a_parser)
{
	static const char alphabet[] = "0123456789.kKmMgGiB:@[]/ bt-x";
	struct rng rng = { 21 };
	char host[ADDR_LEN_MAX + 1];
	char text[24];
	uint64_t v;
	uint16_t port;
	double d;
	int good = 0;

	for (int i = 0; i < 100000; i++) {
		size_t len = rng_below(&rng, sizeof(text));

		for (size_t j = 0; j < len; j++)
			text[j] = alphabet[rng_below(&rng, sizeof(alphabet) - 1)];
		text[len] = '\0';
		good += !parse_bytes(text, 0, UINT64_MAX, &v, NULL);
		good += !parse_bitrate(text, 0, UINT64_MAX, &v, NULL);
		good += !parse_u64(text, 0, UINT64_MAX, &v, NULL);
		good += !parse_decimal(text, 0, 1e9, &d, NULL);
		good += !parse_endpoint(text, 1, host, &port, &v, NULL);
		good += !parse_rail(text, host, &v, NULL);
	}
	ck_assert_int_gt(good, 100);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("parse");
	TCase *t = tcase_create("parse");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, bytes_are_powers_of_1024, 0, ARRAY_SIZE(good_bytes));
	tcase_add_loop_test(t, bytes_refuse_the_whole_string_and_write_nothing, 0,
			    ARRAY_SIZE(bad_bytes));
	tcase_add_loop_test(t, bit_rates_are_powers_of_1000, 0, ARRAY_SIZE(good_rates));
	tcase_add_loop_test(t, bit_rates_refuse_the_whole_string_and_write_nothing, 0,
			    ARRAY_SIZE(bad_rates));
	tcase_add_test(t, number_out_of_range_is_refused_with_the_range_in_its_units);
	tcase_add_test(t, whole_numbers_keep_their_range);
	tcase_add_test(t, decimals_are_decimal_and_keep_their_range);
	tcase_add_loop_test(t, endpoints_have_host_port_and_rate, 0, ARRAY_SIZE(good_endpoints));
	tcase_add_loop_test(t, endpoints_refuse_the_whole_string_and_write_nothing, 0,
			    ARRAY_SIZE(bad_endpoints));
	tcase_add_test(t, addresses_to_listen_at_have_no_rate);
	tcase_add_test(t, rate_of_a_nic_has_a_floor_and_a_ceiling_that_catch_another_unit);
	tcase_add_test(t, rails_are_addresses_of_cards);
	tcase_add_test(t, peers_have_a_host_and_a_port);
	tcase_add_test(t, endpoint_hosts_end_at_their_limit);
	tcase_add_loop_test(t, bytes_are_shown_in_the_unit_that_fits, 0, ARRAY_SIZE(shown_bytes));
	tcase_add_loop_test(t, bit_rates_are_shown_in_the_unit_that_fits, 0,
			    ARRAY_SIZE(shown_rates));
	tcase_add_test(t, seconds_are_shown_in_the_unit_that_fits);
	tcase_add_test(t, short_buffers_are_never_overrun);
	tcase_add_test(t, what_is_shown_reads_back_within_its_last_digit);
	tcase_add_test(t, random_text_never_crashes_a_parser);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
