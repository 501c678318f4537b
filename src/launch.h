/*
 * launch.h - what a launcher put into the environment, checked.
 *
 * Role:   gyre_comm_create_from_env is in launch.c; here is what else must know its rules.
 * Thread: any.
 */
#ifndef GY_LAUNCH_H
#define GY_LAUNCH_H

#include "settings.h"

/* ARG if a rank and a world size are given that contradict each other. */
gyre_status gy_launch_check(const struct gy_settings *s);

#endif
