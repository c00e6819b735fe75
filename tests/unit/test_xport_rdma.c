// SPDX-License-Identifier: Apache-2.0
/* RDMA without a device: which address of which port a link takes, and the times. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/xport_rdma.h"

/* "10.0.0.1" or "fe80::1", as a GID. */
static const uint8_t *gid(const char *text)
{
	static uint8_t all[8][16];
	static unsigned int next;
	uint8_t *g = all[next++ % 8];
	struct sockaddr_storage sa = { .ss_family = AF_INET };

	if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&sa)->sin_addr) != 1) {
		sa.ss_family = AF_INET6;
		ck_assert_int_eq(inet_pton(AF_INET6, text,
					   &((struct sockaddr_in6 *)&sa)->sin6_addr), 1);
	}
	ck_assert(rdma_gid_of(&sa, g));
	return g;
}

static struct rdma_gid row(const char *dev, uint8_t port, uint16_t index, enum rdma_gid_type type,
			   const char *addr, const char *netdev)
{
	struct rdma_gid r = { .port = port, .index = index, .type = type, .active = true,
			      .mtu = IBV_MTU_4096 };

	strcpy(r.name, dev);
	strcpy(r.netdev, netdev);
	memcpy(r.gid, gid(addr), 16);
	return r;
}

static int pick(const struct rdma_gid *rows, uint32_t n, const char *addr, const char *netdev,
		char why[256])
{
	return rdma_pick(rows, n, gid(addr), netdev, why, 256);
}

START_TEST(the_row_of_the_links_own_address_serves)
{
	const struct rdma_gid rows[] = {
		row("mlx5_0", 1, 0, RDMA_ROCE_V1, "fe80::1", "eth0"),
		row("mlx5_0", 1, 1, RDMA_ROCE_V2, "fe80::1", "eth0"),
		row("mlx5_0", 1, 2, RDMA_ROCE_V1, "10.0.0.1", "eth0"),
		row("mlx5_0", 1, 3, RDMA_ROCE_V2, "10.0.0.1", "eth0"),
		row("mlx5_0", 1, 5, RDMA_ROCE_V2, "10.7.0.1", "eth0.7"),	/* a VLAN */
		row("mlx5_1", 1, 3, RDMA_ROCE_V2, "10.1.0.1", "eth1"),
		row("mlx5_1", 2, 4, RDMA_ROCE_V2, "2001:db8::5", "eth2"),
	};
	char why[256];

	ck_assert_int_eq(pick(rows, 7, "10.0.0.1", "eth0", why), 3);
	ck_assert_ptr_nonnull(strstr(why, "mlx5_0 port 1 gid 3 (::ffff:10.0.0.1)"));
	ck_assert_ptr_nonnull(strstr(why, "RoCEv2"));
	ck_assert_ptr_nonnull(strstr(why, "mtu 4096"));
	ck_assert_int_eq(pick(rows, 7, "10.7.0.1", "eth0.7", why), 4);
	ck_assert_int_eq(pick(rows, 7, "10.1.0.1", "eth1", why), 5);
	ck_assert_int_eq(pick(rows, 7, "2001:db8::5", "eth2", why), 6);
}
END_TEST

START_TEST(an_address_without_a_device_is_named)
{
	const struct rdma_gid r = row("mlx5_0", 1, 3, RDMA_ROCE_V2, "10.0.0.1", "eth0");
	char why[256];

	ck_assert_int_eq(pick(&r, 1, "192.168.0.9", "eth9", why), -1);
	ck_assert_ptr_nonnull(strstr(why, "192.168.0.9"));
	ck_assert_int_eq(pick(NULL, 0, "10.0.0.1", "eth0", why), -1);
	ck_assert_ptr_nonnull(strstr(why, "no RDMA device"));
}
END_TEST

START_TEST(roce_v1_alone_does_not_serve)
{
	const struct rdma_gid r = row("old0", 1, 0, RDMA_ROCE_V1, "10.0.0.1", "eth0");
	char why[256];

	ck_assert_int_eq(pick(&r, 1, "10.0.0.1", "eth0", why), -1);
	ck_assert_ptr_nonnull(strstr(why, "RoCEv1 only"));
}
END_TEST

