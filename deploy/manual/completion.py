# SPDX-License-Identifier: Apache-2.0
"""Completion for bash and zsh from the options of all programs.

Names of nodes and jobs are asked of the cluster as the line to be completed says
(--scheduler, --secret-file), within a second, by `tally ... --json`.
"""
import re

FILES = ("FILE", "PATH", "DIR")
# what an argument of that name is, of that verb: which command lists it, and what of it
LIVE = {("--job", "NAME"): "jobs"}
OPERANDS = {"drain": "servers"}

NAMES = r"""
# _tally_names jobs|servers|nodes: their names in the cluster that the line is about.
_tally_names()
{
	local what=$1 kind=.
	local -a where

	shift
	[ "$what" != servers ] || { what=nodes; kind=server; }
	while [ $# -gt 0 ]; do
		case $1 in
		--scheduler=*|--secret-file=*) where+=("$1") ;;
		--scheduler|--secret-file) [ -z "${2:-}" ] || where+=("$1=$2") ;;
		esac
		shift
	done
	command tally "$what" --json --timeout 1 "${where[@]}" 2> /dev/null | awk -v kind="$kind" '
		$1 == "\"kind\":" { here = $2 }
		match($0, /^ *"name": "/) && (kind == "." || here ~ kind) {
			name = substr($0, RLENGTH + 1)
			sub(/",?$/, "", name)
			if (name !~ /[\\" ]/) print name
		}'
}
"""


def values(option):
    """What stands for an option's value: ("words", [...]), ("files",), ("live", what), or None."""
    live = next((LIVE[f, option.arg] for f in option.flags if (f, option.arg) in LIVE), None)
    if live:
        return "live", live
    if option.choices():
        return "words", option.choices()
    return ("files",) if option.arg in FILES else ("text",) if option.arg else None


# ---- bash ------------------------------------------------------------------------

BASH_TAIL = r"""

# _tally_live jobs|servers|nodes: names that the cluster has now.  They come from others: they are
# compared and quoted here, because compgen -W would run what is in a $( ).
_tally_live()
{
	local cur=$2 name
	local -a words

	read -ra words <<< "$COMP_LINE"
	while read -r name; do
		[ "${name#"$cur"}" = "$name" ] && [ -n "$cur" ] ||
			COMPREPLY+=("$(printf %q "$name")")
	done < <(_tally_names "$1" "${words[@]}")
}

# _tally_line WHAT: completes the word at the cursor for the program or verb WHAT.
_tally_line()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

	COMPREPLY=()
	# Bash parts --name=value in three words.
	if [ "$cur" = = ]; then cur=; fi
	if [ "$prev" = = ]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi
	_tally_values "$1" "$prev" && return
	case $cur in
	-*) COMPREPLY=($(compgen -W "$(_tally_options "$1")" -- "$cur")) ;;
	*) _tally_operands "$1" ;;
	esac
}

_tally()
{
	local verb=${COMP_WORDS[1]:-}

	if [ "$COMP_CWORD" = 1 ] || { [ "$COMP_CWORD" = 2 ] && [ "$verb" = help ]; }; then
		COMPREPLY=($(compgen -W "$_TALLY_VERBS help --version" -- \
			"${COMP_WORDS[COMP_CWORD]}"))
	else
		_tally_line "tally $verb"
	fi
}
_tally_daemon() { _tally_line "${COMP_WORDS[0]##*/}"; }
complete -F _tally tally
complete -F _tally_daemon tally-scheduler tally-server tally-agent
"""


def bash_reply(kind):
    if kind[0] == "files":
        return 'compopt -o filenames 2> /dev/null; COMPREPLY=($(compgen -f -- "$cur"))'
    if kind[0] == "words":
        return f'COMPREPLY=($(compgen -W "{" ".join(kind[1])}" -- "$cur"))'
    if kind[0] == "live":
        return f'_tally_live {kind[1]} "$cur"'
    return ":"


