/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_read.h - where a description of a machine comes from.
 *
 * This machine by hwloc, and NVML for NVLinks where its library is there; hwloc's XML of
 * any machine (lstopo FILE.xml); or a file of lines that people write (topo_line()).
 * GPUs are NVIDIA's, named by their PCI address; cards are PCI network devices, named
 * by their interface, else by their InfiniBand device, else by their PCI address.
 *
 * Rates that nobody knows stay 0.  Blocking, called before there is anything to do.
 */
#ifndef TALLY_RT_TOPO_READ_H
#define TALLY_RT_TOPO_READ_H

#include "common/topo/topo.h"

#define TOPO_NODE_NAME "node%u"	/* of hwloc's NUMA nodes, by the kernel's number */

enum topo_source {
	TOPO_LIVE,		/* this machine, by hwloc */
	TOPO_XML,		/* hwloc's, of some machine */
	TOPO_LINES,		/* what people wrote, who mean every card in it */
};

/*
 * Fills t.  file NULL: this machine; one that begins with '<' is hwloc's XML, anything
 * else are lines.  The result has passed topo_check().  Errors with a text that names
 * the file; then t holds nothing of use.
 */
int topo_read(const char *file, struct topo *t, enum topo_source *source, struct err *e);

/*
 * Leaves the cards that rails name, by numeric addresses, as no others will be used.  Where
 * none of them is a card in t (loopback, a bridge, no rails): topo_drop_slow_cards().
 */
void topo_keep_rails(struct topo *t, const char *const *rail, uint32_t nrails);

/*
 * topo_read() and, of its cards, those that an agent with these rails uses: the plan that
 * follows is the agent's, whoever makes it.  Rails are of this machine; a file of lines
 * means every card in it, and of XML the fast ones are used.  left_out: so many cards went.
 */
int topo_read_used(const char *file, const char *const *rail, uint32_t nrails, struct topo *t,
		   uint32_t *left_out, struct err *e);

/*
 * The functions of NVML that are used, as in its header; none is NULL.  nvlink_remote_pci
 * fills 68 bytes, of which the last 32 are the PCI address as text.
 */
struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	int (*device)(const char *bus_id, void **device);
	int (*nvlink_state)(void *device, unsigned link, unsigned *active);
	int (*nvlink_version)(void *device, unsigned link, unsigned *version);
	int (*nvlink_remote_type)(void *device, unsigned link, unsigned *type);
	int (*nvlink_remote_pci)(void *device, unsigned link, void *pci);
};

/* NVLinks of the GPUs in t; n NULL: libnvidia-ml.so.1, if there is one.  The number of
 * GPUs that have some. */
uint32_t topo_read_nvml(struct topo *t, const struct nvml *n);

/* The part of topo_read() that reads hwloc; xml NULL: this machine. */
int topo_read_hwloc(const char *xml, struct topo *t, struct err *e);

#endif
