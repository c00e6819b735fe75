/* SPDX-License-Identifier: Apache-2.0 */
/* shaper.h - what an interface is held to by the kernel's traffic control (tc). */
#ifndef TALLY_RT_SHAPER_H
#define TALLY_RT_SHAPER_H

#include <stdint.h>

/*
 * The rate of a tbf at the root of what the interface itself sends, or the least ceiling of the
 * default class of an htb there and of the classes above it, in bits/s; 0: there is neither, or
 * the kernel does not say.  Needs no rights.
 */
uint64_t shaper_bits_per_s(unsigned int ifindex);

#endif
