#!/usr/bin/env bash
# Ten thousand rounds of opening and closing.
set -euo pipefail
CONFORMANCE_WHOLE=1 CONFORMANCE_ROUNDS=10000 exec "$1/tests/transport/test_tcp"
