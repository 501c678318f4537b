/*
 * loop.pml - a model of the hand-over in src/loop.c, statement by statement where threads can meet.
 *
 * Callers post a command each, then wait for it, wait with a time-out, test, or leave. A command starts an operation that a
 * packet ends (NETWORK), is done at once (AT_ONCE), is completed by a deferred command (DEFERRED, as destroy is), or ends the
 * operations of all others (ABORTING). Beside them run the background thread and the network.
 *
 * Left out: what the time-outs of sleeps repair. No sleep ends by its time-out here (only waits that have one of their own
 * may), so whatever a sleep of a second would hide shows as a deadlock. What the code does rely on is in the model: without a
 * driver, the background thread takes the slot.
 *
 * Checked: no deadlock (each caller returns; only the background thread may stay asleep), at most one driver, every pass under
 * the lock, no waiter asleep without a driver, and `served`: every command runs and every operation completes.
 *
 * Variants of the context, each must hold:
 * variant: CALLERS=2
 * variant: CALLERS=2 NO_THREAD
 * variant: CALLERS=2 THREAD_ONLY
 *
 * Mutations of the code, each must be found out:
 * mutant: NO_LOOK_BEFORE_SLEEP    the driver goes to sleep without another look at what was posted
 * mutant: LOOK_TOO_EARLY          it looks, but before it says that it sleeps (what a missing fence would allow)
 * mutant: NO_LOOK_AFTER_UNLOCK    whoever gives the lock up does not serve those who found it taken
 * mutant: NO_LOOK_AT_DONE         the driver does not look again whether its own request was completed by a deferred command
 * mutant: NO_WAKE_BY_VISIT        a visitor does not wake the driver for what it left undone
 * mutant: NO_WAKE_BY_WAIT         a waiter does not wake the driver for what its post left undone
 * mutant: NO_WAKE_BY_COMPLETION   the driver is not woken when another thread completes its request
 * mutant: NO_PROMOTION            a leaving driver frees the slot though others wait
 * mutant: TOKEN_LOST              a waiter that is promoted when its time is over does not pass the slot on
 * mutant: NO_RECALL               a caller that takes the slot does not wake the background thread
 * mutant: NO_REST_FOR_DEFERRED    the driver does not sleep, nor give the lock up, while another thread runs callbacks
 */
#ifndef CALLERS
#define CALLERS 2
#endif
#define BACKGROUND CALLERS
#define NOBODY (CALLERS + 1)
#define ALL ((1 << CALLERS) - 1)
#define BIT(i) (1 << (i))
#ifdef NO_THREAD
#define HAS_THREAD false
#else
#define HAS_THREAD true
#endif

mtype = { NETWORK, AT_ONCE, DEFERRED, ABORTING };
mtype kind[CALLERS];

byte lock;       /* its holder + 1 */
byte posted;     /* sets of callers, here and below */
byte in_flight;     /* operations in flight */
byte registered; /* of these, the kernel would wake a sleeper for them */
byte arrived;    /* whose packet is there */
byte deferred;
bool deferring;
byte done;

bool slot;       /* slot_lock */
byte driver = NOBODY;
byte sleeping;   /* waiters in the list */
byte promoted;
byte signalled;  /* waiters whose condition variable was signalled since they began to wait on it */
byte n_sleeping;
byte asleep;     /* drivers in poll() */
bool wake_fd, background_fd, background_signalled;

byte driving;    /* callers in drive() */
byte returned;   /* callers that have nothing more to do */

#define IS_DRIVER_ASLEEP (driver != NOBODY && (asleep & BIT(driver)) != 0)

inline take(me) {
  atomic { lock == 0 -> lock = me + 1 }
}

inline take_slot_lock() {
  atomic { !slot -> slot = true }
}

/* With slot_lock held. */
inline wake_driver() {
  if
  :: IS_DRIVER_ASLEEP && driver == BACKGROUND -> background_fd = true
  :: IS_DRIVER_ASLEEP && driver != BACKGROUND -> wake_fd = true
  :: else
  fi
}

/* Sections under slot_lock that touch only one thing from outside it are one step. */
inline complete(i) {
  done = done | BIT(i);
  atomic {
    if
    :: n_sleeping == 0
    :: n_sleeping > 0 && !slot ->
      signalled = signalled | BIT(i);
#ifndef NO_WAKE_BY_COMPLETION
      if
      :: driver == i -> wake_driver()
      :: else
      fi
#endif
    fi
  }
}

/* ------------------------------------------------------------------------------------------ a pass --- */

inline run_command(i) {
  if
  :: kind[i] == NETWORK -> d_step { in_flight = in_flight | BIT(i); registered = registered & ~BIT(i) }
  :: kind[i] == AT_ONCE -> complete(i)
  :: kind[i] == DEFERRED -> deferred = deferred | BIT(i)
  :: kind[i] == ABORTING ->
    j = 0;
    do
    :: j < CALLERS && (in_flight & BIT(j)) -> in_flight = in_flight & ~BIT(j); complete(j); j++
    :: j < CALLERS && !(in_flight & BIT(j)) -> j++
    :: j == CALLERS -> break
    od;
    complete(i)
  fi
}

