// SPDX-License-Identifier: Apache-2.0
/*
 * topo_hwloc.c - hwloc's tree, reduced to what a local plan asks about.
 *
 * Only GPUs and network cards count, and bridges only where ways of several of them
 * meet: such a bridge becomes a switch.  All others are part of a way, whose rate is that
 * of its slowest part.  So a switch with one GPU is none, and a card with two ports is
 * a switch with two cards; both are what the traffic sees.
 *
 * hwloc tells a link's speed of the moment, and idle GPUs slow theirs down.  On this
 * machine sysfs also tells what the link can do.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/rt/host.h"
#include "common/rt/hwloc_load.h"
#include "common/rt/topo_read.h"

#define CLASS_NETWORK	0x02
#define CLASS_DISPLAY	0x03
#define VENDOR_NVIDIA	0x10de

struct reading {
	hwloc_topology_t h;
	bool live;			/* sysfs speaks of the same machine */
	bool interfaces;		/* cards have them here; what has none is not used */
	struct topo *t;
	hwloc_obj_t sw[TOPO_SWITCHES_MAX];	/* the bridges that became switches */
	hwloc_obj_t gpu[TOPO_GPUS_MAX];
	uint32_t node_os_index[TOPO_NODES_MAX];
};

/* ---- devices ---- */

static const char *pci_text(hwloc_obj_t o, char *buf, size_t len)
{
	const struct hwloc_pcidev_attr_s *a = &o->attr->pcidev;

	snprintf(buf, len, "%04x:%02x:%02x.%01x", (unsigned)a->domain, a->bus, a->dev, a->func);
	return buf;
}

static bool is_gpu(hwloc_obj_t o)
{
	return o->type == HWLOC_OBJ_PCI_DEVICE && o->attr->pcidev.class_id >> 8 == CLASS_DISPLAY &&
	       o->attr->pcidev.vendor_id == VENDOR_NVIDIA;
}

/* The card's interface, or its InfiniBand device; NULL: it has none. */
static const char *interface_of(hwloc_obj_t o, hwloc_obj_osdev_type_t type)
{
	for (hwloc_obj_t i = o->io_first_child; i; i = i->next_sibling)
		if (i->type == HWLOC_OBJ_OS_DEVICE && i->attr->osdev.type == type && i->name)
			return i->name;
	return NULL;
}

/* /sys/bus/pci/devices/ADDRESS/name, on this machine. */
static bool sysfs_word(const struct reading *r, hwloc_obj_t o, const char *name, char *buf,
		       int len)
{
	char path[128], at[32];
	FILE *f;
	bool got;

	if (!r->live)
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", pci_text(o, at, sizeof(at)),
		 name);
	f = fopen(path, "re");
	got = f && fgets(buf, len, f);
	if (f)
		fclose(f);
	return got;
}

/* A part of a card that was cut up for virtual machines is no card of its own. */
static bool is_virtual(const struct reading *r, hwloc_obj_t o)
{
	char path[128], at[32];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/physfn", pci_text(o, at, sizeof(at)));
	return r->live && access(path, F_OK) == 0;
}

static bool has_interface(hwloc_obj_t o)
{
	return interface_of(o, HWLOC_OBJ_OSDEV_NETWORK) ||
	       interface_of(o, HWLOC_OBJ_OSDEV_OPENFABRICS);
}

static bool is_card(const struct reading *r, hwloc_obj_t o)
{
	if (o->type != HWLOC_OBJ_PCI_DEVICE)
		return false;
	if (has_interface(o))
		return !is_virtual(r, o);
	return !r->interfaces && o->attr->pcidev.class_id >> 8 == CLASS_NETWORK;
}

static bool counts(const struct reading *r, hwloc_obj_t o)
{
	if (is_gpu(o) || is_card(r, o))
		return true;
	for (hwloc_obj_t i = o->io_first_child; i; i = i->next_sibling)
		if (counts(r, i))
			return true;
	return false;
}

/* ---- ways ---- */

