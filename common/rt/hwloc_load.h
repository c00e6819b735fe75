/* SPDX-License-Identifier: Apache-2.0 */
/* hwloc_load.h - hwloc's description of a machine; for the files that walk through it. */
#ifndef TALLY_RT_HWLOC_LOAD_H
#define TALLY_RT_HWLOC_LOAD_H

#include <hwloc.h>

#include "common/base/err.h"

/* Loads h (initialized; the caller destroys it) with all its devices: from an XML file, or
 * this machine's where xml is NULL.  EIO or EINVAL with a text. */
int hwloc_load(hwloc_topology_t h, const char *xml, struct err *e);

#endif