inline run_posted(me) {
  assert(lock == me + 1);
  atomic { todo = posted; posted = 0; k = 0 }
  do
  :: k < CALLERS && (todo & BIT(k)) -> run_command(k); k++; events = true
  :: k < CALLERS && !(todo & BIT(k)) -> k++
  :: k == CALLERS -> break
  od
}

inline pass(me) {
  events = false;
  run_posted(me);
  k = 0;
  do
  :: k < CALLERS && (in_flight & arrived & BIT(k)) -> in_flight = in_flight & ~BIT(k); complete(k); k++; events = true
  :: k < CALLERS && !(in_flight & arrived & BIT(k)) -> k++
  :: k == CALLERS -> break
  od
}

#ifdef NO_REST_FOR_DEFERRED
#define DEFERRED_LEFT (deferred != 0)
#else
#define DEFERRED_LEFT (deferred != 0 && !deferring)
#endif

inline arm(me) {
  d_step {
    assert(lock == me + 1);
    registered = registered | in_flight;
    quiet = !(in_flight & arrived) && !DEFERRED_LEFT
  }
}

inline visit(me, waits) {
  run_posted(me);
  if
  :: waits
  :: else ->
    pass(me);
    arm(me);
    atomic {
      !slot ->
      if
      :: driver == NOBODY && HAS_THREAD && (in_flight || deferred) -> driver = BACKGROUND; background_signalled = true
#ifndef NO_WAKE_BY_VISIT
      :: driver != NOBODY && (events || !quiet) -> wake_driver()
#endif
      :: else
      fi
    }
  fi
}

inline unlock(me) {
  lock = 0;
#ifndef NO_LOOK_AFTER_UNLOCK
  do
  :: posted == 0 -> break
  :: posted != 0 ->
    if
    :: atomic { lock == 0 -> lock = me + 1 }
      visit(me, false);
      lock = 0
    :: lock != 0 -> break
    fi
  od
#endif
}

inline run_deferred(me) {
  if
  :: deferred && !deferring ->
    deferring = true;
    do
    :: deferred == 0 -> break
    :: deferred != 0 ->
      d_step {
        called = 0;
        do
        :: deferred & BIT(called) -> break
        :: else -> called++
        od;
        deferred = deferred & ~BIT(called)
      }
      unlock(me);
      complete(called);
      take(me)
    od;
    deferring = false
  :: else
  fi
}

/* sleep_until() in three parts; poll() itself stands where it is used. */
inline fall_asleep(me) {
#ifdef LOOK_TOO_EARLY
  look = posted == 0;
#endif
  n_sleeping++;
  asleep = asleep | BIT(me);
  lock = 0;
#ifdef NO_LOOK_BEFORE_SLEEP
  look = true;
#endif
#if !defined(LOOK_TOO_EARLY) && !defined(NO_LOOK_BEFORE_SLEEP)
  look = posted == 0;
#endif
#ifndef NO_LOOK_AT_DONE
  look = look && !(done & BIT(me));
#endif
}

#define PACKET_WAKES ((in_flight & registered & arrived) != 0)

inline wake_up(me, fd) {
  asleep = asleep & ~BIT(me);
  n_sleeping--;
  if
  :: rung -> fd = false; rung = false
  :: else
  fi;
  take(me)
}

/* ----------------------------------------------------------------------------------------- the driver --- */

inline hand_over(me) {
  atomic {
    !slot ->
    assert(driver == me);
    driving--;
    if
#ifndef NO_PROMOTION
    :: sleeping & ~done & BIT(0) -> driver = 0
    :: sleeping & ~done & BIT(1) -> driver = 1
#if CALLERS > 2
    :: sleeping & ~done & BIT(2) -> driver = 2
#endif
    :: !(sleeping & ~done) && HAS_THREAD && (in_flight || deferred) -> driver = BACKGROUND; background_signalled = true
    :: !(sleeping & ~done) && !(HAS_THREAD && (in_flight || deferred)) -> driver = NOBODY
#else
    :: HAS_THREAD && (in_flight || deferred) -> driver = BACKGROUND; background_signalled = true
    :: else -> driver = NOBODY
#endif
    fi;
    if
    :: driver < CALLERS -> promoted = promoted | BIT(driver); signalled = signalled | BIT(driver)
    :: else
    fi
  }
}

inline drive(me, may_leave) {
  atomic { driving++; assert(driving == 1) }
  take(me);
  do
  :: done & BIT(me) -> break
  :: else ->
    pass(me);
    more = events;
    run_deferred(me);
    if
    :: may_leave -> break
    :: more
    :: !more ->
      arm(me);
      if
      :: quiet && !(done & BIT(me)) ->
        fall_asleep(me);
        if
        :: look ->
          if
          :: wake_fd -> rung = true
          :: PACKET_WAKES -> rung = wake_fd
          :: may_leave
          fi
        :: else
        fi;
        wake_up(me, wake_fd)
      :: else
      fi
    fi
  od;
  hand_over(me);
  unlock(me)
}

