// SPDX-License-Identifier: Apache-2.0
/*
 * The terminal, by the few control sequences that all of them know: home, clear to the
 * end of the line, clear below.  A picture is drawn into memory first and then written at
 * once, so that nothing flickers, and is cut at the last line, so that nothing scrolls.
 */
#include "cli/screen.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/table.h"
#include "common/base/parse.h"

#define COLUMNS_UNKNOWN	80u
#define COLUMNS_MOST	10000u
#define HEAD_COLUMNS	11u
#define PICTURE_BYTES	65536u		/* a larger one takes more than one write */
#define WORDS_LEAST	16u		/* a narrower screen gets one word a line */

#define HOME		"\033[H"
#define CLEAR_LINE	"\033[K"
#define CLEAR_BELOW	"\033[J"
#define WRAP_OFF	"\033[?7l"	/* what is too long is cut off at the edge */
#define WRAP_ON		"\033[?7h"

/* ---- columns ---- */

static bool screen_size(struct winsize *w)
{
	*w = (struct winsize){ 0 };
	return isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, w);
}

uint32_t screen_columns(bool wide)
{
	uint64_t columns = COLUMNS_UNKNOWN;
	struct winsize w;
	struct err e;

	if (wide || !screen_size(&w))
		return 0;
	if (w.ws_col)
		return w.ws_col;
	if (parse_u64(cmd_env("COLUMNS", ""), 1, COLUMNS_MOST, &columns, &e))
		columns = COLUMNS_UNKNOWN;
	return (uint32_t)columns;
}

/* ---- lines ---- */

/* Writes one line of words, as many as fit; returns where the next line begins. */
static const char *put_words(const char *text, size_t columns, FILE *out)
{
	char word[512];
	size_t used = 0;

	while (*text) {
		size_t n = MIN(strcspn(text, " "), sizeof(word) - 1), width;

		memcpy(word, text, n);
		word[n] = '\0';
		width = table_width_of(word);
		if (used && used + 1 + width > columns)
			break;
		fprintf(out, "%s%s", used ? " " : "", word);
		used += width + (used ? 1 : 0);
		text += n;
		text += strspn(text, " ");
	}
	putc('\n', out);
	return text;
}

void screen_line(FILE *out, uint32_t columns, const char *head, const char *fmt, ...)
{
	char *text = NULL;
	const char *at;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	fprintf(out, "%-*s", (int)HEAD_COLUMNS, head);
	if (!columns) {
		fprintf(out, "%s\n", text);
	} else {
		columns = columns > HEAD_COLUMNS + WORDS_LEAST ? columns - HEAD_COLUMNS :
			  WORDS_LEAST;
		for (at = put_words(text, columns, out); *at;) {
			fprintf(out, "%*s", (int)HEAD_COLUMNS, "");
			at = put_words(at, columns, out);
		}
	}
	free(text);
}

/* ---- again and again ---- */

static const char *volatile at_end = "\n";	/* written when Ctrl-C ends the process */

static void on_interrupt(int number)
{
	(void)number;
	(void)!write(STDOUT_FILENO, at_end, strlen(at_end));
	_exit(CMD_OK);
}

/* As many lines of text as there is room for, each over what was there before. */
static void put_picture(const char *text, size_t rows)
{
	fputs(WRAP_OFF HOME, stdout);
	while (*text && --rows) {
		size_t n = strcspn(text, "\n");

		printf("%.*s" CLEAR_LINE "\n", (int)n, text);
		text += n + (text[n] == '\n');
	}
	fputs(CLEAR_BELOW WRAP_ON, stdout);
}

static int show_once(const struct screen_show *s, bool first)
{
	struct winsize w;
	bool in_place = screen_size(&w) && s->in_place;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int status;

	if (!f)
		return CMD_FAILED;
	status = s->draw(s->ctx, f);
	if (fclose(f)) {
		free(text);
		return CMD_FAILED;
	}
	if (in_place && !status)
		put_picture(text, w.ws_row ? w.ws_row : SIZE_MAX);
	else
		printf("%s%s", first || !len ? "" : "\n", text);
	free(text);
	return status;
}

int screen_watch(const struct screen_show *s)
{
	static char buffer[PICTURE_BYTES];	/* of stdout, until the process ends */
	const struct sigaction end = { .sa_handler = on_interrupt };
	struct winsize w;
	bool first = true;
	int status;

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	if (screen_size(&w) && s->in_place) {
		at_end = WRAP_ON "\n";
		fputs(HOME CLEAR_BELOW, stdout);
	}
	sigaction(SIGINT, &end, NULL);
	for (;;) {
		status = show_once(s, first);
		if (status || fflush(stdout))
			return status;
		first = false;
		nanosleep(&(struct timespec){ .tv_sec = s->every_ms / 1000,
			  .tv_nsec = s->every_ms % 1000 * 1000000l }, NULL);
	}
}
