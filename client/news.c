// SPDX-License-Identifier: Apache-2.0
/*
 * news.c - the descriptor for somebody else's poll, and tally_poll().
 *
 * It is an epoll descriptor over three: the completion bell, the agent's socket
 * (which tells that the agent is gone), and an eventfd of our own.  The bell rings
 * only while armed, so every call that takes completions in arms it again; what
 * came in on the way, while another ticket was waited for, rings nothing any
 * more, and is told by the eventfd instead.
 */
#include "client/back.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/clock.h"
#include "common/shm/limit.h"

#define LOOK_MS	20

/* Makes the descriptor readable, once; tally_poll() makes it quiet again. */
static void tell_news(tally_session *s)
{
	if (s->news_told)
		return;
	s->news_told = eventfd_write(s->news_fd, 1) == 0;
}

void lt_news_arm(tally_session *s)
{
	struct err why;

	if (s->poll_fd < 0)
		return;
	why = s->err;
	while (!s->over.code && !s->away && !ring_cpl_sleep(&s->ring))
		if (lt_round_take_all(s) == 0)
			(void)lt_session_live(s);
	s->err = why;
	if (s->fresh || s->over.code)
		tell_news(s);
	if (s->timeline)
		lt_timeline_flush(s->timeline);	/* who polls may sleep now, elsewhere */
}

static bool watch(int epfd, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events };

	return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

/* As lt_conn_close() does, and for the same reason. */
static void unwatch(const tally_session *s, int fd)
{
	if (s->poll_fd >= 0 && fd >= 0)
		epoll_ctl(s->poll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void lt_news_unwatch(tally_session *s)
{
	unwatch(s, s->cpl_bell);
}

/* While the agent is away a timer: then it is time to look whether it is back. */
static bool watch_agent(tally_session *s)
{
	static const struct itimerspec each = {
		.it_interval.tv_nsec = LOOK_MS * NS_PER_MS, .it_value.tv_nsec = LOOK_MS * NS_PER_MS,
	};

	if (s->away_fd >= 0) {
		unwatch(s, s->away_fd);
		close(s->away_fd);
	}
	s->away_fd = -1;
	if (!s->away)
		return watch(s->poll_fd, s->cpl_bell, EPOLLIN) &&
		       watch(s->poll_fd, s->conn.fd, EPOLLRDHUP);
	s->away_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return s->away_fd >= 0 && timerfd_settime(s->away_fd, 0, &each, NULL) == 0 &&
	       watch(s->poll_fd, s->away_fd, EPOLLIN);
}

/* Back at an agent, whose bell is not armed, or without a timer somebody has to look on his own. */
void lt_news_moved(tally_session *s)
{
	if (s->poll_fd < 0 || (s->away && s->away_fd >= 0))
		return;
	if (!watch_agent(s) || !s->away)
		tell_news(s);
}

static int open_poll_fd(tally_session *s)
{
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	int news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	s->poll_fd = epfd;
	if (epfd < 0 || news < 0 || !watch(epfd, news, EPOLLIN) || !watch_agent(s)) {
		limit_err(&s->err, errno, "a descriptor to poll");
		if (epfd >= 0)
			close(epfd);
		if (news >= 0)
			close(news);
		s->poll_fd = -1;
		return s->err.code;
	}
	s->news_fd = news;
	s->conn.epfd = epfd;
	return 0;
}

int tally_fd(tally_session *s)
{
	LT_CALL(s);
	int rc;

	if (!s)
		return TALLY_EINVAL;
	if (s->poll_fd >= 0)
		return s->poll_fd;
	rc = lt_session_live(s);
	if (!rc)
		rc = open_poll_fd(s);
	if (rc)
		return rc;
	lt_news_arm(s);
	return s->poll_fd;
}

static int look_away(tally_session *s)
{
	uint64_t ticks;
	int rc;

	(void)!read(s->away_fd, &ticks, sizeof(ticks));
	rc = lt_back(s, lt_now());
	return rc == TALLY_EAGAIN ? 0 : rc;
}

int tally_poll(tally_session *s)
{
	LT_CALL(s);
	eventfd_t ignored;
	int rc, n;

	if (!s)
		return TALLY_EINVAL;
	rc = s->over.code ? lt_session_over(s) : lt_round_take_all(s);
	if (!rc && s->away)
		rc = look_away(s);
	else if (!rc && ring_cpl_wake(&s->ring))
		rc = lt_session_agent_gone(s);
	if (!rc)
		rc = lt_round_take_all(s);
	if (!rc)
		rc = lt_session_live(s);
	if (!rc && !s->away && lt_conn_gone(&s->conn))
		rc = lt_session_agent_gone(s);
	lt_log_rounds(s);
	n = (int)s->fresh;
	s->fresh = 0;
	s->poll_count++;
	if (s->news_told && !rc && eventfd_read(s->news_fd, &ignored) == 0)
		s->news_told = false;
	lt_news_arm(s);
	return n ? n : rc;
}
