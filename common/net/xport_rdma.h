/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_rdma.h - RDMA devices and the memory registered with them; for the files
 * xport_rdma*.c alone (people are told by xport_path() and xport_rdma_list()).
 *
 * Devices are opened once for the process, by whoever asks first, and stay open; one
 * that is plugged in later is not seen.  A device has one protection domain: what a
 * peer may write is bounded by memory windows, which open for one queue pair only,
 * so that the domain's other memory, and other peers', stays closed to it.  A device
 * without such windows gives out a region's own key instead.
 *
 * rdma_pick() is pure: from what devices say and an address to what a link takes.
 */
#ifndef TALLY_NET_XPORT_RDMA_H
#define TALLY_NET_XPORT_RDMA_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <sys/socket.h>

#include "common/net/xport.h"

#define RDMA_DEVS_MAX	16u
#define RDMA_GIDS_MAX	512u		/* rows of all devices together */

/*
 * A write that is not acknowledged is repeated RDMA_RETRIES times, RDMA_TIMEOUT apart
 * (4.096 us * 2^it); not 7, which is for ever on some devices.  A peer whose process
 * died is noticed by the TCP connection long before.  Soft RoCE acknowledges a message
 * when the CPU has time for its last packet, which may be later than a card ever is, and
 * what it repeats for nothing costs it more time: it waits longer, and repeats once.
 */
#define RDMA_TIMEOUT	16u
#define RDMA_RETRIES	6u
#define RDMA_SOFT_TIMEOUT 18u
#define RDMA_SOFT_RETRIES 1u
#define RDMA_SOFT_VENDOR 0xffffffu
#define RDMA_RNR_RETRIES 6u
#define RDMA_RNR_TIMER	12u		/* 0.64 ms */

static_assert(RDMA_RETRIES < 7 && RDMA_RNR_RETRIES < 7, "7 is for ever");

enum rdma_gid_type { RDMA_IB, RDMA_ROCE_V1, RDMA_ROCE_V2 };

/* One address of one port. */
struct rdma_gid {
	uint32_t dev;			/* index in rdma_devs() */
	char name[IBV_SYSFS_NAME_MAX];	/* of the device */
	char netdev[IF_NAMESIZE];	/* "": none */
	uint8_t gid[16];
	uint8_t port, mtu;		/* enum ibv_mtu of the port now */
	uint16_t index, lid;
	enum rdma_gid_type type;
	bool active;
};

/*
 * Which row serves a link whose own address is `addr` (as in a GID: IPv4 is mapped) on
 * the network interface `netdev`; -1: none.  `why` says it in words either way.
 * RoCE: the row that is this address, RoCEv2 only.  InfiniBand: the first address of
 * the port that netdev belongs to.
 */
int rdma_pick(const struct rdma_gid *rows, uint32_t n, const uint8_t addr[16], const char *netdev,
	      char *why, size_t len);
/* The address of a socket as a GID has it; false: neither IPv4 nor IPv6. */
bool rdma_gid_of(const struct sockaddr_storage *sa, uint8_t gid[16]);
/* The network interface that has the address, or "". */
void rdma_netdev_of(const struct sockaddr_storage *sa, char netdev[IF_NAMESIZE]);
uint32_t rdma_mtu_bytes(uint8_t mtu);
/* How long a write may go unanswered before its link ends, at least, in ms. */
uint32_t rdma_patience_ms(bool soft);

struct rdma_dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	bool soft;			/* soft RoCE */
	bool windows;			/* type 2 memory windows, bound to a queue pair */
	_Atomic uint32_t news;		/* counts what its links have to look at */
	_Atomic uint32_t trouble[UINT8_MAX + 1];	/* by port: what ends the port's links */
	_Atomic bool dead;
};

/* The RDMA devices that could be opened; any thread. */
struct rdma_dev *rdma_devs(uint32_t *n);
/* Reads the present GID tables of all devices; returns the rows filled. */
uint32_t rdma_rows(struct rdma_gid *rows, uint32_t max);
/* rdma_pick() for what devices say now; 0 (*row filled) or TALLY_ENOENT. */
int rdma_find(const struct sockaddr_storage *sa, struct rdma_gid *row, char *why, size_t len);
/* Takes in what a device has to say about itself (its async descriptor is readable). */
void rdma_dev_events(struct rdma_dev *d);

struct xport_region {
	uint8_t *base;			/* borrowed */
	uint64_t bytes;
	bool peers_write, counted;
	struct ibv_mr *mr[RDMA_DEVS_MAX];	/* by device; NULL: none */
};

#endif
