#!/usr/bin/env bash
# The whole conformance suite under each fault that does no harm, with more byte counts and seeds than the quick one.
set -euo pipefail
CONFORMANCE_WHOLE=1 exec "$1/tests/transport/test_fault"
