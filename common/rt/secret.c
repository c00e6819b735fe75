// SPDX-License-Identifier: Apache-2.0
#include "common/rt/secret.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/utf8.h"

static int read_line(FILE *f, const char *path, char *secret, size_t len, struct err *e)
{
	struct stat st;
	size_t got;
	char *end;

	if (fstat(fileno(f), &st) || (st.st_mode & 077))
		return err_set(e, TALLY_EAUTH, "%s may be read by others; chmod 600 it", path);
	got = fread(secret, 1, len, f);
	if (ferror(f))
		return err_set(e, TALLY_EIO, "cannot read secret file %s: %m", path);
	if (!got)
		return err_set(e, TALLY_EINVAL, "%s is empty", path);
	end = memchr(secret, '\n', got);
	if (!end && got == len)
		return err_set(e, TALLY_EINVAL, "the secret in %s is longer than %zu", path,
			       len - 1);
	end = end ? end : secret + got;
	while (end > secret && end[-1] == '\r')
		end--;
	*end = '\0';
	if (end == secret)
		return err_set(e, TALLY_EINVAL, "the first line of %s is empty", path);
	if (strlen(secret) != (size_t)(end - secret) || !utf8_is_text(secret))
		return err_set(e, TALLY_EINVAL, "the first line of %s is no text (UTF-8 without "
			       "control characters); \"openssl rand -hex 32\" makes some", path);
	return 0;
}

int secret_read(const char *path, char *secret, size_t len, struct err *e)
{
	FILE *f;
	int rc;

	secret[0] = '\0';
	if (!path)
		return 0;
	if (!path[0])			/* a variable that is not set, mostly */
		return err_set(e, TALLY_EINVAL, "the secret file's name is empty; for no secret "
			       "leave it out");
	f = fopen(path, "re");
	if (!f)
		return err_set(e, TALLY_EIO, "cannot read secret file %s: %m", path);
	rc = read_line(f, path, secret, len, e);
	fclose(f);
	return rc;
}