/* A bridge within PCI, not the one from the CPU into it. */
static bool is_bridge(hwloc_obj_t o)
{
	return o && o->type == HWLOC_OBJ_BRIDGE &&
	       o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

static bool is_switch(const struct reading *r, hwloc_obj_t o)
{
	uint32_t ways = 0;

	for (hwloc_obj_t i = o->io_first_child; i; i = i->next_sibling)
		ways += counts(r, i);
	return ways > 1;
}

/* Rate of a PCIe link at its present width, from sysfs: "16.0 GT/s PCIe" and "16". */
static uint64_t sysfs_rate(const struct reading *r, hwloc_obj_t o)
{
	char speed[64], width[64];
	double gts;
	unsigned lanes;

	if (!sysfs_word(r, o, "max_link_speed", speed, sizeof(speed)) ||
	    !sysfs_word(r, o, "current_link_width", width, sizeof(width)) ||
	    sscanf(speed, "%lf", &gts) != 1 || sscanf(width, "%u", &lanes) != 1)
		return 0;
	/* 8 of 10 bits are data up to 5 GT/s, 128 of 130 above */
	return (uint64_t)(gts * 1e9 * lanes * (gts > 5 ? 128.0 / 130 : 0.8));
}

static void narrow(const struct reading *r, hwloc_obj_t o, struct topo_rate *rate)
{
	float gbytes = o->type == HWLOC_OBJ_BRIDGE ? o->attr->bridge.upstream.pci.linkspeed :
		       o->attr->pcidev.linkspeed;
	uint64_t bits = sysfs_rate(r, o);

	if (!bits && gbytes > 0)
		bits = (uint64_t)((double)gbytes * 8e9 + 0.5);
	if (bits && (!rate->bits_per_s || bits < rate->bits_per_s))
		rate->bits_per_s = bits;
}

static uint32_t node_of(const struct reading *r, hwloc_obj_t o)
{
	hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(r->h, o);

	for (uint32_t i = 0; near && i < r->t->nodes; i++)
		if (hwloc_bitmap_isset(near->nodeset, r->node_os_index[i]))
			return i;
	return 0;
}

static int add_switch(struct reading *r, hwloc_obj_t o, uint32_t *index, struct err *e);

/* From a device or a switch up to the next switch or the CPU. */
static int find_way(struct reading *r, hwloc_obj_t o, struct topo_place *at,
		    struct topo_rate *rate, struct err *e)
{
	*at = (struct topo_place){ TOPO_NONE, node_of(r, o) };
	*rate = (struct topo_rate){ 0 };
	narrow(r, o, rate);
	for (o = o->parent; is_bridge(o); o = o->parent) {
		if (is_switch(r, o))
			return add_switch(r, o, &at->sw, e);
		narrow(r, o, rate);
	}
	return 0;
}

/* Or finds it, when another device's way led here before. */
static int add_switch(struct reading *r, hwloc_obj_t o, uint32_t *index, struct err *e)
{
	struct topo_switch s = { .name = "" };
	struct topo *t = r->t;
	int rc;

	for (*index = 0; *index < t->switches; ++*index)
		if (r->sw[*index] == o)
			return 0;
	rc = find_way(r, o, &s.at, &s.up, e);
	if (rc)
		return rc;
	if (t->switches == TOPO_SWITCHES_MAX)
		return err_set(e, TALLY_EQUOTA, "more than %u PCIe switches", TOPO_SWITCHES_MAX);
	pci_text(o, s.name, sizeof(s.name));
	*index = t->switches;
	r->sw[t->switches] = o;
	t->sw[t->switches++] = s;
	return 0;
}

/* ---- what is put into the description ---- */

static int add_gpu(struct reading *r, hwloc_obj_t o, struct err *e)
{
	struct topo_gpu g = { .name = "" };
	int rc;

	if (r->t->gpus == TOPO_GPUS_MAX)
		return err_set(e, TALLY_EQUOTA, "more than %u GPUs", TOPO_GPUS_MAX);
	rc = find_way(r, o, &g.at, &g.pcie, e);
	if (rc)
		return rc;
	pci_text(o, g.name, sizeof(g.name));
	r->gpu[r->t->gpus] = o;
	r->t->gpu[r->t->gpus++] = g;
	return 0;
}

static int add_card(struct reading *r, hwloc_obj_t o, struct err *e)
{
	const char *interface = interface_of(o, HWLOC_OBJ_OSDEV_NETWORK), *name = interface;
	struct topo_card c = { .name = "" };
	int rc;

	if (r->t->cards == TOPO_CARDS_MAX)
		return err_set(e, TALLY_EQUOTA, "more than %u network cards; a file of lines can "
			       "name those that count", TOPO_CARDS_MAX);
	rc = find_way(r, o, &c.at, &c.pcie, e);
	if (rc)
		return rc;
	if (!name)
		name = interface_of(o, HWLOC_OBJ_OSDEV_OPENFABRICS);
	if (name)
		snprintf(c.name, sizeof(c.name), "%s", name);
	else
		pci_text(o, c.name, sizeof(c.name));
	if (r->live && interface)
		c.net.bits_per_s = host_interface_bits_per_s(interface);
	r->t->card[r->t->cards++] = c;
	return 0;
}

/* A node without CPUs is a device's memory. */
static void add_node(struct reading *r, hwloc_obj_t o)
{
	hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(r->h, HWLOC_OBJ_PACKAGE, o);
	struct topo_node *n = &r->t->node[r->t->nodes];

	if (r->t->nodes == TOPO_NODES_MAX || !o->cpuset || hwloc_bitmap_iszero(o->cpuset))
		return;
	snprintf(n->name, sizeof(n->name), TOPO_NODE_NAME, o->os_index);
	n->socket = package ? package->logical_index : 0;
	r->node_os_index[r->t->nodes++] = o->os_index;
}

static int add_devices(struct reading *r, struct err *e)
{
	int rc = 0;

	r->interfaces = r->live;
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(r->h, o)) != NULL;)
		r->interfaces |= has_interface(o);
	for (hwloc_obj_t o = NULL; !rc && (o = hwloc_get_next_pcidev(r->h, o)) != NULL;)
		if (is_gpu(o))
			rc = add_gpu(r, o, e);
		else if (is_card(r, o))
			rc = add_card(r, o, e);
	return rc;
}

