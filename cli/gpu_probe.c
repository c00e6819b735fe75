// SPDX-License-Identifier: Apache-2.0
/*
 * CUDA's devices are opened one by one and found in the description by their PCI addresses.
 * NVLinks join pairs, and each is measured; into an NVSwitch all links of a GPU lead, whose
 * rate is that to any other GPU behind it, so one for each is enough.
 */
#include "cli/gpu_probe.h"

#include <dlfcn.h>
#include <string.h>
#include <strings.h>

#include "client/gpu/plugin.h"

#define PLUGIN "libtally-cuda.so.0"

struct gpus {
	const struct gpu_plugin *ops;
	struct gpu *dev[TOPO_GPUS_MAX];	/* owned; by the description's numbers, NULL: not seen */
	struct topo *t;
	FILE *out;
};

static const struct gpu_plugin *load(FILE *out)
{
	void *so = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
	gpu_plugin_fn *get = so ? (gpu_plugin_fn *)dlsym(so, GPU_PLUGIN_SYMBOL) : NULL;
	const struct gpu_plugin *ops = get ? get() : NULL;

	if (!ops)
		fprintf(out, "# not measured: GPUs: %s\n", dlerror());
	else if (ops->version != GPU_PLUGIN_VERSION)
		fprintf(out, "# not measured: GPUs: " PLUGIN " is of version %u, tally of %u\n",
			ops->version, GPU_PLUGIN_VERSION);
	return ops && ops->version == GPU_PLUGIN_VERSION ? ops : NULL;
}

static void take_device(struct gpus *p, struct gpu *g, const char *name)
{
	for (uint32_t i = 0; i < p->t->gpus; i++)
		if (!p->dev[i] && !strcasecmp(p->t->gpu[i].name, name)) {
			p->dev[i] = g;
			return;
		}
	fprintf(p->out, "# not measured: %s, which is not among the GPUs that hwloc shows\n", name);
	p->ops->close(g);
}

static void open_all(struct gpus *p)
{
	char name[GPU_NAME_MAX + 1];
	struct gpu *g;
	struct err e;
	bool some = false;
	int rc = 0;

	for (int i = 0; rc != TALLY_ENOENT && i < (int)TOPO_GPUS_MAX; i++) {
		rc = p->ops->open(i, &g, name, &e);
		some |= !rc;
		if (!rc)
			take_device(p, g, name);
		else if (!i || rc != TALLY_ENOENT)
			fprintf(p->out, "# not measured: %s\n", e.text);
	}
	for (uint32_t i = 0; some && i < p->t->gpus; i++)
		if (!p->dev[i])
			fprintf(p->out, "# not measured: %s, which CUDA does not show\n",
				p->t->gpu[i].name);
}

/* Bits/s, 0: that was no success, and has been told. */
static uint64_t rate(const struct gpus *p, enum gpu_way way, uint32_t gpu, uint32_t peer)
{
	const char *name = p->t->gpu[gpu].name, *far = way == GPU_TO_GPU ? p->t->gpu[peer].name :
						       "host";
	uint64_t bytes;
	struct err e;

	if (p->ops->measure(p->dev[gpu], way, p->dev[peer], &bytes, &e)) {
		fprintf(p->out, "# not measured: %s: %s\n", name, e.text);
		return 0;
	}
	fprintf(p->out, "# measured: %s %s %s %.3f GB/s\n", name,
		way == GPU_FROM_HOST ? "from" : "to", far, (double)bytes / 1e9);
	return 8 * bytes;
}

static void probe_host(struct gpus *p, uint32_t gpu)
{
	uint64_t out = rate(p, GPU_TO_HOST, gpu, gpu), in = rate(p, GPU_FROM_HOST, gpu, gpu);

	if (out && in)
		p->t->gpu[gpu].pcie = (struct topo_rate){ MIN(out, in), false };
}

static void probe_link(struct gpus *p, uint32_t a, uint32_t b)
{
	uint64_t there, back;

	if (!p->t->nvlink[a][b] || !p->dev[a] || !p->dev[b])
		return;
	there = rate(p, GPU_TO_GPU, a, b);
	back = rate(p, GPU_TO_GPU, b, a);
	if (there && back)
		p->t->nvlink[a][b] = p->t->nvlink[b][a] = MIN(there, back);
}

static void probe_switch(struct gpus *p, uint32_t gpu)
{
	uint64_t bits;

	for (uint32_t i = 1; i < p->t->gpus; i++) {
		uint32_t peer = (gpu + i) % p->t->gpus;

		if (!p->dev[peer] || !p->t->gpu[peer].nvswitch.bits_per_s)
			continue;
		bits = rate(p, GPU_TO_GPU, gpu, peer);
		if (bits)
			p->t->gpu[gpu].nvswitch = (struct topo_rate){ bits, false };
		return;
	}
}

/*
 * Says that copies between GPUs below one switch were not measured: they share the switch, so
 * single measurements would say little.
 */
static void tell_of_switches(const struct gpus *p)
{
	for (uint32_t a = 0; a < p->t->gpus; a++)
		for (uint32_t b = 0; b < a; b++) {
			if (!topo_same_switch(p->t, a, b) || topo_nvlinked(p->t, a, b))
				continue;
			fprintf(p->out, "# not measured: from GPU to GPU below a switch; the plan "
				"goes by their links\n");
			return;
		}
}

void gpu_probe(struct topo *t, FILE *out)
{
	struct gpus p = { .t = t, .out = out, .ops = t->gpus ? load(out) : NULL };

	if (!p.ops)
		return;
	open_all(&p);
	for (uint32_t i = 0; i < t->gpus; i++) {
		if (p.dev[i])
			probe_host(&p, i);
		if (p.dev[i] && t->gpu[i].nvswitch.bits_per_s)
			probe_switch(&p, i);
		for (uint32_t k = i + 1; k < t->gpus; k++)
			probe_link(&p, i, k);
	}
	tell_of_switches(&p);
	for (uint32_t i = 0; i < t->gpus; i++)
		if (p.dev[i])
			p.ops->close(p.dev[i]);
}
