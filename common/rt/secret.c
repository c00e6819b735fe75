// SPDX-License-Identifier: Apache-2.0
#include "common/rt/secret.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int read_line(FILE *f, const char *path, char *secret, size_t len, struct err *e)
{
	struct stat st;

	if (fstat(fileno(f), &st) || (st.st_mode & 077))
		return err_set(e, TALLY_EAUTH, "%s may be read by others; chmod 600 it", path);
	if (!fgets(secret, (int)len, f))
		return err_set(e, TALLY_EINVAL, "%s is empty", path);
	if (strlen(secret) == len - 1 && secret[len - 2] != '\n')
		return err_set(e, TALLY_EINVAL, "the secret in %s is longer than %zu", path,
			       len - 2);
	secret[strcspn(secret, "\r\n")] = '\0';
	if (!secret[0])
		return err_set(e, TALLY_EINVAL, "the first line of %s is empty", path);
	return 0;
}

int secret_read(const char *path, char *secret, size_t len, struct err *e)
{
	FILE *f;
	int rc;

	secret[0] = '\0';
	if (!path || !path[0])
		return 0;
	f = fopen(path, "re");
	if (!f)
		return err_set(e, TALLY_EIO, "cannot read secret file %s: %m", path);
	rc = read_line(f, path, secret, len, e);
	fclose(f);
	return rc;
}
