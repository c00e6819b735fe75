/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret.h - the cluster's join secret.
 */
#ifndef TALLY_RT_SECRET_H
#define TALLY_RT_SECRET_H

#include "common/base/err.h"

/* First line of the file; NULL path: "".  Refuses a file that others may read, an empty line,
 * one longer than len - 1, and one that is no text: no message could carry it. */
int secret_read(const char *path, char *secret, size_t len, struct err *e);

#endif
