# SPDX-License-Identifier: Apache-2.0
"""A session at work in a thread of its own.

A session belongs to one thread.  Here that is the exchange's: everybody else posts
orders to it, functions that it calls one after another, and hears of the end of a
round by a callback in that thread.  So autograd's threads never wait for the network,
nor for another rank that has not declared yet.

Orders are carried out in the order in which they were posted.  All ranks post the same
declarations in the same order, so they meet.  A tensor takes one round at a time; later
ones wait in its channel, and the ranks agree on their order for the same reason.

When the job fails every round ends with the job's error, and so does whatever is
ordered afterwards.  A round that is not done at its deadline ends with TallyTimeout,
which names tensor, rank and machine.
"""

import atexit
import collections
import concurrent.futures
import itertools
import os
import select
import threading
import time
import weakref

from .._session import TallyError, TallyTimeout

_EAGAIN, _ETIMEDOUT, _ESHUTDOWN = -1, -9, -17
_CHECK_S = 0.25  # between two looks at the deadlines


class Round:
    """One round of a channel: how it is submitted, and who hears of its end.

    ``submit(tensor)`` returns a Ticket, ``done(error)`` is told None or an exception.
    """

    __slots__ = ("channel", "submit", "done", "timeout", "deadline", "ticket")

    def __init__(self, channel, submit, done, timeout):
        self.channel, self.submit, self.done, self.timeout = channel, submit, done, timeout
        self.deadline = time.monotonic() + timeout
        self.ticket = None

    def end(self, error):
        """Tells whoever waits, once."""
        done, self.done = self.done, None
        if done:
            done(error)


class Channel:
    """A declared tensor with the rounds that wait for their turn."""

    __slots__ = ("tensor", "rounds")

    def __init__(self, tensor):
        self.tensor = tensor
        self.rounds = collections.deque()  # the first one is with the agent, or is next


