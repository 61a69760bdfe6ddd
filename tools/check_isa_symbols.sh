#!/usr/bin/env bash
# check_isa_symbols.sh OBJECT SYMBOL: fails unless SYMBOL is the only one that OBJECT defines for
# others (a weak or extra global could replace baseline code by code for a newer machine).
set -euo pipefail
found=$(nm --extern-only --defined-only "$1" | awk '{print $NF}')
if [ "$found" != "$2" ]; then
  echo "$1 must define exactly one global symbol, $2; it defines:" >&2
  echo "$found" | head -20 >&2
  exit 1
fi
