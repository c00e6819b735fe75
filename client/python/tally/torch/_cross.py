# SPDX-License-Identifier: Apache-2.0
"""Updates that cross the barrier between steps: ByteScheduler's gain.

Without it a step ends when the last gradient has come, the first layer's, and only then
the next forward pass begins.  Here step() returns at once; each parameter is updated when
its own gradient has come, by a thread for updates, and a forward pass waits, layer by
layer, for the parameters that the layer is about to use.  What is computed is the same:
an update sees the same gradient, state and options, those at the time of step().  On a GPU
updates are put on a stream of their own, which waits for gradients, and forward passes
have theirs wait for it: no thread waits for a gradient.

A module waits for its own parameters.  Some modules use those of others without calling
them (attention does so with its output layer), so the first forward pass waits for
everything and notes who is called; the parameters of who is not belong to the nearest
module above that is.  And whoever asks a module for a parameter waits for that one, so a
head's weight may embed before the head is called.  (An LSTM has its own list of them.)
"""

import collections
import concurrent.futures
import threading

import torch

from ._gradients import Gradients, Weak


class CrossGradients(Gradients):
    """Gradients whose optimizer takes each as it comes.

    The model is hooked while tensors are declared; who reads its state_dict() waits, too.
    """

    REMEDY = ("with cross_barrier an update uses its gradient as soon as it has come: what changes "
              "gradients needs optimizer.synchronize() before it, and no cross_barrier")

    def __init__(self, exchange, groups, names, options, model, update):
        self._update = update  # update(parameter, options of its group)
        self._updates = {}  # parameter: Future of its update, from step() to finish()
        self._planned = {}  # bucket: what is to be done when its round is over
        self._lock = threading.Lock()  # of the planned
        self._pool = None
        self._model, self._called, self._users = model, set(), None
        super().__init__(exchange, groups, names, options)

    def _build(self):
        super()._build()
        if self._pool:
            return
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="tally-update")
        before, settled = Weak(self._before_forward), Weak(self.settled, bare=True)
        waits = Weak(self.wait)
        for module in self._model.modules():
            self.handles += [hook_first(module, before), hook_state(module, settled),
                             _Guard(module, waits)]
        self.handles.append(self._model.register_forward_hook(Weak(self._after_forward)))
        finish = Weak(self.finish, bare=True)  # updates would change what is loaded
        for module in self._model.modules():
            self.handles.append(module._register_load_state_dict_pre_hook(finish))

    def drop(self):
        concurrent.futures.wait(self._updates.values())  # an update reads the arena
        super().drop()
        self._updates.clear()

    def let_go(self):
        super().let_go()
        with self._lock:
            pool, self._pool = self._pool, None
        if pool:
            pool.shutdown()

    def move_out(self):
        concurrent.futures.wait(self._updates.values())  # an update reads the arena
        super().move_out()

    def _line_up(self):
        super()._line_up()
        self.late = True

    # ---- step ----

    def step(self):
        """Every parameter is updated when its gradient has come; returns before that."""
        self.finish()  # after a step without a backward pass since: its gradients are used up
        self.send_rest()
        if self._vote.mine:
            self._heed()
        after = {}  # what updates come after: the backward pass, which has read the parameters
        for block in (b.block for b in self.buckets if b.block.stream not in after):
            block.note()
            after[block.stream] = block.moments()
        for group in self._groups():
            options = {key: kept(value) for key, value in group.items() if key != "params"}
            for p in group["params"]:
                if p in self._bucket_of:
                    bucket = self._bucket_of[p]
                    self._plan(bucket, p, options, after[bucket.block.stream])

    def _plan(self, bucket, p, options, after):
        update = self._updates[p] = concurrent.futures.Future()
        with self._lock:
            if not bucket.ended.is_set():
                self._planned[bucket] = (bucket, p, options, after, update)
                return
        self._submit(bucket, p, options, after, update)

    def _submit(self, bucket, p, options, after, update):
        try:
            self._pool.submit(self._take_in, bucket, p, options, after, update)
        except RuntimeError as error:  # the interpreter is about to end, and takes no more work
            update.set_exception(error)

    def ended(self, bucket):
        with self._lock:  # both at once, or a plan of the next step would be taken for this one's
            bucket.ended.set()
            plan = self._planned.pop(bucket, None)
            if plan:
                self._submit(*plan)

    def _take_in(self, bucket, p, options, after, update):
        try:
            if bucket.error:
                raise bucket.error
            with bucket.block.aside(after) as aside:
                bucket.give()
                with self._session.span(f"update {self._names.get(p, '')}"):
                    self._update(p, options)
                p.grad = None
            update.set_result(aside)
        except BaseException as error:  # raised where the parameter is waited for
            update.set_exception(error)

    def _arrived(self, p):
        if self._updates:  # of a model that was called in parts
            self.finish()
        super()._arrived(p)

    def wait(self, params):
        """Returns when these are updated."""
        updates = [self._updates[p] for p in params if p in self._updates]
        if updates:
            with self._session.span(f"{self._title}: forward waits"):
                for update in updates:
                    update.result().follow()

    def finish(self):
        """Returns when all updates are done; the next step may begin."""
        if self._updates:
            self.wait(list(self._updates))
            self._updates.clear()
            self.begin_step()
            self._heed()
        self.exchange.check()

    def settled(self):
        """And all of them are right, or an error."""
        self.finish()
        super().settled()

    # ---- forward ----

    def _before_forward(self, module, _inputs):
        self._called.add(module)
        if self._users is None or module not in self._users:
            self.wait(list(self._updates))
        else:
            self.wait(self._users[module])

    def _after_forward(self, *_):
        """The whole model's: now it is known who is called."""
        if self._users is None and self._model in self._called:
            self._users = {module: [] for module in self._called}
            self._assign(self._model, self._model)
        self.finish()

    def _assign(self, module, above):
        user = module if module in self._called else above
        self._users[user] += [p for p in module.parameters(recurse=False) if p.requires_grad]
        for child in module.children():
            self._assign(child, user)


