// SPDX-License-Identifier: Apache-2.0
/*
 * pingpong: how long a message takes there and back over a plain TCP connection.
 *
 *	pingpong BYTES			waits for one partner, answers until it leaves
 *	pingpong BYTES ADDRESS COUNT	asks so often; prints the median in microseconds
 *
 * Blocking send() and recv(), no delay: what a round of a small tensor is measured by.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT		7499
#define BYTES_MAX	(1 << 20)
#define COUNT_MAX	(1 << 20)

static char buffer[BYTES_MAX];

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "pingpong: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void give(int fd, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = send(fd, buffer + done, bytes - done, MSG_NOSIGNAL);

		if (n <= 0)
			die("send");
		done += (size_t)n;
	}
}

/* 0: the partner has left. */
static int take(int fd, size_t bytes)
{
	ssize_t n = recv(fd, buffer, bytes, MSG_WAITALL);

	if (n < 0)
		die("recv");
	return (size_t)n == bytes;
}

static void no_delay(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		die("TCP_NODELAY");
}

static int answer(size_t bytes)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 1) < 0)
		die("listen");
	puts("listening");
	fflush(stdout);
	fd = accept(fd, NULL, NULL);
	if (fd < 0)
		die("accept");
	no_delay(fd);
	while (take(fd, bytes))
		give(fd, bytes);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int ask(size_t bytes, const char *address, size_t count)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	double *us = calloc(count, sizeof(*us));

	if (!us)
		die("memory");
	if (inet_pton(AF_INET, address, &a.sin_addr) != 1 || fd < 0 ||
	    connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		die(address);
	no_delay(fd);
	for (size_t i = 0; i < count; i++) {
		double from = now_us();

		give(fd, bytes);
		if (!take(fd, bytes))
			die("the partner has left");
		us[i] = now_us() - from;
	}
	qsort(us, count, sizeof(*us), by_value);
	printf("%.3f\n", us[count / 2]);
	free(us);
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	long bytes = argc > 1 ? atol(argv[1]) : 0, count = argc > 3 ? atol(argv[3]) : 0;

	if (argc == 2 && bytes > 0 && bytes <= BYTES_MAX)
		return answer((size_t)bytes);
	if (argc == 4 && bytes > 0 && bytes <= BYTES_MAX && count > 0 && count <= COUNT_MAX)
		return ask((size_t)bytes, argv[2], (size_t)count);
	fputs("Usage: pingpong BYTES [ADDRESS COUNT]\n", stderr);
	return 2;
}
