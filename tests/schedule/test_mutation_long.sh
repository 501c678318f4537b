#!/usr/bin/env bash
# Every mutant that the verifier accepts, many more of them, on the engine.
set -euo pipefail
MUTATION_SEEDS=1000 exec "$1/tests/schedule/test_mutation"