inline wait(me, may_leave) {
  if
  :: done & BIT(me)
  :: else ->
    take_slot_lock();
    if
#ifndef THREAD_ONLY
    :: driver == NOBODY -> atomic { driver = me; slot = false }; mine = true
    :: driver == BACKGROUND ->
#ifndef NO_RECALL
      background_fd = true;
#endif
      atomic { driver = me; slot = false };
      mine = true
#endif
    :: else ->
#ifndef NO_WAKE_BY_WAIT
      wake_driver();
#endif
      sleeping = sleeping | BIT(me);
      n_sleeping++;
      do
      :: promoted & BIT(me) -> break
      :: done & BIT(me) -> break
      :: may_leave -> break
      :: !(promoted & BIT(me)) && !(done & BIT(me)) ->
        atomic { signalled = signalled & ~BIT(me); assert(driver != NOBODY); slot = false }
        if
        :: signalled & BIT(me)
        :: may_leave
        fi;
        take_slot_lock()
      od;
      n_sleeping--;
      atomic {
        sleeping = sleeping & ~BIT(me);
        mine = promoted & BIT(me);
        promoted = promoted & ~BIT(me);
        slot = false
      }
#ifdef TOKEN_LOST
      mine = mine && !may_leave;
#endif
    fi;
    if
    :: mine -> drive(me, may_leave); mine = false
    :: else
    fi
  fi
}

/* gy_loop_progress: one pass, if nobody else drives. */
inline progress(me) {
  take_slot_lock();
  if
  :: driver == NOBODY -> atomic { driver = me; slot = false; driving++; assert(driving == 1) }
    take(me);
    wake_fd = false;
    pass(me);
    run_deferred(me);
    arm(me);
    if
    :: quiet
    :: else -> wake_fd = true
    fi;
    hand_over(me);
    unlock(me)
  :: else -> slot = false
  fi
}

inline post(me, waits) {
  posted = posted | BIT(me);
  if
  :: atomic { lock == 0 -> lock = me + 1 }
    visit(me, waits);
    unlock(me)
  :: lock != 0 ->
    atomic { !slot -> wake_driver() }
  fi
}

#define LOCALS byte k, j, todo, called; bool events, quiet, more, look, rung, mine

proctype caller(byte me) {
  LOCALS;
  if
  :: post(me, true)
  :: post(me, false);
    if
    :: wait(me, true)
    :: progress(me)
#ifndef NO_THREAD
    :: goto leave /* what it posted is served without it */
#endif
    fi
  fi;
  wait(me, false);
  assert(done & BIT(me));
leave:
  atomic { returned++ }
}

proctype background() {
  LOCALS;
  take_slot_lock();
  do
  :: driver == BACKGROUND ->
    slot = false;
    take(BACKGROUND);
    do
    :: true ->
      pass(BACKGROUND);
      run_deferred(BACKGROUND);
      arm(BACKGROUND);
      atomic { !slot -> mine = (driver == BACKGROUND) }
      if
      :: !mine -> break
      :: mine && quiet ->
        fall_asleep(BACKGROUND);
        if
        :: look ->
end_poll:
          if
          :: background_fd -> rung = true
          :: PACKET_WAKES -> rung = background_fd
          fi
        :: else
        fi;
        wake_up(BACKGROUND, background_fd)
      :: mine && !quiet
      fi
    od;
    unlock(BACKGROUND);
    take_slot_lock()
  :: else ->
    atomic { background_signalled = false; slot = false }
end_parked:
    atomic { !slot && (background_signalled || driver == NOBODY) -> slot = true }
    if
    :: driver == NOBODY -> driver = BACKGROUND
    :: else
    fi
  od
}

/* The packet that ends an operation comes, sooner or later. */
proctype network() {
end_network:
  do
  :: in_flight & ~arrived & BIT(0) -> arrived = arrived | BIT(0)
  :: in_flight & ~arrived & BIT(1) -> arrived = arrived | BIT(1)
#if CALLERS > 2
  :: in_flight & ~arrived & BIT(2) -> arrived = arrived | BIT(2)
#endif
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. CALLERS - 1) {
      if
      :: kind[i] = NETWORK
      :: kind[i] = AT_ONCE
      :: kind[i] = DEFERRED
      :: kind[i] = ABORTING
      fi
    }
#ifdef THREAD_ONLY
    driver = BACKGROUND;
#endif
    run network();
#ifndef NO_THREAD
    run background();
#endif
    for (i : 0 .. CALLERS - 1) {
      run caller(i)
    }
  }
}

ltl served { <> (returned == CALLERS && done == ALL) }