/* ---- NVLink ---- */

static uint32_t gpu_of(const struct reading *r, hwloc_obj_t o)
{
	while (o && o->type != HWLOC_OBJ_PCI_DEVICE)
		o = o->parent;
	for (uint32_t i = 0; i < r->t->gpus; i++)
		if (r->gpu[i] == o)
			return i;
	return TOPO_NONE;
}

static bool is_nvswitch(hwloc_obj_t o)
{
	return o && o->subtype && strcmp(o->subtype, "NVSwitch") == 0;
}

/* hwloc knows NVLinks in MB/s, if it was built with NVML. */
static void read_nvlinks(struct reading *r, const struct hwloc_distances_s *d)
{
	for (unsigned i = 0; i < d->nbobjs; i++)
		for (unsigned j = 0; j < d->nbobjs; j++) {
			uint32_t a = gpu_of(r, d->objs[i]), b = gpu_of(r, d->objs[j]);
			uint64_t bits = d->values[i * d->nbobjs + j] * UINT64_C(8000000);

			if (a == TOPO_NONE || a == b || bits == 0)
				continue;
			if (is_nvswitch(d->objs[j]))
				r->t->gpu[a].nvswitch.bits_per_s += bits;
			else if (b != TOPO_NONE && bits > r->t->nvlink[a][b])
				r->t->nvlink[a][b] = r->t->nvlink[b][a] = bits;
		}
}

static bool hwloc_knows_nvlinks(struct reading *r)
{
	struct hwloc_distances_s *d;
	unsigned n = 1;

	if (hwloc_distances_get_by_name(r->h, "NVLinkBandwidth", &n, &d, 0) || n == 0)
		return false;
	read_nvlinks(r, d);
	hwloc_distances_release(r->h, d);
	return true;
}

/* ---- all of it ---- */

/*
 * Parts of hwloc that are not asked here: some start a GPU's driver, which takes seconds,
 * and "pci" reads names of all devices there are, where sysfs tells of those here.
 */
static void leave_out(hwloc_topology_t h)
{
	static const char *const parts[] = { "pci", "opencl", "cuda", "gl", "rsmi", "levelzero" };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		hwloc_topology_set_components(h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
					      parts[i]);
}

static int load(hwloc_topology_t h, const char *xml)
{
	leave_out(h);
	hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_ALL);
	return (xml && hwloc_topology_set_xml(h, xml)) || hwloc_topology_load(h);
}

/* In a child: hwloc takes attributes of XML for granted, and does not survive if some lack. */
static bool can_load(const char *xml)
{
	hwloc_topology_t h;
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		(void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		_exit(hwloc_topology_init(&h) || load(h, xml));
	}
	return child < 0 || waitpid(child, &status, 0) != child || !status;
}

int hwloc_load(hwloc_topology_t h, const char *xml, struct err *e)
{
	if (!xml)
		return load(h, NULL) ? err_set(e, TALLY_EIO, "hwloc cannot tell what is here") : 0;
	if (!can_load(xml) || load(h, xml))
		return err_set(e, TALLY_EINVAL, "%s is not XML that this hwloc (%d.%d) reads; a "
			       "newer one's can be had by lstopo --export-xml-flags v2", xml,
			       HWLOC_API_VERSION >> 16, HWLOC_API_VERSION >> 8 & 0xff);
	return 0;
}

static int read_all(struct reading *r, const char *xml, struct err *e)
{
	int rc = hwloc_load(r->h, xml, e);

	if (rc)
		return rc;
	r->live = hwloc_topology_is_thissystem(r->h);
	for (hwloc_obj_t o = NULL;
	     (o = hwloc_get_next_obj_by_type(r->h, HWLOC_OBJ_NUMANODE, o)) != NULL;)
		add_node(r, o);
	rc = add_devices(r, e);
	if (rc)
		return err_wrap(e, "%s", xml ? xml : "hwloc");
	if (!hwloc_knows_nvlinks(r) && r->live)
		topo_read_nvml(r->t, NULL);
	return 0;
}

int topo_read_hwloc(const char *xml, struct topo *t, struct err *e)
{
	struct reading r = { .t = t };
	int rc;

	if (hwloc_topology_init(&r.h) < 0)
		return err_set(e, TALLY_ENOMEM, "hwloc cannot start");
	rc = read_all(&r, xml, e);
	hwloc_topology_destroy(r.h);
	return rc;
}