START_TEST(a_port_that_is_down_does_not_serve)
{
	struct rdma_gid rows[] = {
		row("a", 1, 3, RDMA_ROCE_V2, "10.0.0.1", "eth0"),
		row("b", 1, 3, RDMA_ROCE_V2, "10.0.0.1", "bond0"),	/* the same on a bond */
	};
	char why[256];

	rows[0].active = false;
	ck_assert_int_eq(pick(rows, 1, "10.0.0.1", "eth0", why), -1);
	ck_assert_ptr_nonnull(strstr(why, "a port 1 is down"));
	ck_assert_int_eq(pick(rows, 2, "10.0.0.1", "eth0", why), 1);
}
END_TEST

START_TEST(infiniband_goes_by_the_interface_of_the_port)
{
	const struct rdma_gid rows[] = {
		row("ib_0", 1, 0, RDMA_IB, "fe80::a:1", "ib0"),
		row("ib_0", 1, 1, RDMA_IB, "fe80::a:2", "ib0"),
		row("ib_0", 2, 0, RDMA_IB, "fe80::b:1", "ib1"),
		row("ib_1", 1, 0, RDMA_IB, "fe80::c:1", ""),
	};
	char why[256];

	ck_assert_int_eq(pick(rows, 4, "10.0.0.1", "ib1", why), 2);
	ck_assert_ptr_nonnull(strstr(why, "InfiniBand"));
	ck_assert_int_eq(pick(rows, 4, "10.0.0.1", "ib0", why), 0);
	ck_assert_int_eq(pick(rows, 4, "10.0.0.1", "", why), -1);
	ck_assert_int_eq(pick(rows, 4, "10.0.0.1", "eth0", why), -1);
}
END_TEST

START_TEST(mtus_are_the_five_there_are)
{
	static const uint32_t bytes[] = { 0, 256, 512, 1024, 2048, 4096, 0, 0 };

	for (uint8_t i = 0; i < ARRAY_SIZE(bytes); i++)
		ck_assert_uint_eq(rdma_mtu_bytes(i), bytes[i]);
}
END_TEST

START_TEST(a_writes_patience_is_below_a_links)
{
	/* 4.096 us * 2^16, seven times: what is lost for longer ends the link. */
	ck_assert_uint_eq(rdma_patience_ms(false), 1879);
	ck_assert_uint_lt(rdma_patience_ms(false), LINK_DEAD_MS);
	ck_assert_uint_eq(rdma_patience_ms(true), 2147);	/* 2^18, twice */
	ck_assert_uint_lt(rdma_patience_ms(true), LINK_DEAD_MS);
}
END_TEST

/* On any machine: without devices it costs nothing and never fails. */
START_TEST(regions_of_a_machine_without_devices_are_free)
{
	struct xport_region *r;
	uint8_t *p = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
	uint64_t before = xport_regions_bytes();
	uint32_t n;

	rdma_devs(&n);
	ck_assert_int_eq(xport_region_new(&r, p, PAGE_BYTES, true, NULL), 0);
	ck_assert_uint_eq(xport_regions_bytes(), before + (n ? PAGE_BYTES : 0));
	xport_region_free(r);
	xport_region_free(NULL);
	ck_assert_uint_eq(xport_regions_bytes(), before);
	free(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rdma");
	TCase *t = tcase_create("rdma");
	SRunner *run = srunner_create(s);
	int failed;

	tcase_add_test(t, the_row_of_the_links_own_address_serves);
	tcase_add_test(t, an_address_without_a_device_is_named);
	tcase_add_test(t, roce_v1_alone_does_not_serve);
	tcase_add_test(t, a_port_that_is_down_does_not_serve);
	tcase_add_test(t, infiniband_goes_by_the_interface_of_the_port);
	tcase_add_test(t, mtus_are_the_five_there_are);
	tcase_add_test(t, a_writes_patience_is_below_a_links);
	tcase_add_test(t, regions_of_a_machine_without_devices_are_free);
	suite_add_tcase(s, t);
	srunner_run_all(run, CK_NORMAL);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed != 0;
}