class Exchange:
    """See above.  Exchange.of(session) makes it, session.detach() ends it."""

    def __init__(self, session):
        self.session = session
        self.rank, self.world = session.rank, session.world_size
        self._lock = threading.Lock()  # of the next three
        self._orders = collections.deque()
        self._told = False  # a byte is in the pipe
        self._stopping = False
        self._ready = collections.deque()  # rounds to submit, as soon as the ring has room
        self._flying = {}  # rounds with the agent, oldest first
        self._closers = weakref.WeakSet()
        self._numbers = collections.defaultdict(itertools.count)
        self._over = False  # the job; every ticket says why
        self._next_check = 0.0
        self._news = session.fileno()
        self._wake_read, self._wake_write = os.pipe()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="tally", daemon=True)
        session._last_words = self.close
        self._thread.start()
        session._owner, session._post = self._thread.ident, self.post
        atexit.register(self.close)  # before the session's own finalizer: last in, first out

    @classmethod
    def of(cls, session):
        """The session's exchange; the session is its from then on."""
        words = session._last_words
        return words.__self__ if words else cls(session)

    # ---- for every thread ----

    def post(self, order, *args):
        """Has the owner call order(*args), which answers for its own errors."""
        if os.getpid() != self._pid:
            raise TallyError(_ESHUTDOWN, "the session is the parent process's")
        with self._lock:
            if self._stopping:
                raise TallyError(_ESHUTDOWN, "the session is closed, or about to be")
            self._orders.append((order, args))
            self._wake()

    def _wake(self):
        if not self._told:
            self._told = True
            os.write(self._wake_write, b"!")

    def call(self, function, *args):
        """Has the owner call it, waits, and returns or raises what it did."""
        answer = concurrent.futures.Future()

        def order():
            try:
                answer.set_result(function(*args))
            except BaseException as error:  # the caller's, whatever it is
                answer.set_exception(error)

        self.post(order)
        return answer.result()

    def number(self, what):
        """0, 1, 2, ... for each kind of thing: the same on all ranks, as they do the same."""
        return next(self._numbers[what])

    def at_close(self, somebody):
        """Has somebody.move_out() called before the arena goes away; a weak reference."""
        self._closers.add(somebody)

    def close(self):
        """Moves everybody out of the arena, stops the thread and gives the session back.

        Rounds on their way end with an error.  Harmless when done already, and in a child
        that was forked, which has neither the thread nor the rank.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            self._wake()
        self._thread.join()
        for somebody in list(self._closers):
            somebody.move_out()
        os.close(self._wake_read)
        os.close(self._wake_write)
        atexit.unregister(self.close)
        self.session._owner = self.session._last_words = None

    # ---- for the owner ----

    def declare(self, descriptions):
        """Channels for (name, shape, dtype's name, priority) each, in one round trip."""
        return [Channel(t) for t in self.session.declare_all(descriptions)]

    def undeclare(self, channels):
        """Gives tensors back, as all ranks must; waits for their rounds first."""
        end = time.monotonic() + max((r.timeout for c in channels for r in c.rounds), default=0)
        for channel in channels:
            self.settle(channel, end)
        if channels:
            self.session.undeclare(*[c.tensor for c in channels])

    def settle(self, channel, end):
        """Returns when no round of the channel is left, or raises, at the latest then."""
        while channel.rounds:
            if self._stopping:
                raise TallyError(_ESHUTDOWN, "the session is closing")
            if time.monotonic() > end:
                raise self._say_late(channel.rounds[0])
            self._turn()

    def start(self, channel, submit, done, timeout=None):
        """Starts a round of the channel, or puts it behind those that are there.

        timeout in seconds; None: the session's round_timeout.
        """
        if timeout is None:
            timeout = self.session.round_timeout
        round_ = Round(channel, submit, done, timeout)
        channel.rounds.append(round_)
        if len(channel.rounds) == 1:
            self._ready.append(round_)
            self._submit_ready()

    def _submit_ready(self):
        while self._ready:
            round_ = self._ready.popleft()
            try:
                round_.ticket = round_.submit(round_.channel.tensor)
            except TallyError as error:
                if error.code == _EAGAIN:  # the ring is full: when a round is done
                    self._ready.appendleft(round_)
                    return
                self._finish(round_, error)
            except Exception as error:  # a copy that failed, say
                self._finish(round_, error)
            else:
                self._flying[round_] = None

    def _finish(self, round_, error):
        """The round is over; the channel's next one may go."""
        rounds, name = round_.channel.rounds, round_.channel.tensor.name
        if isinstance(error, TallyError) and name not in error.text:  # what ended the job
            error = TallyError(error.code, f"rank {self.rank}: tensor {name}: {error.text}")
        rounds.popleft()
        if rounds:
            self._ready.append(rounds[0])
        round_.end(error)

    def _take_completions(self):
        try:
            news = self.session.poll()
        except TallyError:  # the job is over: every ticket knows why
            self._over = True
            news = True
        if not news:
            return
        # all of them: a test takes in what comes meanwhile, so that counting would miss some
        for round_ in list(self._flying):
            try:
                if not round_.ticket.test():
                    continue
                error = None
            except TallyError as why:
                error = why
            del self._flying[round_]
            self._finish(round_, error)

    def _check_deadlines(self):
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_S
        late = [r for f in self._flying for r in f.channel.rounds if r.done and r.deadline < now]
        for round_ in late:
            round_.end(self._say_late(round_))

    def _say_late(self, round_):
        name = round_.channel.tensor.name
        text = f"tensor {name}: not done after {round_.timeout:g} s, nor the round before"
        try:
            if round_.ticket and not round_.ticket.test():
                round_.ticket.wait(0)
        except TallyError as why:
            text = why.text.replace("after 0 ms", f"after {round_.timeout:g} s")
        return TallyTimeout(_ETIMEDOUT, f"rank {self.rank}: {text}")

    def _turn(self, orders=False):
        """Waits for something to do, and does it."""
        self._submit_ready()
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        if not self._over:
            poller.register(self._news, select.POLLIN)
        hurry = orders and (self._orders or self._stopping)
        poller.poll(0 if hurry else _CHECK_S * 1000 if self._flying else None)
        with self._lock:
            if self._told:
                os.read(self._wake_read, 1)
            self._told = False
        while orders and self._orders:
            order, args = self._orders.popleft()
            order(*args)
        self._take_completions()
        self._check_deadlines()

    def _run(self):
        error = TallyError(_ESHUTDOWN, "the session is closing")
        try:
            while self._orders or not self._stopping:
                self._turn(orders=True)
        except BaseException as bug:  # nobody may wait for a thread that is gone
            error = bug
            raise
        finally:
            with self._lock:
                self._stopping = True
            for round_ in [r for f in [*self._flying, *self._ready] for r in f.channel.rounds]:
                round_.end(error)