class _Guarded(dict):
    """A module's parameters, which wait for their updates when they are asked for.

    nn.Module's attributes come from there.  Copies, and pickles, are plain ones.
    """

    def __init__(self, parameters):
        super().__init__(parameters)
        self._plain, self.waits = type(parameters), []  # those of several optimizers

    def __getitem__(self, name):
        p = super().__getitem__(name)
        for wait in self.waits:
            wait((p,))
        return p

    def plain(self):
        """As it was before, with what has changed since."""
        return self._plain(self.items())

    def __reduce__(self):
        return self._plain, (list(self.items()),)


class _Guard:
    """Has wait((parameter,)) called whenever somebody asks the module for one, until remove()."""

    def __init__(self, module, wait):
        self._module, self._wait = module, wait
        if type(module._parameters) in (dict, collections.OrderedDict):  # compiled ones have others
            module._parameters = _Guarded(module._parameters)
        if isinstance(module._parameters, _Guarded):
            module._parameters.waits.append(wait)

    def remove(self):
        guarded = self._module._parameters
        if isinstance(guarded, _Guarded) and self._wait in guarded.waits:
            guarded.waits.remove(self._wait)
            if not guarded.waits:
                self._module._parameters = guarded.plain()


def kept(value):
    """An option as it is now: a scheduler may write into a tensor."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def hook_first(module, function):
    """A pre-hook before those that are there, which may read parameters (weight_norm does)."""
    handle = module.register_forward_pre_hook(function)
    module._forward_pre_hooks.move_to_end(handle.id, last=False)
    return handle


def hook_state(module, function):
    """Has function called by the module's state_dict(); what is returned removes it.

    In torch 1.13 it comes after the tensors were taken, which are the parameters' own memory.
    """
    if hasattr(module, "register_state_dict_pre_hook"):  # torch 2.0
        return module.register_state_dict_pre_hook(function)
    return module._register_state_dict_hook(function)


def update_one(optimizer, wrapped):
    """A function that lets the optimizer's own step() update one parameter."""

    def update(p, options):
        alone = object.__new__(wrapped)
        alone.__dict__.update(optimizer.__dict__)
        alone.__dict__.pop("step", None)
        group = {**options, "params": [p]}
        alone.param_groups = [group]
        before = dict(alone.__dict__)
        with torch.no_grad():
            alone.step()
        wrote = [k for k, v in group.items() if k != "params" and v is not options.get(k, group)]
        # torch's own optimizers note there what they have checked, or warned of
        wrote += [k for k, v in alone.__dict__.items()
                  if v is not before.get(k, group) and not isinstance(v, bool)]
        if wrote:
            raise ValueError(f"{wrapped.__name__}.step() keeps {', '.join(wrote)} for all its "
                             "parameters, so that no update can cross the barrier: leave "
                             "cross_barrier out")

    return update
