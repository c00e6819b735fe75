#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wheel of `make wheel` in fresh virtual environments: with NumPy alone, and with PyTorch; two
# ranks of a local cluster, with nothing of the tree but its programs.
. "$(dirname "$0")/../lib.sh"

WHEEL=$(realpath "${BUILD:-$ROOT/build}"/wheel/*.whl) BIN=$(realpath "$BIN")
unset TALLY_LIBRARY PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# venv NAME [OPTION...]: $VENV is its interpreter.
venv()
{
	"$PYTHON" -m venv "${@:2}" "$TMP/$1" > "$TMP/$1.log" 2>&1 || fail "no environment $1"
	VENV=$TMP/$1/bin/python
}
install() { "$VENV" -m pip install -q "$@" > "$TMP/pip.log" 2>&1; }
two_ranks()
{
	expect_status 0 "$BIN/tally" local --agents 2 --servers 1 --ranks 2 -- "$VENV" "$@"
}

cat > "$TMP/sum.py" <<'END'
import sys
import numpy as np
import tally
with tally.Session() as s:
    t = s.declare("v", (1000,), "float32")
    got = t.push_pull(np.arange(1000, dtype=np.float32) * (1 + s.rank)).wait()
    assert (got == np.arange(1000) * 3).all()
    print("sums", tally._session._lib._name, "torch" in sys.modules)
END
cat > "$TMP/learn.py" <<'END'
import torch
import tally.torch as tt
tt.init()
torch.manual_seed(tt.rank())
model = torch.nn.Linear(4, 1)
tt.broadcast_parameters(model.state_dict(), root_rank=0)
opt = tt.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                              named_parameters=model.named_parameters())
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True)
losses = []
for step in range(40):
    opt.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 10, losses
print("learned")
END

cd "$TMP" || exit 1
venv numpy
if install numpy; then
	install --no-index "$WHEEL" || { cat "$TMP/pip.log"; fail 'the wheel is not installed'; }
else
	say 'no NumPy from the package index: that of this machine is used'
	venv plain --system-site-packages
	install --no-index "$WHEEL" || { cat "$TMP/pip.log"; fail 'the wheel is not installed'; }
fi
lib=$("$VENV" -c 'import os, tally; print(os.path.dirname(tally.__file__))')/libtally.so.0
readelf -d "$lib" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^libc\.so' &&
	fail 'libtally in the wheel needs more than libc'
two_ranks "$TMP/sum.py"
expect_text "$TMP/out" "^sums $lib False"
say "two ranks with NumPy alone, by the wheel's libtally"

"$PYTHON" -c 'import torch' 2> /dev/null || { say "$PYTHON has no torch: left out"; exit 0; }
venv torch --system-site-packages
install --no-deps --no-index "$WHEEL" || { cat "$TMP/pip.log"; fail 'the wheel is not installed'; }
two_ranks "$TMP/learn.py"
expect_text "$TMP/out" '^learned'
say 'two ranks with PyTorch'
