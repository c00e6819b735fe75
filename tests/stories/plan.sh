#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tally plan answers on paper: the closed form in JSON, the same in words, and a
# clear word for what it cannot understand.
. "$(dirname "$0")/../lib.sh"

tally="$BIN/tally"

# n, k, M in bytes, B in bit/s: 2n(n-1)M/DB and the ratios, D = n^2 + kn - 2k.
expect_status 0 "$tally" plan --gpu 8x25 --cpu 4x25g --model bert-large --json
"$PYTHON" - "$TMP/out" << 'END' || fail 'the JSON is not the closed form'
import json, sys

p = json.load(open(sys.argv[1]))
n, k, m, b = 8, 4, 336226108 * 4, 25e9 / 8
d = n * n + k * n - 2 * k


def near(a, b):
    return abs(a - b) <= 1e-6 * abs(b)


assert p["model_bytes"] == m and p["gpu_machines"] == n and p["cpu_machines"] == k
assert near(p["round_time_s"], 2 * n * (n - 1) * m / (d * b))
assert near(p["speedup_vs_all_reduce"], d / n**2)
assert near(p["speedup_vs_parameter_server"], d / (2 * k * (n - 1)))
assert near(p["round_time_s_with_one_more_cpu_machine"], 2 * n * (n - 1) * m / ((d + n - 2) * b))
assert p["bottleneck"] == "all NICs"
shares = p["shares"]
assert len(shares) == n + k and sum(s["bytes"] for s in shares) == m
assert near(sum(s["fraction"] for s in shares), 1)
for s in shares:
    assert s["bits_per_s"] == 25 * 10**9
    assert near(s["fraction"], (n - k if s["kind"] == "gpu" else 2 * (n - 1)) / d)
assert [s["machine"] for s in shares][7:9] == ["gpu7", "cpu0"]
END

expect_status 0 "$tally" plan --gpu 4 --model 64M --json
"$PYTHON" - "$TMP/out" << 'END' || fail 'without CPU machines it is not an all-reduce'
import json, sys

p = json.load(open(sys.argv[1]))
assert p["speedup_vs_parameter_server"] is None
assert abs(p["speedup_vs_all_reduce"] - 1) < 1e-9
assert p["model_bytes"] == 64 * 2**20
END

expect_status 0 "$tally" plan --gpu 4 --model 7B --json
expect_text "$TMP/out" '"model_bytes": *28000000000\b'
expect_status 2 "$tally" plan --gpu 4x25bit --model 7B
expect_text "$TMP/err" 'out of range; from 1 Mbit/s to 10 Tbit/s'

# One GPU machine: there is nobody to be faster than, with CPU machines or without.
for cpu in 0 3; do
	expect_status 0 "$tally" plan --gpu 1 --cpu $cpu --model 64M --json
	"$PYTHON" - "$TMP/out" <<- 'END' || fail 'one GPU machine: a time without a meaning'
		import json, sys

		p = json.load(open(sys.argv[1]))
		assert p["round_time_s"] == 0, p
		assert all(s["bytes"] == 0 == s["fraction"] for s in p["shares"]), p["shares"]
		for other in "all_reduce", "parameter_server":
		    assert p[other + "_time_s"] is None and p["speedup_vs_" + other] is None, p
	END
done

# A name is known by its letters and digits.
for name in VGG-16:vgg16 GPT2:gpt2 gpt-2:gpt2 ResNet-50:resnet50 resnet_50:resnet50 \
	BERT-Large:bert-large bertlarge:bert-large GPT2-XL:gpt2-xl; do
	expect_status 0 "$tally" plan --gpu 2 --model "${name%:*}" --json
	expect_text "$TMP/out" "\"model\": \"${name#*:}\""
done

expect_status 0 "$tally" plan --gpu 8 --cpu 4 --model bert-large
expect_text "$TMP/out" '1\.38 times as fast as ring all-reduce'
expect_text "$TMP/out" '1\.57 times as fast as a plain parameter server'
expect_text "$TMP/out" 'One more CPU machine of 100 Gbit/s would give .* 6\.4 % less'

expect_status 0 "$tally" plan --gpu 4x25 --gpu 4x100 --cpu 3x2.5Gbit/s --model 1.3G
expect_text "$TMP/out" 'Bottleneck: 4 of 8 GPU machines have 25 Gbit/s'

expect_status 0 "$tally" plan --gpu 8 --cpu 8 --adder 11 --model vgg16
expect_text "$TMP/out" 'cpu0 sums at 11 GB/s'

# An all-reduce on cards alone is faster than servers that hardly sum.
expect_status 0 "$tally" plan --gpu 4 --adder 0.1 --model 1G
expect_text "$TMP/out" ' 0\.012 times as fast as ring all-reduce'

# A time that is not 0 is not shown as 0.
expect_status 0 "$tally" plan --gpu 8 --cpu 4 --model 1
expect_text "$TMP/out" '^A round takes 0\.1 ns, '
expect_text "$TMP/out" 'ring all-reduce .* \(0\.14 ns\)'

expect_status 0 "$tally" plan --gpu 1 --model gpt2
expect_text "$TMP/out" 'needs no network'

expect_status 0 "$tally" plan --help
expect_text "$TMP/out" 'as payload'

refused()	# REGEX ARGUMENT...
{
	local regex=$1

	shift
	expect_status 2 "$tally" plan "$@"
	[ -s "$TMP/out" ] && fail "'tally plan $*' is refused on stdout"
	expect_text "$TMP/err" "$regex"
}
refused 'no GPU machines' --model 1G
refused 'no model' --gpu 8
refused 'did you mean bert-large' --gpu 8 --model bert-larg
refused 'known: resnet18 .* bert-large .* gpt2-xl$' --gpu 8 --model alexnet
refused 'known: resnet18 ' --gpu 8 --model ''
refused 'known: resnet18 ' --gpu 8 --model -
refused 'is no number of bytes' --gpu 8 --model 0x10
refused 'from 1 B to 1 PiB' --gpu 8 --model 0
refused 'from 1 B to 1 PiB' --gpu 8 --model 99999999E
refused 'from 1 to 1024' --gpu 0 --model 1G
refused '"" is no bit rate' --gpu 8x --model 1G
refused 'from 1 Mbit/s to 10 Tbit/s' --gpu 8x0 --model 1G
refused 'from 1 Mbit/s to 10 Tbit/s' --gpu 4x99999999999 --model 1G
refused 'e\.g\. 8x25' --gpu x25 --model 1G
refused 'e\.g\. 8x25' --gpu 8 --cpu -1 --model 1G
refused 'from 1 to 1024' --gpu 1025 --model 1G
refused 'at most 1024' --gpu 1000 --gpu 1000x25 --model 1G
refused 'from 0 to 2048' --gpu 8 --cpu 2147483647 --model 1G
refused 'and 2048 servers' --gpu 8 --cpu 2048 --model 1G
for adder in 0 0.0001 99999999999; do
	refused 'from 0.001 to 1000000' --gpu 8 --model 1G --adder $adder
done
refused 'bytes per second' --gpu 8 --model 1G --adder 0x10
refused 'bytes per second' --gpu 8 --model 1G --adder nan
refused 'bytes per second' --gpu 8 --model 1G --adder ' 5'
refused 'frobnicate' --gpu 8 --model 1G --frobnicate
refused 'unexpected' --gpu 8 --model 1G more
