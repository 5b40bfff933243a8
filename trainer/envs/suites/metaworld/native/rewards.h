/* The rewards (version v2) and successes of all tasks, from metaworld 3.1.1 envs/sawyer_*_v3.py.

Every function follows its `compute_reward` and `evaluate_state` operation by operation; names are upstream's. `last` is
the clipped observation, `action` the learner's, unclipped. */

#ifndef ANCHORLEG_REWARDS_H
#define ANCHORLEG_REWARDS_H

#include "fixtures.h"
#include "grasps.h"
#include "pushes.h"
#include "tools.h"

/* In the order of PORTS in ports.py, which begins with 1: 0 is stepped by Python, or idle. */
static struct outcome (*const rewards[])(struct row *, const float *) = {
    NULL,
    /* pushes.h */
    reach, reach, push, push_wall, push_back, soccer, sweep, sweep_into, plate_slide, plate_slide_away,
    plate_slide_away, plate_slide_away, coffee, coffee, hand_insert,
    /* grasps.h */
    pick_place, pick_place_wall, pick_out_of_hole, bin_picking, shelf_place, basketball, peg_insert_side,
    peg_unplug_side,
    /* tools.h */
    hammer, assembly, disassemble, box_close, stick_push, stick_pull,
    /* fixtures.h */
    door_open, door_close, door_lock, door_unlock, lever_pull, drawer_open, drawer_close, window_open, window_close,
    button_press_topdown, button_press_topdown_wall, button_press, button_press_wall, coffee_button, faucet_open,
    faucet_close, handle_press, handle_press, handle_pull, handle_pull_side, dial_turn,
};

#endif
