#!/usr/bin/env bash
# test_campaign_long.sh BUILD_DIR SOURCE_DIR - the whole fault campaign: fifty faults of every kind.
BUILD_DIR=$1 exec "$2/tests/fault/campaign"
