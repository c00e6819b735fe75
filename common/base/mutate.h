/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deliberate protocol bugs, for the simulator to find: it proves something only if
 * it fails when the protocol is wrong.
 *
 * MUTATE(n) is the constant false, and gone, but in a build with -DTALLY_MUTANTS
 * (make mutants), where the simulator chooses one of the bugs (sim --mutant N).
 */
#ifndef TALLY_BASE_MUTATE_H
#define TALLY_BASE_MUTATE_H

#include <stdbool.h>

/*	n	what is wrong */
#define MUTANT_TABLE(X) \
	X(1,  "server: takes frames of an older epoch") \
	X(2,  "server: counts a repeated push twice") \
	X(3,  "server: sums with one contribution missing") \
	X(4,  "server: takes a push of an older attempt") \
	X(5,  "server: a repeated question for a result goes unanswered") \
	X(6,  "server: never seeks results that it lacks") \
	X(7,  "agent: takes results of an older epoch") \
	X(8,  "agent: takes results of another round") \
	X(9,  "agent: gives the result of the wrong round") \
	X(10, "agent: gives what it does not have") \
	X(11, "agent: goes over without taking its contribution back") \
	X(12, "agent: does not push again what a dead server had") \
	X(13, "agent: a push after a withdrawal has the old attempt") \
	X(14, "agent: says that an epoch is settled when it is not") \
	X(15, "scheduler: a lost server's chunks stay where they are") \
	X(16, "scheduler: what was lost with a connection is not sent again") \
	X(17, "scheduler: after a restart a server that has left the job is waited for") \
	X(18, "scheduler: after a restart the numbers of the log begin anew") \
	X(19, "scheduler: a barrier opens without the last rank") \
	X(20, "agent: in a smaller world keeps what it had of a round that is not whole") \
	X(21, "agent: in a smaller world a lost rank still counts") \
	X(22, "server: in a smaller world a mean divides by the larger one") \
	X(23, "scheduler: ranks that come back are let in before all agents know") \
	X(24, "agent: a rank that has come back does not count") \
	X(25, "agent: started again it sums what may be a result by now") \
	X(26, "server: keeps what an agent had in its window before it was started again") \
	X(29, "scheduler: a server that is too slow keeps all of its share") \
	X(30, "scheduler: servers are compared without regard to their shares") \
	X(31, "scheduler: the status counts servers that a job has lost") \
	X(32, "scheduler: the status shows rounds that have gone on since") \
	X(33, "scheduler: the status shows lost ranks as attached") \
	X(34, "scheduler: the status shows a server that drains as all others") \
	X(35, "scheduler: a request that finds no memory is not answered") \
	X(36, "scheduler: a message that finds no memory is not missed") \
	X(37, "agent: uses its room in a window again before that has been summed") \
	X(38, "scheduler: the status blames a machine for what another one waits for") \
	X(39, "scheduler: the status blames who has given its part, and waits, too") \
	X(40, "agent: blames a server that has answered") \
	X(41, "scheduler: servers do not hear that an agent is another process")

#ifdef TALLY_MUTANTS
extern unsigned mutant;			/* 0: none */
#define MUTATE(n) (mutant == (n))
#else
#define MUTATE(n) false
#endif

#endif
