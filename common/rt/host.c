// SPDX-License-Identifier: Apache-2.0
/*
 * Facts about this machine.
 *
 * Everything about cards is asked by ioctl on a socket: /sys may be mounted from
 * another network namespace and speak of cards that are not ours.  For the same
 * reason a card is found in hwloc's tree by its PCI address, which the driver
 * tells, and not by its name.  What cannot be found out is "unknown", never an
 * error: a machine without answers must work too.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/parse.h"
#include "common/rt/host.h"
#include "common/rt/shaper.h"
#include "common/shm/limit.h"

/* ---- identity ---- */

/* The first line of a file without its newline; "" when there is none. */
static void read_word(const char *path, char *buf, size_t len)
{
	FILE *f = fopen(path, "re");

	buf[0] = '\0';
	if (!f)
		return;
	if (!fgets(buf, (int)len, f))
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	fclose(f);
}

/* FNV-1a */
static uint64_t hash_text(const char *s, uint64_t h)
{
	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * UINT64_C(0x100000001b3);
	return h;
}

void host_machine_id(char id[33])
{
	char boot[64], facts[160];
	struct stat st = { 0 };

	read_word("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	if (boot[0] == '\0')
		host_name(boot, sizeof(boot));
	if (stat("/proc/self/ns/net", &st) < 0)
		st.st_ino = 0;
	snprintf(facts, sizeof(facts), "%s/%llu", boot, (unsigned long long)st.st_ino);
	snprintf(id, 33, "%016llx%016llx",
		 (unsigned long long)hash_text(facts, UINT64_C(0xcbf29ce484222325)),
		 (unsigned long long)hash_text(facts, UINT64_C(0x84222325cbf29ce4)));
}

void host_name(char *buf, size_t len)
{
	if (gethostname(buf, len) < 0)
		snprintf(buf, len, "localhost");
	buf[len - 1] = '\0';
	buf[strcspn(buf, ".")] = '\0';
}

int host_random(void *buf, size_t len)
{
	uint8_t *p = buf;

	while (len > 0) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return TALLY_EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* ---- cards ---- */

#define LAYERS_MAX	4u	/* as a VLAN on a bridge of a bond of cards */

/* A link-local address says its interface, too: "fe80::1%eth0". */
static bool has_address(const struct ifaddrs *i, const char *addr)
{
	const struct sockaddr *sa = i->ifa_addr;
	const char *scope = strchr(addr, '%');
	char number[INET6_ADDRSTRLEN];
	union {
		struct in_addr v4;
		struct in6_addr v6;
	} want;

	if (!sa || (scope && strcmp(scope + 1, i->ifa_name)))
		return false;
	snprintf(number, sizeof(number), "%.*s", (int)strcspn(addr, "%"), addr);
	if (sa->sa_family == AF_INET && inet_pton(AF_INET, number, &want.v4) == 1)
		return memcmp(&((const struct sockaddr_in *)(const void *)sa)->sin_addr, &want.v4,
			      sizeof(want.v4)) == 0;
	if (sa->sa_family == AF_INET6 && inet_pton(AF_INET6, number, &want.v6) == 1)
		return memcmp(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr,
			      &want.v6, sizeof(want.v6)) == 0;
	return false;
}

static_assert(HOST_INTERFACE_LEN == IFNAMSIZ, "a name fits");

bool host_interface_of(const char *addr, char *name)
{
	struct ifaddrs *all, *i;

	if (getifaddrs(&all) < 0)
		return false;
	for (i = all; i; i = i->ifa_next)
		if (has_address(i, addr)) {
			snprintf(name, IFNAMSIZ, "%s", i->ifa_name);
			name[strcspn(name, ":")] = '\0';	/* the address's label */
			break;
		}
	freeifaddrs(all);
	return i != NULL;
}

static bool is_over(const char *name, const char *card, uint32_t layers)
{
	static const char lower[] = "lower_";
	char path[64];
	struct dirent *at;
	bool found = false;
	DIR *d;

	snprintf(path, sizeof(path), "/sys/class/net/%.*s", IFNAMSIZ - 1, name);
	d = opendir(path);
	while (d && !found && (at = readdir(d))) {
		const char *below = at->d_name + sizeof(lower) - 1;

		if (!strncmp(at->d_name, lower, sizeof(lower) - 1))
			found = !strcmp(below, card) ||
				(layers > 1 && is_over(below, card, layers - 1));
	}
	if (d)
		closedir(d);
	return found;
}

bool host_interface_is_over(const char *name, const char *card)
{
	return is_over(name, card, LAYERS_MAX);
}

static int ask_card(const char *name, void *request)
{
	struct ifreq ifr = { .ifr_data = request };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -1;
	memcpy(ifr.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	r = ioctl(fd, SIOCETHTOOL, &ifr);
	close(fd);
	return r;
}

/*
 * ETHTOOL_GLINKSETTINGS is asked twice: the first answer says (negated) how many
 * words of link modes the kernel wants room for.
 */
uint64_t host_interface_bits_per_s(const char *name)
{
	union {
		struct ethtool_link_settings s;
		uint32_t room[sizeof(struct ethtool_link_settings) / 4 + 3 * INT8_MAX];
	} q = { .s = { .cmd = ETHTOOL_GLINKSETTINGS } };

	if (ask_card(name, &q) < 0 || q.s.link_mode_masks_nwords >= 0)
		return 0;
	q.s.link_mode_masks_nwords = (int8_t)-q.s.link_mode_masks_nwords;
	q.s.cmd = ETHTOOL_GLINKSETTINGS;
	if (ask_card(name, &q) < 0 || q.s.speed == (uint32_t)SPEED_UNKNOWN)
		return 0;
	return q.s.speed * UINT64_C(1000000);
}

uint64_t host_card_bits_per_s(const char *addr)
{
	uint64_t link, shaped;
	char name[IFNAMSIZ];

	if (!host_interface_of(addr, name))
		return 0;
	link = host_interface_bits_per_s(name);
	shaped = shaper_bits_per_s(if_nametoindex(name));
	return link && shaped ? MIN(link, shaped) : MAX(link, shaped);
}

void host_bus_id(const char *addr, char *bus_id)
{
	struct ethtool_drvinfo drv = { .cmd = ETHTOOL_GDRVINFO };
	char name[IFNAMSIZ];

	static_assert(HOST_BUS_ID_LEN == sizeof(drv.bus_info), "one is copied to the other");
	bus_id[0] = '\0';
	if (!host_interface_of(addr, name) || ask_card(name, &drv) < 0)
		return;
	drv.bus_info[sizeof(drv.bus_info) - 1] = '\0';
	if (strchr(drv.bus_info, ':'))
		memcpy(bus_id, drv.bus_info, sizeof(drv.bus_info));
}

/* The kernel knows best: all of 127.0.0.0/8 is ours, though no interface lists it. */
bool host_has_address(const char *addr)
{
	const struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST | AI_PASSIVE,
		.ai_socktype = SOCK_DGRAM,
	};
	struct addrinfo *ai;
	bool ours;
	int fd;

	if (getaddrinfo(addr, "0", &hints, &ai))
		return false;
	fd = socket(ai->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ours = fd >= 0 && !bind(fd, ai->ai_addr, ai->ai_addrlen);
	if (fd >= 0)
		close(fd);
	freeaddrinfo(ai);
	return ours;
}

/* ---- memory ---- */

uint64_t host_memory_bytes(void)
{
	return limit_memory_bytes();
}

uint64_t host_memory_left_bytes(void)
{
	return limit_memory_left(NULL);
}
