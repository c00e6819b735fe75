# SPDX-License-Identifier: Apache-2.0
"""A session at work in a thread of its own.

A session belongs to one thread.  Here that is the exchange's: everybody else posts
orders to it, functions that it calls one after another, and hears of the end of a
round by a callback in that thread.  So autograd's threads never wait for the network,
nor for another rank that has not declared yet.

Orders are carried out in the order in which they were posted.  All ranks post the same
declarations in the same order, so they meet.  A tensor takes one round at a time; later
ones wait in its channel, and the ranks agree on their order for the same reason.

Rounds on GPUs start in the order in which they were asked for, of whatever channel they
are, so one whose channel is busy holds up those behind it.  libtally's descriptor does not
tell of their ends, so they are looked at every now and then.

When the job fails every round ends with the job's error, and so does whatever is
ordered afterwards.  A round that is not done at its deadline ends with TallyTimeout,
which names tensor, rank and machine.  One whose result a stream waits for has no deadline
here, as nobody could call the stream back: libtally lets it go at the session's.  Its user
may have gone on with what is void then, so the failure is kept, and raised by check().
"""

import atexit
import collections
import concurrent.futures
import contextlib
import math
import os
import select
import threading
import time
import weakref

from .. import _waits
from .._errors import CODES, TallyError, TallyTimeout
from .._session import Bound, place_text

_EAGAIN, _EMISMATCH, _ETIMEDOUT, _ESHUTDOWN, _EBUSY = (
    CODES[name] for name in ("EAGAIN", "EMISMATCH", "ETIMEDOUT", "ESHUTDOWN", "EBUSY"))
_CHECK_S = 0.25  # between two looks at the deadlines
_DOUBT_S = 1  # after which a round is doubted
_DOUBT_PAUSE_S = 0.2  # between two doubts, less than each of them takes,
_DOUBTS = 30  # as often; then ten times as long
_SLICE_S = 0.03  # for which declarations wait that are made in turn with others
_LOOK_S = 0.01  # and for which each of them is looked at by itself
_QUOTED_MAX = 96  # bytes of a tensor's name in EMISMATCH's text
SOON_S = 0.001  # between two looks at what somebody waits for


def last_word(error):
    """What all later steps are told by whoever gave a round up, which goes on without it."""
    if not isinstance(error, TallyTimeout):
        return error
    return error.saying(f"{error.text}; that step is lost here, and other ranks may "
                        "have made it: close() on all ranks, then broadcast parameters and state, "
                        "or go back to a checkpoint")


