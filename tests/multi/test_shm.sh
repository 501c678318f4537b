#!/usr/bin/env bash
# test_shm.sh BUILD_DIR SOURCE_DIR - every collective, algorithm, type and operator over shared memory.
GYRE_TRANSPORTS=shm exec "$1/tests/multi/test_collectives"
