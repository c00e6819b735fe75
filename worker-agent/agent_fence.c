// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a server that writes here.
 *
 * By reference a server writes results into our memory, and one that was stopped in
 * the middle of that would go on when it is continued, rounds later.  Only its end
 * makes sure that it does not; the scheduler has declared it dead already.  Nobody else is
 * ended: the process is held from the moment at which its link is up, by a descriptor that the
 * kernel made from that link's socket, and a server whose process cannot be held gets no memory.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/rt/log.h"
#include "worker-agent/agent.h"

#define KILL_MS		1000

int ad_fence_keep(int *process, const struct xport_ep *ep, struct err *e)
{
	int now = xport_peer_process(ep, e);

	if (*process >= 0)
		close(*process);
	*process = MAX(now, -1);
	return MIN(now, 0);
}

void ad_fence_kill(int *process, const char *server)
{
	struct pollfd gone = { .fd = *process, .events = POLLIN };

	if (*process < 0)
		return;
	if (syscall(SYS_pidfd_send_signal, *process, SIGKILL, NULL, 0) && errno != ESRCH)
		log_error("server %s cannot be stopped from writing here, %m", server);
	else if (poll(&gone, 1, KILL_MS) != 1)
		log_error("server %s does not end, though it was killed", server);
	else
		log_warn("server %s is lost, its process here was ended", server);
	close(*process);
	*process = -1;
}
