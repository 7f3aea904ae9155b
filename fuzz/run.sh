#!/bin/sh
# Runs every fuzz target for SECONDS each (default 60), one after the other; TARGETS names fewer.
# Ends with an error at the first finding, which lies in fuzz/artifacts/ and replays with
#   fuzz/target/fuzz/<host>/release/<target> <file>
# What is learnt goes to fuzz/target/corpus; add to fuzz/corpus, by hand, what is worth a test.
#
# Only stable Rust is needed: coverage is an LLVM pass, and libFuzzer comes with libfuzzer-sys.
# There is no address sanitizer, for there is no unsafe code to watch.
set -eu

seconds=${1:-60}
case $seconds in
'' | *[!0-9]*) echo "usage: fuzz/run.sh [SECONDS]: $seconds is not a number of seconds" >&2; exit 2 ;;
esac
cd "$(dirname "$0")"

# Counters, comparisons and call edges: what cargo-fuzz asks for.
export RUSTFLAGS="--cfg fuzzing -C passes=sancov-module \
 -C llvm-args=-sanitizer-coverage-level=4 \
 -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
 -C llvm-args=-sanitizer-coverage-pc-table \
 -C llvm-args=-sanitizer-coverage-trace-compares \
 -C codegen-units=1"
# A target is named, so that build scripts and macros are built without counters.
host=$(rustc -vV | sed -n 's/^host: //p')
CARGO_TARGET_DIR=target/fuzz cargo build --release --locked --target "$host"

for target in ${TARGETS:-request response chunked round_trip request_as_hyper response_as_hyper cookie room_cookie mmdb rules template egress cdp}; do
    corpus=$(echo "$target" | sed 's/_as_hyper//; s/round_trip/chunked/')
    dict=http1.dict
    if [ "$target" = rules ]; then dict=rules.dict; fi
    if [ "$target" = egress ]; then dict=egress.dict; fi
    if [ "$target" = cdp ]; then dict=cdp.dict; fi
    if [ "$target" = template ]; then dict=template.dict; fi
    mkdir -p "target/corpus/$target" "artifacts/$target"
    echo "fuzz $target for ${seconds}s"
    "target/fuzz/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -dict=$dict -max_len=4096 -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="artifacts/$target/" "target/corpus/$target" "corpus/$corpus"
done
