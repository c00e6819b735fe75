// SPDX-License-Identifier: Apache-2.0
/*
 * topo_nvml.c - NVLinks, asked of NVIDIA's management library.
 *
 * It comes with the driver, so it is there where GPUs are and nowhere else: it is opened
 * at run time, and seven functions are declared here, whose interface has been stable
 * since it has NVLinks.  Anything that fails means that there is no NVLink; where the
 * library does not begin its work, that is said.
 */
#include <dlfcn.h>
#include <string.h>
#include <strings.h>

#include "common/rt/log.h"
#include "common/rt/topo_read.h"

#define LINKS_MAX	36u		/* of one GPU; there are 18 so far */
#define REMOTE_GPU	0u
#define REMOTE_SWITCH	2u

struct pci_info {			/* nvmlPciInfo_t */
	char legacy[16];
	unsigned numbers[5];
	char bus_id[32];
};

static_assert(sizeof(struct pci_info) == 68, "as NVML has it");

static bool open_library(struct nvml *n)
{
	const struct {
		const char *name;
		void *to;
	} functions[] = {
		{ "nvmlInit_v2", &n->init },
		{ "nvmlShutdown", &n->shutdown },
		{ "nvmlDeviceGetHandleByPciBusId_v2", &n->device },
		{ "nvmlDeviceGetNvLinkState", &n->nvlink_state },
		{ "nvmlDeviceGetNvLinkVersion", &n->nvlink_version },
		{ "nvmlDeviceGetNvLinkRemoteDeviceType", &n->nvlink_remote_type },
		{ "nvmlDeviceGetNvLinkRemotePciInfo_v2", &n->nvlink_remote_pci },
	};
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

	for (size_t i = 0; library && i < ARRAY_SIZE(functions); i++) {
		void *f = dlsym(library, functions[i].name);

		if (!f) {
			dlclose(library);
			return false;
		}
		memcpy(functions[i].to, &f, sizeof(f));
	}
	return library != NULL;		/* and stays open */
}

/* Bits per second of one NVLink in one direction; versions are NVML's numbers, 1.0 to 5.0. */
static uint64_t rate_of_version(unsigned version)
{
	if (version <= 1)
		return UINT64_C(160000000000);
	return version >= 7 ? UINT64_C(400000000000) : UINT64_C(200000000000);
}

/* NVML writes eight digits of domain and capitals, the kernel four and none. */
static bool same_device(const char *nvml, const char *ours)
{
	size_t a = strnlen(nvml, sizeof(((struct pci_info *)0)->bus_id)), b = strlen(ours);

	return a >= b && strncasecmp(nvml + a - b, ours, b) == 0 &&
	       strspn(nvml, "0") >= a - b;
}

static void take_link(struct topo *t, const struct nvml *n, uint32_t gpu, void *device,
		      unsigned link)
{
	unsigned active = 0, version = 0, type = REMOTE_GPU;
	struct pci_info far = { .legacy = "" };
	uint64_t rate;

	if (n->nvlink_state(device, link, &active) || !active ||
	    n->nvlink_version(device, link, &version) ||
	    n->nvlink_remote_type(device, link, &type))
		return;
	rate = rate_of_version(version);
	if (type == REMOTE_SWITCH)
		t->gpu[gpu].nvswitch.bits_per_s += rate;
	if (type != REMOTE_GPU || n->nvlink_remote_pci(device, link, &far))
		return;
	/* each end tells of the link: count it from the lower one */
	for (uint32_t i = gpu + 1; i < t->gpus; i++)
		if (same_device(far.bus_id, t->gpu[i].name)) {
			t->nvlink[gpu][i] += rate;
			t->nvlink[i][gpu] = t->nvlink[gpu][i];
		}
}

static bool has_nvlink(const struct topo *t, uint32_t gpu)
{
	for (uint32_t i = 0; i < t->gpus; i++)
		if (topo_nvlinked(t, gpu, i))
			return true;
	return false;
}

uint32_t topo_read_nvml(struct topo *t, const struct nvml *n)
{
	struct nvml found;
	uint32_t have = 0;
	int rc;

	if (t->gpus == 0)
		return 0;
	if (!n && !open_library(&found))
		return 0;
	n = n ? n : &found;
	rc = n->init();
	if (rc) {
		log_warn("NVLinks are not seen, nvmlInit_v2() says %d: this process may have no "
			 "access to /dev/nvidiactl", rc);
		return 0;
	}
	for (uint32_t i = 0; i < t->gpus; i++) {
		void *device = NULL;

		if (n->device(t->gpu[i].name, &device))
			continue;
		for (unsigned link = 0; link < LINKS_MAX; link++)
			take_link(t, n, i, device, link);
	}
	n->shutdown();
	for (uint32_t i = 0; i < t->gpus; i++)
		have += has_nvlink(t, i);
	return have;
}
