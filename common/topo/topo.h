/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo.h - what a machine that trains looks like inside.
 *
 * NUMA nodes with memory; PCIe switches below them, nested at will; GPUs and network
 * cards on a switch or straight on a CPU; NVLinks between GPUs.  Plain data: a reader
 * (common/rt/topo_read.h) or topo_line() fills it, local.h makes a plan of it.
 *
 * A switch here is any place where several devices share one way to the CPU.  GPUs
 * below one top switch reach each other without the CPU; all others only by NVLink or
 * through host memory.
 *
 * Rates are nominal, in bits/s and one direction, but for memory, where reads and
 * writes share one.  0 is unknown: topo_guess() puts something usual there and marks
 * it, so that whoever prints it can say so.  Not thread safe, no heap, about 50 KiB.
 */
#ifndef TALLY_TOPO_TOPO_H
#define TALLY_TOPO_TOPO_H

#include "common/base/err.h"

#define TOPO_NONE	UINT32_MAX	/* instead of an index: straight on the CPU, no card */

struct topo_rate {
	uint64_t bits_per_s;		/* 0: unknown */
	bool guessed;
};

struct topo_node {			/* a NUMA node */
	char name[TOPO_NAME_MAX + 1];
	uint32_t socket;		/* nodes of one number are one package */
	struct topo_rate memory;	/* reads and writes together */
};

/* Where something hangs: below a switch, or on a node's CPU by a link of its own. */
struct topo_place {
	uint32_t sw;			/* index of a switch, or TOPO_NONE */
	uint32_t node;			/* the NUMA node above all switches */
};

struct topo_switch {
	char name[TOPO_NAME_MAX + 1];
	struct topo_place at;		/* a switch above has a smaller index */
	struct topo_rate up;		/* its link toward the CPU */
};

struct topo_gpu {
	char name[TOPO_NAME_MAX + 1];
	struct topo_place at;
	struct topo_rate pcie;
	struct topo_rate nvswitch;	/* all its links into the NVSwitch fabric; 0: none */
};

struct topo_card {
	char name[TOPO_NAME_MAX + 1];
	struct topo_place at;
	struct topo_rate pcie;
	struct topo_rate net;		/* the wire's */
};

struct topo {
	uint32_t nodes, switches, gpus, cards;
	struct topo_node node[TOPO_NODES_MAX];
	struct topo_switch sw[TOPO_SWITCHES_MAX];
	struct topo_gpu gpu[TOPO_GPUS_MAX];
	struct topo_card card[TOPO_CARDS_MAX];
	struct topo_rate sockets;	/* between any two sockets */
	/* Point to point, all links of a pair together; symmetric, 0: none. */
	uint64_t nvlink[TOPO_GPUS_MAX][TOPO_GPUS_MAX];
};

/*
 * Takes one "what = words" of a description, the format of docs/ARCHITECTURE.md:
 *	node = n0 socket=0 memory=800gbit
 *	switch = s0 under=n0 rate=126gbit
 *	gpu = g0 under=s0 rate=126gbit nvswitch=2400gbit
 *	card = mlx0 under=s0 rate=126gbit net=100gbit
 *	nvlink = g0 g1 400gbit
 *	sockets = 300gbit
 * What hangs below something comes after it; rates may be left out.  `value` is cut
 * into words.  EINVAL, EEXIST, ENOENT or EQUOTA with a text; then t is as it was.
 */
int topo_line(struct topo *t, const char *what, char *value, struct err *e);

/* Is it a tree, within the limits, with names and NVLinks that hold?  Else EINVAL. */
int topo_check(const struct topo *t, struct err *e);

/* Puts usual rates where none is known, and marks them. */
void topo_guess(struct topo *t);

/*
 * Leaves the cards out whose rate is below half of the fastest one's: they serve
 * management, and a chunk that went by them would hold the round back.  A card's rate is
 * the smaller of wire and PCIe, as far as known; without any it goes where others have
 * one.  Returns how many went.
 */
uint32_t topo_drop_slow_cards(struct topo *t);

/* The switch next to the CPU on the way from there, or TOPO_NONE. */
uint32_t topo_top(const struct topo *t, const struct topo_place *at);

/* Whether two GPUs are below one top switch / joined by NVLink without a third GPU. */
bool topo_same_switch(const struct topo *t, uint32_t gpu_a, uint32_t gpu_b);
bool topo_nvlinked(const struct topo *t, uint32_t gpu_a, uint32_t gpu_b);
/* Bits/s between two GPUs by NVLink, 0: none. */
uint64_t topo_nvlink_rate(const struct topo *t, uint32_t gpu_a, uint32_t gpu_b);

#endif
