#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages and completions say what the programs and tally.h say, all of it and no more; names
# of servers and jobs are asked of the cluster that the line names.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

export PYTHONDONTWRITEBYTECODE=1
MANUAL=$TMP/manual MAN=$TMP/manual/man
"$PYTHON" "$ROOT/deploy/manual/generate.py" "${BIN%/bin}" "$MANUAL" || fail 'not generated'

# ---- options ----
# long_options FILE: those of a --help, in order.
long_options() { grep -oE '^  (-\w, )?--?[a-z][a-z-]*' "$1" | sed 's/.* //' | sort -u; }
page_options() { sed -n 's/^\.It Fl //p' "$1" | sed 's/ Ar .*//; s/.* , Fl //; s/\\//g; s/^/-/' |
	sort -u; }

# same_options NAME SECTION COMMAND...: its page and its completions have all of --help.
same_options()
{
	local name=$1 page=$MAN/man$2/$1.$2 option

	shift 2
	expect_status 0 "$@" --help
	cp "$TMP/out" "$TMP/help"
	[ -s "$page" ] || fail "$name has no manual page"
	long_options "$TMP/help" > "$TMP/want"
	page_options "$page" > "$TMP/got"
	diff "$TMP/want" "$TMP/got" || fail "$name: --help (<) and its page (>) differ"
	bash -c '. "$1" && _tally_options "$2"' - "$MANUAL/bash/tally" "${*##*/}" > "$TMP/bash"
	sed -n "/^	'${*##*/}') /,/;;$/p" "$MANUAL/zsh/_tally" > "$TMP/zsh"
	for option in $(< "$TMP/want"); do
		grep -qw -- "$option" "$TMP/bash" || fail "$name: bash does not know $option"
		grep -q -- "'[*]*$option\(=\|\[\)" "$TMP/zsh" ||
			fail "$name: zsh does not know $option"
	done
}

"$BIN/tally" --help > "$TMP/tally.help"
verbs=$(sed -n 's/^  \([a-z]*\)  .*/\1/p' "$TMP/tally.help" | grep -vx help)
n=0
for verb in $verbs; do same_options "tally-$verb" 1 "$BIN/tally" "$verb"; n=$(( n + 1 )); done
for daemon in tally-scheduler tally-server tally-agent; do
	same_options $daemon 8 "$BIN/$daemon"
done
(( n >= 9 )) || fail "only $n verbs in tally --help"
for verb in $verbs; do expect_text "$MAN/man1/tally.1" "^\.It Cm $verb$"; done
say "$n verbs, 3 daemons: every option of --help, and no other"

# ---- the library ----
for name in $(grep -o '\<tally_[a-z_]*' "$ROOT/client/libtally.map") \
	$(sed -n 's/^\(typedef.*\|} *\)\(tally_[a-z_]*\);.*/\2/p' "$ROOT/client/tally.h"); do
	[ -s "$MAN/man3/$name.3" ] || fail "tally.h has $name, which has no page"
	grep -q "^\.Nm $name\( ,\)\?$" "$MAN/man3/$name.3" || fail "$name's page is not about it"
done
for code in $(sed -n 's/^	TALLY_\(E[A-Z]*\) = .*/\1/p' "$ROOT/client/tally.h"); do
	expect_text "$MAN/man3/libtally.3" "TALLY_$code$"
done
say "$(ls "$MAN/man3" | wc -l) names of tally.h"

# ---- form ----
for page in $(find "$MAN" -type f); do
	if command -v mandoc > /dev/null; then
		mandoc -T lint -W warning "$page" || fail "mandoc does not like ${page##*/}"
	fi
	title=$(sed -n 's/^\.Nd //p' "$page")
	(( ${#title} >= 10 && ${#title} <= 80 )) ||
		fail "${page##*/} is about '$title': one short phrase begins the comment, or --help"
done
for page in tally-agent.8 tally_push_pull.3; do
	MANWIDTH=80 man -l "$MAN/man${page##*.}/$page" > "$TMP/page" 2> "$TMP/page.err" &&
		[ ! -s "$TMP/page.err" ] || fail "man does not like $page: $(cat "$TMP/page.err")"
done
bash -n "$MANUAL/bash/tally" || fail 'bash does not read its completion'
say 'mandoc, man and bash have nothing to say about it'

# ---- names, asked live ----
start_scheduler
start_server alpha
start_server beta
start_agent agent
wait_until 20 'all nodes are registered' nodes_up 3

# complete_bash LINE: what bash offers for its last word, sorted, in one line.
complete_bash()
{
	PATH=$BIN:$PATH bash --norc -c '
		. "$1"
		COMP_LINE=$2 COMP_POINT=${#2}
		# as readline parts it
		COMP_WORDS=($(sed "s/[=:]/ & /g" <<< "$COMP_LINE"))
		[ "${COMP_LINE% }" = "$COMP_LINE" ] || COMP_WORDS+=("")
		COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
		compopt() { :; }
		_tally
		printf "%s\n" "${COMPREPLY[@]}" | sort | xargs -d "\n"
	' - "$MANUAL/bash/tally" "$1"
}
offers()
{
	local got

	got=$(complete_bash "$1")
	[ "$got" = "$2" ] || fail "for '$1' bash offers '$got', not '$2'"
}
offers 'tally dr' drain
offers 'tally help d' 'doctor drain'
offers 'tally jobs --s' '--scheduler --secret-file'
offers 'tally bench --op=' 'mean sum'
offers "tally drain --scheduler $SCHEDULER " 'alpha beta'
offers "tally drain --scheduler=$SCHEDULER b" beta
offers 'tally drain --scheduler 127.0.0.1:1 ' ''

# What a job is called is not run: its name comes from somebody else.
name='x$(touch${IFS}'"$TMP/ran)"
TALLY_JOB=$name TALLY_RANK=0 TALLY_WORLD_SIZE=2 TALLY_SOCKET=$TMP/agent.sock \
	start_daemon rank "$BIN/tally" bench -e 4K
has_job() { "$BIN/tally" jobs --json --scheduler "$SCHEDULER" | grep -q '"attached": 1'; }
wait_until 20 'a job waits for its second rank' has_job
offers "tally jobs --scheduler $SCHEDULER --job " "$(printf %q "$name")"
[ ! -e "$TMP/ran" ] || fail "the name of a job was run"
say 'bash completes verbs, options, servers and jobs of the cluster in the line'

if command -v zsh > /dev/null; then
	cat > "$TMP/ask.zsh" <<-'END'
		zmodload zsh/zpty
		zpty z zsh -f -i
		zpty -w z "PS1=; unsetopt zle_bracketed_paste; fpath=($1 \$fpath)"
		zpty -w z 'autoload -Uz compinit; compinit -D -u; print RE''ADY'
		zpty -r z line '*READY*'
		zpty -w -n z "$2"$'\t'
		zpty -r z line "*$3*" && print offered
	END
	zsh_offers()
	{
		PATH=$BIN:$PATH TERM=dumb timeout $(( 30 * ${PATIENCE:-1} )) \
			zsh -f "$TMP/ask.zsh" "$MANUAL/zsh" "$1" "$2" > "$TMP/zsh" 2>&1
		grep -q offered "$TMP/zsh" || {
			cat "$TMP/zsh"
			fail "for '$1' zsh does not offer $2"
		}
	}
	zsh_offers 'tally dra' 'drain'
	zsh_offers 'tally-agent --topo' '--topology'
	zsh_offers "tally drain --scheduler $SCHEDULER al" 'alpha'
	say 'so does zsh'
fi
