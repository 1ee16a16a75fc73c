# bash completion for sheaf(1)                                             -*- shell-script -*-
#
# Commands and options come from `sheaf --help` and `sheaf COMMAND --help`, so they are those of the
# installed version. Paths inside come from `sheaf ls`, with the --conf of the line and a time limit: a
# server that is down costs two seconds, not a hanging shell. Needs nothing of bash-completion.

# The words up to the cursor into the array words. Bash cut them at ':' and '=' (COMP_WORDBREAKS); those
# with no space between them belong together.
_sheaf_words()
{
	local i w rest line=${COMP_LINE:0:COMP_POINT}
	words=()
	for ((i = 0; i <= COMP_CWORD; i++)); do
		rest=${line#"${line%%[![:space:]]*}"}
		w=${COMP_WORDS[i]}
		((i == COMP_CWORD)) && w=$rest
		if ((i > 0)) && [[ $rest == "$line" ]]; then
			words[-1]+=$w
		else
			words+=("$w")
		fi
		line=${rest#"$w"}
	done
}

# Asks sheaf with the cluster file of the line; never makes a local: file system that is not there yet.
_sheaf_ask()
{
	local c=${conf:-${SHEAF_CONF-}} dir
	if [[ $c == local:* ]]; then
		dir=${c#local:}
		[[ -e $dir/sheaf.conf ]] || return 1
	fi
	timeout -k 1 2 "$sheaf" ${conf:+--conf "$conf"} "$@" 2>/dev/null </dev/null
}

# Replies with the candidates on standard input that begin with $1; $2 is put before each. Quoted, unless
# the word has an open quotation mark.
_sheaf_reply()
{
	local line text
	while IFS= read -r line; do
		[[ $line == "$1"* ]] || continue
		text=$2$line
		[[ $quote ]] || printf -v text '%q' "$text"
		COMPREPLY+=("$text")
	done
}

# Paths inside that begin with $1, which may begin with "sheaf:".
_sheaf_inside()
{
	local word=${1//\\/} scheme= quote= dir one
	if [[ $word == [\"\']* ]]; then
		quote=${word:0:1} word=${word:1}
	fi
	if [[ $word == sheaf:* ]]; then
		scheme=sheaf: word=${word#sheaf:}
	fi
	compopt -o nospace 2>/dev/null
	if [[ $word != */* ]]; then
		[[ $word ]] || COMPREPLY+=("$scheme/")
		[[ $word ]] && _sheaf_reply "$word" "$scheme" < <(_sheaf_ask ls -a -- /)
	else
		dir=${word%/*}/
		_sheaf_reply "${word##*/}" "$scheme$dir" < <(_sheaf_ask ls -a -- "$dir")
	fi
	((${#COMPREPLY[@]} == 1)) || return 0
	# the only one: a directory goes on with '/', a file ends the word
	one=${COMPREPLY[0]//\\/}
	[[ $one == */ ]] && return 0
	if _sheaf_ask stat -- "${one#sheaf:}" | grep -q 'type: directory'; then
		COMPREPLY[0]+=/
	else
		[[ $quote ]] || COMPREPLY[0]+=" "
	fi
}

_sheaf_host()
{
	compopt -o filenames 2>/dev/null
	local IFS=$'\n'
	COMPREPLY+=($(compgen "$1" -- "${2//\\/}"))
}

# Commands, one a line.
_sheaf_commands()
{
	"$sheaf" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *[^ ].*/\1/p'
}

# Options of $1, one a line, short and long; those with a value as "--name VALUE". A value that may be missing
# ("--name[=VALUE]") is left out: the option is offered as a flag.
_sheaf_options()
{
	"$sheaf" "$1" --help 2>/dev/null | sed -n '
		s/\[=[A-Z]*\]//; t next
		s/\.\.\. / /; t next
		:next
		s/^  \(-[A-Za-z]\), \(--[a-z-]*\)\( [A-Z]*\)\{0,1\}  *.*/\1\3\n\2\3/p; t
		s/^  *\(--[a-z-]*\)\( [A-Z]*\)\{0,1\}  *.*/\1\2/p; t
		s/^  \(-[A-Za-z]\)\( [A-Z]*\)\{0,1\}  *.*/\1\2/p'
}

# What an option's value may be.
_sheaf_value()
{
	case $1 in
	--conf)
		if [[ $2 == local:* ]]; then
			compopt -o nospace 2>/dev/null
			local d
			while IFS= read -r d; do COMPREPLY+=("local:$d/"); done \
				< <(compgen -d -- "${2#local:}")
		else
			_sheaf_host -f "$2"
			[[ local: == "$2"* && $2 ]] && COMPREPLY+=(local:)
		fi
		;;
	*DIR | --dir | --report) _sheaf_host -d "$2" ;;
	*FILE) _sheaf_host -f "$2" ;;
	*SERVER) COMPREPLY+=($(compgen -W "$(_sheaf_ask status | sed -n '2,$s/ .*//p')" -- "$2")) ;;
	OPTIONS) # of a mount: the one behind the last comma; readline sees only what is behind the last '='
		local before=${2%"${2##*,}"}
		[[ $COMP_WORDBREAKS == *=* ]] && before=${before##*=}
		compopt -o nospace 2>/dev/null
		COMPREPLY+=($(compgen -P "$before" -W "ro noatime relatime strictatime nodiratime remount entry= attr=
			memory= writeback log= allow_other allow_root suid dev noexec" -- "${2##*,}"))
		;;
	--by) COMPREPLY+=($(compgen -W "client user job" -- "$2")) ;;
	--sort) COMPREPLY+=($(compgen -W "ops read write" -- "$2")) ;;
	--stripe-unit | --unit) COMPREPLY+=($(compgen -W "64K 256K 1M 4M" -- "$2")) ;;
	esac
}

# The arguments of a command, by what its usage line names.
_sheaf_argument()
{
	local usage
	if [[ $1 == cp ]]; then
		if [[ $2 == sheaf:* ]]; then
			_sheaf_inside "$2"
		else
			_sheaf_host -f "$2"
			if [[ sheaf:/ == "$2"* ]]; then
				compopt +o filenames -o nospace 2>/dev/null
				COMPREPLY+=(sheaf:/)
			fi
		fi
		return
	fi
	if [[ $1 == umount && $2 != [!/]* ]]; then # what is mounted
		local quote=
		_sheaf_reply "${2//\\/}" "" < <(sed -n 's/^\([^ ]* \)\{4\}\([^ ]*\) .* - fuse\.sheaf .*/\2/p' \
			/proc/self/mountinfo | while read -r usage; do printf '%b\n' "$usage"; done)
		return
	fi
	if [[ $1 == add-server && " ${words[*]} " == *" --emptied "* ]]; then # one that there is
		_sheaf_value SERVER "$2"
		return
	fi
	if [[ $1 == ckpt && " ${words[*]} " =~ \ ckpt\ (list|show|rm|verify|keep|now)\  ]]; then # a job
		local quote=
		_sheaf_reply "${2//\\/}" "" < <(_sheaf_ask ls -- /ckpt)
		return
	fi
	usage=$("$sheaf" "$1" --help 2>/dev/null |
		sed -n '1{s/^usage: sheaf [a-z-]*//;s/--[a-z-]* [A-Z]*//g;p;q}')
	usage=${usage# }
	if [[ ${usage%% *} == [a-z]*"|"*[a-z] ]]; then # NAME one of: a|b|c
		usage=${usage%% *}
		COMPREPLY+=($(compgen -W "${usage//|/ }" -- "$2"))
	elif [[ $usage == *PATH* || $usage == *SRC* ]]; then
		_sheaf_inside "$2"
	elif [[ $usage == *DIR* ]]; then
		_sheaf_host -d "$2"
	elif [[ $usage == *FILE* ]]; then
		_sheaf_host -f "$2"
	fi
}

_sheaf()
{
	local words cur prev command= conf= sheaf=$1 i option value known
	COMPREPLY=()
	[[ $sheaf == "~"* ]] && sheaf=${sheaf/#\~/$HOME}
	_sheaf_words
	cur=${words[-1]}
	((${#words[@]} > 1)) && prev=${words[-2]} || prev=
	for ((i = 1; i < ${#words[@]} - 1; i++)); do
		case ${words[i]} in
		--conf) ((++i < ${#words[@]} - 1)) && conf=${words[i]//\\/} ;;
		--conf=*) conf=${words[i]#--conf=} ;;
		-*) ;;
		*) [[ $command ]] || command=${words[i]} ;;
		esac
	done

	if [[ $cur == --*=* ]]; then
		_sheaf_value "${cur%%=*}" "${cur#*=}"
		[[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/${cur%%=*}=}")
	elif [[ $prev == --conf ]]; then
		_sheaf_value --conf "$cur"
	elif [[ ! $command ]]; then
		if [[ $cur == -* ]]; then
			COMPREPLY=($(compgen -W "--conf --help --version" -- "$cur"))
		else
			COMPREPLY=($(compgen -W "$(_sheaf_commands) help" -- "$cur"))
		fi
	elif [[ $command == help ]]; then
		COMPREPLY=($(compgen -W "$(_sheaf_commands)" -- "$cur"))
	else
		known=$(_sheaf_options "$command")
		value=
		while read -r option i; do
			[[ $option == "$prev" && $i ]] && value=$i
		done <<<"$known"
		if [[ $value ]]; then
			_sheaf_value "$prev" "$cur"
			((${#COMPREPLY[@]})) || _sheaf_value "$value" "$cur"
		elif [[ $cur == -* ]]; then
			COMPREPLY=($(compgen -W "$(cut -d' ' -f1 <<<"$known")" -- "$cur"))
		else
			_sheaf_argument "$command" "$cur"
		fi
	fi

	# readline sees only what is behind the last ':' of the word
	if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
		local before=${cur%"${cur##*:}"}
		for i in "${!COMPREPLY[@]}"; do
			COMPREPLY[i]=${COMPREPLY[i]#"$before"}
		done
	fi
} && complete -F _sheaf sheaf