def bash(programs, verbs):
    """programs: [(name, Help)], verbs' names are "tally VERB"."""
    out = ["# SPDX-License-Identifier: Apache-2.0", "# bash completion for Tally", NAMES,
           f'_TALLY_VERBS="{" ".join(verbs)}"', "",
           "_tally_options()", "{", "\tcase $1 in"]
    for name, h in programs:
        flags = " ".join(f for o in h.options for f in o.flags)
        out.append(f"\t'{name}') echo '{flags}' ;;")
    out += ["\tesac", "}", "",
            "# _tally_values WHAT OPTION: whether OPTION has a value; what it may be.",
            "_tally_values()", "{", "\tcase $1:$2 in"]
    replies = {}
    for name, h in programs:
        for o in h.options:
            if o.arg:
                replies.setdefault(bash_reply(values(o)), []).extend(
                    f"'{name}:{f}'" for f in o.flags)
    for reply, where in replies.items():
        out.append("\t" + " | \\\n\t\t".join(where) + f") {reply} ;;")
    out += ["\t*) return 1 ;;", "\tesac", "}", "", "_tally_operands()", "{", "\tcase $1 in"]
    for verb, what in OPERANDS.items():
        out.append(f"\t'tally {verb}') {bash_reply(('live', what))} ;;")
    out += [f"\t'tally local') {bash_reply(('files',))} ;;", "\t*) ;;", "\tesac", "}"]
    return "\n".join(out) + BASH_TAIL


# ---- zsh -------------------------------------------------------------------------

def zsh_quote(text):
    return text.replace("'", "'\\''")


def zsh_action(kind):
    if kind[0] == "files":
        return "_files"
    if kind[0] == "words":
        return "(" + " ".join(kind[1]) + ")"
    # the blank: called as it stands here, without what _arguments says to compadd
    return f" _tally_live {kind[1]}" if kind[0] == "live" else " "


def zsh_option(option):
    text = re.sub(r" \(default.*", "", option.text).split("; ")[0]
    text = re.sub(r"([\[\]:\\])", r"\\\1", text)
    flags, arg = option.flags, ""
    if option.arg:
        name = re.sub(r"[\[\]:@.]+", " ", option.arg).strip().lower()
        arg = f":{name}:{zsh_action(values(option))}"
    # one that may be given again is not taken off the list
    star = "*" if "repeat" in option.text else ""
    ends = "=" if option.arg else ""
    return [f"'{star}{f}{ends if f.startswith('--') else ''}[{zsh_quote(text)}]{zsh_quote(arg)}'"
            for f in flags]


ZSH_TAIL = r"""
# _tally_live WHAT: names that the cluster has now.
_tally_live()
{
	local -a names
	names=(${(f)"$(_tally_names $1 $words)"})
	compadd -a names
}

_tally_verb()
{
	local -a verbs
	verbs=(${(f)_tally_verbs})
	_describe verb verbs
}

_tally()
{
	local state verb
	if [[ $service != tally ]]; then
		_tally_arguments $service
		return
	fi
	_arguments -C '1:verb:_tally_verb' '*::argument:->rest' && return
	[[ $state = rest ]] || return
	verb=$words[1]
	if [[ $verb = help ]]; then _tally_verb; else _tally_arguments "tally $verb"; fi
}

_tally "$@"
"""


def zsh(programs, verbs):
    names = " ".join(n for n, _ in programs if " " not in n)
    out = [f"#compdef tally {names}", "# SPDX-License-Identifier: Apache-2.0", NAMES,
           "_tally_verbs='" + "\n".join(f"{v}:{zsh_quote(t)}" for v, t in verbs.items())
           + "\nhelp:options and examples of a verb'", "",
           "_tally_arguments()", "{", "\tcase $1 in"]
    for name, h in programs:
        rows = [r for o in h.options for r in zsh_option(o)]
        verb = name.removeprefix("tally ")
        if verb in OPERANDS:
            rows.append(f"'1:name: _tally_live {OPERANDS[verb]}'")
        elif verb == "local":
            rows.append("'*::command:_normal'")
        out += [f"\t'{name}') _arguments -S \\", *(f"\t\t{r} \\" for r in rows[:-1]),
                f"\t\t{rows[-1]} ;;"]
    return "\n".join(out + ["\tesac", "}"]) + ZSH_TAIL
