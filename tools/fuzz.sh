#!/bin/sh
# Runs every libFuzzer target of a build for some seconds, from its seed corpus.
#   tools/fuzz.sh BUILD SECONDS
# What is found new goes to BUILD/corpus/, crashes to BUILD/crashes/; the tree is not touched.
set -eu
build=$1
seconds=$2
failed=0
for exe in "$build"/tests/fuzz_*; do
	[ -x "$exe" ] || continue
	name=$(basename "$exe")
	target=${name#fuzz_}
	mkdir -p "$build/corpus/$target" "$build/crashes"
	seeds=
	[ -d "tests/fuzz/corpus/$target" ] && seeds="tests/fuzz/corpus/$target"
	echo "== $name for $seconds s"
	if "$exe" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix="$build/crashes/$target-" "$build/corpus/$target" $seeds \
		>"$build/$name.log" 2>&1; then
		grep -E 'number_of_executed_units|DONE' "$build/$name.log" || true
	else
		tail -n 40 "$build/$name.log"
		echo "== $name failed; its input is in $build/crashes/"
		failed=1
	fi
done
exit $failed