class Round:
    """One round of a channel: how it is submitted, and who hears of its end.

    ``submit(tensor)`` returns a Ticket, ``done(error)`` is told None or an exception.
    ``look_s`` is set of a round on a GPU: seconds between two looks at its ticket.
    ``doubt()`` is called now and then of a round that waits for long: it returns why the round
    will never be done, or None; ``what`` says in words what the round is for.
    """

    __slots__ = ("channel", "submit", "done", "timeout", "look_s", "begin", "deadline", "ticket",
                 "doubt", "what", "doubt_at", "doubts")

    def __init__(self, channel, submit, done, timeout, look_s, begin, doubt, what):
        self.channel, self.submit, self.done, self.timeout = channel, submit, done, timeout
        self.look_s, self.begin, self.doubt, self.what = look_s, begin, doubt, what
        self.deadline = time.monotonic() + timeout
        self.doubt_at, self.doubts = time.monotonic() + _DOUBT_S, 0
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
        self._woken = False  # a byte is in the pipe
        self._stopping = False
        self._ready = collections.deque()  # rounds to submit, as soon as the ring has room
        self._line = collections.deque()  # those on GPUs, one after the other
        self._flying = {}  # rounds with the agent, oldest first
        self._wanted = collections.deque()  # (description, deadline, done) to declare in turn
        self._closers = weakref.WeakSet()
        self._numbers = collections.Counter()
        self._over = False  # the job; every ticket says why
        self.gpu = None  # its _device.Gpu, when a tensor on one has come
        self._failure, self._told = None, False  # of what a stream waited for; check() said so
        self._void = []  # rounds whose memory the GPU may write to until detach() is through
        self._next_check = 0.0
        self._news = session.fileno()
        self._wake_read, self._wake_write = os.pipe()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="tally", daemon=True)
        session._last_words = self.close
        self._thread.start()
        session._owner, session._post = self._thread.ident, self.post
        atexit.register(self._at_exit)  # before the session's own finalizer: last in, first out

    @classmethod
    def of(cls, session):
        """The session's exchange; the session is its from then on."""
        words = session._last_words
        return words.__self__ if words else cls(session)

    # ---- for every thread ----

    def post(self, order, *args):
        """Has the owner call order(*args), which answers for its own errors."""
        if os.getpid() != self._pid:
            self.session._check_process()
        with self._lock:
            if self._stopping:
                raise TallyError(_ESHUTDOWN, "the session is closed, or about to be")
            self._orders.append((order, args))
            self._wake()

    def _wake(self):
        if not self._woken:
            self._woken = True
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
        with _waits.interruptible():
            return answer.result()

    def number(self, what):
        """0, 1, 2, ... for each kind of thing: the same on all ranks, as they do the same."""
        self._numbers[what] += 1
        return self._numbers[what] - 1

    @contextlib.contextmanager
    def numbered(self, what):
        """number(), for names to declare: where others have not come, the next try has it, too."""
        number = self.number(what)
        try:
            yield number
        except TallyTimeout:
            self._numbers[what] = number
            raise

    def at_close(self, somebody):
        """Has somebody.move_out() called before the arena goes away; a weak reference."""
        self._closers.add(somebody)

    def close(self):
        """Moves everybody out of the arena, stops the thread and gives the session back.

        Rounds on their way end with an error, but for those that a stream waits for, which come
        to their end.  Returns a failure that nobody has heard of.  Harmless when done already,
        and in a child that was forked, which has neither the thread nor the rank.  After Ctrl-C a
        thread that waits for other ranks keeps the session, until the process ends.
        """
        if os.getpid() != self._pid:
            return None
        with self._lock:
            if self._stopping:
                return None
            self._stopping = True
            self._wake()
        with _waits.interruptible():
            self._thread.join(_waits.patience_s())
        for somebody in list(self._closers):
            somebody.move_out()
        if self._thread.is_alive():
            self.session._left.append(self)
        else:
            os.close(self._wake_read)
            os.close(self._wake_write)
        atexit.unregister(self._at_exit)
        self.session._owner = self.session._last_words = None
        return None if self._told else self._failure

    def abandon(self):
        """Ends the session that nobody has any more; the collector may find that out anywhere."""

        def detach():
            with contextlib.suppress(TallyError):
                self.session.detach()

        if threading.current_thread() is self._thread:
            threading.Thread(target=detach, name="tally end").start()
        else:
            detach()

    def _at_exit(self):
        failure = self.close()
        if failure:
            raise failure

    def check(self):
        """Raises what has made a result void that somebody may have used."""
        if self._failure:
            self._told = True
            raise self._failure

    def settled(self):
        """Returns when no stream waits for a result any more; raises if one of them is void."""
        if self.gpu and not self._stopping:
            self.call(self._settle_streams)
        self.check()

    # ---- for the owner ----

    def _together(self, timeout, function):
        """What it returns, called again until others have come, so many seconds at most.

        Each call takes as long as the session's timeout.  None: its round_timeout.
        """
        end = time.monotonic() + (self.session.round_timeout if timeout is None else timeout)
        while True:
            try:
                return function()
            except TallyTimeout:
                if self._stopping or time.monotonic() >= end:
                    raise
            self._submit_ready()  # what others wait for before they come here, too
            self._take_completions()
            self._check_deadlines()

    def declare(self, descriptions, timeout=None):
        """Channels for (name, shape, dtype's name, priority) each, in one round trip."""
        tensors = self._together(timeout, lambda: self.session.declare_all(descriptions))
        return [Channel(t) for t in tensors]

    def declare_in_turn(self, description, done, timeout=None):
        """Declares it when all ranks do, in whatever order they declare this and others.

        done(channel, error) is called then, with one of them.
        """
        limit = self.session.round_timeout if timeout is None else timeout
        self._wanted.append((description, time.monotonic() + limit, done))

    def _declare_wanted(self):
        """All that is wanted together; then each by itself, for what others have completed."""
        rows = [w[0] for w in self._wanted]
        if not rows:
            return
        try:
            with self.session._patience(_SLICE_S):
                tensors = self.session.declare_all(rows)
        except TallyError as error:
            if error.code == _EMISMATCH:  # said once to each rank, so not by asking again
                self._fail_wanted(error)
            for _ in range(len(self._wanted)):
                self._declare_one_wanted()
            return
        done = [self._wanted.popleft()[2] for _ in rows]
        for tensor, ended in zip(tensors, done):
            ended(Channel(tensor), None)

    def _fail_wanted(self, error):
        """Ends those that the error names, with as much of the name as it quotes; else all."""

        def quoted(name):
            return f"tensor '{name.encode()[:_QUOTED_MAX].decode('utf-8', 'replace')}'"

        named = [w for w in self._wanted if quoted(w[0][0]) in error.text] or [*self._wanted]
        for entry in named:
            self._wanted.remove(entry)
        for _, _, done in named:
            done(None, error)

    def _declare_one_wanted(self):
        description, deadline, done = self._wanted.popleft()
        channel = failed = None
        try:
            with self.session._patience(_LOOK_S):
                channel = Channel(*self.session.declare_all([description]))
        except TallyError as error:
            # all may have given up just as it was complete: then it is taken back, and free soon
            again = isinstance(error, TallyTimeout) or error.code == _EBUSY
            if again and time.monotonic() < deadline and not self._stopping:
                self._wanted.append((description, deadline, done))
                return
            failed = error
        except Exception as error:
            failed = error
        done(channel, failed)

    def undeclare(self, channels, timeout=None):
        """Gives tensors back, as all ranks must; waits for their rounds first.

        After an error it can be called again.
        """
        end = time.monotonic() + max((r.timeout for c in channels for r in c.rounds), default=0)
        for channel in channels:
            self.settle(channel, end)
        if channels:
            tensors = [c.tensor for c in channels]
            self._together(timeout, lambda: self.session.undeclare(
                *[t for t in tensors if t._pointer]))  # some may be through

    def settle(self, channel, end):
        """Returns when no round of the channel is left, or raises, at the latest then."""
        while channel.rounds:
            if self._stopping:
                raise TallyError(_ESHUTDOWN, "the session is closing")
            if time.monotonic() > end:
                raise self._say_late(channel.rounds[0])
            self._turn()

    def fail(self, error):
        """The round has failed whose result a stream was promised."""
        self._failure = self._failure or error

    def heard(self):
        """Somebody is about to be told why the job has failed, in another way."""
        self._told = True

    @staticmethod
    def _is_lent(round_):
        """Does a stream wait for its result, or will one?"""
        return round_.look_s and round_.timeout == math.inf

    def _lent(self):
        return [r for r in [*self._flying, *self._line] if self._is_lent(r)]

    def _settle_streams(self):
        while self._lent():
            self._turn()

    def start(self, channel, submit, done, timeout=None, look_s=None, begin=0, doubt=None,
              what=None):
        """Starts a round of the channel, or puts it behind those that are there.

        timeout in seconds; None: the session's round_timeout.  look_s: of one on a GPU.
        begin: of the span that the timeline shows of it.  doubt, what: see Round.
        """
        if timeout is None:
            timeout = self.session.round_timeout
        round_ = Round(channel, submit, done, timeout, look_s, begin, doubt, what)
        channel.rounds.append(round_)
        if look_s:
            self._line.append(round_)
        elif len(channel.rounds) == 1:
            self._ready.append(round_)
        self._submit_ready()

    def _next_ready(self):
        """The queue whose first round may go now; an empty one: none may."""
        if self._line and self._line[0].channel.rounds[0] is self._line[0]:
            return self._line
        return self._ready

    def _submit_ready(self):
        queue = self._next_ready()
        while queue:
            round_ = queue.popleft()
            try:
                round_.ticket = round_.submit(round_.channel.tensor)
            except TallyError as error:
                if error.code == _EAGAIN:  # the ring is full: when a round is done
                    queue.appendleft(round_)
                    return
                self._finish(round_, error)
            except Exception as error:  # a copy that failed, say
                self._finish(round_, error)
            else:
                self._flying[round_] = None
            queue = self._next_ready()

    def _finish(self, round_, error):
        """The round is over; the channel's next one may go."""
        rounds, name = round_.channel.rounds, round_.channel.tensor.name
        if isinstance(error, TallyError) and not error.text.startswith(f"rank {self.rank}: "):
            what = "" if name in error.text else f"tensor {name}: "  # it is what ended the job
            error = error.saying(f"rank {self.rank}: {what}{error.text}")
            error.tensor = error.tensor or name
        rounds.popleft()
        if rounds and not rounds[0].look_s:
            self._ready.append(rounds[0])
        self.session._add_span(name, round_.begin)
        round_.end(error)

    def _is_done(self, round_):
        """Is the round through?  Raises why it has failed.

        Of a job that is over nothing right comes any more, so nobody waits until the GPU has been
        let go.  It may write to the round's memory until then.
        """
        if round_.ticket.test():
            return True
        if self._over and self._is_lent(round_):
            self._void.append(round_)
            self.session._check_live()
        return False

    def _take_completions(self):
        try:
            news = self.session.poll()
        except TallyError:  # the job is over: every ticket knows why
            self._over = True
            news = True
        # all of them: a test takes in what comes meanwhile, so that counting would miss some
        for round_ in list(self._flying):
            if not news and not round_.look_s:
                continue
            try:
                if not self._is_done(round_):
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
        first = [*self._flying, *self._ready, *self._line]
        there = {r: None for f in first for r in f.channel.rounds}
        for round_ in [r for r in there if r.done and r.deadline < now]:
            round_.end(self._say_late(round_))
        self._doubt(now)

    def _doubt(self, now):
        """Asks whether the round that has waited longest will ever be done."""
        round_ = next((r for r in self._flying if r.done and r.doubt), None)
        if not round_ or now < round_.doubt_at or self._stopping:
            return
        error = round_.doubt()
        round_.doubts += 1
        round_.doubt_at = time.monotonic() + _DOUBT_PAUSE_S * (
            1 if round_.doubts < _DOUBTS else 10)
        if error:
            round_.end(error)

    def waits_for(self):
        """Why the round that has waited longest is not done, in words; None: nothing waits."""
        round_ = next((r for r in [*self._flying, *self._ready, *self._line] if r.done), None)
        return self._say_late(round_).text if round_ else None

    def _say_late(self, round_):
        name = round_.channel.tensor.name
        text = f"tensor {name}: not done after {round_.timeout:g} s, nor what comes before"
        try:
            if round_.ticket and not round_.ticket.test():
                round_.ticket.wait(0)
        except TallyError as why:
            text = why.text.replace("after 0 s", f"after {round_.timeout:g} s")
        what = f"{round_.what}: " if round_.what else ""
        return TallyTimeout(_ETIMEDOUT, f"rank {self.rank}: {what}{text}", self.rank, name)

    def _patience_s(self):
        """How long nobody need look at anything that tells nobody; None: for ever."""
        looks = [r.look_s for r in self._flying if r.look_s]
        if self._line:
            looks.append(SOON_S)
        waits = self._flying or self._ready or looks
        return min(looks, default=_CHECK_S) if waits else None

    def _turn(self, orders=False):
        """Waits for something to do, and does it."""
        self._submit_ready()
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        if not self._over:
            poller.register(self._news, select.POLLIN)
        hurry = orders and (self._orders or self._wanted or self._stopping)
        patience_s = 0 if hurry else self._patience_s()
        poller.poll(None if patience_s is None else patience_s * 1000)
        with self._lock:
            if self._woken:
                os.read(self._wake_read, 1)
            self._woken = False
        while orders and self._orders:
            self._obey()
        if orders:
            self._declare_wanted()
        self._take_completions()
        self._check_deadlines()

    def _obey(self):
        order, args = self._orders.popleft()  # and not a moment longer: see _Hook._start()
        order(*args)

    def _run(self):
        error = TallyError(_ESHUTDOWN, "the session is closing")
        try:
            while self._orders or not self._stopping:
                self._turn(orders=True)
            self._settle_streams()
        except BaseException as bug:  # nobody may wait for a thread that is gone
            error = bug
            raise
        finally:
            with self._lock:
                self._stopping = True
            for _, _, done in self._wanted:
                done(None, error)
            for queue in (list(self._flying), self._ready, self._line):
                for round_ in [r for first in queue for r in first.channel.rounds]:
                    round_.end(error)
