/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - facts about this machine, and random identities.
 */
#ifndef TALLY_RT_HOST_H
#define TALLY_RT_HOST_H

#include "common/base/err.h"

/*
 * Names the machine: what shares cards.  Hash of boot id and network namespace,
 * as 32 hex digits: two containers with cards of their own are two machines.
 */
void host_machine_id(char id[33]);
void host_name(char *buf, size_t len);		/* short host name */
int host_random(void *buf, size_t len);		/* getrandom; 0 or EIO */

/* Speed of the interface that owns the numeric address, or what it is shaped to if that is less,
 * bits/s; 0: unknown. */
uint64_t host_card_bits_per_s(const char *addr);
/* Rate of an interface's link, by the interface's name, however it is shaped. */
uint64_t host_interface_bits_per_s(const char *name);
/* The interface that owns the numeric address; false: none does.  HOST_INTERFACE_LEN bytes. */
#define HOST_INTERFACE_LEN 16
bool host_interface_of(const char *addr, char *name);
/* Whether an interface sends by that card: as a bond, a bridge or a VLAN of it, also of one. */
bool host_interface_is_over(const char *name, const char *card);
/* The PCI address of the card that owns the numeric address, "": none.  HOST_BUS_ID_LEN bytes. */
#define HOST_BUS_ID_LEN 32
void host_bus_id(const char *addr, char *bus_id);
/* Whether this machine owns that numeric address. */
bool host_has_address(const char *addr);

uint64_t host_memory_bytes(void);		/* cgroup limit counted */
/*
 * Memory that can be had without ending a process: free, reclaimable, and swap. UINT64_MAX where
 * the kernel does not tell.
 */
uint64_t host_memory_left_bytes(void);

#endif
